// linear_chain_crf: the cost of a tagging under a linear-chain conditional random field, and its
// gradient by the forward-backward algorithm.

#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>
#include <coracle/operators/sequence/crf.h>
#include <coracle/operators/sequence/log_sum.h>
#include <coracle/operators/sequence/parts.h>
#include <coracle/operators/sequence/sequence_simd.h>

#include <algorithm>
#include <cmath>

namespace coracle::linear_chain_crf_op {

// Checks the inputs and returns the number of sequences.
int64_t InferTagging(const InferContext& ctx) {
  const Shape steps = RequireCrf(ctx);
  const VarMeta& label = ctx.Input("Label");
  const Shape& shape = label.shape;
  const int rank = steps.rank();
  const bool column = shape.rank() == rank + 1 && InferContext::Matches(shape[rank], 1);
  bool fits = IsIndexType(label.dtype) && (shape.rank() == rank || column);
  for (int i = 0; fits && i < rank; ++i) fits = InferContext::Matches(shape[i], steps[i]);
  ctx.Require("C3", fits, "Label", label, "Emission", ctx.Input("Emission"));
  return CountSequences(ctx, "C4", "Label", "Length");
}

void InferCost(InferContext& ctx) {
  const int64_t count = InferTagging(ctx);
  const VarMeta &x = ctx.Input("Emission"), &transition = ctx.Input("Transition");
  ctx.SetOutput("Alpha", x.dtype, x.shape);
  ctx.SetOutput("EmissionExps", x.dtype, x.shape);
  ctx.SetOutput("TransitionExps", x.dtype, transition.shape);
  ctx.SetOutput("LogLikelihood", x.dtype, {count, 1});
}

// The passes below are scaled: the numbers of each step are exponentials that sum to 1. This is
// accurate as long as no tag's share underflows. A share is at least exp(-spread), where spread is
// the range of the weights and of the emissions of a step, since every tag can follow every other.
// If the spread is larger (a weight of -10000 forbids a transition), the passes work with
// logarithms, which needs an exponential for each pair of tags.
constexpr double kWidestSpread = 600;

template <class T>
double SpreadOf(const T* x, int64_t n) {
  const auto ends = std::minmax_element(x, x + n);
  return static_cast<double>(*ends.second) - static_cast<double>(*ends.first);
}

template <class T>
double SpreadOfWeights(const T* w, int64_t tags) {
  return SpreadOf(w, tags) + SpreadOf(w + tags, tags) + SpreadOf(w + 2 * tags, tags * tags);
}

template <class T>
bool NeedsLogs(double weights, const T* x, int64_t steps, int64_t tags) {
  double widest = 0;
  for (int64_t t = 0; t < steps; ++t) widest = std::max(widest, SpreadOf(x + t * tags, tags));
  return weights + widest > kWidestSpread;
}

// exp(w - max w) in double, and max w, for the start, stop and inner weights: no scale of the
// weights overflows.
class ExpWeights {
 public:
  template <class T>
  ExpWeights(const T* w, int64_t tags, double* to) : tags_(tags), exp_(to) {
    double max[3];
    for (int part = 0; part < 3; ++part) {
      const int64_t begin = part * tags, end = part < 2 ? begin + tags : (tags + 2) * tags;
      max[part] = static_cast<double>(*std::max_element(w + begin, w + end));
      std::copy(w + begin, w + end, to + begin);
      ExpBelow(max[part], end - begin, to + begin);
    }
    start_max_ = max[0];
    stop_max_ = max[1];
    inner_max_ = max[2];
  }
  const double* start() const { return exp_; }
  const double* stop() const { return exp_ + tags_; }
  const double* inner() const { return exp_ + 2 * tags_; }
  // The logarithm of the factor that was divided out of all paths of `steps` steps.
  double LogScale(int64_t steps) const {
    return start_max_ + stop_max_ + inner_max_ * static_cast<double>(steps - 1);
  }

