// beam_search_decode: the sentences found by the steps of a beam search.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::beam_search_decode_op {

void InferDecode(InferContext& ctx) {
  const VarMeta &ids = ctx.Input("Ids"), &scores = ctx.Input("Scores");
  ctx.Require("C1", ids.type == VarType::kLoDTensorArray && scores.type == VarType::kLoDTensorArray,
              "Ids", ids, "Scores", scores);
  ctx.SetOutput("SentenceIds", {VarType::kLoDTensor, DType::kInt64, {-1}, 2});
  ctx.SetOutput("SentenceScores", {VarType::kLoDTensor, scores.dtype, {-1}, 2});
}

// One step: its candidates, in groups of one prefix each.
class Step {
 public:
  Step(const Tensor& ids, const Tensor& scores) : ids_(ids), scores_(scores) {}
  int64_t candidates() const { return ids_.numel(); }
  Sequences sources() const { return Sequences(ids_.lod()[0]); }
  Sequences prefixes() const { return Sequences(ids_.lod()[1]); }
  int64_t id(int64_t i) const {
    return ids_.dtype() == DType::kInt64 ? ids_.data<int64_t>()[i] : ids_.data<int32_t>()[i];
  }
  double score(int64_t i) const {
    return scores_.dtype() == DType::kFloat64 ? scores_.data<double>()[i]
                                              : static_cast<double>(scores_.data<float>()[i]);
  }
  // The prefix of the candidate: a candidate of the previous step.
  int64_t PrefixOf(int64_t candidate) const {
    const std::vector<uint64_t>& level = ids_.lod()[1];
    return std::upper_bound(level.begin(), level.end(), static_cast<uint64_t>(candidate)) -
           level.begin() - 1;
  }

 private:
  const Tensor &ids_, &scores_;
};

// The steps of both arrays, checked.
class Steps {
 public:
  Steps(const PrepareContext& ctx)
      : ids_(ctx.Input("Ids")), scores_(ctx.Input("Scores")), fits_(ctx, "C2") {}
  std::vector<Step> operator()(Workspace& ws) const {
    const auto* ids = std::get_if<TensorArray>(&ws.ValueOf(ids_));
    const auto* scores = std::get_if<TensorArray>(&ws.ValueOf(scores_));
    if (!ids || !scores) ThrowInvalid("beam_search_decode: the arrays were not made");
    fits_.Require(ids->size() == scores->size() && !ids->empty(), "Ids", ids->size(), "Scores",
                  scores->size());
    std::vector<Step> steps;
    for (size_t t = 0; t < ids->size(); ++t) {
      const Tensor &id = (*ids)[t], &score = (*scores)[t];
      CheckLod(fmt::format("Ids[{}]", t), id);
      const DType dtype = score.dtype();
      const bool typed = IsIndexType(id.dtype()) && dtype == (*scores)[0].dtype() &&
                         (dtype == DType::kFloat32 || dtype == DType::kFloat64);
      const bool rows = id.shape().rank() >= 1 && id.shape()[0] == id.numel();
      fits_.Require(ids->IsWritten(t) && scores->IsWritten(t) && typed && rows &&
                        id.numel() == score.numel() && id.lod().size() == 2,
                    "step", t, "Ids", id.shape(), "levels", id.lod().size(), "Scores",
                    score.shape());
      const Step step(id, score);
      const bool follows = steps.empty() || step.prefixes().count() == steps[t - 1].candidates();
      fits_.Require(
          follows && step.sources().count() == (steps.empty() ? step : steps[0]).sources().count(),
          "step", t, "prefixes", step.prefixes().count(), "sources", step.sources().count());
      steps.push_back(step);
    }
    return steps;
  }

 private:
  TensorArg ids_, scores_;
  RunConstraint fits_;
};

// A sentence: ids and scores from the last step to the first.
struct Sentence {
  std::vector<int64_t> ids;
  std::vector<double> scores;
  double last_score() const { return scores.front(); }
};

