// A shared object with an op of its own, for --op_library.

#include <coracle/communication/comm_context.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <algorithm>

namespace coracle {
namespace {

template <class T>
KernelOf<T> Triple(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    for (int64_t i = 0; i < x.numel; ++i) ws.Data<T>(out)[i] = T(3) * ws.Data<const T>(x)[i];
  };
}

// For as many ranks as run the program.
Kernel SumOverRanks(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    std::copy_n(ws.Data<const float>(x), x.numel, ws.Data<float>(out));
    if (!ws.comm()) return;
    float* sum = ws.Data<float>(out);
    ws.comm()->Run({Exchange::Kind::kAllReduce, DType::kFloat32, {x.numel}, sum, sum});
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
  // For ranks: it has the attr ring_id.
  ops.Add(OpDef("my_sum_over_ranks")
              .Doc("Out = the sum of all ranks' X.")
              .Input("X", "a float32 tensor")
              .Output("Out", "tensor of X's shape")
              .Attr<int32_t>("ring_id", 0, "all ranks, whatever the number")
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .SideEffect()
              .NoGradient("an example")
              .Reference(SumOverRanks));
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
