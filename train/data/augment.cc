#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/augment.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

namespace coracle::inline internal {
namespace {

std::array<uint32_t, 4> WordsOf(const TransformOptions& options, const AugmentedRow& at,
                                std::string_view stream) {
  const Philox random(options.seed, HashName(stream), static_cast<uint64_t>(at.epoch));
  return random.Block(static_cast<uint64_t>(at.row));
}

// Uniform in [-1, 1).
double Signed(uint32_t word) { return 2 * static_cast<double>(ToUnitFloat(word)) - 1; }

// One of 0 .. count - 1.
int64_t Below(uint32_t word, int64_t count) {
  return static_cast<int64_t>(uint64_t{word} * static_cast<uint64_t>(count) >> 32);
}

// A rotation by `angle` against the clock, a magnification by `zoom` and a shift, all around the
// centre of the image.
struct Motion {
  double angle = 0, zoom = 1, down = 0, right = 0;
};

// Samples a plane linearly at (y, x), where the pixel (0, 0) has its centre; `fill` lies around it.
double SampleAt(const float* plane, int64_t h, int64_t w, double y, double x, double fill) {
  if (!(y > -1 && x > -1 && y < static_cast<double>(h) && x < static_cast<double>(w))) return fill;
  const double top = std::floor(y), left = std::floor(x);
  double sum = 0;
  for (int dy = 0; dy < 2; ++dy) {
    for (int dx = 0; dx < 2; ++dx) {
      const double weight = std::abs(1 - dy - (y - top)) * std::abs(1 - dx - (x - left));
      if (weight == 0) continue;
      const int64_t row = static_cast<int64_t>(top) + dy, column = static_cast<int64_t>(left) + dx;
      const bool inside = row >= 0 && column >= 0 && row < h && column < w;
      sum += weight * (inside ? static_cast<double>(plane[row * w + column]) : fill);
    }
  }
  return sum;
}

// Each pixel of the result takes the value at the place from which the motion brings it.
void Move(const Motion& motion, double fill, const Shape& shape, float* image) {
  const int64_t h = shape[1], w = shape[2];
  const std::vector<float> from(image, image + shape.numel());
  const double cosine = std::cos(motion.angle), sine = std::sin(motion.angle);
  const double middle_y = static_cast<double>(h - 1) / 2, middle_x = static_cast<double>(w - 1) / 2;
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < w; ++x) {
      const double dy = (static_cast<double>(y) - middle_y - motion.down) / motion.zoom;
      const double dx = (static_cast<double>(x) - middle_x - motion.right) / motion.zoom;
      const double from_y = middle_y + sine * dx + cosine * dy;
      const double from_x = middle_x + cosine * dx - sine * dy;
      for (int64_t c = 0; c < shape[0]; ++c)
        image[(c * h + y) * w + x] =
            static_cast<float>(SampleAt(from.data() + c * h * w, h, w, from_y, from_x, fill));
    }
  }
}

double GreyAt(const Shape& shape, ChannelOrder order, const float* image, int64_t pixel) {
  const int64_t plane = shape[1] * shape[2];
  const int64_t red = order == ChannelOrder::kRgb ? 0 : 2;
  if (shape[0] != 3) {
    double sum = 0;
    for (int64_t c = 0; c < shape[0]; ++c) sum += static_cast<double>(image[c * plane + pixel]);
    return sum / static_cast<double>(shape[0]);
  }
  return 0.299 * static_cast<double>(image[red * plane + pixel]) +
         0.587 * static_cast<double>(image[plane + pixel]) +
         0.114 * static_cast<double>(image[(2 - red) * plane + pixel]);
}

struct ColourFactors {
  double brightness = 1, contrast = 1, saturation = 1;
};

void ChangeColours(const ColourFactors& by, const Shape& shape, ChannelOrder order, float* image) {
  const int64_t plane = shape[1] * shape[2];
  double middle = 0;
  for (int64_t i = 0; i < plane; ++i) middle += GreyAt(shape, order, image, i);
  middle *= by.brightness / static_cast<double>(plane);
  for (int64_t i = 0; i < plane; ++i) {
    const double grey =
        middle + (by.brightness * GreyAt(shape, order, image, i) - middle) * by.contrast;
    for (int64_t c = 0; c < shape[0]; ++c) {
      float& value = image[c * plane + i];
      const double x = middle + (by.brightness * static_cast<double>(value) - middle) * by.contrast;
      value = static_cast<float>(grey + (x - grey) * by.saturation);
    }
  }
}

}  // namespace

