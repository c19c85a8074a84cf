#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/pool.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/pool_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;

// Calls f(offset, count) for every vector of `n` channels; the last one may be partial.
template <class F>
HWY_INLINE void ForChannels(int64_t n, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) f(c, lanes);
  if (c < n) f(c, n - c);
}

// Calls f(window, output offset) for every window of one output row; rows of all depths are
// counted together.
template <class F>
HWY_INLINE void ForRow(const PoolGeometry& g, int64_t n, int64_t row, F&& f) {
  const ImageStrides s = g.OutStrides();
  PoolWindow window{g.Range(g.d, row / g.h.out), g.Range(g.h, row % g.h.out), {}};
  for (int64_t x = 0; x < g.w.out; ++x) {
    window.x = g.Range(g.w, x);
    f(window, n * s.n + row * s.h + x * s.w);
  }
}

// Calls f(offset within the image) for every pixel of a window.
template <class F>
HWY_INLINE void ForPixels(const ImageStrides& s, const PoolWindow& window, F&& f) {
  for (int64_t l = window.z.begin; l < window.z.end; ++l) {
    for (int64_t i = window.y.begin; i < window.y.end; ++i) {
      for (int64_t j = window.x.begin; j < window.x.end; ++j) f(l * s.d + i * s.h + j * s.w);
    }
  }
}

// The largest of a series of elements. hn::Max may lose a nan, but the sum of the elements shows
// it: a row of maxima whose sum is nan (also the sum of infinities of both signs) is recomputed
// with kExact. This is faster than testing each element.
template <bool kExact>
struct Largest {
  HWY_INLINE void Add(V v) {
    if constexpr (kExact) {
      best = hn::IfThenElse(hn::Or(hn::Gt(v, best), hn::IsNaN(v)), v, best);
    } else {
      best = hn::Max(best, v);
      sum = hn::Add(sum, v);
    }
  }
  V best, sum = hn::Zero(D());
};

// Returns whether a nan may have been lost.
template <bool kExact>
HWY_INLINE bool MaxRowBy(const PoolGeometry& g, int64_t n, int64_t y, const float* in, float* out) {
  const D d;
  const ImageStrides s = g.InStrides();
  V sum = hn::Zero(d);
  ForRow(g, n, y, [&](const PoolWindow& window, int64_t o) HWY_ATTR {
    const float* image = in + n * s.n;
    const int64_t first = window.z.begin * s.d + window.y.begin * s.h + window.x.begin * s.w;
    const bool empty = window.empty();
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      Largest<kExact> largest{empty ? hn::Zero(d) : LoadFirst(image + first + c, left)};
      ForPixels(s, window,
                [&](int64_t at) HWY_ATTR { largest.Add(LoadFirst(image + at + c, left)); });
      StoreFirst(largest.best, out + o + c, left);
      sum = hn::Add(sum, largest.sum);
    });
  });
  return !kExact && !hn::AllFalse(d, hn::IsNaN(sum));
}

void MaxRow(const PoolGeometry& g, int64_t n, int64_t y, const float* in, float* out) {
  if (MaxRowBy<false>(g, n, y, in, out)) MaxRowBy<true>(g, n, y, in, out);
}

// The average and average-gradient loops return whether a sum may have overflowed a float.

bool AverageRow(const PoolGeometry& g, int64_t n, int64_t y, const float* in, float* out) {
  const D d;
  const ImageStrides s = g.InStrides();
  bool finite = true;
  ForRow(g, n, y, [&](const PoolWindow& window, int64_t o) HWY_ATTR {
    const V scale = hn::Set(d, 1.0f / static_cast<float>(g.Divisor(window)));
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      V sum = hn::Zero(d);
      ForPixels(s, window, [&](int64_t at) HWY_ATTR {
        sum = hn::Add(sum, LoadFirst(in + n * s.n + at + c, left));
      });
      const V average = hn::Mul(sum, scale);
      finite &= AllFinite(average);
      StoreFirst(average, out + o + c, left);
    });
  });
  return !finite;
}

