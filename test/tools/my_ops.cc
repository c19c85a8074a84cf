// A shared object with an op of its own, for --op_library.

#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>

namespace coracle {
namespace {

template <class T>
KernelOf<T> Triple(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    for (int64_t i = 0; i < x.numel; ++i) ws.Data<T>(out)[i] = T(3) * ws.Data<const T>(x)[i];
  };
}

}  // namespace
}  // namespace coracle

extern "C" void CoracleRegisterOps(coracle::OpRegistry& ops) {
  using namespace coracle;
  ops.Add(OpDef("my_triple")
              .Doc("Out = 3 X.")
              .Input("X", "any tensor")
              .Output("Out", "tensor of X's shape")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .NoGradient("an example")
              .Reference(Triple<float>, Triple<double>));
  // With a gradient that is 2 where it should be 3.
  ops.Add(OpDef("my_wrong")
              .Doc("Out = 3 X.")
              .Input("X", "any tensor")
              .Output("Out", "tensor of X's shape")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Gradient([](GradientContext& g) {
                g.Append("scale", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}},
                         {{"scale", 2.0f}});
              })
              .Reference(Triple<float>, Triple<double>));
}
