#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/matmul/bilinear_gradient.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <string>

namespace coracle {
namespace {

// The two ops differ in the names of their attrs, in alpha, and in what they do with vectors.
struct Version {
  const char *type, *transpose_x, *transpose_y;
  bool has_alpha, turns_vectors;
};
constexpr Version kMatmul = {"matmul", "transpose_X", "transpose_Y", true, true};
constexpr Version kMatmulV2 = {"matmul_v2", "trans_x", "trans_y", false, false};

struct Flags {
  bool x, y;
  float alpha;
  bool turns_vectors;
};
template <class Context>
Flags FlagsOf(const Context& ctx, const Version& v) {
  return {ctx.template Attr<bool>(v.transpose_x), ctx.template Attr<bool>(v.transpose_y),
          v.has_alpha ? ctx.template Attr<float>("alpha") : 1.0f, v.turns_vectors};
}

// An operand as a batch of matrices: rows and columns after the transposition.
struct Matrices {
  Shape batch;
  int64_t rows, cols;
  bool transposed;
};
// A vector is one row (X) or one column (Y); transposed, if that means anything, the other one.
Matrices MatricesOf(const Shape& shape, bool is_x, const Flags& flags) {
  const bool transpose = is_x ? flags.x : flags.y;
  if (shape.rank() == 1) {
    const bool row = is_x != (transpose && flags.turns_vectors);
    return row ? Matrices{{}, 1, shape[0], false} : Matrices{{}, shape[0], 1, false};
  }
  Matrices m{{}, shape[shape.rank() - 2], shape[shape.rank() - 1], transpose};
  for (int i = 0; i < shape.rank() - 2; ++i) m.batch.Append(shape[i]);
  if (transpose) std::swap(m.rows, m.cols);
  return m;
}

// Checks the operands and returns Out's shape.
Shape ProductShape(const InferContext& ctx, const Flags& flags) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.rank() >= 1 && y.rank() >= 1, x.rank(), y.rank());
  const Matrices a = MatricesOf(x, true, flags), b = MatricesOf(y, false, flags);
  ctx.Require("C2", InferContext::Matches(a.cols, b.rows), a.cols, b.rows);
  const int rank = std::max(a.batch.rank(), b.batch.rank());
  auto aligned = AlignShapes(a.batch, b.batch, -1);
  if (!aligned) throw InternalError("matmul: batches do not align");
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int64_t p = aligned->x[i], q = aligned->y[i];
    ctx.Require("C3", p == 1 || q == 1 || InferContext::Matches(p, q), p, q);
    out.Append(p == 1 ? q : q == 1 ? p : std::max(p, q));
  }
  RequireSameDType(ctx, "C4", "X", "Y");
  // Of a vector a dim of 1 is left out.
  if (x.rank() > 1 || a.rows != 1) out.Append(a.rows);
  if (y.rank() > 1 || b.cols != 1) out.Append(b.cols);
  if (out.rank() == 0) out.Append(1);
  return out;
}

// The nest over the batch: steps of X, Y and Out.
struct Product {
  int64_t m, n, k;
  bool tx, ty;
  float alpha;
  int rank;
  int64_t dims[Shape::kMaxRank];
  int64_t x_step[Shape::kMaxRank], y_step[Shape::kMaxRank], out_step[Shape::kMaxRank];
};
Product ProductOf(const Shape& x, const Shape& y, const Flags& flags) {
  const Matrices a = MatricesOf(x, true, flags), b = MatricesOf(y, false, flags);
  Product p{a.rows, b.cols, a.cols, a.transposed, b.transposed, flags.alpha, 0, {}, {}, {}, {}};
  const BroadcastNest nest = MakeBroadcastNest(a.batch, b.batch, -1);
  if (nest.numel == 1) return p;
  // One Y for all X: their rows form one matrix.
  if (nest.rank == 1 && nest.y_repeats() && !a.transposed) {
    p.m *= nest.dims[0];
    return p;
  }
  p.rank = nest.rank;
  int64_t step = 1;
  for (int i = nest.rank - 1; i >= 0; --i) {
    p.dims[i] = nest.dims[i];
    p.x_step[i] = nest.x_step[i];
    p.y_step[i] = nest.y_step[i];
    p.out_step[i] = step;
    step *= nest.dims[i];
  }
  return p;
}

