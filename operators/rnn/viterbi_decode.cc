// viterbi_decode: the best path through a linear chain (the decoder of a CRF).

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>
#include <coracle/operators/sequence/parts.h>
#include <coracle/operators/sequence/viterbi_step.h>

#include <algorithm>

namespace coracle::viterbi_decode_op {

void InferViterbi(InferContext& ctx) {
  const VarMeta &x = ctx.Input("Input"), &transition = ctx.Input("Transition");
  const Shape &length = ctx.InputShape("Length"), &table = transition.shape;
  ctx.Require("C1", x.shape.rank() == 3, x);
  const int64_t tags = x.shape[2];
  ctx.Require("C2",
              table.rank() == 2 && InferContext::Matches(table[0], tags) &&
                  InferContext::Matches(table[1], tags),
              "Transition", table, "tags", tags);
  ctx.Require("C2", transition.dtype == x.dtype, "Transition", transition.dtype, "Input", x.dtype);
  ctx.Require("C3", length.rank() == 1 && InferContext::Matches(length[0], x.shape[0]), "Length",
              length, "sequences", x.shape[0]);
  RequireIndexType(ctx, "C3", "Length");
  const int64_t least = ctx.Attr<bool>("include_bos_eos_tag") ? 2 : 1;
  ctx.Require("C4", tags < 0 || tags >= least, tags, least);
  ctx.SetOutput("Scores", x.dtype, {x.shape[0]});
  ctx.SetOutput("Path", DType::kInt64, {x.shape[0], -1});
}

constexpr char kDecoding[] = "decoding a path";

template <class T>
KernelOf<T> ViterbiDecode(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Input"), transition = ctx.Input("Transition");
  const TensorArg length = ctx.Input("Length");
  const TensorArg scores = ctx.Output("Scores"), path = ctx.Output("Path");
  const bool bordered = ctx.Attr<bool>("include_bos_eos_tag");
  const int64_t batch = x.shape[0], time = x.shape[1], tags = x.shape[2];
  const int64_t often = StepsPerCheck(tags * tags);
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    const IndexReader lengths(ws, length);
    int64_t longest = 0;
    for (int64_t b = 0; b < batch; ++b) {
      if (lengths[b] < 0 || lengths[b] > time)
        ThrowIndexRange("viterbi_decode", "Length", b, lengths[b], time + 1);
      longest = std::max(longest, lengths[b]);
    }
    Tensor& out = ResizeOutput(ws, path, DType::kInt64, {batch, longest});
    auto* tag = static_cast<int64_t*>(out.raw());
    const T *in = ws.Data<const T>(x), *table = ws.Data<const T>(transition);
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    const int64_t most = CheckedMul(longest, tags);
    const int64_t parts = PartsOf(batch, static_cast<double>(most) * static_cast<double>(tags) / 8 *
                                             static_cast<double>(batch));
    T* sums = scratch.Write(0, x.dtype, {parts, 2, tags}).template data<T>();
    auto* choices = scratch.Write(1, DType::kInt32, {parts, most}).template data<int32_t>();
    ForEachItem(batch, parts, [&](int64_t b, int64_t part) {
      CheckTimeLimit(kDecoding);
      const T* row = in + b * time * tags;
      int64_t* to = tag + b * longest;
      std::fill_n(to, longest, 0);
      ws.Data<T>(scores)[b] = T(0);
      const int64_t steps = lengths[b];
      if (steps == 0) return;
      T *alpha = sums + part * 2 * tags, *next = alpha + tags;
      int32_t* from = choices + part * most;
      for (int64_t j = 0; j < tags; ++j)
        alpha[j] = row[j] + (bordered ? table[(tags - 1) * tags + j] : T(0));
      for (int64_t t = 1; t < steps; ++t, std::swap(alpha, next)) {
        if (t % often == 0) CheckTimeLimit(kDecoding);
        ViterbiStep(row + t * tags, table, tags, alpha, next, from + t * tags);
      }
      for (int64_t j = 0; bordered && j < tags; ++j) alpha[j] += table[(tags - 2) * tags + j];
      int64_t best = std::max_element(alpha, alpha + tags) - alpha;
      ws.Data<T>(scores)[b] = alpha[best];
      for (int64_t t = steps - 1; t >= 0; --t) {
        to[t] = best;
        if (t > 0) best = from[t * tags + best];
      }
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("viterbi_decode")
          .Doc("The path with the highest score through each sequence: score = the sum of "
               "Input[t][tag of t] and of Transition[tag of t - 1][tag of t], over the first "
               "Length steps. With include_bos_eos_tag, Transition[tags - 1][first tag] and "
               "Transition[tags - 2][last tag] are added. Among equal scores, the lowest tag wins.")
          .Constraint("C1", "Input must be [batch, time, tags]")
          .Constraint("C2", "Transition must be [tags, tags], of Input's dtype")
          .Constraint("C3", "Length must have one int32 or int64 for each sequence")
          .Constraint("C4", "there must be a tag (two with include_bos_eos_tag)")
          .Input("Input", "floating-point tensor [batch, time, tags], the score of each tag")
          .Input("Transition", "floating-point tensor [tags, tags], [i][j] from tag i to tag j")
          .Input("Length", "int32 or int64 tensor [batch], each in [0, time]")
          .Output("Scores", "tensor [batch] of Input's dtype; 0 for a sequence of length 0")
          .Output("Path", "int64 tensor [batch, the largest length]; 0 past a sequence's end")
          .Attr<bool>("include_bos_eos_tag", true,
                      "the last tag marks the begin of a sequence, the one before it the end")
          .RunTimeShape()
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kMixes)
          .Infer(InferViterbi)
          .Reference(ViterbiDecode<float>, ViterbiDecode<double>));
}

}  // namespace coracle::viterbi_decode_op