// sums[c] = the sum of channel c over `pixels` adjacent pixels.
void SumPixels(const float* in, int64_t pixels, int64_t channels, float* sums) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    V a = hn::Zero(d), b = a, e = a, f = a;
    for (const float *p = in + c, *end = p + pixels * channels; p < end; p += channels) {
      a = hn::Add(a, hn::LoadU(d, p));
      b = hn::Add(b, hn::LoadU(d, p + lanes));
      e = hn::Add(e, hn::LoadU(d, p + 2 * lanes));
      f = hn::Add(f, hn::LoadU(d, p + 3 * lanes));
    }
    hn::StoreU(a, d, sums + c);
    hn::StoreU(b, d, sums + c + lanes);
    hn::StoreU(e, d, sums + c + 2 * lanes);
    hn::StoreU(f, d, sums + c + 3 * lanes);
  }
  ForChannels(channels - c, [&](int64_t more, int64_t left) HWY_ATTR {
    V sum = hn::Zero(d);
    for (int64_t p = 0; p < pixels; ++p)
      sum = hn::Add(sum, LoadFirst(in + p * channels + c + more, left));
    StoreFirst(sum, sums + c + more, left);
  });
}

// The gradient of a window goes to the first of its greatest elements, or to its first nan.
// kDisjoint: windows do not overlap and lie inside the input, so every element is written once and
// need not be read.
template <bool kDisjoint>
void MaxGrad(const PoolGeometry& g, int64_t n, int64_t y, const float* in, const float* out,
             const float* dout, float* dx) {
  const ImageStrides s = g.InStrides();
  ForRow(g, n, y, [&](const PoolWindow& window, int64_t o) HWY_ATTR {
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      const V best = LoadFirst(out + o + c, left);
      V rest = LoadFirst(dout + o + c, left);
      const auto visit = [&](const auto& is_hit) HWY_ATTR {
        ForPixels(s, window, [&](int64_t pixel) HWY_ATTR {
          const int64_t at = n * s.n + pixel + c;
          const auto hit = is_hit(LoadFirst(in + at, left));
          V sum = hn::IfThenElseZero(hit, rest);
          if constexpr (!kDisjoint) sum = hn::Add(LoadFirst(dx + at, left), sum);
          StoreFirst(sum, dx + at, left);
          rest = hn::IfThenZeroElse(hit, rest);
        });
      };
      if (HWY_LIKELY(hn::AllFalse(D(), hn::IsNaN(best))))
        visit([&](V v) HWY_ATTR { return hn::Eq(v, best); });
      else
        visit([&](V v) HWY_ATTR { return hn::Or(hn::Eq(v, best), hn::IsNaN(v)); });
    });
  });
}

void MaxGradRowDisjoint(const PoolGeometry& g, int64_t n, int64_t y, const float* in,
                        const float* out, const float* dout, float* dx) {
  MaxGrad<true>(g, n, y, in, out, dout, dx);
}

void MaxGradRow(const PoolGeometry& g, int64_t n, int64_t y, const float* in, const float* out,
                const float* dout, float* dx) {
  MaxGrad<false>(g, n, y, in, out, dout, dx);
}

// Sums of up to 1e5 shares of this size do not overflow.
constexpr float kLargestShare = 1e33f;

bool AverageGradRow(const PoolGeometry& g, int64_t n, int64_t y, const float* dout, float* dx) {
  const D d;
  const ImageStrides s = g.InStrides();
  V largest = hn::Zero(d);
  ForRow(g, n, y, [&](const PoolWindow& window, int64_t o) HWY_ATTR {
    const V scale = hn::Set(d, 1.0f / static_cast<float>(g.Divisor(window)));
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      const V share = hn::Mul(LoadFirst(dout + o + c, left), scale);
      largest = hn::Max(largest, hn::Abs(share));
      ForPixels(s, window, [&](int64_t at) HWY_ATTR {
        float* p = dx + n * s.n + at + c;
        StoreFirst(hn::Add(LoadFirst(p, left), share), p, left);
      });
    });
  });
  return !hn::AllTrue(d, hn::Le(largest, hn::Set(d, kLargestShare)));
}

// Channels first: functions for one channel of an image or volume.

// Calls f(offset of a row of the input) for every row of the windows at (z, y).
template <class F>
HWY_INLINE void ForRowsOf(const ImageStrides& s, const PoolRange& z, const PoolRange& y, F&& f) {
  for (int64_t l = z.begin; l < z.end; ++l) {
    for (int64_t i = y.begin; i < y.end; ++i) f(l * s.d + i * s.h);
  }
}

