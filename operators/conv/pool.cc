#include <coracle/operators/conv/pool.h>

#include <algorithm>
#include <initializer_list>

namespace coracle::inline internal {

PoolRange PoolGeometry::Range(const WindowAxis& axis, int64_t out) const {
  if (adaptive) {
    const int64_t begin = out * axis.in / axis.out;
    const int64_t end = ((out + 1) * axis.in + axis.out - 1) / axis.out;
    return {begin, end, end - begin};
  }
  const int64_t start = axis.Start(out);
  const int64_t stop = std::min(start + axis.kernel, axis.in + axis.after);
  const int64_t begin = std::clamp<int64_t>(start, 0, axis.in);
  return {begin, std::clamp<int64_t>(stop, begin, axis.in), std::max<int64_t>(stop - start, 0)};
}

int64_t PoolGeometry::Divisor(const PoolWindow& window) const {
  int64_t count = 1;
  for (const PoolRange& r : {window.z, window.y, window.x})
    count *= exclusive || adaptive ? r.end - r.begin : r.extent;
  return std::max<int64_t>(count, 1);
}

PoolTables::PoolTables(const PoolGeometry& geometry) : g(geometry) {
  const auto fill = [&](const WindowAxis& axis, std::vector<PoolRange>& ranges) {
    for (int64_t i = 0; i < axis.out; ++i) ranges.push_back(g.Range(axis, i));
  };
  fill(g.d, z);
  fill(g.h, y);
  fill(g.w, x);
}

}  // namespace coracle::inline internal
