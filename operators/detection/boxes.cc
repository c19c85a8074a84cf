#include <coracle/operators/detection/boxes.h>

#include <array>
#include <cmath>
#include <vector>

namespace coracle::inline internal {
namespace {

struct Edge {
  double x1, y1, x2, y2;
  double XAt(double y) const { return x1 + (x2 - x1) * (y - y1) / (y2 - y1); }
};

std::vector<Edge> EdgesOf(const double* polygon, int64_t points) {
  std::vector<Edge> edges;
  for (int64_t i = 0; i < points; ++i) {
    const int64_t j = (i + 1) % points;
    edges.push_back({polygon[2 * i], polygon[2 * i + 1], polygon[2 * j], polygon[2 * j + 1]});
  }
  return edges;
}

// The heights at which edges begin, end or cross: between two of them, edges do not meet.
std::vector<double> Heights(const std::vector<Edge>& a, const std::vector<Edge>& b) {
  std::vector<Edge> edges = a;
  edges.insert(edges.end(), b.begin(), b.end());
  std::vector<double> heights;
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& e = edges[i];
    heights.push_back(e.y1);
    for (size_t j = 0; j < i; ++j) {
      const Edge& f = edges[j];
      const double ex = e.x2 - e.x1, ey = e.y2 - e.y1, fx = f.x2 - f.x1, fy = f.y2 - f.y1;
      const double cross = ex * fy - ey * fx;
      const double t = ((f.x1 - e.x1) * fy - (f.y1 - e.y1) * fx) / cross;
      const double u = ((f.x1 - e.x1) * ey - (f.y1 - e.y1) * ex) / cross;
      if (t > 0 && t < 1 && u > 0 && u < 1) heights.push_back(e.y1 + t * ey);
    }
  }
  std::sort(heights.begin(), heights.end());
  return heights;
}

// The x at which a horizontal line enters and leaves a polygon, alternating.
std::vector<double> Crossings(const std::vector<Edge>& edges, double y) {
  std::vector<double> xs;
  for (const Edge& e : edges) {
    if ((e.y1 < y) != (e.y2 < y)) xs.push_back(e.XAt(y));
  }
  std::sort(xs.begin(), xs.end());
  return xs;
}

double Length(const std::vector<double>& xs) {
  double length = 0;
  for (size_t i = 0; i + 1 < xs.size(); i += 2) length += xs[i + 1] - xs[i];
  return length;
}

double CommonLength(const std::vector<double>& a, const std::vector<double>& b) {
  double length = 0;
  for (size_t i = 0; i + 1 < a.size(); i += 2) {
    for (size_t j = 0; j + 1 < b.size(); j += 2)
      length += std::max(0.0, std::min(a[i + 1], b[j + 1]) - std::max(a[i], b[j]));
  }
  return length;
}

bool AllFinite(const double* values, int64_t n) {
  return std::all_of(values, values + n, [](double v) { return std::isfinite(v); });
}

// Smallest and largest x (first = 0) or y (first = 1).
std::array<double, 2> Extent(const double* polygon, int64_t points, int64_t first) {
  std::array<double, 2> extent = {polygon[first], polygon[first]};
  for (int64_t i = 1; i < points; ++i) {
    extent[0] = std::min(extent[0], polygon[2 * i + first]);
    extent[1] = std::max(extent[1], polygon[2 * i + first]);
  }
  return extent;
}

bool Apart(const double* a, const double* b, int64_t points) {
  for (int64_t first : {0, 1}) {
    const auto p = Extent(a, points, first), q = Extent(b, points, first);
    if (p[1] < q[0] || q[1] < p[0]) return true;
  }
  return false;
}

}  // namespace

// Cuts the plane into strips between adjacent heights. In a strip, edges are straight lines that do
// not cross, so an area is the strip's height times the length on its middle line.
double PolygonOverlap(const double* a, const double* b, int64_t points) {
  if (!AllFinite(a, 2 * points) || !AllFinite(b, 2 * points) || Apart(a, b, points)) return 0;
  const std::vector<Edge> edges_a = EdgesOf(a, points), edges_b = EdgesOf(b, points);
  const std::vector<double> heights = Heights(edges_a, edges_b);
  double area_a = 0, area_b = 0, common = 0;
  for (size_t i = 1; i < heights.size(); ++i) {
    const double height = heights[i] - heights[i - 1];
    if (!(height > 0)) continue;
    const double middle = heights[i - 1] + height / 2;
    const std::vector<double> in_a = Crossings(edges_a, middle), in_b = Crossings(edges_b, middle);
    area_a += height * Length(in_a);
    area_b += height * Length(in_b);
    common += height * CommonLength(in_a, in_b);
  }
  return area_a > 0 && area_b > 0 ? common / (area_a + area_b - common) : 0;
}

BoxDeltas EncodeBox(const Box& box, const Box& prior, double extra) {
  const double w = box.Width(extra), h = box.Height(extra);
  const double pw = prior.Width(extra), ph = prior.Height(extra);
  return {(box.x1 + w / 2 - prior.x1 - pw / 2) / pw, (box.y1 + h / 2 - prior.y1 - ph / 2) / ph,
          std::log(w / pw), std::log(h / ph)};
}

Box DecodeBox(const BoxDeltas& deltas, const Box& prior, double extra, double most) {
  const double w = std::exp(std::min(deltas.w, most)), h = std::exp(std::min(deltas.h, most));
  return ResizedBox({deltas.x, deltas.y, w, h}, prior, extra);
}

}  // namespace coracle::inline internal
