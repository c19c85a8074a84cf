#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::fake_init_op {

void InferFakeInit(InferContext& ctx) {
  const Shape shape = ToShape(ctx, "C1", ctx.Attr<std::vector<int64_t>>("shape"));
  ctx.Require("C1", shape.IsKnown(), shape);
  const VarMeta* declared = ctx.DeclaredOutput("Out");
  ctx.SetOutput("Out", declared ? declared->dtype : DType::kFloat32, shape);
}

Kernel Zeros(const PrepareContext& ctx) {
  const TensorArg out = ctx.Output("Out");
  const int64_t bytes = out.nbytes();
  return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(out), bytes); };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("fake_init")
          .Doc("Out = zeros. Startup programs use it for parameters that a parameter server keeps.")
          .Constraint("C1", "shape must have no negative dimension and at most 9 of them")
          .Output("Out", "tensor of the dtype that its variable declares, or float32")
          .Attr<std::vector<int64_t>>("shape", "shape of Out")
          .NotDifferentiable("the output is a constant")
          .Rows(RowRule::kEach)
          .Infer(InferFakeInit)
          .Reference(Zeros));
}

}  // namespace coracle::fake_init_op