 private:
  int64_t tags_;
  double* exp_;
  double start_max_ = 0, stop_max_ = 0, inner_max_ = 0;
};

// to[i] = exp(x[i] - max x), approximately 0 below exp(-700); returns max x.
template <class T>
double ExpRow(const T* x, int64_t n, double* to) {
  const auto max = static_cast<double>(*std::max_element(x, x + n));
  std::copy_n(x, n, to);
  ExpBelow(max, n, to);
  return max;
}

// Applies ExpRow to each row; `row` is memory for one row.
template <class T>
void ExpRows(const T* x, int64_t rows, int64_t n, double* row, T* to) {
  for (int64_t i = 0; i < rows; ++i) {
    ExpRow(x + i * n, n, row);
    std::transform(row, row + n, to + i * n, [](double v) { return static_cast<T>(v); });
  }
}

// x = x y divided by its sum, which is returned.
double MultiplyShares(const double* y, int64_t n, double* x) {
  const double sum = MultiplyBy(y, n, x);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
  return sum;
}

// Names of the passes for CheckTimeLimit.
constexpr char kForwardPass[] = "computing the cost of a CRF";
constexpr char kBackwardPass[] = "computing the gradient of a CRF";

// The output of the passes over one sequence: rows of `tags` numbers for each step.
struct Passes {
  double *alpha, *emission;
};

// alpha[t, j] = the share of tag j among the paths of steps 0 to t. Returns log Z.
template <class T>
double Forward(const T* x, int64_t steps, int64_t tags, const ExpWeights& w, const Passes& p) {
  double log_z = w.LogScale(steps);
  const int64_t often = StepsPerCheck(tags * tags);
  for (int64_t t = 0; t < steps; ++t) {
    if (t % often == 0) CheckTimeLimit(kForwardPass);
    double *now = p.alpha + t * tags, *exps = p.emission + t * tags;
    log_z += ExpRow(x + t * tags, tags, exps);
    if (t == 0) {
      std::copy_n(w.start(), tags, now);
    } else {
      VectorTimesSquare(now - tags, w.inner(), tags, now);
    }
    log_z += std::log(MultiplyShares(exps, tags, now));
  }
  double end = 0;
  for (int64_t j = 0; j < tags; ++j) end += p.alpha[(steps - 1) * tags + j] * w.stop()[j];
  return log_z + std::log(end);
}

// The same with logarithms: alpha[t, j] = log of the weight of all paths to tag j of step t. `w`
// holds the weights in double.
template <class T>
double LogForward(const T* x, const double* w, int64_t steps, int64_t tags, double* alpha) {
  const double *stop = w + tags, *inner = stop + tags;
  const int64_t often = StepsPerCheck(tags * tags);
  for (int64_t t = 0; t < steps; ++t) {
    if (t % often == 0) CheckTimeLimit(kForwardPass);
    double* now = alpha + t * tags;
    if (t == 0)
      std::copy_n(w, tags, now);
    else
      LogVectorTimesSquare(now - tags, inner, tags, now);
    for (int64_t j = 0; j < tags; ++j) now[j] += static_cast<double>(x[t * tags + j]);
  }
  const double* last = alpha + (steps - 1) * tags;
  return LogSum(tags, [&](int64_t j) { return last[j] + stop[j]; });
}

// The score of the given tags.
template <class T>
double Score(const T* x, const T* w, const IndexReader& label, int64_t begin, int64_t steps,
             int64_t tags) {
  double score = static_cast<double>(w[label[begin]]) +
                 static_cast<double>(w[tags + label[begin + steps - 1]]);
  for (int64_t t = 0; t < steps; ++t) {
    score += static_cast<double>(x[t * tags + label[begin + t]]);
    if (t > 0)
      score += static_cast<double>(w[(2 + label[begin + t - 1]) * tags + label[begin + t]]);
  }
  return score;
}

void CheckTags(const RunConstraint& known, const IndexReader& label, int64_t begin, int64_t steps,
               int64_t tags) {
  for (int64_t t = begin; t < begin + steps; ++t)
    known.Require(label[t] >= 0 && label[t] < tags, "label", label[t], "tags", tags);
}

// Memory of each thread: the passes over the longest sequence, and `more` rows of tags.
class Rooms {
 public:
  Rooms(Workspace& ws, const TensorArg& memory, const BatchRows& s, int64_t tags, int64_t more)
      : parts_(
            PartsOf(s.count(), static_cast<double>(s.longest()) * static_cast<double>(s.count()) *
                                   static_cast<double>(tags * tags))),
        size_(CheckedMul(s.longest(), tags)),
        part_size_(CheckedAdd(CheckedMul(size_, 2), CheckedMul(more, tags))) {
    auto& scratch = std::get<TensorArray>(ws.ValueOf(memory));
    data_ = scratch.Write(0, DType::kFloat64, {CheckedMul(parts_, part_size_)}).data<double>();
  }
  int64_t parts() const { return parts_; }
  Passes passes(int64_t part) const {
    double* alpha = data_ + part * part_size_;
    return {alpha, alpha + size_};
  }
  double* more(int64_t part) const { return data_ + part * part_size_ + 2 * size_; }

