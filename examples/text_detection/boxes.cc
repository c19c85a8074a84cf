#include "boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

// Twice the area of a triangle; positive if the path a, b, c turns clockwise (y points down).
double Turn(Point a, Point b, Point c) {
  return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

// Andrew's monotone chain. Returns fewer than three points if all lie on one line.
std::vector<Point> ConvexHull(std::vector<Point> points) {
  std::sort(points.begin(), points.end(),
            [](Point a, Point b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  std::vector<Point> hull;
  const auto add = [&](Point p, size_t begin) {
    while (hull.size() >= begin + 2 && Turn(hull[hull.size() - 2], hull.back(), p) <= 0)
      hull.pop_back();
    hull.push_back(p);
  };
  for (const Point& p : points) add(p, 0);
  const size_t upper = hull.size() - 1;
  for (auto p = points.rbegin() + 1; p < points.rend(); ++p) add(*p, upper);
  if (hull.size() > 1) hull.pop_back();  // equals the first point
  return hull;
}

// A rectangle along the unit vector `along`: the ranges [low, high] along and across it.
struct Extent {
  Point along{1, 0};
  double low = 0, high = 0, across_low = 0, across_high = 0;

  double Width() const { return high - low; }
  double Height() const { return across_high - across_low; }
  void Grow(double by) {
    low -= by;
    high += by;
    across_low -= by;
    across_high += by;
  }
  double Along(Point p) const { return p.x * along.x + p.y * along.y; }
  double Across(Point p) const { return p.y * along.x - p.x * along.y; }
  Point At(double a, double b) const {
    return {a * along.x - b * along.y, a * along.y + b * along.x};
  }
  bool Contains(Point p) const {
    const double a = Along(p), b = Across(p);
    return a >= low && a <= high && b >= across_low && b <= across_high;
  }
};

Extent ExtentAlong(const std::vector<Point>& points, Point along) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  Extent e{along, kFar, -kFar, kFar, -kFar};
  for (const Point& p : points) {
    e.low = std::min(e.low, e.Along(p));
    e.high = std::max(e.high, e.Along(p));
    e.across_low = std::min(e.across_low, e.Across(p));
    e.across_high = std::max(e.across_high, e.Across(p));
  }
  return e;
}

// One side of the smallest rectangle lies on a side of the convex hull.
Extent SmallestExtent(std::vector<Point> points) {
  const std::vector<Point> hull = ConvexHull(std::move(points));
  Extent best = ExtentAlong(hull, {1, 0});
  for (size_t k = 0; k < hull.size(); ++k) {
    const Point a = hull[k], b = hull[(k + 1) % hull.size()];
    const double length = std::hypot(b.x - a.x, b.y - a.y);
    if (length == 0) continue;
    const Extent e = ExtentAlong(hull, {(b.x - a.x) / length, (b.y - a.y) / length});
    if (e.Width() * e.Height() < best.Width() * best.Height() - 1e-9) best = e;
  }
  return best;
}

// The corners, clockwise from the one nearest to the top left.
Quad CornersOf(const Extent& e) {
  Quad corners = {e.At(e.low, e.across_low), e.At(e.high, e.across_low),
                  e.At(e.high, e.across_high), e.At(e.low, e.across_high)};
  size_t first = 0;
  for (size_t k = 1; k < 4; ++k) {
    if (corners[k].x + corners[k].y < corners[first].x + corners[first].y) first = k;
  }
  std::rotate(corners.begin(), corners.begin() + static_cast<std::ptrdiff_t>(first), corners.end());
  return corners;
}

// Finds the connected regions of a map (pixels that touch at corners are connected) and stores each
// as the ends of its rows.
class Regions {
 public:
  Regions(const float* map, int height, int width, float threshold)
      : map_(map),
        height_(height),
        width_(width),
        threshold_(threshold),
        seen_(static_cast<size_t>(height) * static_cast<size_t>(width)) {}

  // The outline of the region that begins at the pixel; empty if no region begins there.
  std::vector<Point> OutlineFrom(int x, int y) {
    std::vector<Point> outline;
    if (!Take(x, y)) return outline;
    while (!open_.empty()) {
      const auto [px, py] = open_.back();
      open_.pop_back();
      if (!IsText(px - 1, py) || !IsText(px + 1, py))
        outline.push_back({static_cast<double>(px), static_cast<double>(py)});
      for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) Take(px + dx, py + dy);
    }
    return outline;
  }

 private:
  struct Pixel {
    int x, y;
  };
  size_t Index(int x, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x);
  }
  bool IsText(int x, int y) const {
    return x >= 0 && y >= 0 && x < width_ && y < height_ && map_[Index(x, y)] > threshold_;
  }
  bool Take(int x, int y) {
    if (!IsText(x, y) || seen_[Index(x, y)]) return false;
    seen_[Index(x, y)] = true;
    open_.push_back({x, y});
    return true;
  }

  const float* map_;
  int height_, width_;
  float threshold_;
  std::vector<bool> seen_;
  std::vector<Pixel> open_;
};

double MeanWithin(const Extent& e, const float* map, int height, int width) {
  const Quad corners = CornersOf(e);
  const auto [left, right] = std::minmax_element(corners.begin(), corners.end(),
                                                 [](Point a, Point b) { return a.x < b.x; });
  const auto [top, bottom] = std::minmax_element(corners.begin(), corners.end(),
                                                 [](Point a, Point b) { return a.y < b.y; });
  double sum = 0;
  int64_t count = 0;
  const int last_x = std::min(width - 1, static_cast<int>(std::ceil(right->x))),
            last_y = std::min(height - 1, static_cast<int>(std::ceil(bottom->y)));
  Extent inside = e;
  inside.Grow(1e-6);  // includes pixels on a side
  for (int y = std::max(0, static_cast<int>(std::floor(top->y))); y <= last_y; ++y) {
    for (int x = std::max(0, static_cast<int>(std::floor(left->x))); x <= last_x; ++x) {
      if (!inside.Contains({static_cast<double>(x), static_cast<double>(y)})) continue;
      sum += map[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
      ++count;
    }
  }
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace

Quad SmallestRectangle(std::vector<Point> points) {
  return points.empty() ? Quad() : CornersOf(SmallestExtent(std::move(points)));
}

std::vector<TextBox> FindBoxes(const float* map, int height, int width, const BoxOptions& options) {
  std::vector<TextBox> boxes;
  Regions regions(map, height, width, options.threshold);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const std::vector<Point> outline = regions.OutlineFrom(x, y);
      if (outline.empty()) continue;
      Extent core = SmallestExtent(outline);
      if (std::min(core.Width(), core.Height()) < options.min_side) continue;
      const double score = MeanWithin(core, map, height, width);
      if (score < options.min_score) continue;
      // Training shrank each line by area / perimeter times a ratio; this reverses it.
      core.Grow(options.unclip_ratio * core.Width() * core.Height() /
                (2 * (core.Width() + core.Height())));
      boxes.push_back({CornersOf(core), score});
    }
  }
  return boxes;
}
