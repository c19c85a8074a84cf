#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/rules/bilinear_gradient.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::mul_op {

struct Columns {
  int x, y;
};

template <class Context>
Columns ColumnsOf(const Context& ctx) {
  return {ctx.template Attr<int32_t>("x_num_col_dims"),
          ctx.template Attr<int32_t>("y_num_col_dims")};
}

VarMeta MulOut(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const Shape& y = ctx.InputShape("Y");
  auto [xc, yc] = ColumnsOf(ctx);
  ctx.Require("C1", xc > 0 && xc < x.rank(), xc, x.rank());
  ctx.Require("C2", yc > 0 && yc < y.rank(), yc, y.rank());
  const int64_t inner_x = ProductOfDims(x, xc, x.rank()), inner_y = ProductOfDims(y, 0, yc);
  ctx.Require("C3", InferContext::Matches(inner_x, inner_y), inner_x, inner_y);
  RequireSameDType(ctx, "C4", "X", "Y");
  Shape out;
  for (int i = 0; i < xc; ++i) out.Append(x[i]);
  for (int i = yc; i < y.rank(); ++i) out.Append(y[i]);
  return {VarType::kLoDTensor, ctx.InputDType("X"), out, 0};
}

void InferMul(InferContext& ctx) { ctx.SetOutput("Out", MulOut(ctx)); }

// Out[m, n] = X[m, k] Y[k, n] on the collapsed matrices.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> Mul(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  auto [xc, yc] = ColumnsOf(ctx);
  const int64_t m = x.shape.Product(0, xc), k = x.shape.Product(xc, x.shape.rank());
  const int64_t n = y.shape.Product(yc, y.shape.rank());
  auto gemm = MakeGemm<T>({.m = m, .n = n, .k = k}, mode);
  if (!gemm) return {};
  return [=](Workspace& ws) { gemm(ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out)); };
}

// dX = dOut Y^T, dY = X^T dOut.
template <class T, KernelMode mode = KernelMode::kReference>
KernelOf<T> MulGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), dy = ctx.Output("Y@GRAD");
  auto [xc, yc] = ColumnsOf(ctx);
  const int64_t m = x.shape.Product(0, xc), k = x.shape.Product(xc, x.shape.rank());
  const int64_t n = y.shape.Product(yc, y.shape.rank());
  const GemmSpec x_spec = {.m = m, .n = k, .k = n, .transpose_b = true};
  const GemmSpec y_spec = {.m = k, .n = n, .k = m, .transpose_a = true};
  if constexpr (std::is_same_v<T, float>) {
    if (mode == KernelMode::kAuto && dx && dy) {
      return [=](Workspace& ws) {
        const float* d = ws.Data<const float>(dout);
        RunGemms({{x_spec, d, ws.Data<const float>(y), ws.Data<float>(dx)},
                  {y_spec, ws.Data<const float>(x), d, ws.Data<float>(dy)}});
      };
    }
  }
  auto to_x = MakeGemm<T>(x_spec, mode), to_y = MakeGemm<T>(y_spec, mode);
  if ((dx && !to_x) || (dy && !to_y)) return {};
  return [=](Workspace& ws) {
    if (dx) to_x(ws.Data<const T>(dout), ws.Data<const T>(y), ws.Data<T>(dx));
    if (dy) to_y(ws.Data<const T>(x), ws.Data<const T>(dout), ws.Data<T>(dy));
  };
}

Kernel MulFast(const PrepareContext& ctx) {
  const DType dtype = ctx.Input("X").dtype;
  if (dtype == DType::kFloat32) return Mul<float, KernelMode::kAuto>(ctx);
  if (dtype == DType::kBFloat16) return Mul<bfloat16, KernelMode::kAuto>(ctx);
  return {};
}
Kernel MulGradFast(const PrepareContext& ctx) {
  const DType dtype = ctx.Input("X").dtype;
  if (dtype == DType::kFloat32) return MulGrad<float, KernelMode::kAuto>(ctx);
  if (dtype == DType::kBFloat16) return MulGrad<bfloat16, KernelMode::kAuto>(ctx);
  return {};
}

void MulGradGradient(GradientContext& g) {
  SetBilinearGradGradient(g, "mul", g.ForwardAttrs({"x_num_col_dims", "y_num_col_dims"}));
}

void DeclareColumns(OpDef& def) {
  def.Attr<int32_t>("x_num_col_dims", 1, "number of leading dims of X that become the rows")
      .Attr<int32_t>("y_num_col_dims", 1, "number of leading dims of Y that become the rows");
}

double MulMultiplyAdds(const OpShapes& op) {
  const Shape *x = op.In("X"), *y = op.In("Y");
  if (!x || !y) return 0;
  const int columns = std::clamp(op.Attr<int32_t>("y_num_col_dims"), 0, y->rank());
  return Elements(*x) * Elements(*y, columns, y->rank());
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("mul")
              .Apply(DeclareColumns)
              .ComputesIn(OpPrecision::kLow)
              .Doc("Out = X Y after collapsing X to [prod(dims before x_num_col_dims), prod(rest)] "
                   "and Y likewise by y_num_col_dims.")
              .Constraint("C1", "x_num_col_dims must lie in (0, rank of X)")
              .Constraint("C2", "y_num_col_dims must lie in (0, rank of Y)")
              .Constraint(
                  "C3", "the trailing dims of X and the leading dims of Y must have equal products")
              .Constraint("C4", "X and Y must have one dtype")
              .Input("X", "floating-point tensor of rank 2 or more")
              .Input("Y", "floating-point tensor of rank 2 or more")
              .Output("Out", "tensor of X's leading and Y's trailing dims")
              .Rows(RowRule::kEach)
              .MultiplyAdds({"X", "Y"}, MulMultiplyAdds)
              .Infer(InferMul)
              .GradientOp({"X", "Y"})
              .Reference(Mul<float>, Mul<double>)
              .Fast(MulFast));
  ops.Add(OpDef("mul_grad")
              .AttrsOf("mul")
              .Doc("Gradient of mul: X@GRAD = Out@GRAD Y^T, Y@GRAD = X^T Out@GRAD on the collapsed "
                   "matrices.")
              .ConstraintsOf("mul", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "mul's X")
              .Input("Y", "mul's Y")
              .Input("Out@GRAD", "gradient of mul's Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("Y@GRAD", "gradient of Y")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C5", MulOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
                ctx.SetOutput("Y@GRAD", ctx.Input("Y"));
              })
              .Gradient(MulGradGradient)
              .Reference(MulGrad<float>, MulGrad<double>)
              .Fast(MulGradFast));
}

}  // namespace coracle::mul_op