 private:
  int64_t parts_, size_, part_size_;
  double* data_;
};

// exp(alpha) of each step, scaled to sum 1.
void SharesOf(double* alpha, int64_t steps, int64_t tags) {
  for (int64_t t = 0; t < steps; ++t, alpha += tags) {
    const double total = LogSum(tags, [&](int64_t j) { return alpha[j]; });
    for (int64_t j = 0; j < tags; ++j) alpha[j] = std::exp(alpha[j] - total);
  }
}

template <class T>
KernelOf<T> Cost(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Emission"), transition = ctx.Input("Transition");
  const TensorArg label = ctx.Input("Label"), cost = ctx.Output("LogLikelihood");
  const TensorArg alpha = ctx.Output("Alpha"), exps = ctx.Output("EmissionExps");
  const TensorArg transition_exps = ctx.Output("TransitionExps");
  const SequenceBatch batch(ctx, "Label", "Length", "C4");
  const RunConstraint known(ctx, "C5");
  const int64_t tags = transition.shape[1];
  // The weights and their exponentials, and a row.
  const TensorArg weights = ctx.Scratch(DType::kFloat64, {2 * transition.shape[0] + 1, tags});
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    const BatchRows s = batch(ws);
    const T *in = ws.Data<const T>(x), *w = ws.Data<const T>(transition);
    const IndexReader labels(ws, label);
    if (transition_exps)
      std::transform(w, w + transition.numel, ws.Data<T>(transition_exps),
                     [](T v) { return std::exp(v); });
    if (alpha) std::fill_n(ws.Data<T>(alpha), alpha.numel, T(0));
    double *log_weights = ws.Data<double>(weights), *exp_weights = log_weights + transition.numel;
    if (exps) ExpRows(in, x.numel / tags, tags, exp_weights + transition.numel, ws.Data<T>(exps));
    std::copy_n(w, transition.numel, log_weights);
    const ExpWeights exp(w, tags, exp_weights);
    const double spread = SpreadOfWeights(w, tags);
    const Rooms rooms(ws, memory, s, tags, 0);
    ForEachItem(s.count(), rooms.parts(), [&](int64_t i, int64_t part) {
      const int64_t begin = s.begin(i), steps = s.length(i);
      ws.Data<T>(cost)[i] = T(0);
      if (steps == 0) return;
      const Passes passes = rooms.passes(part);
      CheckTags(known, labels, begin, steps, tags);
      const bool logs = NeedsLogs(spread, in + begin * tags, steps, tags);
      const double log_z =
          logs ? LogForward(in + begin * tags, log_weights, steps, tags, passes.alpha)
               : Forward(in + begin * tags, steps, tags, exp, passes);
      const double score = Score(in + begin * tags, w, labels, begin, steps, tags);
      ws.Data<T>(cost)[i] = static_cast<T>(log_z - score);
      if (!alpha) return;
      if (logs) SharesOf(passes.alpha, steps, tags);
      std::transform(passes.alpha, passes.alpha + steps * tags, ws.Data<T>(alpha) + begin * tags,
                     [](double v) { return static_cast<T>(v); });
    });
  };
}

void InferCostGrad(InferContext& ctx) {
  const int64_t count = InferTagging(ctx);
  const VarMeta &x = ctx.Input("Emission"), &given = ctx.Input("LogLikelihood@GRAD");
  ctx.Require("C6", given.dtype == x.dtype && given.shape.CompatibleWith({count, 1}),
              "LogLikelihood@GRAD", given, "sequences", count);
  ctx.SetOutput("Emission@GRAD", x);
  ctx.SetOutput("Transition@GRAD", ctx.Input("Transition"));
}

// The gradients of one sequence's cost times `scale`. to_x and to_w may be null; to_w is added to.
// `room` has 3 * tags numbers.
template <class T>
class CostGradient {
 public:
  CostGradient(int64_t tags, const ExpWeights& w, double* room)
      : tags_(tags), w_(w), beta_(room), next_(room + tags), shares_(room + 2 * tags) {}

  void operator()(const Passes& p, const IndexReader& label, int64_t begin, int64_t steps,
                  double scale, T* to_x, double* to_w) {
    const int64_t often = StepsPerCheck(tags_ * tags_);
    for (int64_t t = steps - 1; t >= 0; --t) {
      if (t % often == 0) CheckTimeLimit(kBackwardPass);
      // beta[i] = the weight of the paths after tag i of step t.
      if (t == steps - 1) {
        std::copy_n(w_.stop(), tags_, beta_);
      } else {
        AddPairs(p, t, to_w, scale);
        if (to_w) to_w[(2 + label[begin + t]) * tags_ + label[begin + t + 1]] -= scale;
      }
      // next = the marginals of step t, later the weight of the paths after step t - 1.
      std::copy_n(beta_, tags_, next_);
      MultiplyShares(p.alpha + t * tags_, tags_, next_);
      next_[label[begin + t]] -= 1;
      for (int64_t j = 0; j < tags_; ++j) {
        const double g = next_[j] * scale;
        if (to_x) to_x[t * tags_ + j] = static_cast<T>(g);
        if (to_w && t == 0) to_w[j] += g;
        if (to_w && t == steps - 1) to_w[tags_ + j] += g;
      }
      std::copy_n(beta_, tags_, next_);
      MultiplyShares(p.emission + t * tags_, tags_, next_);
    }
  }

