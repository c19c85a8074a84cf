#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::sample_logits_op {

constexpr double kFar = 1e20;

void InferSampleLogits(InferContext& ctx) {
  const VarMeta logits = ctx.Input("Logits"), labels = ctx.Input("Labels");
  ctx.Require("C1",
              logits.shape.rank() == 2 && labels.shape.rank() == 2 && IsIndexType(labels.dtype) &&
                  InferContext::Matches(logits.shape[0], labels.shape[0]),
              "Logits", logits, "Labels", labels);
  const int64_t classes = logits.shape[1], count = ctx.Attr<int32_t>("num_samples");
  ctx.Require("C2", count >= 0 && (classes < 0 || count <= classes), "num_samples", count, "Logits",
              logits);
  const Shape samples = {logits.shape[0], AddDims(labels.shape[1], count)};
  if (ctx.Attr<bool>("use_customized_samples")) {
    for (const char* slot : {"CustomizedSamples", "CustomizedProbabilities"}) {
      ctx.Require("C3", ctx.HasInput(slot), slot, "absent");
      const VarMeta& meta = ctx.Input(slot);
      const bool index = slot == std::string_view("CustomizedSamples");
      ctx.Require("C3",
                  meta.dtype == (index ? DType::kInt64 : logits.dtype) &&
                      meta.shape.CompatibleWith(samples),
                  slot, meta, "samples", samples);
    }
  }
  ctx.SetOutput("Samples", DType::kInt64, samples);
  ctx.SetOutput("Probabilities", logits.dtype, samples);
  ctx.SetOutput("SampledLogits", logits.dtype, samples);
  ctx.SetOutput("SampledLabels", DType::kInt64, labels.shape);
  const auto set_dims = [&](const char* slot, const VarMeta& of) {
    ctx.SetOutput(slot, of.dtype, {of.shape[0], of.shape[1], 0});
  };
  set_dims("LogitsDim", logits);
  set_dims("LabelsDim", labels);
}

// Distinct classes, each drawn with the probability log((k + 2) / (k + 1)) / log(V + 1).
struct LogUniform {
  double log_range;
  int64_t classes;
  explicit LogUniform(int64_t v) : log_range(std::log(static_cast<double>(v) + 1)), classes(v) {}

  double Probability(int64_t k) const {
    const auto at = static_cast<double>(k);
    return std::log((at + 2) / (at + 1)) / log_range;
  }
  // Writes `count` classes and returns the number of draws. `drawn` has an element for each class.
  int64_t Draw(const Philox& random, int64_t count, bool* drawn, int64_t* out) const {
    std::fill_n(drawn, classes, false);
    int64_t tries = 0;
    for (int64_t n = 0; n < count; ++tries) {
      if (tries % 65536 == 0) CheckTimeLimit("drawing distinct classes");
      const double u = random.UniformDouble(static_cast<uint64_t>(tries));
      const int64_t k = (static_cast<int64_t>(std::exp(u * log_range)) - 1) % classes;
      if (drawn[k]) continue;
      drawn[k] = true;
      out[n++] = k;
    }
    return tries;
  }
};

