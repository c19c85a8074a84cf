#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/generate.h>
#include <coracle/train/vocabulary.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

namespace coracle {
namespace {

namespace fs = std::filesystem;

void CheckOptions(const GenerateOptions& o) {
  constexpr int64_t kMostLength = 100'000'000;
  if (o.prompt.empty()) ThrowInvalid("prompt: at least one character is needed to begin with");
  if (o.length < 0 || o.length > kMostLength)
    ThrowInvalid(fmt::format("length must be in [0, {}], got {}", kMostLength, o.length));
  if (!(o.temperature >= 0) || std::isinf(o.temperature))
    ThrowInvalid(fmt::format("temperature must be finite and not negative, got {}", o.temperature));
}

std::string ProgramPath(const std::string& model) {
  if (!FileExists(model))
    throw Error(ErrorCode::kNotFound, fmt::format("there is no model {}", Quote(model, 300)));
  if (!fs::is_directory(model)) return model;
  const std::string path = (fs::path(model) / "model.pdmodel").string();
  if (FileExists(path)) return path;
  throw Error(ErrorCode::kNotFound,
              fmt::format("{} has no model.pdmodel: a job saves one where it says deploy", model));
}

// A model that goes on where it was, a few characters at a time.
class StepModel {
 public:
  StepModel(const std::string& path, int64_t vocabulary, const CompileOptions& options)
      : path_(path), vocabulary_(vocabulary) {
    InferenceModel loaded = LoadInferenceModel(path, scope_);
    if (loaded.feed_names.size() != loaded.fetch_names.size()) {
      ThrowInvalid(fmt::format(
          "{}: {} inputs and {} outputs; to generate, each input but the first takes what an "
          "output gave",
          path, loaded.feed_names.size(), loaded.fetch_names.size()));
    }
    feeds_.resize(loaded.feed_names.size());
    for (size_t i = 1; i < feeds_.size(); ++i)
      feeds_[i] = ZeroState(*loaded.program.Root().FindVar(loaded.feed_names[i]));
    program_.emplace(Executor(options).Prepare(loaded.program));
  }

  // Scores of what follows the characters.
  const float* Run(const std::vector<int64_t>& ids) {
    const auto count = static_cast<int64_t>(ids.size());
    feeds_[0] = Tensor::Of<int64_t>({1, count}, ids);
    const std::vector<Tensor>& out = program_->Run(scope_, feeds_);
    const Tensor& scores = out[0];
    if (scores.dtype() != DType::kFloat32 || scores.numel() != count * vocabulary_) {
      ThrowInvalid(
          fmt::format("{}: its first output must be float32 [1, {}, {}], scores of the "
                      "vocabulary's characters; it is {}",
                      path_, count, vocabulary_, scores.ToString()));
    }
    scores_.assign(scores.data<float>() + (count - 1) * vocabulary_,
                   scores.data<float>() + count * vocabulary_);
    for (size_t i = 1; i < feeds_.size(); ++i) feeds_[i] = out[i].Clone();
    return scores_.data();
  }

 private:
  static Tensor ZeroState(const VarDesc& var) {
    Shape shape = var.shape();
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) shape[i] = 1;
    return Tensor::Zeros(var.dtype(), shape);
  }

  std::string path_;
  int64_t vocabulary_;
  Scope scope_;
  std::optional<PreparedProgram> program_;
  std::vector<Tensor> feeds_;
  std::vector<float> scores_;
};

// An index drawn with the probabilities softmax(scores / temperature).
int64_t Draw(const float* scores, int64_t n, double temperature, double uniform) {
  const int64_t best = std::max_element(scores, scores + n) - scores;
  if (temperature == 0) return best;
  auto weight = [&](int64_t i) {
    return std::exp(static_cast<double>(scores[i] - scores[best]) / temperature);
  };
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += weight(i);
  double rest = uniform * total;
  for (int64_t i = 0; i < n; ++i) {
    rest -= weight(i);
    if (rest < 0) return i;
  }
  return best;  // rounding left nothing
}

}  // namespace

std::string GenerateText(const std::string& model, const GenerateOptions& options) {
  CheckOptions(options);
  const std::string path = ProgramPath(model);
  const Vocabulary vocabulary =
      Vocabulary::Read((fs::path(path).parent_path() / "vocabulary.json").string());
  std::vector<int64_t> ids = vocabulary.Encode(options.prompt, "prompt");
  StepModel step(path, vocabulary.size(), options.compile);
  const Philox random(options.seed, HashName("generate"), 0);
  std::string text;
  for (int64_t i = 0; i < options.length; ++i) {
    const float* scores = step.Run(ids);
    ids = {Draw(scores, vocabulary.size(), options.temperature,
                random.UniformDouble(static_cast<uint64_t>(i)))};
    text += vocabulary.Character(ids[0]);
  }
  return text;
}

}  // namespace coracle
