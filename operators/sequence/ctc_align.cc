// ctc_align: removes repetitions and blanks from the paths of CTC.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/sequence/sequence_batch.h>

#include <algorithm>

namespace coracle::ctc_align_op {

void InferAlign(InferContext& ctx) {
  const VarMeta& x = ctx.Input("Input");
  const bool padded = ctx.HasInput("InputLength");
  ctx.Require("C1", x.shape.rank() == 2 && (padded || InferContext::Matches(x.shape[1], 1)), x);
  CountSequences(ctx, "C2", "Input", "InputLength");
  if (padded) {
    ctx.SetOutput("Output", x.dtype, x.shape);
    ctx.SetOutput("OutputLength", x.dtype, {x.shape[0], 1});
    return;
  }
  ctx.SetOutput("Output", {VarType::kLoDTensor, x.dtype, {-1, 1}, 1});
  ctx.SetOutput("OutputLength", x.dtype, {-1, 1});
}

// Calls keep(value) for each of n values except blanks and (with merge) repetitions of the
// previous value.
template <class T, class Keep>
void Spell(const T* x, int64_t n, int64_t blank, bool merge, const Keep& keep) {
  for (int64_t t = 0; t < n; ++t) {
    const bool repeated = merge && t > 0 && x[t] == x[t - 1];
    if (x[t] != blank && !repeated) keep(x[t]);
  }
}

template <class T>
KernelOf<T> Align(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Input"), out = ctx.Output("Output");
  const TensorArg lengths = ctx.Output("OutputLength");
  const SequenceBatch batch(ctx, "Input", "InputLength", "C2");
  const int64_t blank = ctx.Attr<int32_t>("blank");
  const bool merge = ctx.Attr<bool>("merge_repeated");
  const auto padding = static_cast<T>(ctx.Attr<int32_t>("padding_value"));
  return [=](Workspace& ws) {
    const BatchRows s = batch(ws);
    const T* in = ws.Data<const T>(x);
    T* counts = nullptr;
    if (lengths) counts = static_cast<T*>(ResizeOutput(ws, lengths, x.dtype, {s.count(), 1}).raw());
    const auto spell = [&](int64_t i, const auto& keep) {
      Spell(in + s.begin(i), s.length(i), blank, merge, keep);
    };
    if (batch.padded()) {
      T* to = static_cast<T*>(ResizeOutput(ws, out, x.dtype, x.shape).raw());
      std::fill_n(to, x.numel, padding);
      for (int64_t i = 0; i < s.count(); ++i) {
        T* end = to + s.begin(i);
        spell(i, [&](T value) { *end++ = value; });
        if (counts) counts[i] = static_cast<T>(end - (to + s.begin(i)));
      }
      return;
    }
    std::vector<uint64_t> offsets{0};
    for (int64_t i = 0; i < s.count(); ++i) {
      uint64_t kept = 0;
      spell(i, [&](T) { ++kept; });
      offsets.push_back(offsets.back() + kept);
      if (counts) counts[i] = static_cast<T>(kept);
    }
    // If no elements are left, the single element -1 belongs to no sequence.
    const auto rows = static_cast<int64_t>(offsets.back());
    Tensor& result = ResizeOutput(ws, out, x.dtype, {std::max<int64_t>(rows, 1), 1});
    T* to = result.data<T>();
    to[0] = T(-1);
    for (int64_t i = 0; i < s.count(); ++i) spell(i, [&](T value) { *to++ = value; });
    result.lod() = {std::move(offsets)};
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("ctc_align")
              .Doc("Output = each sequence of Input without blanks and, with merge_repeated, "
                   "without elements equal to the previous one. Without InputLength, if no "
                   "elements are left, Output is a single -1 of shape [1, 1], which belongs to no "
                   "sequence (as in Paddle's kernel; Paddle's test expects [1]).")
              .Constraint("C1", "Input must be [steps, 1], or [batch, time] with InputLength")
              .Constraint("C2", kBatchText)
              .Input("Input", "int32 or int64 tensor: the class of each frame")
              .OptionalInput("InputLength",
                             "int32 or int64 tensor [batch]: frames of each "
                             "sequence")
              .Output("Output",
                      "tensor [symbols, 1] with LoD, or [batch, time] padded with padding_value")
              .OptionalOutput("OutputLength",
                              "tensor [batch, 1] of Input's dtype: symbols of each "
                              "sequence")
              .Attr<int32_t>("blank", 0, "the class of the blank")
              .Attr<bool>("merge_repeated", true, "keep one of equal neighbours")
              .Attr<int32_t>("padding_value", 0, "padding of the rows of Output")
              .RunTimeShape()
              .NotDifferentiable("works on integers")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferAlign)
              .Reference(Align<int32_t>, Align<int64_t>));
}

}  // namespace coracle::ctc_align_op
