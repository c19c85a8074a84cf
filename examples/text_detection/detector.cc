#include "detector.h"

#include <algorithm>
#include <cmath>

namespace {

coracle::PreparedProgram Load(const std::string& model, coracle::Scope& scope) {
  coracle::InferenceModel loaded = coracle::LoadInferenceModel(model, scope);
  if (loaded.feed_names.size() != 1 || loaded.fetch_names.size() != 1)
    coracle::ThrowInvalid(model + ": a text detector has one input and one result");
  // The model accepts pictures of any size, whatever size it was exported with.
  loaded.program.Root().FindVar(loaded.feed_names[0])->SetShape({-1, 3, -1, -1});
  return coracle::Executor().PrepareOwning(loaded.program, scope);
}

// The model halves a picture five times.
int ToMultipleOf32(double size) {
  return std::max(32, 32 * static_cast<int>(std::lround(size / 32)));
}

// [1, 3, height, width], blue first, normalised as in the detector's training: with the mean and
// the standard deviation of ImageNet's colours.
coracle::Tensor InputOf(const Picture& picture) {
  constexpr float kMean[3] = {0.485f, 0.456f, 0.406f}, kDeviation[3] = {0.229f, 0.224f, 0.225f};
  coracle::Tensor input(coracle::DType::kFloat32, {1, 3, picture.height, picture.width});
  float* out = input.data<float>();
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < picture.height; ++y) {
      for (int x = 0; x < picture.width; ++x)
        *out++ = (static_cast<float>(picture.At(x, y)[2 - c]) / 255 - kMean[c]) / kDeviation[c];
    }
  }
  return input;
}

}  // namespace

TextDetector::TextDetector(const std::string& model) : net_(Load(model, scope_)) {}

std::vector<TextBox> TextDetector::Find(const Picture& picture, const BoxOptions& options,
                                        int max_side) {
  const double scale =
      std::min(1.0, static_cast<double>(max_side) / std::max({picture.width, picture.height, 1}));
  const int width = ToMultipleOf32(scale * picture.width),
            height = ToMultipleOf32(scale * picture.height);
  const coracle::Tensor& map = net_.Run(scope_, {InputOf(Resized(picture, width, height))})[0];
  if (map.shape().ToString() != coracle::Shape({1, 1, height, width}).ToString())
    coracle::ThrowInvalid("the model's result is " + map.ToString() + ", not a map of its input");
  std::vector<TextBox> boxes = FindBoxes(map.data<float>(), height, width, options);
  for (TextBox& box : boxes) {
    for (Point& corner : box.corners) {  // centres of pixels have integer coordinates
      corner.x = (corner.x + 0.5) * picture.width / width - 0.5;
      corner.y = (corner.y + 0.5) * picture.height / height - 0.5;
      corner.x = std::clamp(corner.x, 0.0, picture.width - 1.0);
      corner.y = std::clamp(corner.y, 0.0, picture.height - 1.0);
    }
  }
  return boxes;
}