// Calls f(z, y, offset of the row of the output) for every row of the output.
template <class F>
HWY_INLINE void ForOutRows(const PoolTables& t, F&& f) {
  const ImageStrides s = t.g.OutStrides();
  for (int64_t z = 0; z < t.g.d.out; ++z) {
    for (int64_t y = 0; y < t.g.h.out; ++y)
      f(t.z[static_cast<size_t>(z)], t.y[static_cast<size_t>(y)], z * s.d + y * s.h);
  }
}

// row[c] = the largest element of column c over the rows that for_each_row(f) passes to f.
template <bool kExact, class ForEachRow>
HWY_INLINE bool MaxOfRows(int64_t width, const ForEachRow& for_each_row, float* row) {
  const D d;
  V sum = hn::Zero(d);
  ForChannels(width, [&](int64_t c, int64_t left) HWY_ATTR {
    Largest<kExact> largest{hn::Set(d, -std::numeric_limits<float>::infinity())};
    for_each_row([&](const float* from) HWY_ATTR { largest.Add(LoadFirst(from + c, left)); });
    StoreFirst(largest.best, row + c, left);
    sum = hn::Add(sum, largest.sum);
  });
  return !kExact && !hn::AllFalse(d, hn::IsNaN(sum));
}

void MaxPlane(const PoolTables& t, const float* in, float* row, float* out) {
  const ImageStrides s = t.g.InStrides();
  ForOutRows(t, [&](const PoolRange& z, const PoolRange& y, int64_t o) HWY_ATTR {
    const auto rows = [&](const auto& f) HWY_ATTR {
      ForRowsOf(s, z, y, [&](int64_t from) HWY_ATTR { f(in + from); });
    };
    const bool nans = MaxOfRows<false>(t.g.w.in, rows, row);
    if (nans) MaxOfRows<true>(t.g.w.in, rows, row);
    const bool none = z.begin >= z.end || y.begin >= y.end;
    for (int64_t k = 0; k < t.g.w.out; ++k) {
      const PoolRange& x = t.x[static_cast<size_t>(k)];
      float best = -std::numeric_limits<float>::infinity();
      for (int64_t j = x.begin; j < x.end; ++j) best = row[j] > best ? row[j] : best;
      for (int64_t j = x.begin; nans && j < x.end; ++j) best = row[j] != row[j] ? row[j] : best;
      out[o + k] = none || x.begin >= x.end ? 0 : best;
    }
  });
}

// The reciprocal of the divisor (at least 1) of the window at x; `rows` is the factor of its rows.
HWY_INLINE float ScaleOf(const PoolTables& t, int64_t rows, const PoolRange& x) {
  return 1.0f / static_cast<float>(std::max<int64_t>(rows * t.Share(x), 1));
}

// Whether |x| is at most `limit` everywhere, without a nan.
HWY_INLINE bool AllWithin(const float* x, int64_t n, float limit) {
  V largest = hn::Zero(D()), nans = largest;
  ForChannels(n, [&](int64_t i, int64_t left) HWY_ATTR {
    const V v = LoadFirst(x + i, left);
    largest = hn::Max(largest, hn::Abs(v));
    nans = hn::MulAdd(v, hn::Zero(D()), nans);  // Max may lose a nan
  });
  return AllFinite(nans) && hn::AllTrue(D(), hn::Le(largest, hn::Set(D(), limit)));
}

bool AveragePlane(const PoolTables& t, const float* in, float* row, float* out) {
  const int64_t width = t.g.w.in;
  ForOutRows(t, [&](const PoolRange& z, const PoolRange& y, int64_t o) HWY_ATTR {
    std::fill_n(row, width, 0.0f);
    ForRowsOf(t.g.InStrides(), z, y, [&](int64_t from) HWY_ATTR {
      ForChannels(width, [&](int64_t c, int64_t left) HWY_ATTR {
        StoreFirst(hn::Add(LoadFirst(row + c, left), LoadFirst(in + from + c, left)), row + c,
                   left);
      });
    });
    const int64_t rows = t.Share(z) * t.Share(y);
    for (int64_t k = 0; k < t.g.w.out; ++k) {
      const PoolRange& x = t.x[static_cast<size_t>(k)];
      float sum = 0;
      for (int64_t j = x.begin; j < x.end; ++j) sum += row[j];
      out[o + k] = sum * ScaleOf(t, rows, x);
    }
  });
  return !AllWithin(out, t.g.OutPixels(), std::numeric_limits<float>::max());
}

