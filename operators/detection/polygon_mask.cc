#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/detection/polygon_mask.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr int64_t kFiner = 5;

// Rounds halves up. Truncates below 0, where nothing is drawn.
int64_t Nearest(double v) { return static_cast<int64_t>(v + 0.5); }

}  // namespace

bool PolygonMask::Reaches(double x, double y) {
  return std::abs(x) <= 0x1p20 && std::abs(y) <= 0x1p20;
}

void PolygonMask::Begin() {
  std::fill(toggles_.begin(), toggles_.end(), uint8_t{0});
  empty_ = true;
}

void PolygonMask::LineTo(double x, double y) {
  const Place at = {Nearest(kFiner * x), Nearest(kFiner * y)};
  if (empty_)
    first_ = last_ = at;
  else
    Edge(corner_, at);
  corner_ = at;
  empty_ = false;
}

// Walks along the longer axis in steps of one.
void PolygonMask::Edge(const Place& from, const Place& to) {
  const int64_t dx = std::abs(to.u - from.u), dy = std::abs(to.v - from.v);
  const bool by_x = dx >= dy, backwards = by_x ? from.u > to.u : from.v > to.v;
  const Place &low = backwards ? to : from, &high = backwards ? from : to;
  const int64_t steps = by_x ? dx : dy, across = by_x ? high.v - low.v : high.u - low.u;
  const double slope = steps > 0 ? static_cast<double>(across) / static_cast<double>(steps) : 0;
  if (steps > 4096) CheckTimeLimit("drawing polygons");
  for (int64_t i = 0; i <= steps; ++i) {
    const int64_t t = backwards ? steps - i : i;
    const double moved = slope * static_cast<double>(t);
    if (by_x)
      Step({low.u + t, Nearest(static_cast<double>(low.v) + moved)});
    else
      Step({Nearest(static_cast<double>(low.u) + moved), low.v + t});
  }
}

// A step across the middle of a column of cells toggles the cells below.
void PolygonMask::Step(const Place& to) {
  const int64_t from = last_.u, middle = to.u < from ? to.u : to.u - 1;
  const int64_t v = std::min(last_.v, to.v);
  last_ = to;
  if (from == to.u || middle < 2 || (middle - 2) % kFiner != 0) return;
  const int64_t column = (middle - 2) / kFiner;
  if (column >= side_) return;
  const int64_t row = v <= 2 ? 0 : std::min((v - 2 + kFiner - 1) / kFiner, side_);
  toggles_[static_cast<size_t>(column * side_ + row)] ^= 1;
}

void PolygonMask::End(int32_t* to) {
  if (empty_) return;
  Edge(corner_, first_);
  uint8_t inside = 0;
  for (int64_t i = 0; i < side_ * side_; ++i) {
    inside ^= toggles_[static_cast<size_t>(i)];
    if (inside) to[i % side_ * side_ + i / side_] = 1;
  }
}

}  // namespace coracle::inline internal
