// The declaration of quantized_matmul, and its reference kernel.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/quantized_matmul.h>

#include <string>

namespace coracle::quantized_matmul_op {

// --- shape rule ---

// Whether there is one element, one for each row, or one for each row of every matrix of X.
bool IsPerRow(const Shape& shape, const Shape& x, const Matrices& a) {
  if (InferContext::Matches(NumelOf(shape), 1)) return true;
  if (shape.rank() == 1) return InferContext::Matches(shape[0], a.rows);
  if (x.rank() < 2) return false;
  Shape rows = a.batch;
  rows.Append(a.rows);
  rows.Append(1);
  return shape.CompatibleWith(rows);
}

bool IsPerColumn(const Shape& shape, int64_t columns) {
  if (InferContext::Matches(NumelOf(shape), 1)) return true;
  const int rank = shape.rank();
  return (rank == 1 || (rank == 2 && InferContext::Matches(shape[0], 1))) &&
         InferContext::Matches(shape[rank - 1], columns);
}

void CheckX(const InferContext& ctx, const Matrices& a) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C4", IsByte(x.dtype), "X", x);
  if (ctx.HasInput("XScale")) {
    const VarMeta& scale = ctx.Input("XScale");
    ctx.Require("C4", scale.dtype == DType::kFloat32 && IsPerRow(scale.shape, x.shape, a), "XScale",
                scale, "X", x);
  }
  if (ctx.HasInput("XZeroPoint")) {
    const VarMeta& zero = ctx.Input("XZeroPoint");
    ctx.Require("C4", zero.dtype == x.dtype && IsPerRow(zero.shape, x.shape, a), "XZeroPoint", zero,
                "X", x);
  }
}

void CheckY(const InferContext& ctx, int64_t columns) {
  const VarMeta& y = ctx.Input("Y");
  ctx.Require("C5", IsByte(y.dtype), "Y", y);
  if (ctx.HasInput("YScale")) {
    const VarMeta& scale = ctx.Input("YScale");
    ctx.Require("C5", scale.dtype == DType::kFloat32 && IsPerColumn(scale.shape, columns), "YScale",
                scale, "Y", y);
  }
  if (ctx.HasInput("YZeroPoint")) {
    const VarMeta& zero = ctx.Input("YZeroPoint");
    ctx.Require("C5", zero.dtype == y.dtype && IsPerColumn(zero.shape, columns), "YZeroPoint", zero,
                "Y", y);
  }
}

// The dtype of Out. int32 is the sums, without scales.
DType CheckOut(const InferContext& ctx) {
  const auto dtype = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  if (dtype != DType::kInt32) {
    for (const char* slot : {"XScale", "YScale"})
      ctx.Require("C7", ctx.HasInput(slot), slot, "absent", "Out", dtype);
    return RequireOutQuantization(ctx, "C6");
  }
  for (const char* slot : {"XScale", "YScale", "Residual", "OutScale", "OutZeroPoint"})
    ctx.Require("C7", !ctx.HasInput(slot), slot, "given", "Out", dtype);
  const auto activation = ctx.Attr<std::string>("fuse_activation");
  ctx.Require("C7", activation.empty(), "fuse_activation", activation);
  return dtype;
}

