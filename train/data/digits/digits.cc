#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/digits/digit_shapes.h>
#include <coracle/train/data/digits/digits.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace coracle {
namespace {

constexpr int kMaxPoints = 16;         // control points of one stroke
constexpr int kPieces = 5;             // line segments between two control points
constexpr uint64_t kNoiseBase = 4096;  // counter of the first noise block, past all other draws

// Draws random numbers from one counter-based stream.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : philox_(seed, HashName("digits"), index) {}
  // Uniform in [lo, hi).
  float Uniform(float lo, float hi) { return lo + (hi - lo) * ToUnitFloat(Word()); }
  int Below(int n) {
    return static_cast<int>((static_cast<uint64_t>(Word()) * static_cast<uint64_t>(n)) >> 32);
  }
  // Approximately normal, within 3.5 sigma: the sum of the word's four bytes.
  float Normal() { return BellOf(Word()); }
  static float BellOf(uint32_t word) {
    auto sum =
        static_cast<int>((word & 255) + ((word >> 8) & 255) + ((word >> 16) & 255) + (word >> 24));
    return static_cast<float>(sum - 510) * (1.0f / 147.8f);
  }
  const Philox& philox() const { return philox_; }

 private:
  uint32_t Word() {
    if (used_ == 4) {
      words_ = philox_.Block(counter_++);
      used_ = 0;
    }
    return words_[used_++];
  }

  Philox philox_;
  std::array<uint32_t, 4> words_{};
  uint64_t counter_ = 0;
  size_t used_ = 4;
};

struct Point {
  float x, y;
};

// One writer's style for one digit: the map from the unit square to pixels.
struct Hand {
  float xx, xy, yx, yy, x0, y0;  // affine part
  float bend, bend_phase;        // a slow wave along y
  float jitter;                  // noise of the control points, in units of the square
  float radius, radius_wave, radius_phase;
  float ink, softness;

  explicit Hand(Draws& draws) {
    double angle = draws.Normal() * 0.16;
    float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    float width = draws.Uniform(11.5f, 17.5f), height = draws.Uniform(15.5f, 20.5f);
    float shear = draws.Normal() * 0.2f;
    xx = c * width;
    xy = (c * shear - s) * height;
    yx = s * width;
    yy = (s * shear + c) * height;
    x0 = 14.0f + draws.Normal() * 1.25f;
    y0 = 14.0f + draws.Normal() * 1.25f;
    bend = draws.Normal() * 0.05f;
    bend_phase = draws.Uniform(0, 6.2832f);
    jitter = draws.Uniform(0.015f, 0.05f);
    radius = draws.Uniform(0.75f, 1.75f);
    radius_wave = draws.Uniform(0, 0.3f);
    radius_phase = draws.Uniform(0, 6.2832f);
    ink = draws.Uniform(0.7f, 1.0f);
    softness = draws.Uniform(0.6f, 1.1f);
  }

  Point ToPixels(float x, float y) const {
    float wave = bend * static_cast<float>(std::sin(4.5 * y + bend_phase));
    float u = x - 0.5f + wave, v = y - 0.5f;
    return {x0 + xx * u + xy * v, y0 + yx * u + yy * v};
  }
};

class Canvas {
 public:
  // Draws a line with round ends; the radius of the pen changes from ra to rb. Each pixel keeps its
  // darkest ink.
  void Line(Point a, Point b, float ra, float rb, float softness, float ink) {
    float reach = std::max(ra, rb) + softness;
    int x_begin = Clamp(std::min(a.x, b.x) - reach), x_end = Clamp(std::max(a.x, b.x) + reach + 1);
    int y_begin = Clamp(std::min(a.y, b.y) - reach), y_end = Clamp(std::max(a.y, b.y) + reach + 1);
    float dx = b.x - a.x, dy = b.y - a.y;
    float inverse = 1.0f / std::max(dx * dx + dy * dy, 1e-6f);
    for (int y = y_begin; y < y_end; ++y) {
      for (int x = x_begin; x < x_end; ++x) {
        float px = static_cast<float>(x) + 0.5f - a.x, py = static_cast<float>(y) + 0.5f - a.y;
        float t = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
        float ex = px - t * dx, ey = py - t * dy;
        float distance = std::sqrt(ex * ex + ey * ey) - (ra + t * (rb - ra));
        float value = std::clamp(0.5f - distance / softness, 0.0f, 1.0f) * ink;
        float& pixel = pixels_[y * kDigitSide + x];
        pixel = std::max(pixel, value);
      }
    }
  }