template <class T>
Gemm<T> Batched(const Product& p, const GemmSpec& spec, const int64_t* a, const int64_t* b,
                const int64_t* c, KernelMode mode) {
  GemmBatch batch;
  batch.rank = p.rank;
  std::copy_n(p.dims, p.rank, batch.dims);
  std::copy_n(a, p.rank, batch.a_step);
  std::copy_n(b, p.rank, batch.b_step);
  std::copy_n(c, p.rank, batch.c_step);
  return MakeBatchGemm<T>(spec, batch, mode);
}

template <class T>
Kernel Matmul(const PrepareContext& ctx, const Version& v, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Product p = ProductOf(x.shape, y.shape, FlagsOf(ctx, v));
  const auto gemm = Batched<T>(
      p, {.m = p.m, .n = p.n, .k = p.k, .transpose_a = p.tx, .transpose_b = p.ty, .alpha = p.alpha},
      p.x_step, p.y_step, p.out_step, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out)); };
}

// With A = op(X), B = op(Y), G = dOut:  dA = alpha G B^T,  dB = alpha A^T G; a transposed operand
// gets the transposed product, from exchanged factors.
template <class T>
Kernel MatmulGrad(const PrepareContext& ctx, const Version& v, KernelMode mode) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  const Product p = ProductOf(x.shape, y.shape, FlagsOf(ctx, v));
  GemmSpec sx{.m = p.m, .n = p.k, .k = p.n, .transpose_b = !p.ty, .alpha = p.alpha};
  GemmSpec sy{.m = p.k, .n = p.n, .k = p.m, .transpose_a = !p.tx, .alpha = p.alpha};
  if (p.tx)
    sx = {.m = p.k, .n = p.m, .k = p.n, .transpose_a = p.ty, .transpose_b = true, .alpha = p.alpha};
  if (p.ty)
    sy = {.m = p.n, .n = p.k, .k = p.m, .transpose_a = true, .transpose_b = p.tx, .alpha = p.alpha};
  const int64_t *first_x = p.tx ? p.y_step : p.out_step, *second_x = p.tx ? p.out_step : p.y_step;
  const int64_t *first_y = p.ty ? p.out_step : p.x_step, *second_y = p.ty ? p.x_step : p.out_step;
  const auto to_x = Batched<T>(p, sx, first_x, second_x, p.x_step, mode);
  const auto to_y = Batched<T>(p, sy, first_y, second_y, p.y_step, mode);
  if ((dx && !to_x) || (dy && !to_y)) return {};
  return [=, tx = p.tx, ty = p.ty](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y), *g = ws.Data<const T>(dout);
    if (dx && dx.numel > 0) to_x(tx ? b : g, tx ? g : b, ws.Data<T>(dx));
    if (dy && dy.numel > 0) to_y(ty ? g : a, ty ? a : g, ws.Data<T>(dy));
  };
}

void InferMatmulGrad(InferContext& ctx, const Version& v) {
  const Shape out = ProductShape(ctx, FlagsOf(ctx, v));
  ctx.Require("C5", out.CompatibleWith(ctx.InputShape("Out@GRAD")), ctx.InputShape("Out@GRAD"),
              out);
  RequireSameDType(ctx, "C4", "Out@GRAD", "X");
  ctx.SetOutput("X@GRAD", ctx.Input("X"));
  ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
}

AttrList AttrsOf(const GradientContext& g, const Version& v) {
  const Flags flags = FlagsOf(g, v);
  AttrList attrs = {{v.transpose_x, flags.x}, {v.transpose_y, flags.y}};
  if (v.has_alpha) attrs.push_back({"alpha", flags.alpha});
  return attrs;
}