void CheckAdded(const InferContext& ctx, int64_t columns, const VarMeta& out) {
  if (ctx.HasInput("Bias")) {
    const VarMeta& bias = ctx.Input("Bias");
    const bool typed = bias.dtype == DType::kInt32 ||
                       (bias.dtype == DType::kFloat32 && out.dtype != DType::kInt32);
    const int rank = bias.shape.rank();
    const bool row = rank == 1 || (rank == 2 && InferContext::Matches(bias.shape[0], 1));
    ctx.Require("C8", typed && row && InferContext::Matches(bias.shape[rank - 1], columns), "Bias",
                bias, "columns", columns, "Out", out.dtype);
  }
  const bool given = ctx.HasInput("Residual");
  if (!given || ctx.InputDType("Residual") == DType::kFloat32) {
    for (const char* slot : {"ResidualScale", "ResidualZeroPoint"})
      ctx.Require("C9", !ctx.HasInput(slot), slot, "given", "Residual",
                  given ? "float32" : "absent");
    if (!given) return;
  } else {
    ctx.Require("C9", ctx.HasInput("ResidualScale"), "ResidualScale", "absent", "Residual",
                ctx.Input("Residual"));
    RequireQuantized(ctx, "C9", "Residual");
  }
  const VarMeta& residual = ctx.Input("Residual");
  ctx.Require("C9", residual.shape.CompatibleWith(out.shape), "Residual", residual, "Out",
              out.shape);
}

void InferQuantizedMatmul(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() >= 1 && y.rank() >= 1, x.rank(), y.rank());
  const Matrices a = MatricesOf(x, true, ctx.Attr<bool>("trans_x"));
  const Matrices b = MatricesOf(y, false, ctx.Attr<bool>("trans_y"));
  ctx.Require("C2", InferContext::Matches(a.cols, b.rows), a.cols, b.rows);
  VarMeta out = ctx.Input("X");
  out.shape = ProductShape(ctx, "C3", x, y, a, b);
  CheckX(ctx, a);
  CheckY(ctx, b.cols);
  out.dtype = CheckOut(ctx);
  CheckAdded(ctx, b.cols, out);
  ctx.SetOutput("Out", out);
}

// --- the reference kernel ---

struct ByteMatrix {
  const uint8_t* data;
  bool is_signed;
  int64_t row, column;  // steps

  int64_t At(int64_t i, int64_t j) const {
    const uint8_t byte = data[i * row + j * column];
    return is_signed ? static_cast<int8_t>(byte) : byte;
  }
};

class ReferenceProduct {
 public:
  ReferenceProduct(const QuantizedProduct& p, const Workspace& ws)
      : p_(p),
        ws_(ws),
        x_scale_(ws, p.x_scale),
        x_zero_(ws, p.x_zero),
        y_scale_(ws, p.y_scale),
        y_zero_(ws, p.y_zero),
        finish_(p, ws) {}

  // Row i of product `at` of the batch.
  void Row(const QuantizedProduct::Pair& of, int64_t at, int64_t i) const {
    const int64_t m = p_.m, n = p_.n, k = p_.k;
    const ByteMatrix x{ws_.Data<const uint8_t>(p_.x) + of.x * m * k, p_.x.dtype == DType::kInt8,
                       p_.transposed_x ? 1 : k, p_.transposed_x ? m : 1};
    const ByteMatrix y{ws_.Data<const uint8_t>(p_.y) + of.y * k * n, p_.y.dtype == DType::kInt8,
                       p_.transposed_y ? 1 : n, p_.transposed_y ? k : 1};
    const int64_t row = of.x * m + i, x_zero = x_zero_.Zero(i, row);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t y_zero = y_zero_.Zero(j, j);
      int64_t sum = 0;
      for (int64_t r = 0; r < k; ++r) sum += (x.At(i, r) - x_zero) * (y.At(r, j) - y_zero);
      finish_(sum, x_scale_.Scale(i, row) * y_scale_.Scale(j, j), j, (at * m + i) * n + j);
    }
  }

 private:
  const QuantizedProduct& p_;
  const Workspace& ws_;
  RowParameters x_scale_, x_zero_, y_scale_, y_zero_;
  SumFinish finish_;
};

Kernel QuantizedMatmul(const PrepareContext& ctx) {
  return [p = QuantizedProduct(ctx)](Workspace& ws) {
    if (p.out.numel == 0) return;
    const ReferenceProduct product(p, ws);
    ParallelFor(p.batch.numel * p.m, 1 + 32768 / (1 + p.n * p.k), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        product.Row(p.MatricesAt(row / p.m), row / p.m, row % p.m);
    });
  };
}