// The sentences of a source: goes back to the first step from each candidate of its last step
// with candidates.
std::vector<Sentence> Sentences(const std::vector<Step>& steps, int64_t source, int64_t end) {
  std::vector<Sentence> found;
  std::vector<int64_t> at;  // for each sentence: its candidate at step t
  for (size_t t = steps.size(); t-- > 0;) {
    const Step& step = steps[t];
    if (found.empty()) {
      const Sequences prefixes = step.prefixes(), sources = step.sources();
      const int64_t last = prefixes.begin(sources.end(source));
      for (int64_t i = prefixes.begin(sources.begin(source)); i < last; ++i) at.push_back(i);
      found.resize(at.size());
    }
    for (size_t k = 0; k < found.size(); ++k) {
      const int64_t id = step.id(at[k]);
      // A sentence that has ended continues with end_id.
      if (id != end || found[k].ids.empty() || found[k].ids.back() != end) {
        found[k].ids.push_back(id);
        found[k].scores.push_back(step.score(at[k]));
      }
      at[k] = step.PrefixOf(at[k]);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Sentence& a, const Sentence& b) {
    return a.last_score() > b.last_score();
  });
  return found;
}

Kernel Decode(const PrepareContext& ctx) {
  const Steps all_steps(ctx);
  const TensorArg scores = ctx.Input("Scores");
  const TensorArg out_ids = ctx.Output("SentenceIds"), out_scores = ctx.Output("SentenceScores");
  const auto beams = static_cast<size_t>(ctx.Attr<int32_t>("beam_size"));
  const int64_t end = ctx.Attr<int32_t>("end_id");
  return [=](Workspace& ws) {
    const std::vector<Step> steps = all_steps(ws);
    const DType dtype = std::get<TensorArray>(ws.ValueOf(scores))[0].dtype();
    LoD lod{{0}, {0}};
    std::vector<int64_t> ids;
    std::vector<double> values;
    for (int64_t s = 0; s < steps[0].sources().count(); ++s) {
      CheckTimeLimit("decoding a beam search");
      std::vector<Sentence> found = Sentences(steps, s, end);
      found.resize(std::max(found.size(), beams));
      for (const Sentence& sentence : found) {
        ids.insert(ids.end(), sentence.ids.rbegin(), sentence.ids.rend());
        values.insert(values.end(), sentence.scores.rbegin(), sentence.scores.rend());
        lod[1].push_back(ids.size());
      }
      lod[0].push_back(lod[0].back() + found.size());
    }
    const auto num = static_cast<int64_t>(ids.size());
    Tensor& kept_ids = ResizeOutput(ws, out_ids, DType::kInt64, {num});
    Tensor& kept_scores = ResizeOutput(ws, out_scores, dtype, {num});
    std::copy(ids.begin(), ids.end(), kept_ids.data<int64_t>());
    for (size_t i = 0; i < values.size(); ++i) {
      if (dtype == DType::kFloat64)
        kept_scores.data<double>()[i] = values[i];
      else
        kept_scores.data<float>()[i] = static_cast<float>(values[i]);
    }
    kept_ids.lod() = kept_scores.lod() = std::move(lod);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("beam_search_decode")
          .Doc("Collects the sentences found by the steps of beam_search. Each candidate of a "
               "source's last step with candidates ends a sentence; the prefix of a candidate is "
               "the candidate with that index in the previous step. end_id appears once, at the "
               "end. SentenceScores has the score at each word. LoD: beam_size sentences of each "
               "source, the best final score first, filled up with empty ones; then their words.")
          .Constraint("C1", "Ids and Scores must be tensor arrays")
          .Constraint("C2",
                      "Ids and Scores must have the same number of steps, at least one, with one "
                      "int32 or int64 id and one float32 or float64 score for each candidate, and "
                      "LoD of two levels as from beam_search")
          .Input("Ids", "array with the selected_ids of each beam_search step")
          .Input("Scores", "array with the selected_scores of each step")
          .Output("SentenceIds", "int64 tensor [words] with LoD")
          .Output("SentenceScores", "tensor [words] of the dtype of Scores, with LoD")
          .Attr<int32_t>("beam_size", "number of sentences of each source")
          .Range(1, 1 << 16)
          .Attr<int32_t>("end_id", "the id that ends a sentence")
          .Takes(VarType::kLoDTensorArray, {"Ids", "Scores"})
          .RunTimeShape()
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kEach)
          .Infer(InferDecode)
          .Reference(Decode));
}

}  // namespace coracle::beam_search_decode_op
