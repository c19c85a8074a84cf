#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/same_type.h>

namespace coracle::minus_op {

void InferMinus(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  ctx.Require("C1", x.CompatibleWith(y), x, y);
  RequireSameDType(ctx, "C2", "X", "Y");
  ctx.SetOutput("Out", ctx.Input("X"));
}

template <class T>
KernelOf<T> MinusReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < out.numel; ++i) o[i] = WrapSub(a[i], b[i]);
  };
}

void MinusGradient(GradientContext& g) {
  g.Set("X", 1.0 * g.Grad("Out"));
  g.Set("Y", -g.Grad("Out"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("minus")
              .Doc("Out = X - Y, without broadcasting.")
              .Constraint("C1", "X and Y must have one shape")
              .Constraint("C2", "X and Y must have one dtype")
              .Input("X", "tensor")
              .Input("Y", "tensor of X's shape and dtype")
              .Output("Out", "tensor of X's shape and dtype")
              .Inplace("X", "Out")
              .Elementwise()
              .Infer(InferMinus)
              .Gradient(MinusGradient)
              .Reference(MinusReference<float>, MinusReference<double>, MinusReference<int32_t>,
                         MinusReference<int64_t>));
}

}  // namespace coracle::minus_op