  void Finish(const Philox& philox, float noise, std::span<uint8_t, kDigitPixels> out) const {
    for (size_t i = 0; i < kDigitPixels; i += 4) {
      auto words = philox.Block(kNoiseBase + i / 4);
      for (size_t k = 0; k < 4; ++k) {
        float value = pixels_[i + k] + noise * Draws::BellOf(words[k]);
        out[i + k] = static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 1.0f) * 255.0f));
      }
    }
  }

 private:
  static int Clamp(float v) { return std::clamp(static_cast<int>(std::floor(v)), 0, kDigitSide); }

  std::array<float, kDigitPixels> pixels_{};
};

// The point at t in [0, 1] between p1 and p2 on the Catmull-Rom spline through p0..p3.
Point Spline(Point p0, Point p1, Point p2, Point p3, float t) {
  auto blend = [t](float a, float b, float c, float d) {
    return 0.5f * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t * t +
                   (3 * b - a - 3 * c + d) * t * t * t);
  };
  return {blend(p0.x, p1.x, p2.x, p3.x), blend(p0.y, p1.y, p2.y, p3.y)};
}

void DrawStroke(internal::PenStroke stroke, const Hand& hand, Draws& draws, Canvas& canvas) {
  std::array<Point, kMaxPoints> points;
  size_t n = std::min<size_t>(stroke.size(), kMaxPoints);
  for (size_t i = 0; i < n; ++i) {
    float x = stroke[i].x + hand.jitter * draws.Normal();
    float y = stroke[i].y + hand.jitter * draws.Normal();
    points[i] = hand.ToPixels(x, y);
  }
  auto radius_at = [&hand](float along) {
    return hand.radius *
           (1 + hand.radius_wave * static_cast<float>(std::sin(along + hand.radius_phase)));
  };
  float radius = radius_at(0);
  for (size_t i = 0; i + 1 < n; ++i) {
    // At an end or a corner, the neighbour point is the point itself, so that the curve does not
    // bend around it.
    Point before = i == 0 || stroke[i].corner ? points[i] : points[i - 1];
    Point after = i + 2 >= n || stroke[i + 1].corner ? points[i + 1] : points[i + 2];
    Point from = points[i];
    for (int k = 1; k <= kPieces; ++k) {
      float t = static_cast<float>(k) / kPieces;
      Point to = Spline(before, points[i], points[i + 1], after, t);
      float next = radius_at((static_cast<float>(i) + t) * 0.8f);
      canvas.Line(from, to, radius, next, hand.softness, hand.ink);
      from = to;
      radius = next;
    }
  }
}

// Draws a short stray stroke, mostly near the border.
void DrawStray(Draws& draws, Canvas& canvas) {
  double around = draws.Uniform(0, 6.2832f);
  float distance = draws.Uniform(9.0f, 14.0f);
  Point from{14 + distance * static_cast<float>(std::cos(around)),
             14 + distance * static_cast<float>(std::sin(around))};
  double direction = draws.Uniform(0, 6.2832f);
  float length = draws.Uniform(2.0f, 6.5f);
  Point to{from.x + length * static_cast<float>(std::cos(direction)),
           from.y + length * static_cast<float>(std::sin(direction))};
  float radius = draws.Uniform(0.5f, 1.1f);
  canvas.Line(from, to, radius, radius * 0.7f, 0.9f, draws.Uniform(0.4f, 0.9f));
}