bool AverageGradPlane(const PoolTables& t, const float* dout, float* row, float* dx) {
  const int64_t width = t.g.w.in;
  std::fill_n(dx, t.g.InPixels(), 0.0f);
  ForOutRows(t, [&](const PoolRange& z, const PoolRange& y, int64_t o) HWY_ATTR {
    std::fill_n(row, width, 0.0f);
    const int64_t rows = t.Share(z) * t.Share(y);
    for (int64_t k = 0; k < t.g.w.out; ++k) {
      const PoolRange& x = t.x[static_cast<size_t>(k)];
      const float share = dout[o + k] * ScaleOf(t, rows, x);
      for (int64_t j = x.begin; j < x.end; ++j) row[j] += share;
    }
    ForRowsOf(t.g.InStrides(), z, y, [&](int64_t to) HWY_ATTR {
      ForChannels(width, [&](int64_t c, int64_t left) HWY_ATTR {
        StoreFirst(hn::Add(LoadFirst(dx + to + c, left), LoadFirst(row + c, left)), dx + to + c,
                   left);
      });
    });
  });
  return !AllWithin(dout, t.g.OutPixels(), kLargestShare);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(MaxRow);
HWY_EXPORT(AverageRow);
HWY_EXPORT(SumPixels);
HWY_EXPORT(MaxGradRowDisjoint);
HWY_EXPORT(MaxGradRow);
HWY_EXPORT(AverageGradRow);
HWY_EXPORT(MaxPlane);
HWY_EXPORT(AveragePlane);
HWY_EXPORT(AverageGradPlane);

// Calls body(n, y) for every output row.
template <class Body>
void ForRows(const PoolGeometry& g, Body&& body) {
  // Adaptive and global windows have about this many elements, whatever the kernel size is.
  const int64_t share = g.InPixels() / std::max<int64_t>(g.OutPixels(), 1);
  const int64_t area = std::max({g.h.kernel * g.w.kernel, share, int64_t{1}});
  const int64_t work = g.w.out * g.channels * area, rows = g.d.out * g.h.out;
  ParallelFor(g.batch * rows, 1 + 32768 / (1 + work), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r / rows, r % rows);
  });
}

// Zeroes each image of dx and calls body(n, y) for its output rows. One thread handles an image,
// since windows of neighbouring rows may add to the same elements.
template <class Body>
void ForImages(const PoolGeometry& g, float* dx, Body&& body) {
  const int64_t image = g.InStrides().n;
  ParallelFor(g.batch, 1 + 32768 / (1 + image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::fill(dx + n * image, dx + (n + 1) * image, 0.0f);
      for (int64_t y = 0; y < g.d.out * g.h.out; ++y) body(n, y);
    }
  });
}

// Whether the windows tile the axis exactly, so that every element of the gradient is written.
bool Tiles(const WindowAxis& axis) {
  return axis.stride == axis.kernel && axis.before == 0 && axis.out * axis.stride == axis.in;
}

constexpr int64_t kMostSums = 8192;

// The number of parts for an image with a single window; 1 if that does not pay, or if there are
// enough images for the threads. Rows are cut as in convolutions, so that each thread reads what it
// wrote: fetching data from another core takes longer than the sum, and so does the next write to
// data that two cores have read.
int64_t PartsOfWholeImage(const PoolGeometry& g) {
  const PoolWindow all{g.Range(g.d, 0), g.Range(g.h, 0), g.Range(g.w, 0)};
  const auto is_whole = [](const PoolRange& range, const WindowAxis& axis) {
    return range.begin == 0 && range.end == axis.in && axis.out == 1;
  };
  if (!is_whole(all.z, g.d) || !is_whole(all.y, g.h) || !is_whole(all.x, g.w)) return 1;
  if (g.d.in != 1 || g.channels == 0 || g.batch >= NumThreads()) return 1;
  return std::max<int64_t>(1, std::min({int64_t{NumThreads()}, g.h.in, kMostSums / g.channels,
                                        1 + g.InPixels() * g.channels / 32768}));
}