// --- declaration ---

void DeclareConstraints(OpDef& def) {
  def.Constraint("C1", "X and Y must have rank 1 or more")
      .Constraint("C2", "the columns of X must equal the rows of Y in number (after transposition)")
      .Constraint("C3", "batch dims of X and Y must be equal or 1")
      .Constraint("C4",
                  "X must be int8 or uint8; XScale (float32) and XZeroPoint (X's dtype) must hold "
                  "one element, or one for each row: [M] or [.., M, 1]")
      .Constraint("C5",
                  "Y must be int8 or uint8; YScale (float32) and YZeroPoint (Y's dtype) must hold "
                  "one element, or one for each column: [N]")
      .Constraint("C6", kOutText)
      .Constraint("C7",
                  "XScale and YScale must be given, except for Out of int32: then there must be no "
                  "scales, no Residual and no activation")
      .Constraint("C8",
                  "Bias must be float32 or int32 with an element for each column, and int32 if Out "
                  "is")
      .Constraint("C9",
                  "Residual must have Out's shape; it is float32, or int8 or uint8 with "
                  "ResidualScale and ResidualZeroPoint of one element");
}

void DeclareSlots(OpDef& def) {
  def.Input("X", "int8 or uint8 tensor [.., M, K]")
      .OptionalInput("XScale", "scale of X, float32 [1], [M] or [.., M, 1]")
      .OptionalInput("XZeroPoint", "zero point of X, of its dtype [1], [M] or [.., M, 1]")
      .Input("Y", "int8 or uint8 tensor [.., K, N]")
      .OptionalInput("YScale", "scale of Y, float32 [1] or [N]")
      .OptionalInput("YZeroPoint", "zero point of Y, of its dtype [1] or [N]")
      .OptionalInput("Bias", "[N]: float32, or int32 in units of XScale YScale")
      .OptionalInput("Residual", "tensor of Out's shape that is added before the activation")
      .OptionalInput("ResidualScale", "scale of Residual, float32 [1]")
      .OptionalInput("ResidualZeroPoint", "zero point of Residual, of its dtype [1]")
      .Output("Out", "the product, of the dtype that out_dtype names")
      .Attr<bool>("trans_x", false, "whether to exchange the last two dims of X first")
      .Attr<bool>("trans_y", false, "whether to exchange the last two dims of Y first")
      .Apply(DeclareOutQuantization)
      .Apply(DeclareFusedActivation);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("quantized_matmul")
              .Doc("The product of quantised matrices, in integers: with S = (X - XZeroPoint) (Y - "
                   "YZeroPoint), R = act(XScale YScale S + Bias + Residual). Out is R as float32, "
                   "or round(R / OutScale) + OutZeroPoint, rounded to the nearest integer (ties to "
                   "even) and limited to the range of Out's dtype; a nan gives the least integer. "
                   "An int32 Out is S + Bias, limited to the range of int32. Batch dims broadcast "
                   "and vectors count as in matmul_v2.")
              .Apply(DeclareConstraints)
              .Apply(DeclareSlots)
              .KernelTypeFrom("X")
              .Inplace("Residual", "Out")
              .NotDifferentiable("integers have no gradient")
              .Rows(RowRule::kEach)
              .Tables({"YScale", "YZeroPoint", "Bias", "ResidualScale", "ResidualZeroPoint",
                       "OutScale", "OutZeroPoint"})
              .MultiplyAdds({"X", "Y"},
                            [](const OpShapes& op) {
                              return ProductMultiplyAdds(op, op.Attr<bool>("trans_y"));
                            })
              .Infer(InferQuantizedMatmul)
              .Reference<int8_t, uint8_t>(
                  []<class>(const PrepareContext& ctx) { return QuantizedMatmul(ctx); })
              .Fast(QuantizedMatmulFast));
}

}  // namespace coracle::quantized_matmul_op