void MatmulGradient(GradientContext& g, const Version& v) {
  g.Append(std::string(v.type) + "_grad",
           {{"X", {g.Input("X")}}, {"Y", {g.Input("Y")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}, {"Y@GRAD", {g.InputGrad("Y")}}}, AttrsOf(g, v));
}

void MatmulGradGradient(GradientContext& g, const Version& v) {
  SetBilinearGradGradient(g, v.type, AttrsOf(g, v));
}

std::string RulesOf(const Version& v) {
  return std::string(
             "Dims before the last two are a batch and broadcast. A vector X is one row, a vector "
             "Y one column, and that dim is left out of Out; two vectors give [1]. ") +
         (v.turns_vectors ? "Transposed, a vector X is one column and a vector Y one row, whose "
                            "size is a dim of Out unless it is 1."
                          : "Transposition has no effect on a vector.");
}

void DeclareProduct(OpDef& def) {
  def.Constraint("C1", "X and Y must have rank 1 or more")
      .Constraint("C2", "the columns of X must be as many as the rows of Y (after transposition)")
      .Constraint("C3", "batch dims of X and Y must be equal or 1");
}

void DeclareAttrs(OpDef& def, const Version& v) {
  def.Attr<bool>(v.transpose_x, false, "whether the last two dims of X are exchanged first")
      .Attr<bool>(v.transpose_y, false, "whether the last two dims of Y are exchanged first");
  if (!v.has_alpha) return;
  def.Attr<float>("alpha", 1.0f, "factor of the product")
      .Attr<int32_t>("head_number", 1, "heads that the columns are split into; only 1 is supported")
      .Range(1, 1);
}

template <class K>
void DeclareKernels(OpDef& def, K kernel) {
  def.Reference<float, double>([kernel]<class T>(const PrepareContext& c) {
       return kernel.template operator()<T>(c, KernelMode::kReference);
     })
      .Fast([kernel](const PrepareContext& c) {
        const DType dtype = c.Input("X").dtype;
        if (dtype == DType::kFloat32)
          return kernel.template operator()<float>(c, KernelMode::kAuto);
        if (dtype == DType::kBFloat16)
          return kernel.template operator()<bfloat16>(c, KernelMode::kAuto);
        return Kernel();
      });
}

void AddVersion(OpRegistry& ops, const Version& v) {
  OpDef forward(v.type);
  forward.Doc(std::string("Out = ") + (v.has_alpha ? "alpha X Y. " : "X Y. ") + RulesOf(v))
      .Apply(DeclareProduct)
      .Constraint("C4", "X and Y must have one dtype")
      .Input("X", "floating-point tensor")
      .Input("Y", "floating-point tensor")
      .Output("Out", "the product")
      .Infer([v](InferContext& ctx) {
        const Shape out = ProductShape(ctx, FlagsOf(ctx, v));
        VarMeta meta = ctx.Input("X");
        meta.shape = out;
        ctx.SetOutput("Out", meta);
      })
      .Gradient([v](GradientContext& g) { MatmulGradient(g, v); })
      .ComputesIn(OpPrecision::kLow);
  DeclareAttrs(forward, v);
  DeclareKernels(forward, [v]<class T>(const PrepareContext& c, KernelMode mode) {
    return Matmul<T>(c, v, mode);
  });
  ops.Add(std::move(forward));
  OpDef grad(std::string(v.type) + "_grad");
  grad.Doc(std::string("Gradient of ") + v.type +
           ": with A and B the transposed operands, A@GRAD = Out@GRAD B^T and B@GRAD = A^T "
           "Out@GRAD, summed over the batch dims along which the operand was repeated. " +
           RulesOf(v))
      .Apply(DeclareProduct)
      .Constraint("C4", "all inputs must have one dtype")
      .Constraint("C5", "Out@GRAD must have the shape of the product")
      .Input("X", "the forward op's")
      .Input("Y", "the forward op's")
      .Input("Out@GRAD", "gradient of Out")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Y@GRAD", "gradient of Y")
      .Infer([v](InferContext& ctx) { InferMatmulGrad(ctx, v); })
      .Gradient([v](GradientContext& g) { MatmulGradGradient(g, v); });
  DeclareAttrs(grad, v);
  DeclareKernels(grad, [v]<class T>(const PrepareContext& c, KernelMode mode) {
    return MatmulGrad<T>(c, v, mode);
  });
  ops.Add(std::move(grad));
}

}  // namespace

void RegisterMatmul(OpRegistry& ops) {
  AddVersion(ops, kMatmul);
  AddVersion(ops, kMatmulV2);
}

}  // namespace coracle