 private:
  // beta = inner weights times next; adds scale times the posterior of each pair of tags at steps t
  // and t + 1.
  void AddPairs(const Passes& p, int64_t t, double* to_w, double scale) {
    SquareTimesVector(w_.inner(), next_, tags_, beta_);
    if (!to_w) return;
    std::copy_n(p.alpha + t * tags_, tags_, shares_);
    const double total = MultiplyBy(beta_, tags_, shares_);
    for (int64_t i = 0; i < tags_; ++i) shares_[i] = scale * p.alpha[t * tags_ + i] / total;
    AddScaledSquare(shares_, w_.inner(), next_, tags_, to_w + 2 * tags_);
  }

  int64_t tags_;
  const ExpWeights& w_;
  double *beta_, *next_, *shares_;
};

// Computes the same gradients from logarithms. `room` has 3 * tags numbers.
template <class T>
void LogGradient(const T* x, const double* w, const double* alpha, double log_z,
                 const IndexReader& label, int64_t begin, int64_t steps, int64_t tags, double scale,
                 double* room, T* to_x, double* to_w) {
  const double *stop = w + tags, *inner = stop + tags;
  // next[j] = the weight of tag j of step t + 1 and the paths after it.
  double *beta = room, *next = room + tags, *shares = room + 2 * tags;
  const int64_t often = StepsPerCheck(tags * tags);
  for (int64_t t = steps - 1; t >= 0; --t) {
    if (t % often == 0) CheckTimeLimit(kBackwardPass);
    const double* now = alpha + t * tags;
    const int64_t tag = label[begin + t];
    const bool last = t == steps - 1;
    if (last)
      std::copy_n(stop, tags, beta);
    else
      LogSquareTimesVector(inner, next, tags, beta);
    for (int64_t i = 0; i < tags; ++i) {
      const double g = (std::exp(now[i] + beta[i] - log_z) - (i == tag ? 1 : 0)) * scale;
      if (to_x) to_x[t * tags + i] = static_cast<T>(g);
      if (to_w && t == 0) to_w[i] += g;
      if (to_w && last) to_w[tags + i] += g;
    }
    if (to_w && !last) {
      for (int64_t i = 0; i < tags; ++i) shares[i] = now[i] - log_z;
      AddExpSquare(shares, inner, next, tags, scale, to_w + 2 * tags);
      to_w[(2 + tag) * tags + label[begin + t + 1]] -= scale;
    }
    for (int64_t j = 0; j < tags; ++j) next[j] = beta[j] + static_cast<double>(x[t * tags + j]);
  }
}

