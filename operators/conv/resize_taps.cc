#include <coracle/operators/conv/resize_taps.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

int64_t NearestTo(double place, const std::string& how) {
  const double below = std::floor(place), rest = place - below;
  bool up = rest > 0;
  if (how == "floor") up = false;
  if (how == "round_prefer_floor") up = rest > 0.5;
  if (how == "round_prefer_ceil") up = rest >= 0.5;
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

// The weight of an element at a distance: linear, or Keys' cubic kernel.
double WeightAt(const ResizeRule& rule, double t) {
  t = std::abs(t);
  if (rule.mode == "linear") return std::max(0.0, 1 - t);
  const double a = rule.cubic_a;
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

double Stretch(const ResizeRule& rule, const ResizeLengths& a) {
  return rule.antialias ? std::min(1.0, a.scale) : 1.0;
}

// Half of the number of elements around a position.
int64_t Reach(const ResizeRule& rule, const ResizeLengths& a) {
  const double reach = (rule.mode == "linear" ? 1 : 2) / Stretch(rule, a);
  // A longer reach adds nothing but copies of the first and the last element.
  return static_cast<int64_t>(std::ceil(std::min(reach, 4.0 * static_cast<double>(a.in) + 4)));
}

}  // namespace

double ResizePlace(const ResizeRule& rule, const ResizeLengths& a, int64_t k) {
  const auto in = static_cast<double>(a.in), out = static_cast<double>(a.out);
  const auto at = static_cast<double>(k);
  // Length of the result, possibly fractional.
  const double length = a.by_size ? out : a.scale * in;
  if (rule.place == "align_corners") return length == 1 ? 0 : at * (in - 1) / (length - 1);
  if (rule.place == "asymmetric") return a.by_size ? at * in / out : at / a.scale;
  if (rule.IsCrop()) {
    if (length == 1) return 0.5 * (a.begin + a.end) * (in - 1);
    return a.begin * (in - 1) + at * (a.end - a.begin) * (in - 1) / (length - 1);
  }
  if (rule.place == "pytorch_half_pixel" && length <= 1) return 0;
  if (rule.place == "tf_half_pixel_for_nn")  // of operator sets 11 and 12
    return a.by_size ? (2 * at + 1) * in / (2 * out) : (at + 0.5) / a.scale;
  const double shift =
      rule.place == "half_pixel_symmetric" ? in / 2 * (1 - out / (length == 0 ? 1 : length)) : 0;
  if (a.by_size) return shift + ((2 * at + 1) * in - out) / (2 * out);
  return shift + (at + 0.5) / a.scale - 0.5;
}

bool IsOutside(const ResizeRule& rule, const ResizeLengths& a, int64_t k) {
  if (!rule.IsCrop()) return false;
  const double place = ResizePlace(rule, a, k);
  return !(place >= 0 && place <= static_cast<double>(a.in - 1));
}

int64_t MaxTaps(const ResizeRule& rule, const ResizeLengths& a) {
  return rule.mode == "nearest" ? 1 : 2 * Reach(rule, a);
}

void ResizeTaps(const ResizeRule& rule, const ResizeLengths& a, int64_t k,
                std::vector<ResizeTap>* taps) {
  taps->clear();
  const auto far = static_cast<double>(a.in) * 2 + 4;  // as good as any position beyond
  const double place = std::clamp(ResizePlace(rule, a, k), -far, far);
  const auto inside = [&](int64_t at) { return std::clamp<int64_t>(at, 0, a.in - 1); };
  if (rule.mode == "nearest") {
    const bool simple = rule.nearest == "simple";
    const std::string how = simple ? (a.scale < 1 ? "ceil" : "floor") : rule.nearest;
    taps->push_back({inside(NearestTo(place, how)), 1});
    return;
  }
  const double base = std::floor(place), stretch = Stretch(rule, a);
  const int64_t reach = Reach(rule, a);
  double sum = 0;
  for (int64_t i = 1 - reach; i <= reach; ++i) {
    const int64_t at = static_cast<int64_t>(base) + i;
    if (rule.exclude_outside && at != inside(at)) continue;
    const double weight = WeightAt(rule, (static_cast<double>(i) - (place - base)) * stretch);
    if (weight == 0) continue;
    taps->push_back({inside(at), weight});
    sum += weight;
  }
  for (ResizeTap& tap : *taps) tap.weight /= sum;
}

}  // namespace coracle::inline internal
