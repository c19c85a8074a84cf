#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::auc_op {

// The layout of the counts of the K buckets in a statistic.
enum class Layout {
  kTotal,    // [1, K]: all batches
  kRing,     // (s + 1) K + 1: s batches, their sum, and a counter; counter mod s is the next slot
  kShifted,  // [s, K]: s batches, the newest last
};

int64_t Buckets(const auto& ctx) {
  return int64_t{ctx.template Attr<int32_t>("num_thresholds")} + 1;
}

void RequireStatistic(const InferContext& ctx, const char* slot) {
  const VarMeta& meta = ctx.Input(slot);
  const int64_t numel = NumelOf(meta.shape), buckets = Buckets(ctx);
  const int64_t steps = ctx.Attr<int32_t>("slide_steps");
  ctx.Require("C3", buckets >= 2 && steps >= 0, "buckets", buckets, "slide_steps", steps);
  const bool fits = steps == 0 ? InferContext::Matches(numel, buckets)
                               : InferContext::Matches(numel, MulDims(steps, buckets)) ||
                                     numel == AddDims(MulDims(AddDims(steps, 1), buckets), 1);
  ctx.Require("C3", meta.dtype == DType::kInt64 && fits, slot, meta, "buckets", buckets,
              "slide_steps", steps);
}

void InferAuc(InferContext& ctx) {
  const Shape &predict = ctx.InputShape("Predict"), &label = ctx.InputShape("Label");
  ctx.Require("C1",
              predict.rank() == 2 &&
                  (InferContext::Matches(predict[1], 1) || InferContext::Matches(predict[1], 2)),
              predict);
  ctx.Require("C2",
              IsIndexType(ctx.InputDType("Label")) && label.rank() >= 1 &&
                  InferContext::Matches(label[0], predict[0]) &&
                  InferContext::Matches(NumelOf(label), label[0]),
              "Label", ctx.Input("Label"), "Predict", predict);
  for (const char* slot : {"StatPos", "StatNeg"}) RequireStatistic(ctx, slot);
  ctx.SetOutput("AUC", DType::kFloat64, {1});
  ctx.SetOutput("StatPosOut", ctx.Input("StatPos"));
  ctx.SetOutput("StatNegOut", ctx.Input("StatNeg"));
}

class Statistic {
 public:
  Statistic(const PrepareContext& ctx, const char* in, const char* out)
      : in_(ctx.Input(in)),
        out_(ctx.Output(out)),
        buckets_(Buckets(ctx)),
        steps_(ctx.Attr<int32_t>("slide_steps")),
        layout_(steps_ == 0                      ? Layout::kTotal
                : in_.numel == steps_ * buckets_ ? Layout::kShifted
                                                 : Layout::kRing) {}

  // Makes room for a new batch; count(bucket) then adds to it.
  void Begin(Workspace& ws) {
    const auto* from = ws.Data<const int64_t>(in_);
    to_ = ws.Data<int64_t>(out_);
    CopyBytes(from, to_, in_.nbytes());
    batch_ = sum_ = to_;
    if (layout_ == Layout::kShifted) {
      std::copy(to_ + buckets_, to_ + steps_ * buckets_, to_);
      batch_ = to_ + (steps_ - 1) * buckets_;
      std::fill_n(batch_, buckets_, int64_t{0});
    } else if (layout_ == Layout::kRing) {
      sum_ = to_ + steps_ * buckets_;
      int64_t& counter = sum_[buckets_];
      batch_ = to_ + static_cast<int64_t>(static_cast<uint64_t>(counter) %
                                          static_cast<uint64_t>(steps_)) *
                         buckets_;
      counter = WrapAdd<int64_t>(counter, 1);
      for (int64_t b = 0; b < buckets_; ++b) {
        sum_[b] = WrapSub(sum_[b], batch_[b]);
        batch_[b] = 0;
      }
    }
  }
  void Count(int64_t bucket) {
    batch_[bucket] = WrapAdd<int64_t>(batch_[bucket], 1);
    if (layout_ == Layout::kRing) sum_[bucket] = WrapAdd<int64_t>(sum_[bucket], 1);
  }
  double Total(int64_t bucket) const {
    if (layout_ != Layout::kShifted) return static_cast<double>(sum_[bucket]);
    double total = 0;
    for (int64_t s = 0; s < steps_; ++s) total += static_cast<double>(to_[s * buckets_ + bucket]);
    return total;
  }