// Training streams have even keys, test streams odd ones.
uint64_t KeyOf(uint64_t seed, DigitSplit split) {
  return seed * 2 + (split == DigitSplit::kTest ? 1 : 0);
}

}  // namespace

int internal::DrawDigit(uint64_t seed, DigitSplit split, uint64_t index,
                        std::span<uint8_t, kDigitPixels> pixels, std::span<const int32_t> classes) {
  Draws draws(KeyOf(seed, split), index);
  int label = draws.Below(static_cast<int>(classes.size()));
  auto styles = internal::DigitStyles(classes[static_cast<size_t>(label)]);
  auto style = styles[static_cast<size_t>(draws.Below(static_cast<int>(styles.size())))];
  Hand hand(draws);
  Canvas canvas;
  for (internal::PenStroke stroke : style) DrawStroke(stroke, hand, draws, canvas);
  constexpr int kStrays[8] = {0, 0, 0, 0, 0, 0, 1, 2};
  for (int left = kStrays[draws.Below(8)]; left > 0; --left) DrawStray(draws, canvas);
  float noise = draws.Uniform(0.0f, 0.12f);
  canvas.Finish(draws.philox(), noise, pixels);
  return label;
}

namespace {

std::vector<int32_t> ClassesOf(const DigitsOptions& options) {
  std::vector<int32_t> classes = options.classes;
  if (classes.empty()) classes.assign(kAllDigits.begin(), kAllDigits.end());
  std::array<bool, 10> seen{};
  for (int32_t digit : classes) {
    if (digit < 0 || digit > 9 || std::exchange(seen[static_cast<size_t>(digit)], true))
      ThrowInvalid(fmt::format("digits: classes must be distinct digits, got {}", digit));
  }
  return classes;
}

// Copies `digit` to place `k` of an image whose rows have `width` pixels.
void CopyInto(std::span<const uint8_t, kDigitPixels> digit, int64_t k, int64_t width,
              uint8_t* image) {
  for (int64_t row = 0; row < kDigitSide; ++row) {
    std::copy_n(digit.data() + row * kDigitSide, kDigitSide, image + row * width + k * kDigitSide);
  }
}

}  // namespace

DataSourcePtr MakeDigits(const DigitsOptions& options, DigitSplit split) {
  const int64_t count = options.count, length = options.length;
  if (length < 1 || length > 64)
    ThrowInvalid(fmt::format("digits: length must be in 1..64, got {}", length));
  if (count <= 0 || count > 10'000'000 / length) {
    ThrowInvalid(fmt::format("digits: count must be in 1..{}, got {}", 10'000'000 / length, count));
  }
  const std::vector<int32_t> classes = ClassesOf(options);
  const int64_t width = kDigitSide * length;
  Tensor images(DType::kUInt8, {count, kDigitSide * width});
  Tensor labels(DType::kInt64, {count, length});
  auto* pixels = images.data<uint8_t>();
  auto* label = labels.data<int64_t>();
  ParallelFor(count, 64, [&, pixels, label](int64_t begin, int64_t end) {
    std::array<uint8_t, kDigitPixels> digit;
    for (int64_t i = begin * length; i < end * length; ++i) {
      label[i] = DrawDigit(options.seed, split, static_cast<uint64_t>(i), digit, classes);
      CopyInto(digit, i % length, width, pixels + i / length * kDigitSide * width);
    }
  });
  std::string name =
      fmt::format("digits {} seed {} ({} images)", split == DigitSplit::kTrain ? "train" : "test",
                  options.seed, count);
  return MakeMemorySource(
      {{"image", std::move(images), {1, kDigitSide, width}, true, 0.0f, 1.0f / 255.0f},
       {"label", std::move(labels), {length}}},
      std::move(name));
}

}  // namespace coracle
