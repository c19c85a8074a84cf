// beam_search: one step of a beam search.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::beam_search_op {

void InferBeams(InferContext& ctx) {
  const VarMeta& scores = ctx.Input("scores");
  const Shape& shape = scores.shape;
  ctx.Require("C1", shape.rank() == 2, scores);
  for (const char* slot : {"pre_ids", "pre_scores"}) {
    const VarMeta& pre = ctx.Input(slot);
    const bool dtype =
        slot == std::string_view("pre_ids") ? IsIndexType(pre.dtype) : pre.dtype == scores.dtype;
    ctx.Require("C2", dtype && InferContext::Matches(NumelOf(pre.shape), shape[0]), slot, pre,
                "scores", scores);
  }
  if (ctx.HasInput("ids")) {
    const VarMeta& ids = ctx.Input("ids");
    ctx.Require("C3", IsIndexType(ids.dtype) && ids.shape.CompatibleWith(shape), "ids", ids,
                "scores", scores);
  }
  ctx.SetOutput("selected_ids", {VarType::kLoDTensor, DType::kInt64, {-1, 1}, 2});
  ctx.SetOutput("selected_scores", {VarType::kLoDTensor, scores.dtype, {-1, 1}, 2});
  ctx.SetOutput("parent_idx", DType::kInt32, {-1});
}

template <class T>
struct Candidate {
  int64_t row = 0, id = 0;
  T score = 0;
  bool finished = false;  // its prefix had already ended
  bool operator<(const Candidate& other) const {
    return score < other.score || (score == other.score && row < other.row);
  }
};

// The best candidates, best first.
template <class T>
class Beam {
 public:
  explicit Beam(size_t most) : most_(most) {}
  // Among equal candidates, earlier ones come first, but the last place of a full beam goes to
  // the latest.
  void Offer(const Candidate<T>& candidate) {
    if (best_.size() == most_) {
      if (candidate < best_.back()) return;
      best_.pop_back();
    }
    const auto place = std::find_if(best_.begin(), best_.end(),
                                    [&](const Candidate<T>& c) { return c < candidate; });
    best_.insert(place, candidate);
  }
  bool full() const { return best_.size() == most_; }
  T last_score() const { return best_.back().score; }
  bool AllFinished() const {
    return std::all_of(best_.begin(), best_.end(),
                       [](const Candidate<T>& c) { return c.finished; });
  }
  void Clear() { best_.clear(); }
  const std::vector<Candidate<T>>& best() const { return best_; }

 private:
  size_t most_;
  std::vector<Candidate<T>> best_;
};

// Whether a number reaches the limit or is nan; if negative numbers are not allowed, also whether
// one is negative.
template <class T>
bool AnyReaches(const T* x, int64_t n, T limit, bool negative_allowed) {
  int any = 0;
  if (negative_allowed) {
    for (int64_t i = 0; i < n; ++i) any |= static_cast<int>(!(x[i] < limit));
  } else {
    for (int64_t i = 0; i < n; ++i)
      any |= static_cast<int>(!(x[i] < limit)) | static_cast<int>(x[i] < 0);
  }
  return any != 0;
}

// A number below any probability whose logarithm, added to `before`, comes near `score`, with a
// margin for the rounding of sums.
template <class T>
T LeastProbability(T score, T before) {
  const T rounding = 4 * std::numeric_limits<T>::epsilon() * (std::abs(score) + std::abs(before));
  return std::exp(score - before - rounding) * T(0.9999);
}