template <class T>
KernelOf<T> SampleLogits(const PrepareContext& ctx) {
  const TensorArg logits = ctx.Input("Logits"), label = ctx.Input("Labels");
  const TensorArg given = ctx.Input("CustomizedSamples");
  const TensorArg given_probs = ctx.Input("CustomizedProbabilities");
  const TensorArg kept = ctx.Output("Samples"), kept_probs = ctx.Output("Probabilities");
  const TensorArg sampled = ctx.Output("SampledLogits"), places = ctx.Output("SampledLabels");
  const int64_t rows = logits.shape[0], classes = logits.shape[1], trues = label.shape[1];
  const int64_t count = ctx.Attr<int32_t>("num_samples"), width = trues + count;
  const bool customized = ctx.Attr<bool>("use_customized_samples");
  const bool remove_hits = ctx.Attr<bool>("remove_accidental_hits");
  const auto seed = static_cast<uint64_t>(int64_t{ctx.Attr<int32_t>("seed")});
  const uint64_t stream = ctx.RandomStream("SampledLogits");
  const TensorArg negatives = ctx.Scratch(DType::kInt64, {count});
  const TensorArg drawn = ctx.Scratch(DType::kBool, {classes});
  const LogUniform noise(classes);
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader labels(ws, label);
    const T* in = ws.Data<const T>(logits);
    auto* draws = ws.Data<int64_t>(negatives);
    int64_t tries = 0;
    if (!customized) {
      const Philox random(seed != 0 ? seed : ws.seed(), stream, ws.step());
      tries = noise.Draw(random, count, ws.Data<bool>(drawn), draws);
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const int64_t at = i * width + j;
        const int64_t k = customized  ? ws.Data<const int64_t>(given)[at]
                          : j < trues ? labels[i * trues + j]
                                      : draws[j - trues];
        if (k < 0 || k >= classes)
          ThrowIndexRange(name, customized ? "CustomizedSamples" : "Labels",
                          customized ? at : i * trues + j, k, classes);
        const double p = noise.Probability(k);
        const double chance = customized ? static_cast<double>(ws.Data<const T>(given_probs)[at])
                              : tries == count
                                  ? p * static_cast<double>(count)
                                  : -std::expm1(static_cast<double>(tries) * std::log1p(-p));
        double value = static_cast<double>(in[i * classes + k]);
        for (int64_t t = 0; remove_hits && j >= trues && t < trues; ++t) {
          if (labels[i * trues + t] != k) continue;
          value -= kFar;
          break;
        }
        value -= std::log(chance);
        if (std::isinf(value)) value = value < 0 ? -kFar : kFar;
        ws.Data<T>(sampled)[at] = static_cast<T>(value);
        if (kept) ws.Data<int64_t>(kept)[at] = k;
        if (kept_probs) ws.Data<T>(kept_probs)[at] = static_cast<T>(chance);
      }
      for (int64_t t = 0; t < trues; ++t) ws.Data<int64_t>(places)[i * trues + t] = t;
    }
  };
}

// The rows of dSampledLogits, added at the positions of their samples.
void SampleLogitsGradient(GradientContext& g) {
  g.Set("Logits", g.Make("index_sample_grad",
                         {{"X", {g.Input("Logits")}},
                          {"Index", {g.Out("Samples").name()}},
                          {"Out@GRAD", {g.OutputGrad("SampledLogits")}}},
                         {}, "X@GRAD"));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("sample_logits")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Prepares a softmax over a sample of the classes. Samples = for each row, its T "
               "labels and S = num_samples distinct classes shared by all rows, drawn with P(k) = "
               "log((k + 2) / (k + 1)) / log(V + 1). Probabilities = P S if no class was drawn "
               "twice, else 1 - (1 - P)^draws. SampledLogits = Logits at Samples - "
               "log(Probabilities), less 1e20 where a drawn class is a label of the row "
               "(remove_accidental_hits). SampledLabels = 0 to T - 1. A class outside of [0, V) is "
               "an error.")
          .Constraint(
              "C1",
              "Logits and Labels (int32 or int64) must be matrices with the same number of rows")
          .Constraint("C2", "num_samples must lie in [0, V]")
          .Constraint("C3",
                      "use_customized_samples needs CustomizedSamples, int64, and "
                      "CustomizedProbabilities of Logits' dtype, both [B, T + S]")
          .Input("Logits", "floating-point tensor [B, V]")
          .Input("Labels", "classes [B, T]")
          .OptionalInput("CustomizedSamples", "used as Samples")
          .OptionalInput("CustomizedProbabilities", "used as Probabilities")
          .IntermediateOutput("Samples", "int64 tensor [B, T + S]")
          .IntermediateOutput("Probabilities", "tensor [B, T + S]")
          .IntermediateOutput("LogitsDim", "dims of Logits and 0, no elements")
          .IntermediateOutput("LabelsDim", "dims of Labels and 0, no elements")
          .Output("SampledLogits", "tensor [B, T + S]")
          .Output("SampledLabels",
                  "int64 tensor [B, T]: positions of the labels in a row of samples")
          .Attr<int32_t>("num_samples", "S")
          .Attr<bool>("use_customized_samples", false,
                      "use the customized samples instead of drawing")
          .Attr<bool>("uniq", true, "ignored; the drawn classes are distinct")
          .Attr<bool>("remove_accidental_hits", true,
                      "exclude labels among the drawn classes from the softmax")
          .Attr<int32_t>("seed", 0, "of the draws; 0: the program's")
          .NoGradientTo({"Labels", "CustomizedSamples", "CustomizedProbabilities"})
          .Random()
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferSampleLogits)
          .Gradient(SampleLogitsGradient)
          .Reference(SampleLogits<float>, SampleLogits<double>));
}

}  // namespace coracle::sample_logits_op
