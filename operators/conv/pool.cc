#include <coracle/operators/conv/pool.h>

#include <algorithm>
#include <cmath>
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

void RepairAverages(const PoolGeometry& g, int64_t channels, const float* in, float* out) {
  const ImageStrides from = g.InStrides(), to = g.OutStrides();
  ForWindows(g, [&](const PoolWindow& window, int64_t o) {
    for (int64_t c = 0; c < channels; ++c) {
      float& average = out[o + c * to.c];
      if (std::isfinite(average)) continue;
      double sum = 0;
      ForElements(from, window, [&](int64_t at) {
        sum += static_cast<double>(in[at + c * from.c]);
        return false;
      });
      average = static_cast<float>(sum / static_cast<double>(g.Divisor(window)));
    }
  });
}

namespace {

// The output positions [begin, end) whose windows may hold position `at` of the input.
struct WindowsOver {
  int64_t begin = 0, end;
  WindowsOver(const PoolGeometry& g, const WindowAxis& axis, int64_t at) {
    while (begin < axis.out && g.Range(axis, begin).end <= at) ++begin;
    end = begin;
    while (end < axis.out && g.Range(axis, end).begin <= at) ++end;
  }
};

}  // namespace

void RepairAverageGrad(const PoolGeometry& g, int64_t channels, const float* dout, float* dx) {
  const ImageStrides s = g.InStrides(), from = g.OutStrides();
  const PoolWindow all{{0, g.d.in, 0}, {0, g.h.in, 0}, {0, g.w.in, 0}};
  ForElements(s, all, [&](int64_t at) {
    for (int64_t c = 0; c < channels; ++c) {
      float& gradient = dx[at + c * s.c];
      if (std::isfinite(gradient)) continue;
      const WindowsOver zs(g, g.d, at / s.d), ys(g, g.h, at % s.d / s.h);
      const WindowsOver xs(g, g.w, at % s.h / s.w);
      double sum = 0;
      for (int64_t z = zs.begin; z < zs.end; ++z) {
        for (int64_t y = ys.begin; y < ys.end; ++y) {
          for (int64_t x = xs.begin; x < xs.end; ++x) {
            const float d = dout[z * from.d + y * from.h + x * from.w + c * from.c];
            sum += static_cast<double>(d) / static_cast<double>(g.Divisor(g.Window(z, y, x)));
          }
        }
      }
      gradient = static_cast<float>(sum);
    }
    return false;
  });
}

}  // namespace coracle::inline internal