template <class T>
KernelOf<T> CostGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Emission"), transition = ctx.Input("Transition");
  const TensorArg label = ctx.Input("Label"), given = ctx.Input("LogLikelihood@GRAD");
  const TensorArg dx = ctx.Output("Emission@GRAD"), dw = ctx.Output("Transition@GRAD");
  const SequenceBatch batch(ctx, "Label", "Length", "C4");
  const RunConstraint known(ctx, "C5");
  const int64_t tags = transition.shape[1];
  // The weights and their exponentials.
  const TensorArg weights = ctx.Scratch(DType::kFloat64, {2, transition.numel});
  const TensorArg memory = ctx.ScratchArray();
  return [=](Workspace& ws) {
    const BatchRows s = batch(ws);
    const T *in = ws.Data<const T>(x), *w = ws.Data<const T>(transition);
    const IndexReader labels(ws, label);
    double* log_weights = ws.Data<double>(weights);
    std::copy_n(w, transition.numel, log_weights);
    const ExpWeights exp(w, tags, log_weights + transition.numel);
    const double spread = SpreadOfWeights(w, tags);
    // Three rows, then the sum of the gradients of the weights.
    const Rooms rooms(ws, memory, s, tags, 3 + transition.shape[0]);
    for (int64_t part = 0; part < rooms.parts(); ++part)
      std::fill_n(rooms.more(part) + 3 * tags, transition.numel, 0.0);
    if (dx) std::fill_n(ws.Data<T>(dx), dx.numel, T(0));
    ForEachItem(s.count(), rooms.parts(), [&](int64_t i, int64_t part) {
      const int64_t begin = s.begin(i), steps = s.length(i);
      if (steps == 0) return;
      const Passes passes = rooms.passes(part);
      double *room = rooms.more(part), *sums = room + 3 * tags;
      CheckTags(known, labels, begin, steps, tags);
      const T* rows = in + begin * tags;
      const auto scale = static_cast<double>(ws.Data<const T>(given)[i]);
      T* to_x = dx ? ws.Data<T>(dx) + begin * tags : nullptr;
      double* to_w = dw ? sums : nullptr;
      if (NeedsLogs(spread, rows, steps, tags)) {
        const double log_z = LogForward(rows, log_weights, steps, tags, passes.alpha);
        LogGradient(rows, log_weights, passes.alpha, log_z, labels, begin, steps, tags, scale, room,
                    to_x, to_w);
      } else {
        Forward(rows, steps, tags, exp, passes);
        CostGradient<T>(tags, exp, room)(passes, labels, begin, steps, scale, to_x, to_w);
      }
    });
    for (int64_t k = 0; dw && k < transition.numel; ++k) {
      double sum = 0;
      for (int64_t part = 0; part < rooms.parts(); ++part) sum += rooms.more(part)[3 * tags + k];
      ws.Data<T>(dw)[k] = static_cast<T>(sum);
    }
  };
}

void DeclareTagging(OpDef& def) {
  def.Apply(DeclareCrf)
      .Input("Label",
             "int32 or int64 tensor [steps, 1] with LoD, or [batch, time] or [batch, "
             "time, 1] with Length: the tags")
      .OptionalInput("Length", "int32 or int64 tensor [batch]: steps of each sequence")
      .NoGradientTo({"Label", "Length"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("linear_chain_crf")
          .Doc("LogLikelihood = the negative log-likelihood of the tags (a cost): log Z - score, "
               "where score = start[first tag] + the sum of Emission[t][tag of t] + the sum of "
               "w[tag of t - 1][tag of t] + stop[last tag], and Z is the sum of exp(score) of all "
               "taggings. Row 0 of Transition is start, row 1 stop, the others are w. The cost of "
               "an empty sequence is 0 (Lafferty et al., 2001).")
          .Apply(DeclareCrfConstraints)
          .Constraint("C3", "Label must hold an int32 or int64 tag for each step")
          .Constraint("C4", kBatchText)
          .Constraint("C5", "tags must lie in [0, number of tags)")
          .Apply(DeclareTagging)
          .IntermediateOutput("Alpha",
                              "tensor like Emission: the probability of each tag over the paths up "
                              "to a step; 0 in padding")
          .IntermediateOutput("EmissionExps", "exp(Emission - its maximum of the step)")
          .IntermediateOutput("TransitionExps", "exp(Transition)")
          .Output("LogLikelihood", "tensor [sequences, 1] of Emission's dtype")
          .NoLod()
          .ComputesIn(OpPrecision::kFloat32)
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferCost)
          .GradientOp({"Emission", "Transition", "Label", "Length"})
          .Reference(Cost<float>, Cost<double>));
  ops.Add(OpDef("linear_chain_crf_grad")
              .Doc("Gradients of linear_chain_crf: Emission@GRAD = (posterior probability of the "
                   "tag, minus 1 for the labelled tag) times LogLikelihood@GRAD, 0 in padding; "
                   "Transition@GRAD likewise for the first tags, the last tags and pairs of "
                   "neighbours, summed over all sequences.")
              .ConstraintsOf("linear_chain_crf", {"C1", "C2", "C3", "C4", "C5"})
              .Constraint("C6", "LogLikelihood@GRAD must have LogLikelihood's shape and dtype")
              .Apply(DeclareTagging)
              .OptionalInput("Alpha", "not read: it is recomputed")
              .OptionalInput("EmissionExps", "not read")
              .OptionalInput("TransitionExps", "not read")
              .Input("LogLikelihood@GRAD", "gradient of LogLikelihood")
              .OptionalOutput("Emission@GRAD", "gradient of Emission")
              .OptionalOutput("Transition@GRAD", "gradient of Transition")
              .NoGradientTo({"Alpha", "EmissionExps", "TransitionExps"})
              .NoGradient("second derivatives of linear_chain_crf are not provided")
              .Infer(InferCostGrad)
              .Reference(CostGrad<float>, CostGrad<double>));
}

}  // namespace coracle::linear_chain_crf_op