 private:
  TensorArg in_, out_;
  int64_t buckets_, steps_;
  Layout layout_;
  int64_t *to_ = nullptr, *batch_ = nullptr, *sum_ = nullptr;
};

// The area under the curve of true over false positives, by trapezoids, threshold by threshold.
double Area(const Statistic& positive, const Statistic& negative, int64_t buckets) {
  double area = 0, positives = 0, negatives = 0;
  for (int64_t b = buckets - 1; b >= 0; --b) {
    const double before = positives, count = negative.Total(b);
    positives += positive.Total(b);
    negatives += count;
    area += count * (before + positives) / 2;
  }
  return positives > 0 && negatives > 0 ? area / positives / negatives : 0;
}

template <class T>
KernelOf<T> Auc(const PrepareContext& ctx) {
  const TensorArg predict = ctx.Input("Predict"), label = ctx.Input("Label");
  const TensorArg auc = ctx.Output("AUC");
  const Statistic stat_pos(ctx, "StatPos", "StatPosOut"), stat_neg(ctx, "StatNeg", "StatNegOut");
  const int64_t rows = predict.shape[0], columns = predict.shape[1], buckets = Buckets(ctx);
  const std::string failure = ctx.Failure("C4");
  return [=](Workspace& ws) {
    const IndexReader labels(ws, label);
    const T* p = ws.Data<const T>(predict);
    for (int64_t i = 0; i < rows; ++i) {
      const auto chance = static_cast<double>(p[(i + 1) * columns - 1]);
      if (!(chance >= 0 && chance <= 1))
        ThrowInvalid(fmt::format("{}, got {} in row {}", failure, chance, i));
    }
    Statistic positive = stat_pos, negative = stat_neg;
    positive.Begin(ws);
    negative.Begin(ws);
    for (int64_t i = 0; i < rows; ++i) {
      const auto chance = static_cast<double>(p[(i + 1) * columns - 1]);
      const auto bucket = static_cast<int64_t>(chance * static_cast<double>(buckets - 1));
      if (labels[i] > 0) positive.Count(bucket);
      if (labels[i] == 0) negative.Count(bucket);
    }
    *ws.Data<double>(auc) = Area(positive, negative, buckets);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("auc")
          .Doc("AUC = the area under the ROC curve of the rows of all batches (slide_steps = 0) or "
               "of the last slide_steps batches. With p the last column of Predict, a row is "
               "counted in bucket floor(p num_thresholds) of StatPosOut if Label is positive, of "
               "StatNegOut if Label is 0, and nowhere otherwise. AUC is 0 unless there are rows of "
               "both kinds.")
          .Constraint("C1", "Predict must have one column or two")
          .Constraint("C2", "Label must hold an int32 or int64 for each row of Predict")
          .Constraint("C3",
                      "a statistic must be int64 with K = num_thresholds + 1 elements, K being 2 "
                      "or more; with slide_steps s, it must have (s + 1) K + 1 or s K elements")
          .Constraint("C4", "probabilities must lie in [0, 1]")
          .Input("Predict", "probabilities [N, 2] of classes 0 and 1, or [N, 1] of class 1")
          .Input("Label", "true classes [N, 1]")
          .Input("StatPos",
                 "previous counts of positive rows, by bucket; with slide_steps, the counts of "
                 "each batch, their sum, and the number of batches (with s K elements, only the "
                 "counts of each batch, the newest last)")
          .Input("StatNeg", "the same for negative rows")
          .Output("AUC", "float64 tensor [1]")
          .Output("StatPosOut", "usually StatPos itself")
          .Output("StatNegOut", "usually StatNeg itself")
          .Attr<std::string>("curve", "ROC", "ignored; the curve is ROC")
          .Attr<int32_t>("num_thresholds", 8191, "number of buckets minus one")
          .Attr<int32_t>("slide_steps", 1, "number of batches to use; 0: all")
          .Scores({"Predict"})
          .NoLod()
          .NotDifferentiable("counts have no derivative")
          .Inplace("StatPos", "StatPosOut")
          .Inplace("StatNeg", "StatNegOut")
          .Rows(RowRule::kMixes)
          .Infer(InferAuc)
          .Reference(Auc<float>, Auc<double>));
}

}  // namespace coracle::auc_op
