// sequence_reverse: the rows of each sequence in reverse order.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/operators.h>

namespace coracle::sequence_reverse_op {

Kernel Reverse(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Output("Y");
  const SequencesArg sequences(ctx, "X", "C2");
  const size_t bytes = RowBytes(x.dtype, x.shape);
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const RowCopy copy(ws.Data<const void>(x), ws.Data<void>(y), bytes);
    for (int64_t i = 0; i < s.count(); ++i) {
      for (int64_t k = 0; k < s.length(i); ++k) copy(s.begin(i) + k, s.end(i) - 1 - k, 1);
    }
  };
}

// The gradient may lack X's LoD.
void ReverseGradient(GradientContext& g) {
  const Variable dy = g.Make("lod_reset", {{"X", {g.Grad("Y").name()}}, {"Y", {g.In("X").name()}}});
  g.Set("X", g.Make("sequence_reverse", {{"X", {dy.name()}}}, {}, "Y"));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_reverse")
              .Doc("Y = X with the rows of each sequence in reverse order.")
              .Constraint("C1", "X must have rows")
              .Constraint("C2", "X must have LoD of one level")
              .Input("X", "tensor with LoD, of any dtype")
              .Output("Y", "tensor of X's type, with its LoD")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                ctx.Require("C1", ctx.InputShape("X").rank() >= 1, ctx.Input("X"));
                ctx.SetOutput("Y", ctx.Input("X"));
              })
              .Gradient(ReverseGradient)
              .Reference(Reverse));
}

}  // namespace coracle::sequence_reverse_op
