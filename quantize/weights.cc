#include <coracle/quantize/weights.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace coracle::inline internal {
namespace {

// Maps each element of a tensor to its scale.
class ScalePlaces {
 public:
  ScalePlaces(const Shape& shape, const WeightFormat& format)
      : dim_(shape[format.axis]),
        inner_(shape.Product(format.axis + 1, shape.rank())),
        block_(format.block_size) {}

  size_t Of(int64_t i) const {
    const int64_t along = i / inner_ % dim_;
    if (block_ == 0) return static_cast<size_t>(along);
    const int64_t blocks = (dim_ + block_ - 1) / block_;
    return static_cast<size_t>((i / inner_ / dim_ * blocks + along / block_) * inner_ + i % inner_);
  }

 private:
  int64_t dim_, inner_, block_;
};

Shape ScaleShape(const Shape& weight, const WeightFormat& format) {
  if (format.block_size == 0) return {weight[format.axis]};
  Shape shape = weight;
  shape[format.axis] = (weight[format.axis] + format.block_size - 1) / format.block_size;
  return shape;
}

struct Extremes {
  float low = 0, high = 0;
};

std::vector<Extremes> ExtremesOf(std::span<const float> weight, const ScalePlaces& places,
                                 size_t scales) {
  std::vector<Extremes> extremes(scales);
  for (size_t i = 0; i < weight.size(); ++i) {
    if (!std::isfinite(weight[i]))
      throw Error(ErrorCode::kOutOfRange, "a weight is nan or infinite");
    Extremes& e = extremes[places.Of(static_cast<int64_t>(i))];
    e.low = std::min(e.low, weight[i]);
    e.high = std::max(e.high, weight[i]);
  }
  return extremes;
}

struct Levels {
  float least, most;
};
Levels LevelsOf(int bits) { return bits == 8 ? Levels{-127, 127} : Levels{-8, 7}; }

float Rounded(float x, float scale, const Levels& levels) {
  return std::clamp(std::nearbyint(x / scale), levels.least, levels.most);
}

constexpr float kLeastScale = std::numeric_limits<float>::min();

// The scales of int8: the largest absolute value is 127.
std::vector<float> ScalesOf8(const std::vector<Extremes>& extremes) {
  std::vector<float> scales;
  for (const Extremes& e : extremes) scales.push_back(std::max(-e.low, e.high) / 127);
  return scales;
}

// Tries scales for 4 bits, and keeps for each place the one with the smallest squared error.
std::vector<float> ScalesOf4(std::span<const float> weight, const ScalePlaces& places,
                             const std::vector<Extremes>& extremes) {
  const Levels levels = LevelsOf(4);
  std::vector<float> best(extremes.size()), tried(extremes.size());
  std::vector<double> least(extremes.size(), std::numeric_limits<double>::infinity());
  for (int percent = 100; percent >= 70; percent -= 2) {
    for (const bool full : {false, true}) {  // the extreme is 7 or, with its sign, -8
      std::vector<double> errors(extremes.size());
      for (size_t s = 0; s < tried.size(); ++s) {
        const float magnitude = std::max(-extremes[s].low, extremes[s].high);
        const float extreme =
            full ? (-extremes[s].low >= extremes[s].high ? magnitude : -magnitude) : magnitude;
        tried[s] = extreme * (static_cast<float>(percent) / 100) / (full ? 8.0f : 7.0f);
      }
      for (size_t i = 0; i < weight.size(); ++i) {
        const size_t s = places.Of(static_cast<int64_t>(i));
        if (std::abs(tried[s]) < kLeastScale) continue;
        const double error =
            static_cast<double>(tried[s] * Rounded(weight[i], tried[s], levels) - weight[i]);
        errors[s] += error * error;
      }
      for (size_t s = 0; s < tried.size(); ++s) {
        if (errors[s] >= least[s]) continue;
        least[s] = errors[s];
        best[s] = tried[s];
      }
    }
  }
  return best;
}

void Raise(std::span<const float> least_scales, std::vector<float>* scales) {
  float smallest = 0;
  for (const float scale : *scales)
    if (std::abs(scale) >= kLeastScale && (smallest == 0 || std::abs(scale) < smallest))
      smallest = std::abs(scale);
  for (size_t s = 0; s < scales->size(); ++s) {
    float& scale = (*scales)[s];
    if (std::abs(scale) < kLeastScale) scale = smallest == 0 ? 1 : smallest;
    if (s < least_scales.size() && std::abs(scale) < least_scales[s])
      scale = std::copysign(least_scales[s], scale);
  }
}

}  // namespace

IntegerWeight RoundWeight(const Tensor& weight, const WeightFormat& format,
                          std::span<const float> least_scales) {
  IntegerWeight result{Tensor(DType::kInt8, weight.shape()),
                       Tensor(DType::kFloat32, ScaleShape(weight.shape(), format)), format};
  const std::span<const float> from = weight.span<float>();
  const ScalePlaces places(weight.shape(), format);
  const size_t count = static_cast<size_t>(result.scale.numel());
  const std::vector<Extremes> extremes = ExtremesOf(from, places, count);
  std::vector<float> scales =
      format.bits == 8 ? ScalesOf8(extremes) : ScalesOf4(from, places, extremes);
  Raise(least_scales, &scales);
  std::copy(scales.begin(), scales.end(), result.scale.data<float>());
  const Levels levels = LevelsOf(format.bits);
  int8_t* to = result.values.data<int8_t>();
  for (size_t i = 0; i < from.size(); ++i)
    to[i] =
        static_cast<int8_t>(Rounded(from[i], scales[places.Of(static_cast<int64_t>(i))], levels));
  return result;
}

Tensor FloatOf(const IntegerWeight& weight) {
  Tensor result(DType::kFloat32, weight.values.shape());
  const ScalePlaces places(weight.values.shape(), weight.format);
  const std::span<const int8_t> values = weight.values.span<int8_t>();
  const std::span<const float> scales = weight.scale.span<float>();
  float* to = result.data<float>();
  for (size_t i = 0; i < values.size(); ++i)
    to[i] = scales[places.Of(static_cast<int64_t>(i))] * static_cast<float>(values[i]);
  return result;
}

}  // namespace coracle::inline internal