void CheckAugmentation(const TransformOptions& options, int64_t channels) {
  const auto check = [](const char* name, float value, float most) {
    if (value >= 0 && value <= most) return;
    ThrowInvalid(fmt::format("transform: {} must lie in [0, {:g}], got {:g}", name, most, value));
  };
  check("rotate", options.rotate, 180);
  check("zoom", options.zoom, 0.99f);
  for (const auto& [name, value] : {std::pair{"shift", options.shift},
                                    {"brightness", options.brightness},
                                    {"contrast", options.contrast},
                                    {"saturation", options.saturation}})
    check(name, value, 1);
  if (!(options.noise >= 0 && std::isfinite(options.noise)) || !std::isfinite(options.fill))
    ThrowInvalid("transform: noise and fill must be finite, and noise not negative");
  if (options.pad < 0 || options.erase < 0 || options.pad > 65500 || options.erase > 65500)
    ThrowInvalid("transform: pad and erase must lie in [0, 65500]");
  if (options.saturation > 0 && channels != 3)
    ThrowInvalid(
        fmt::format("transform: saturation needs 3 channels, the images have {}", channels));
}

void ChangeImage(const TransformOptions& options, const AugmentedRow& at, const Shape& shape,
                 float* image) {
  if (shape.numel() == 0) return;
  if (options.rotate > 0 || options.zoom > 0 || options.shift > 0) {
    const auto words = WordsOf(options, at, "transform.motion");
    Motion motion;
    motion.angle = Signed(words[0]) * static_cast<double>(options.rotate) * std::numbers::pi / 180;
    motion.zoom = 1 + Signed(words[1]) * static_cast<double>(options.zoom);
    const double shift = static_cast<double>(options.shift);
    motion.down = Signed(words[2]) * shift * static_cast<double>(shape[1]);
    motion.right = Signed(words[3]) * shift * static_cast<double>(shape[2]);
    Move(motion, static_cast<double>(options.fill), shape, image);
  }
  if (options.brightness > 0 || options.contrast > 0 || options.saturation > 0) {
    const auto words = WordsOf(options, at, "transform.colour");
    ColourFactors by;
    by.brightness = 1 + Signed(words[0]) * static_cast<double>(options.brightness);
    by.contrast = 1 + Signed(words[1]) * static_cast<double>(options.contrast);
    by.saturation = 1 + Signed(words[2]) * static_cast<double>(options.saturation);
    ChangeColours(by, shape, options.channel_order, image);
  }
}

void ChangeResult(const TransformOptions& options, const AugmentedRow& at, const Shape& shape,
                  float* result) {
  const int64_t h = shape[1], w = shape[2];
  if (options.noise > 0) {
    const Philox random(options.seed, HashName("transform.noise"), static_cast<uint64_t>(at.epoch));
    const auto first = static_cast<uint64_t>(at.row) * static_cast<uint64_t>(shape.numel());
    for (int64_t i = 0; i < shape.numel(); ++i)
      result[i] += static_cast<float>(static_cast<double>(options.noise) *
                                      random.Normal(first + static_cast<uint64_t>(i)));
  }
  if (options.erase == 0 || shape.numel() == 0) return;
  // The centre of the square is any pixel, so a part of it may lie outside.
  const auto words = WordsOf(options, at, "transform.erase");
  const int64_t top = Below(words[0], h) - options.erase / 2;
  const int64_t left = Below(words[1], w) - options.erase / 2;
  for (int64_t c = 0; c < shape[0]; ++c)
    for (int64_t y = std::max<int64_t>(top, 0); y < std::min(h, top + options.erase); ++y)
      for (int64_t x = std::max<int64_t>(left, 0); x < std::min(w, left + options.erase); ++x)
        result[(c * h + y) * w + x] = 0;
}

bool DrawsFlip(const TransformOptions& options, const AugmentedRow& at) {
  return options.flip && (WordsOf(options, at, "transform.colour")[3] & 1);
}

}  // namespace coracle::inline internal
