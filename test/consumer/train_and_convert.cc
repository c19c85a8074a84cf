// Trains a job, saves the model, writes it as an ONNX model, and reads that.
#include <coracle/convert.h>
#include <coracle/train.h>

#include <cstdio>

using namespace coracle;

namespace {

constexpr const char* kModel = R"(
  data { name: "image" shape: [-1, 1, 28, 28] }
  data { name: "label" shape: [-1, 1] dtype: INT64 }
  layer { fc { input: "image" size: 10 output: "logits" } }
  layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
  layer { mean { input: "ce" output: "loss" } }
)";

int Run() {
  JobConfig job;
  job.model_text = kModel;
  job.train.source = DigitsOptions();
  job.train.limit = 64;
  job.max_iter = 4;
  TrainResult trained = RunJob(job);
  SaveInferenceModel("digits", {"image"}, {"logits"}, trained.main, trained.scope);

  Scope saved, imported;
  const InferenceModel model = LoadInferenceModel("digits", saved);
  ExportOnnx("digits.onnx", model.program, saved);
  const InferenceModel back = LoadInferenceModel("digits.onnx", imported);
  const Tensor image(DType::kFloat32, {1, 1, 28, 28});
  const auto logits = [&](const InferenceModel& m, Scope& scope) {
    return Executor().Run(m.program, scope, {{m.feed_names[0], image}}, m.fetch_names)[0];
  };
  if (logits(model, saved).numel() != 10 || logits(back, imported).numel() != 10) return 1;
  std::printf("%lld steps; logits of the ONNX model: %zu feeds, %zu fetches\n",
              static_cast<long long>(trained.steps), back.feed_names.size(),
              back.fetch_names.size());
  return trained.steps == 4 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return Run();
  } catch (const Error& e) {
    std::fprintf(stderr, "train_and_convert: %s\n", e.what());
    return 1;
  }
}
