// crf_decoding: the best tagging under a linear-chain conditional random field (Viterbi).

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/sequence/crf.h>
#include <coracle/operators/sequence/parts.h>
#include <coracle/operators/sequence/viterbi_step.h>

#include <algorithm>

namespace coracle::crf_decoding_op {

void InferDecoding(InferContext& ctx) {
  const Shape steps = RequireCrf(ctx);
  CountSequences(ctx, "C3", "Emission", "Length");
  const int rank = steps.rank();
  if (ctx.HasInput("Label")) {
    const VarMeta& label = ctx.Input("Label");
    const Shape& shape = label.shape;
    bool fits = IsIndexType(label.dtype) &&
                (shape.rank() == rank ||
                 (shape.rank() == rank + 1 && InferContext::Matches(shape[rank], 1)));
    for (int i = 0; fits && i < rank; ++i) fits = InferContext::Matches(shape[i], steps[i]);
    ctx.Require("C4", fits, "Label", label, "Emission", ctx.Input("Emission"));
  }
  VarMeta path{VarType::kLoDTensor, DType::kInt64, steps, ctx.Input("Emission").lod_level};
  if (rank == 1) path.shape.Append(1);
  ctx.SetOutput("ViterbiPath", path);
}

constexpr char kDecoding[] = "decoding a CRF";

template <class T>
KernelOf<T> Decode(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Emission"), transition = ctx.Input("Transition");
  const TensorArg label = ctx.Input("Label"), path = ctx.Output("ViterbiPath");
  const SequenceBatch batch(ctx, "Emission", "Length", "C3");
  const int64_t tags = transition.shape[1];
  const int64_t often = StepsPerCheck(tags * tags);
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    const BatchRows s = batch(ws);
    const T *in = ws.Data<const T>(x), *start = ws.Data<const T>(transition);
    const T *stop = start + tags, *inner = stop + tags;
    auto* out = ws.Data<int64_t>(path);
    std::fill_n(out, path.numel, int64_t{0});
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    const int64_t most = CheckedMul(s.longest(), tags);
    const int64_t parts = PartsOf(s.count(), static_cast<double>(most) * static_cast<double>(tags) /
                                                 8 * static_cast<double>(s.count()));
    T* scores = scratch.Write(0, x.dtype, {parts, 2, tags}).template data<T>();
    auto* choices = scratch.Write(1, DType::kInt32, {parts, most}).template data<int32_t>();
    ForEachItem(s.count(), parts, [&](int64_t i, int64_t part) {
      const int64_t begin = s.begin(i), steps = s.length(i);
      if (steps == 0) return;
      CheckTimeLimit(kDecoding);
      const T* row = in + begin * tags;
      T *best = scores + part * 2 * tags, *next = best + tags;
      int32_t* from = choices + part * most;
      for (int64_t j = 0; j < tags; ++j) best[j] = start[j] + row[j];
      for (int64_t t = 1; t < steps; ++t, std::swap(best, next)) {
        if (t % often == 0) CheckTimeLimit(kDecoding);
        ViterbiStep(row + t * tags, inner, tags, best, next, from + t * tags);
      }
      for (int64_t j = 0; j < tags; ++j) best[j] += stop[j];
      int64_t tag = std::max_element(best, best + tags) - best;
      for (int64_t t = steps - 1; t >= 0; --t) {
        out[begin + t] = tag;
        if (t > 0) tag = from[t * tags + tag];
      }
      if (!label) return;
      const IndexReader given(ws, label);
      for (int64_t t = begin; t < begin + steps; ++t) out[t] = out[t] == given[t];
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("crf_decoding")
              .Doc("ViterbiPath = the tags with the highest score (see linear_chain_crf) of each "
                   "sequence; among equal scores the lower tag wins; 0 in padding. With Label: 1 "
                   "where the tag equals the label, else 0.")
              .Apply(DeclareCrfConstraints)
              .Constraint("C3", kBatchText)
              .Constraint("C4", "Label must hold an int32 or int64 tag for each step")
              .Apply(DeclareCrf)
              .OptionalInput("Label",
                             "int32 or int64 tensor [steps, 1], or [batch, time]: the true tags")
              .OptionalInput("Length", "int32 or int64 tensor [batch]: steps of each sequence")
              .Output("ViterbiPath",
                      "int64 tensor [steps, 1] with Emission's LoD, or [batch, "
                      "time]")
              .NotDifferentiable("a choice has no derivative")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferDecoding)
              .Reference(Decode<float>, Decode<double>));
}

}  // namespace coracle::crf_decoding_op
