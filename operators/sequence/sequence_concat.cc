// sequence_concat: joins the sequences of several batches pairwise.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>

namespace coracle::sequence_concat_op {

VarMeta ConcatOut(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& x = ctx.Input("X", i);
    ctx.Require("C1", SameRows(x.shape, out.shape) && x.dtype == out.dtype, out, x);
    if (i > 0) out.shape[0] = AddDims(out.shape[0], x.shape[0]);
  }
  return out;
}

// The inputs' sequences.
class Parts {
 public:
  explicit Parts(const PrepareContext& ctx) : same_count_(ctx, "C3") {
    for (size_t i = 0; i < ctx.NumInputs("X"); ++i) parts_.emplace_back(ctx, "X", "C2", 1, i);
  }
  // Calls visit(input, first row, row of Out, rows) for each sequence of each input, in the order
  // of Out, and end(row of Out) at the end of each sequence of Out.
  template <class Visit, class End>
  void ForEach(Workspace& ws, const Visit& visit, const End& end) const {
    std::vector<Sequences> parts;
    for (const SequencesArg& part : parts_) parts.push_back(part(ws));
    const int64_t count = parts[0].count();
    for (const Sequences& part : parts)
      same_count_.Require(part.count() == count, count, part.count());
    int64_t to = 0;
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < parts.size(); ++k) {
        visit(k, parts[k].begin(i), to, parts[k].length(i));
        to += parts[k].length(i);
      }
      end(to);
    }
  }

 private:
  std::vector<SequencesArg> parts_;
  RunConstraint same_count_;
};

Kernel Concat(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X");
  const TensorArg out = ctx.Output("Out");
  const Parts parts(ctx);
  const size_t bytes = RowBytes(out.dtype, out.shape);
  return [=](Workspace& ws) {
    std::vector<uint64_t> offsets{0};
    parts.ForEach(
        ws,
        [&](size_t k, int64_t from, int64_t to, int64_t rows) {
          RowCopy(ws.Data<const void>(xs[k]), ws.Data<void>(out), bytes)(from, to, rows);
        },
        [&](int64_t end) { offsets.push_back(static_cast<uint64_t>(end)); });
    ws.OutputLod(out) = {std::move(offsets)};
  };
}

void InferConcatGrad(InferContext& ctx) {
  RequireOutGrad(ctx, "C4", ConcatOut(ctx));
  ctx.Require("C5", ctx.NumOutputs("X@GRAD") <= ctx.NumInputs("X"), ctx.NumOutputs("X@GRAD"),
              ctx.NumInputs("X"));
  for (size_t i = 0; i < ctx.NumOutputs("X@GRAD"); ++i)
    ctx.SetOutput("X@GRAD", ctx.Input("X", i), i);
}

Kernel ConcatGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD");
  const std::vector<TensorArg> dxs = ctx.Outputs("X@GRAD");
  const Parts parts(ctx);
  const size_t bytes = RowBytes(dout.dtype, dout.shape);
  return [=](Workspace& ws) {
    parts.ForEach(
        ws,
        [&](size_t k, int64_t to, int64_t from, int64_t rows) {
          if (k < dxs.size() && dxs[k])
            RowCopy(ws.Data<const void>(dout), ws.Data<void>(dxs[k]), bytes)(from, to, rows);
        },
        [](int64_t) {});
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_concat")
              .Doc("Sequence i of Out = the concatenation of sequence i of all inputs.")
              .Constraint("C1", "the inputs must have rows of one shape and dtype")
              .Constraint("C2", "every input must have LoD of one level")
              .Constraint("C3", "the inputs must have the same number of sequences")
              .VariadicInput("X", "tensors with LoD, of any dtype")
              .Output("Out", "tensor with LoD")
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ConcatOut(ctx)); })
              .GradientOp({"X"})
              .Reference(Concat));
  ops.Add(
      OpDef("sequence_concat_grad")
          .Doc(
              "Gradient of sequence_concat: X@GRAD[i] = the parts of Out@GRAD that come from X[i].")
          .ConstraintsOf("sequence_concat", {"C1", "C2", "C3"})
          .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
          .Constraint("C5", "there must be at most one X@GRAD for each X")
          .VariadicInput("X", "the values in the forward op; only their shapes and LoD are used")
          .Input("Out@GRAD", "gradient of Out")
          .OptionalVariadicOutput("X@GRAD", "gradients of the inputs")
          .NoGradient("second derivatives of sequence ops are not provided")
          .Infer(InferConcatGrad)
          .Reference(ConcatGrad));
}

}  // namespace coracle::sequence_concat_op