// One image of one depth.
void AverageOfParts(const PoolGeometry& g, int64_t parts, const float* x, float* out) {
  const auto sum = HWY_DYNAMIC_DISPATCH(SumPixels);
  float sums[kMostSums];
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = g.h.in * i / parts, last = g.h.in * (i + 1) / parts;
      sum(x + first * g.w.in * g.channels, (last - first) * g.w.in, g.channels,
          sums + i * g.channels);
    }
  });
  const PoolWindow all{g.Range(g.d, 0), g.Range(g.h, 0), g.Range(g.w, 0)};
  sum(sums, parts, g.channels, out);
  const float scale = 1.0f / static_cast<float>(g.Divisor(all));
  bool finite = true;
  for (int64_t c = 0; c < g.channels; ++c) finite &= std::isfinite(out[c] *= scale);
  if (!finite) RepairAverages(g, g.channels, x, out);
}

}  // namespace

void MaxPoolNhwc(const PoolGeometry& g, const float* x, float* out) {
  const auto row = HWY_DYNAMIC_DISPATCH(MaxRow);
  ForRows(g, [&](int64_t n, int64_t y) { row(g, n, y, x, out); });
}

void AveragePoolNhwc(const PoolGeometry& g, const float* x, float* out) {
  if (const int64_t parts = PartsOfWholeImage(g); parts > 1) {
    for (int64_t n = 0; n < g.batch; ++n)
      AverageOfParts(g, parts, x + n * g.InStrides().n, out + n * g.OutStrides().n);
    return;
  }
  const auto row = HWY_DYNAMIC_DISPATCH(AverageRow);
  std::atomic<bool> overflows = false;
  ForRows(g, [&](int64_t n, int64_t y) {
    if (row(g, n, y, x, out)) overflows = true;
  });
  for (int64_t n = 0; overflows && n < g.batch; ++n)
    RepairAverages(g, g.channels, x + n * g.InStrides().n, out + n * g.OutStrides().n);
}

void MaxPoolGradNhwc(const PoolGeometry& g, const float* x, const float* out, const float* dout,
                     float* dx) {
  if (!g.adaptive && Tiles(g.d) && Tiles(g.h) && Tiles(g.w)) {
    const auto row = HWY_DYNAMIC_DISPATCH(MaxGradRowDisjoint);
    ForRows(g, [&](int64_t n, int64_t y) { row(g, n, y, x, out, dout, dx); });
    return;
  }
  const auto row = HWY_DYNAMIC_DISPATCH(MaxGradRow);
  ForImages(g, dx, [&](int64_t n, int64_t y) { row(g, n, y, x, out, dout, dx); });
}

void AveragePoolGradNhwc(const PoolGeometry& g, const float* dout, float* dx) {
  const auto row = HWY_DYNAMIC_DISPATCH(AverageGradRow);
  std::atomic<bool> overflows = false;
  ForImages(g, dx, [&](int64_t n, int64_t y) {
    if (row(g, n, y, dout, dx)) overflows = true;
  });
  for (int64_t n = 0; overflows && n < g.batch; ++n)
    RepairAverageGrad(g, g.channels, dout + n * g.OutStrides().n, dx + n * g.InStrides().n);
}

void MaxPoolNchw(const PoolTables& tables, const float* x, float* rows, float* out) {
  const auto plane = HWY_DYNAMIC_DISPATCH(MaxPlane);
  const int64_t pixels = tables.g.InPixels(), width = tables.g.w.in;
  ForPlanes(tables.g, [&](int64_t i, int64_t o) {
    plane(tables, x + i, rows + i / pixels * width, out + o);
  });
}

void AveragePoolNchw(const PoolTables& tables, const float* x, float* rows, float* out) {
  const auto plane = HWY_DYNAMIC_DISPATCH(AveragePlane);
  const int64_t pixels = tables.g.InPixels(), width = tables.g.w.in;
  ForPlanes(tables.g, [&](int64_t i, int64_t o) {
    if (plane(tables, x + i, rows + i / pixels * width, out + o))
      RepairAverages(tables.g, 1, x + i, out + o);
  });
}

void AveragePoolGradNchw(const PoolTables& tables, const float* dout, float* rows, float* dx) {
  const auto plane = HWY_DYNAMIC_DISPATCH(AverageGradPlane);
  const int64_t pixels = tables.g.InPixels(), width = tables.g.w.in;
  ForPlanes(tables.g, [&](int64_t i, int64_t o) {
    if (plane(tables, dout + o, rows + i / pixels * width, dx + i))
      RepairAverageGrad(tables.g, 1, dout + o, dx + i);
  });
}

}  // namespace coracle::inline internal
#endif
