#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/pool.h>

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/conv/pool_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle {
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

// Calls f(rows, columns, output offset) for every window of one output row.
template <class F>
HWY_INLINE void ForRow(const PoolGeometry& g, int64_t n, int64_t y, F&& f) {
  const ImageStrides s = g.OutStrides();
  const PoolRange rows = g.Range(g.h, y);
  for (int64_t x = 0; x < g.w.out; ++x) f(rows, g.Range(g.w, x), n * s.n + y * s.h + x * s.w);
}

void MaxRow(const PoolGeometry& g, int64_t n, int64_t y, const float* in, float* out) {
  const D d;
  const ImageStrides s = g.InStrides();
  ForRow(g, n, y, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) HWY_ATTR {
    const float* first = in + n * s.n + rows.begin * s.h + columns.begin * s.w;
    const bool empty = rows.begin >= rows.end || columns.begin >= columns.end;
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      V best = empty ? hn::Zero(d) : LoadFirst(first + c, left);
      for (int64_t i = 0; !empty && i < rows.end - rows.begin; ++i) {
        for (int64_t j = 0; j < columns.end - columns.begin; ++j) {
          const V v = LoadFirst(first + i * s.h + j * s.w + c, left);
          best = hn::IfThenElse(hn::Gt(v, best), v, best);
        }
      }
      StoreFirst(best, out + o + c, left);
    });
  });
}

void AverageRow(const PoolGeometry& g, int64_t n, int64_t y, const float* in, float* out) {
  const D d;
  const ImageStrides s = g.InStrides();
  ForRow(g, n, y, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) HWY_ATTR {
    const V scale = hn::Set(d, 1.0f / static_cast<float>(g.Divisor(rows, columns)));
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      V sum = hn::Zero(d);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j)
          sum = hn::Add(sum, LoadFirst(in + n * s.n + i * s.h + j * s.w + c, left));
      }
      StoreFirst(hn::Mul(sum, scale), out + o + c, left);
    });
  });
}

// The gradient of a window goes to the first of its greatest elements. kDisjoint: windows share no
// elements and lie inside the input, so every element is written once and need not be read.
template <bool kDisjoint>
void MaxGrad(const PoolGeometry& g, int64_t n, int64_t y, const float* in, const float* out,
             const float* dout, float* dx) {
  const ImageStrides s = g.InStrides();
  ForRow(g, n, y, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) HWY_ATTR {
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      const V best = LoadFirst(out + o + c, left);
      V rest = LoadFirst(dout + o + c, left);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          const int64_t at = n * s.n + i * s.h + j * s.w + c;
          const auto hit = hn::Eq(LoadFirst(in + at, left), best);
          V sum = hn::IfThenElseZero(hit, rest);
          if constexpr (!kDisjoint) sum = hn::Add(LoadFirst(dx + at, left), sum);
          StoreFirst(sum, dx + at, left);
          rest = hn::IfThenZeroElse(hit, rest);
        }
      }
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

void AverageGradRow(const PoolGeometry& g, int64_t n, int64_t y, const float* dout, float* dx) {
  const D d;
  const ImageStrides s = g.InStrides();
  ForRow(g, n, y, [&](const PoolRange& rows, const PoolRange& columns, int64_t o) HWY_ATTR {
    const V scale = hn::Set(d, 1.0f / static_cast<float>(g.Divisor(rows, columns)));
    ForChannels(g.channels, [&](int64_t c, int64_t left) HWY_ATTR {
      const V share = hn::Mul(LoadFirst(dout + o + c, left), scale);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = columns.begin; j < columns.end; ++j) {
          float* p = dx + n * s.n + i * s.h + j * s.w + c;
          StoreFirst(hn::Add(LoadFirst(p, left), share), p, left);
        }
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {
namespace {

HWY_EXPORT(MaxRow);
HWY_EXPORT(AverageRow);
HWY_EXPORT(MaxGradRowDisjoint);
HWY_EXPORT(MaxGradRow);
HWY_EXPORT(AverageGradRow);

// body(n, y) for every output row.
template <class Body>
void ForRows(const PoolGeometry& g, Body&& body) {
  const int64_t work = g.w.out * g.channels * std::max<int64_t>(g.h.kernel * g.w.kernel, 1);
  ParallelFor(g.batch * g.h.out, 1 + 32768 / (1 + work), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r / g.h.out, r % g.h.out);
  });
}

// Zeroes each image of dx and calls body(n, y) for its output rows. An image is done by one thread,
// since windows of neighbouring rows may add to the same elements.
template <class Body>
void ForImages(const PoolGeometry& g, float* dx, Body&& body) {
  const int64_t image = g.InStrides().n;
  ParallelFor(g.batch, 1 + 32768 / (1 + image), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::fill(dx + n * image, dx + (n + 1) * image, 0.0f);
      for (int64_t y = 0; y < g.h.out; ++y) body(n, y);
    }
  });
}

// Whether the windows tile the axis exactly, so that every element of the gradient is written.
bool Tiles(const WindowAxis& axis) {
  return axis.stride == axis.kernel && axis.before == 0 && axis.out * axis.stride == axis.in;
}

}  // namespace

void MaxPoolNhwc(const PoolGeometry& g, const float* x, float* out) {
  const auto row = HWY_DYNAMIC_DISPATCH(MaxRow);
  ForRows(g, [&](int64_t n, int64_t y) { row(g, n, y, x, out); });
}

void AveragePoolNhwc(const PoolGeometry& g, const float* x, float* out) {
  const auto row = HWY_DYNAMIC_DISPATCH(AverageRow);
  ForRows(g, [&](int64_t n, int64_t y) { row(g, n, y, x, out); });
}

void MaxPoolGradNhwc(const PoolGeometry& g, const float* x, const float* out, const float* dout,
                     float* dx) {
  if (!g.adaptive && Tiles(g.h) && Tiles(g.w)) {
    const auto row = HWY_DYNAMIC_DISPATCH(MaxGradRowDisjoint);
    ForRows(g, [&](int64_t n, int64_t y) { row(g, n, y, x, out, dout, dx); });
    return;
  }
  const auto row = HWY_DYNAMIC_DISPATCH(MaxGradRow);
  ForImages(g, dx, [&](int64_t n, int64_t y) { row(g, n, y, x, out, dout, dx); });
}

void AveragePoolGradNhwc(const PoolGeometry& g, const float* dout, float* dx) {
  const auto row = HWY_DYNAMIC_DISPATCH(AverageGradRow);
  ForImages(g, dx, [&](int64_t n, int64_t y) { row(g, n, y, dout, dx); });
}

}  // namespace coracle
#endif
