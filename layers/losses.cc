// Losses and metrics.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>

namespace coracle {

Variable Builder::CrossEntropy(const Variable& x, const Variable& label,
                               const CrossEntropyOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "cross_entropy", OutputOf(options));
  const std::string out = layer.Out();
  Append("cross_entropy", {{"X", {NameIn(*this, x)}}, {"Label", {NameIn(*this, label)}}},
         {{"Y", {out}}},
         {{"soft_label", options.soft_label}, {"ignore_index", options.ignore_index}});
  return layer.Finish(out);
}

Variable Builder::SoftmaxWithCrossEntropy(const Variable& logits, const Variable& label,
                                          const SoftmaxWithCrossEntropyOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "softmax_with_cross_entropy", OutputOf(options));
  RequireFreeOutput(*this, "softmax_with_cross_entropy", options.softmax_output);
  const std::string softmax =
      options.softmax_output.empty() ? layer.Temp() : options.softmax_output;
  const std::string out = layer.Out();
  Append("softmax_with_cross_entropy",
         {{"Logits", {NameIn(*this, logits)}}, {"Label", {NameIn(*this, label)}}},
         {{"Softmax", {softmax}}, {"Loss", {out}}},
         {{"soft_label", options.soft_label},
          {"ignore_index", options.ignore_index},
          {"numeric_stable_mode", options.numeric_stable_mode},
          {"axis", options.axis}});
  return layer.Finish(out);
}

Variable Builder::SigmoidCrossEntropyWithLogits(const Variable& x, const Variable& label,
                                                const SigmoidCrossEntropyOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "sigmoid_cross_entropy_with_logits", OutputOf(options));
  const std::string out = layer.Out();
  Append("sigmoid_cross_entropy_with_logits",
         {{"X", {NameIn(*this, x)}}, {"Label", {NameIn(*this, label)}}}, {{"Out", {out}}},
         {{"ignore_index", options.ignore_index}, {"normalize", options.normalize}});
  return layer.Finish(out);
}

// (x - label)^2, element by element.
Variable Builder::SquareErrorCost(const Variable& x, const Variable& label,
                                  const OutputOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "square_error_cost", options);
  const std::string difference = layer.Temp(), out = layer.Out();
  Append("elementwise_sub", {{"X", {NameIn(*this, x)}}, {"Y", {NameIn(*this, label)}}},
         {{"Out", {difference}}}, {{"axis", int32_t{-1}}});
  Append("square", {{"X", {difference}}}, {{"Out", {out}}});
  return layer.Finish(out);
}

Variable Builder::Mean(const Variable& x, const OutputOptions& options) {
  return Unary("mean", x, {}, options);
}

Variable Builder::Accuracy(const Variable& x, const Variable& label,
                           const AccuracyOptions& options) {
  const EditGuard guard(*main_, *startup_);
  OutputOptions result;
  result.name = options.name;
  result.output = options.output;
  result.stop_gradient = true;
  LayerScope layer(*this, "accuracy", result);
  const std::string top = layer.Temp(), indices = layer.Temp();
  Append("top_k", {{"X", {NameIn(*this, x)}}}, {{"Out", {top}}, {"Indices", {indices}}},
         {{"k", options.k}});
  const std::string out = layer.Out(), correct = layer.Temp(), total = layer.Temp();
  Append("accuracy", {{"Out", {top}}, {"Indices", {indices}}, {"Label", {NameIn(*this, label)}}},
         {{"Accuracy", {out}}, {"Correct", {correct}}, {"Total", {total}}});
  for (const std::string& name : {top, indices, correct, total}) {
    Var(name).desc().SetStopGradient(true);
  }
  return layer.Finish(out);
}

std::vector<LayerDef> internal::LossLayers() {
  const char* kLabel = "integer tensor [N, 1], or one share per class with soft_label";
  const char* kSoftLabel = "label holds a probability for each class";
  const char* kIgnored = "label whose samples cost nothing";
  using Soft = SoftmaxWithCrossEntropyOptions;
  return {LayerFields<CrossEntropyOptions>(
              "cross_entropy", "-log of the probability of the label in input, for each sample.")
              .Input("input", "probabilities [N, classes]")
              .Input("label", kLabel)
              .Field("soft_label", &CrossEntropyOptions::soft_label, kSoftLabel)
              .Field("ignore_index", &CrossEntropyOptions::ignore_index, kIgnored)
              .Build(&Builder::CrossEntropy),
          LayerFields<Soft>("softmax_with_cross_entropy",
                            "Cross entropy of softmax(logits), for each sample.")
              .Input("logits", "scores [N, classes]")
              .Input("label", kLabel)
              .Field("soft_label", &Soft::soft_label, kSoftLabel)
              .Field("ignore_index", &Soft::ignore_index, kIgnored)
              .Field("numeric_stable_mode", &Soft::numeric_stable_mode,
                     "subtract the greatest score first")
              .Field("axis", &Soft::axis, "of the classes")
              .Field("softmax_output", &Soft::softmax_output, "name of softmax(logits)")
              .Build(&Builder::SoftmaxWithCrossEntropy),
          LayerFields<SigmoidCrossEntropyOptions>(
              "sigmoid_cross_entropy_with_logits",
              "Cross entropy of sigmoid(input) and label, element by element.")
              .Input("input", "scores of any shape")
              .Input("label", "shares, of input's shape")
              .Field("ignore_index", &SigmoidCrossEntropyOptions::ignore_index,
                     "label whose elements cost nothing")
              .Field("normalize", &SigmoidCrossEntropyOptions::normalize,
                     "divide by the number of elements that count")
              .Build(&Builder::SigmoidCrossEntropyWithLogits),
          LayerFields<OutputOptions>("square_error_cost", "(input - label)^2, element by element.")
              .Input("input", "tensor of any shape")
              .Input("label", "tensor of input's shape")
              .Build(&Builder::SquareErrorCost),
          LayerFields<AccuracyOptions>(
              "accuracy", "Share of the samples whose label is among the k highest scores.")
              .Input("input", "scores or probabilities [N, classes]")
              .Input("label", "integer tensor [N, 1]")
              .Field("k", &AccuracyOptions::k, "see above")
              .Result(LayerDef::Result::kMetric)
              .Build(&Builder::Accuracy)};
}

}  // namespace coracle
