#pragma once
// Boxes x1, y1, x2, y2 and computations of detection ops on them. `extra` is the difference of a
// size and the distance of the corners: 1 for boxes of whole pixels, 0 for normalized ones.

#include <coracle/operators/detection/reals.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace coracle::inline internal {

struct Box {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;

  double Width(double extra) const { return x2 - x1 + extra; }
  double Height(double extra) const { return y2 - y1 + extra; }
};

// The box of four elements from `at` on.
inline Box ReadBox(const Reals& from, int64_t at) {
  return {from[at], from[at + 1], from[at + 2], from[at + 3]};
}
inline void WriteBox(const RealsOut& to, int64_t at, const Box& box) {
  to.Set(at, box.x1);
  to.Set(at + 1, box.y1);
  to.Set(at + 2, box.x2);
  to.Set(at + 3, box.y2);
}

inline Box Scaled(const Box& box, double by) {
  return {box.x1 * by, box.y1 * by, box.x2 * by, box.y2 * by};
}

// Corners moved into [0, right] and [0, bottom].
inline Box Clipped(const Box& box, double right, double bottom) {
  const auto clip = [](double v, double most) { return std::max(std::min(v, most), 0.0); };
  return {clip(box.x1, right), clip(box.y1, bottom), clip(box.x2, right), clip(box.y2, bottom)};
}

// 0 for a box whose second corner is before the first.
inline double Area(const Box& box, double extra) {
  if (box.x2 < box.x1 || box.y2 < box.y1) return 0;
  return box.Width(extra) * box.Height(extra);
}

inline double CommonArea(const Box& a, const Box& b, double extra) {
  const double w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const double h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  return w < 0 || h < 0 ? 0 : (w + extra) * (h + extra);
}

// Intersection over union; 0 for boxes that do not overlap or have no area.
inline double Overlap(const Box& a, const Box& b, double extra) {
  const double common = CommonArea(a, b, extra);
  const double all = Area(a, extra) + Area(b, extra) - common;
  return common > 0 && all > 0 ? common / all : 0;
}

// The rule for comparison with true boxes: `extra` is added before negative sizes become 0, so that
// boxes less than `extra` apart overlap, and a box with swapped corners still has an area.
inline double GrownCommonArea(const Box& a, const Box& b, double extra) {
  const double w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1) + extra;
  const double h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1) + extra;
  return std::max(0.0, w) * std::max(0.0, h);
}
// The area of the union of two boxes with this common area.
inline double GrownUnion(const Box& a, const Box& b, double extra, double common) {
  return a.Width(extra) * a.Height(extra) + b.Width(extra) * b.Height(extra) - common;
}
inline double GrownOverlap(const Box& a, const Box& b, double extra) {
  const double common = GrownCommonArea(a, b, extra);
  return common > 0 ? common / GrownUnion(a, b, extra, common) : 0;
}

// Intersection over union of two polygons of `points` corners x, y; points with an odd winding
// number are inside.
double PolygonOverlap(const double* a, const double* b, int64_t points);

// A box relative to another: the distance of the centres in units of that box's size, and the
// logarithms of the size ratios.
struct BoxDeltas {
  double x = 0, y = 0, w = 0, h = 0;
};
BoxDeltas EncodeBox(const Box& box, const Box& prior, double extra);
// The prior moved by x, y of the ratios, in units of its size, and with sizes multiplied by w, h.
inline Box ResizedBox(const BoxDeltas& ratios, const Box& prior, double extra) {
  const double pw = prior.Width(extra), ph = prior.Height(extra);
  const double x = prior.x1 + pw / 2 + ratios.x * pw, y = prior.y1 + ph / 2 + ratios.y * ph;
  const double w = ratios.w * pw, h = ratios.h * ph;
  return {x - w / 2, y - h / 2, x + w / 2 - extra, y + h / 2 - extra};
}
// The box with these deltas; the logarithms are limited to `most`.
Box DecodeBox(const BoxDeltas& deltas, const Box& prior, double extra,
              double most = std::numeric_limits<double>::infinity());

}  // namespace coracle::inline internal
