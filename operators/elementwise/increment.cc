#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/operators.h>

namespace coracle::increment_op {

void InferIncrement(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", !x.IsKnown() || x.numel() == 1, x);
  ctx.SetOutput("Out", ctx.Input("X"));
}

template <class T>
Kernel IncrementReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const T step = SaturateTo<T>(static_cast<double>(ctx.Attr<float>("step")));
  return [=](Workspace& ws) { ws.Data<T>(out)[0] = WrapAdd(ws.Data<const T>(x)[0], step); };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("increment")
              .Doc("Out = X + step, of one element; step is first converted to X's dtype.")
              .Constraint("C1", "X must hold one element")
              .Input("X", "tensor of one element")
              .Output("Out", "tensor of X's shape and dtype; usually X itself")
              .Attr<float>("step", 1.0f, "summand")
              .Inplace("X", "Out")
              .Rows(RowRule::kEach)
              .Infer(InferIncrement)
              .Gradient([](GradientContext& g) { g.Set("X", 1.0 * g.Grad("Out")); })
              .Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t>(
                  []<class T>(const PrepareContext& c) { return IncrementReference<T>(c); }));
}

}  // namespace coracle::increment_op
