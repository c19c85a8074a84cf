// sequence_reshape: changes the width of the rows of each sequence.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/rules/rows.h>

namespace coracle::sequence_reshape_op {

VarMeta ReshapeOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() == 2, out);
  const int64_t width = ctx.Attr<int32_t>("new_dim");
  ctx.Require("C3", width > 0, "new_dim", width);
  const int64_t numel = NumelOf(out.shape);
  ctx.Require("C3", numel < 0 || numel % width == 0, "new_dim", width, "X", out);
  out.shape = Shape{numel < 0 ? -1 : numel / width, width};
  return out;
}

Kernel Reshape(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const SequencesArg sequences(ctx, "X", "C2");
  const RunConstraint whole(ctx, "C3");
  const int64_t columns = x.shape[1], width = out.shape[1], bytes = x.nbytes();
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    std::vector<uint64_t> offsets{0};
    for (int64_t i = 0; i < s.count(); ++i) {
      const int64_t numel = CheckedMul(s.length(i), columns);
      whole.Require(numel % width == 0, "new_dim", width, "sequence of", numel);
      offsets.push_back(offsets.back() + static_cast<uint64_t>(numel / width));
    }
    CopyBytes(ws.Data<const void>(x), ws.Data<void>(out), bytes);
    ws.OutputLod(out) = {std::move(offsets)};
  };
}

Kernel ReshapeGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  return [=](Workspace& ws) { CopyBytes(ws.Data<const void>(dout), ws.Data<void>(dx), bytes); };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_reshape")
              .Doc("Out = the elements of X in rows of new_dim; a sequence of n rows of D elements "
                   "gets n D / new_dim rows.")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2", "X must have LoD of one level")
              .Constraint("C3", "new_dim must divide the number of elements of every sequence")
              .Input("X", "tensor [rows, D] with LoD, of any dtype")
              .Output("Out", "tensor [rows * D / new_dim, new_dim] with LoD")
              .Attr<int32_t>("new_dim", "columns of Out")
              .MakesLod()
              .Alias("X", "Out")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ReshapeOut(ctx)); })
              .GradientOp({"X"})
              .Reference(Reshape));
  ops.Add(OpDef("sequence_reshape_grad")
              .Doc("Gradient of sequence_reshape: X@GRAD = Out@GRAD in X's shape.")
              .ConstraintsOf("sequence_reshape", {"C1", "C3"})
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Input("X", "the value in the forward op; only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("sequence_reshape")
              .Alias("Out@GRAD", "X@GRAD")
              .NoGradient("second derivatives of sequence ops are not provided")
              .Infer([](InferContext& ctx) {
                RequireOutGrad(ctx, "C4", ReshapeOut(ctx));
                ctx.SetOutput("X@GRAD", ctx.Input("X"));
              })
              .Reference(ReshapeGrad));
}

}  // namespace coracle::sequence_reshape_op
