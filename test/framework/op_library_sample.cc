// A shared object with one op, as users write them.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

namespace {

coracle::Kernel Triple(const coracle::PrepareContext& ctx) {
  const auto x = ctx.Input("X");
  const auto out = ctx.Output("Out");
  return [=](coracle::Workspace& ws) {
    auto in = ws.Span<const float>(x);
    auto o = ws.Span<float>(out);
    for (size_t i = 0; i < in.size(); ++i) o[i] = 3 * in[i];
  };
}

}  // namespace

extern "C" void CoracleRegisterOps(coracle::OpRegistry& ops) {
  ops.Add(coracle::OpDef("triple")
              .Doc("Out = 3 X.")
              .Input("X", "float32 tensor")
              .Output("Out", "tensor like X")
              .Infer([](coracle::InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .NoGradient("a sample")
              .Reference(Triple));
}
