#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>

namespace coracle::precision_recall_op {

constexpr int64_t kStates = 4, kMetrics = 6;

// The columns of a row of states.
enum State { kTruePositive, kFalsePositive, kTrueNegative, kFalseNegative };

void InferPrecisionRecall(InferContext& ctx) {
  const VarMeta& probs = ctx.Input("MaxProbs");
  const int64_t classes = ctx.Attr<int32_t>("class_number");
  const int64_t rows = NumelOf(probs.shape);
  ctx.Require("C4", classes >= 1, classes);
  for (const char* slot : {"Indices", "Labels"}) {
    const VarMeta& meta = ctx.Input(slot);
    ctx.Require("C1", IsIndexType(meta.dtype) && InferContext::Matches(NumelOf(meta.shape), rows),
                slot, meta, "MaxProbs", probs);
  }
  if (ctx.HasInput("Weights")) {
    const VarMeta& meta = ctx.Input("Weights");
    ctx.Require("C2", meta.dtype == probs.dtype && InferContext::Matches(NumelOf(meta.shape), rows),
                meta, "MaxProbs", probs);
  }
  const Shape states = {classes, kStates};
  if (ctx.HasInput("StatesInfo")) {
    const VarMeta& meta = ctx.Input("StatesInfo");
    ctx.Require("C3", meta.dtype == probs.dtype && meta.shape.CompatibleWith(states), meta,
                "class_number", classes);
  }
  ctx.SetOutput("BatchMetrics", DType::kFloat64, {kMetrics});
  ctx.SetOutput("AccumMetrics", DType::kFloat64, {kMetrics});
  ctx.SetOutput("AccumStatesInfo", probs.dtype, states);
}

double Share(double part, double other) {
  return part > 0 || other > 0 ? part / (part + other) : 1;
}
double HarmonicMean(double p, double r) { return p > 0 || r > 0 ? 2 * p * r / (p + r) : 0; }

// Macro precision, recall and F1 (of the averages over classes), then micro (of the sums).
void Metrics(const double* states, int64_t classes, double* out) {
  double precision = 0, recall = 0, hits = 0, false_hits = 0, misses = 0;
  for (int64_t c = 0; c < classes; ++c, states += kStates) {
    precision += Share(states[kTruePositive], states[kFalsePositive]);
    recall += Share(states[kTruePositive], states[kFalseNegative]);
    hits += states[kTruePositive];
    false_hits += states[kFalsePositive];
    misses += states[kFalseNegative];
  }
  out[0] = precision / static_cast<double>(classes);
  out[1] = recall / static_cast<double>(classes);
  out[2] = HarmonicMean(out[0], out[1]);
  out[3] = Share(hits, false_hits);
  out[4] = Share(hits, misses);
  out[5] = HarmonicMean(out[3], out[4]);
}

template <class T>
KernelOf<T> PrecisionRecall(const PrepareContext& ctx) {
  const TensorArg indices = ctx.Input("Indices"), labels = ctx.Input("Labels");
  const TensorArg weights = ctx.Input("Weights"), before = ctx.Input("StatesInfo");
  const TensorArg batch = ctx.Output("BatchMetrics"), accum = ctx.Output("AccumMetrics");
  const TensorArg after = ctx.Output("AccumStatesInfo");
  const int64_t classes = ctx.Attr<int32_t>("class_number");
  const TensorArg counts = ctx.Scratch(DType::kFloat64, {classes, kStates});
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader found(ws, indices), wanted(ws, labels);
    const T* w = weights ? ws.Data<const T>(weights) : nullptr;
    double* states = ws.Data<double>(counts);
    std::fill_n(states, classes * kStates, 0.0);
    double total = 0;
    for (int64_t i = 0; i < indices.numel; ++i) {
      const int64_t k = found[i], label = wanted[i];
      if (k < 0 || k >= classes) ThrowIndexRange(name, "Indices", i, k, classes);
      if (label < 0 || label >= classes) ThrowIndexRange(name, "Labels", i, label, classes);
      const double weight = w ? static_cast<double>(w[i]) : 1;
      total += weight;
      states[label * kStates + (k == label ? kTruePositive : kFalseNegative)] += weight;
      if (k != label) states[k * kStates + kFalsePositive] += weight;
    }
    // A row is a true negative of every class that is neither its label nor its prediction.
    for (double* s = states; s < states + classes * kStates; s += kStates)
      s[kTrueNegative] = total - s[kTruePositive] - s[kFalsePositive] - s[kFalseNegative];
    Metrics(states, classes, ws.Data<double>(batch));
    const T* old = before ? ws.Data<const T>(before) : nullptr;
    T* sums = ws.Data<T>(after);
    for (int64_t i = 0; i < classes * kStates; ++i) {
      if (old) states[i] += static_cast<double>(old[i]);
      sums[i] = static_cast<T>(states[i]);
    }
    Metrics(states, classes, ws.Data<double>(accum));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("precision_recall")
          .Doc("Counts for each class the weights of true positives, false positives, true "
               "negatives and false negatives; AccumStatesInfo = these counts plus StatesInfo. The "
               "metrics, of the batch and of AccumStatesInfo, are: macro precision and recall "
               "(averages over classes), their F1, then micro precision, recall and F1 (of the "
               "sums over classes). Precision and recall are 1 if their divisor is 0; the F1 of "
               "two zeros is 0. An index or label outside of [0, class_number) is an error.")
          .Constraint("C1", "Indices and Labels must hold an int32 or int64 for each of MaxProbs")
          .Constraint("C2", "Weights must have MaxProbs' dtype and number of elements")
          .Constraint("C3", "StatesInfo must be [class_number, 4] of MaxProbs' dtype")
          .Constraint("C4", "class_number must be positive")
          .Input("MaxProbs", "the largest probability of each row [N, 1]; not read")
          .Input("Indices", "its class [N, 1]")
          .Input("Labels", "true classes [N, 1]")
          .OptionalInput("Weights", "weights of the rows [N, 1]; 1 when absent")
          .OptionalInput("StatesInfo", "previous counts [class_number, 4]; 0 if absent")
          .Output("BatchMetrics", "float64 tensor [6]")
          .Output("AccumMetrics", "float64 tensor [6]")
          .Output("AccumStatesInfo", "counts [class_number, 4], usually StatesInfo itself")
          .Attr<int32_t>("class_number", "number of classes")
          .NoLod()
          .NotDifferentiable("counts have no derivative")
          .Inplace("StatesInfo", "AccumStatesInfo")
          .Rows(RowRule::kMixes)
          .Infer(InferPrecisionRecall)
          .Reference(PrecisionRecall<float>, PrecisionRecall<double>));
}

}  // namespace coracle::precision_recall_op
