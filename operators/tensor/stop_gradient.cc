#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>

namespace coracle::stop_gradient_op {

void InferIdentity(InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); }

Kernel Identity(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t bytes = x.nbytes();
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes); };
}

OpDef Declare(const char* type, const char* doc) {
  return OpDef(type)
      .Doc(doc)
      .Input("X", "tensor of any dtype")
      .Output("Out", "a copy of X")
      .Inplace("X", "Out")
      .Alias("X", "Out")
      .Rows(RowRule::kMoves)
      .Infer(InferIdentity)
      .Reference(Identity);
}

void Register(OpRegistry& ops) {
  ops.Add(Declare("stop_gradient", "Out = X, a constant for backward: no gradient flows into X.")
              .NotDifferentiable("its purpose is to stop gradients"));
  ops.Add(Declare("prevent_gradient",
                  "Out = X. A gradient that would flow into X is an error with the text `message`.")
              .Attr<std::string>("message", "", "why there is no gradient")
              .ForbidGradient("its purpose is to prevent gradients"));
}

}  // namespace coracle::stop_gradient_op