template <class T>
KernelOf<T> BeamSearch(const PrepareContext& ctx) {
  const TensorArg pre_ids = ctx.Input("pre_ids"), pre_scores = ctx.Input("pre_scores");
  const TensorArg ids = ctx.Input("ids"), scores = ctx.Input("scores");
  const TensorArg out_ids = ctx.Output("selected_ids");
  const TensorArg out_scores = ctx.Output("selected_scores"), parents = ctx.Output("parent_idx");
  const RunConstraint has_level(ctx, "C4");
  const auto level = static_cast<size_t>(ctx.Attr<int32_t>("level"));
  const auto most = static_cast<size_t>(ctx.Attr<int32_t>("beam_size"));
  const int64_t end = ctx.Attr<int32_t>("end_id");
  const bool accumulated = ctx.Attr<bool>("is_accumulated");
  const int64_t rows = scores.shape[0], columns = scores.shape[1];
  constexpr int64_t kBlock = 64;  // columns
  const std::string name = ctx.op().Input("scores")[0];
  return [=](Workspace& ws) {
    Tensor like = Tensor::View(scores.dtype, scores.shape, nullptr);
    like.lod() = ws.LodOf(scores);
    CheckLod(name, like);
    const LoD& lod = like.lod();
    has_level.Require(level < lod.size(), "levels", lod.size(), "level", level);
    std::vector<uint64_t> sources = lod[level];
    for (size_t k = level + 1; k < lod.size(); ++k) {
      for (uint64_t& at : sources) at = lod[k][at];
    }
    const IndexReader before(ws, pre_ids);
    const T *pre = ws.Data<const T>(pre_scores), *score = ws.Data<const T>(scores);
    std::vector<Candidate<T>> selected;
    std::vector<uint64_t> counts(static_cast<size_t>(rows) + 1, 0);
    Beam<T> beam(most);
    for (size_t s = 0; s + 1 < sources.size(); ++s) {
      beam.Clear();
      const auto first = static_cast<int64_t>(sources[s]);
      const auto last = static_cast<int64_t>(sources[s + 1]);
      for (int64_t r = first; r < last; ++r) {
        CheckTimeLimit("searching a beam");
        if (before[r] == end) {
          beam.Offer({r, end, pre[r], true});
          continue;
        }
        for (int64_t first_d = 0; first_d < columns; first_d += kBlock) {
          const int64_t last_d = std::min(columns, first_d + kBlock);
          if (beam.full()) {  // most columns are worse than all kept candidates
            const T low = beam.last_score();
            const T limit = accumulated ? low : LeastProbability(low, pre[r]);
            if (!AnyReaches(score + r * columns + first_d, last_d - first_d, limit, accumulated))
              continue;
          }
          for (int64_t d = first_d; d < last_d; ++d) {
            const int64_t at = r * columns + d;
            const int64_t id = ids ? IndexReader(ws, ids)[at] : d;
            beam.Offer({r, id, accumulated ? score[at] : pre[r] + std::log(score[at]), false});
          }
        }
      }
      if (beam.AllFinished()) continue;
      for (int64_t r = first; r < last; ++r) {
        for (const Candidate<T>& c : beam.best()) {
          if (c.row != r) continue;
          selected.push_back(c);
          ++counts[static_cast<size_t>(r) + 1];
        }
      }
    }
    for (size_t r = 1; r < counts.size(); ++r) counts[r] += counts[r - 1];
    const auto num = static_cast<int64_t>(selected.size());
    Tensor& kept_ids = ResizeOutput(ws, out_ids, DType::kInt64, {num, 1});
    Tensor& kept_scores = ResizeOutput(ws, out_scores, scores.dtype, {num, 1});
    for (size_t k = 0; k < selected.size(); ++k) {
      kept_ids.data<int64_t>()[k] = selected[k].id;
      kept_scores.data<T>()[k] = selected[k].score;
    }
    kept_ids.lod() = kept_scores.lod() = {sources, counts};
    if (!parents) return;
    Tensor& from = ResizeOutput(ws, parents, DType::kInt32, {num});
    for (size_t k = 0; k < selected.size(); ++k)
      from.data<int32_t>()[k] = static_cast<int32_t>(selected[k].row);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("beam_search")
          .Doc("One step of a beam search. Each row of scores is a prefix; the prefixes of one "
               "sequence of the given level of its LoD belong to one source. A prefix whose last "
               "id is end_id has one candidate: end_id with its old score. Any other prefix has a "
               "candidate for every column d: id ids[row][d] (d without ids), score "
               "scores[row][d], or pre_scores[row] + log(scores[row][d]) if not is_accumulated. "
               "The beam_size best candidates of each source are kept, grouped by row; among equal "
               "scores, later rows win. If all kept candidates of a source extend ended prefixes, "
               "the source is finished and keeps none. LoD of the selected candidates: prefixes of "
               "each source, candidates of each prefix.")
          .Constraint("C1", "scores must be [prefixes, candidates]")
          .Constraint("C2",
                      "pre_ids must hold an int32 or int64 for each prefix, and pre_scores a "
                      "number of the dtype of scores")
          .Constraint("C3", "ids must be int32 or int64, of the shape of scores")
          .Constraint("C4", "the LoD of scores must have the level")
          .Input("pre_ids", "int32 or int64 tensor [prefixes, 1]: the last id of each prefix")
          .Input("pre_scores", "tensor [prefixes, 1]: the score of each prefix")
          .OptionalInput("ids", "int32 or int64 tensor [prefixes, candidates]")
          .Input("scores", "floating-point tensor [prefixes, candidates] with LoD")
          .Output("selected_ids", "int64 tensor [selected, 1]")
          .Output("selected_scores", "tensor [selected, 1] of the dtype of scores")
          .OptionalOutput("parent_idx", "int32 tensor [selected]: row of each selected candidate")
          .Attr<int32_t>("level", "level of the LoD of scores whose sequences are the sources")
          .Range(0, std::nullopt)
          .Attr<int32_t>("beam_size", "number of candidates to keep for each source")
          .Range(1, std::nullopt)
          .Attr<int32_t>("end_id", "the id that ends a sequence")
          .Attr<bool>("is_accumulated", true, "scores are of whole prefixes, not of single steps")
          .RunTimeShape()
          .KernelTypeFrom("scores")
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kEach)
          .Infer(InferBeams)
          .Reference(BeamSearch<float>, BeamSearch<double>));
}

}  // namespace coracle::beam_search_op
