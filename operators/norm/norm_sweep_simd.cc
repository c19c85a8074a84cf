#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/norm_sweep_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/norm/norm_simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;

// Calls body(at, c, n) for vectors of n elements from `at` on, of the channels from c on.
template <class Body>
HWY_INLINE void ForVectors(int64_t at, int64_t rows, int64_t width, const Body& body) {
  const int64_t lanes = FloatLanes();
  for (int64_t r = 0; r < rows; ++r, at += width) {
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes) body(at + c, c, lanes);
    if (c < width) body(at + c, c, width - c);
  }
}

// Writes the first n lanes of v to `to` + at; compute(e, channel) gives those that are not finite.
template <bool kRelu, class E, class Compute>
HWY_NOINLINE void StoreRepaired(V v, const LaneRepair& repair, int64_t at, int64_t n, E* to,
                                const Compute& compute) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, D(), lanes);
  for (int64_t i = 0; i < n; ++i) {
    float value = lanes[i];
    if (!std::isfinite(value)) value = static_cast<float>(compute(at + i, repair.Channel(at + i)));
    to[at + i] = static_cast<E>(kRelu && value < 0 ? 0.0f : value);
  }
}

template <class E, class Param, bool kAdd, bool kRelu>
struct Affine {
  const NormAffineOf<E>& t;
  const LaneRepair& repair;
  Param shift, a, b;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    const V x = hn::Sub(LoadFirst(t.x + at, n), shift.At(c, n));
    V v = hn::MulAdd(x, a.At(c, n), b.At(c, n));
    if constexpr (kAdd) v = hn::Add(v, LoadFirst(t.z + at, n));
    if (HWY_UNLIKELY(!AllFinite(v))) return Exactly(v, at, n);
    if constexpr (kRelu) v = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(D())), v);
    StoreFirst(v, t.y + at, n);
  }
  void Exactly(V v, int64_t at, int64_t n) const {
    StoreRepaired<kRelu>(v, repair, at, n, t.y, [&](int64_t e, int64_t c) {
      const NormFactors f = repair.factors(c);
      const double centred = double{static_cast<float>(t.x[e])} - double{repair.shift[c]};
      double y = f.q * centred + f.r;
      if constexpr (kAdd) y += double{static_cast<float>(t.z[e])};
      return y;
    });
  }
};
template <class E, class Param>
HWY_INLINE void ApplyAffine(const NormAffineOf<E>& t, const LaneRepair& repair, int64_t at,
                            int64_t rows, int64_t width, Param s, Param a, Param b) {
  if (t.z && t.relu)
    return ForVectors(at, rows, width, Affine<E, Param, true, true>{t, repair, s, a, b});
  if (t.z) return ForVectors(at, rows, width, Affine<E, Param, true, false>{t, repair, s, a, b});
  if (t.relu) return ForVectors(at, rows, width, Affine<E, Param, false, true>{t, repair, s, a, b});
  ForVectors(at, rows, width, Affine<E, Param, false, false>{t, repair, s, a, b});
}

template <class E>
void RowsAffineOf(const NormAffineOf<E>& t, int64_t at, int64_t rows, const LaneRepair& repair,
                  const float* a, const float* b) {
  const int64_t channels = repair.channels;
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const WideParam ws(repair.shift, channels, copies), wa(a, channels, copies);
  const WideParam wb(b, channels, copies);
  ApplyAffine(t, repair, at, wide, copies * channels, ws.get(), wa.get(), wb.get());
  const int64_t done = wide * copies;
  ApplyAffine(t, repair, at + done * channels, rows - done, channels, OwnParam{repair.shift},
              OwnParam{a}, OwnParam{b});
}

template <class E>
void PlaneAffineOf(const NormAffineOf<E>& t, int64_t at, int64_t n, const LaneRepair& repair,
                   float a, float b) {
  ApplyAffine(t, repair, at, 1, n, Same(repair.shift[repair.plane]), Same(a), Same(b));
}

// The parameters of ChannelGradApply and of NormTerms.
template <class Param>
struct GradParams {
  Param mean, p, q, r, a, b;
};
template <class E, class Param, SumTerms kTerms>
struct Grad {
  const NormTermsOf<E>& t;
  const LaneRepair& repair;
  const GradParams<Param>& p;
  E* dx;
  HWY_INLINE void operator()(int64_t at, int64_t c, int64_t n) const {
    const V d = hn::Sub(LoadFirst(t.x + at, n), p.mean.At(c, n));
    V a = d, b = d;
    if constexpr (kTerms == kMaskedByX) {
      a = p.a.At(c, n);
      b = p.b.At(c, n);
    }
    const V dy = Masked<kTerms>(t, at, n, d, a, b);
    const V v = hn::MulAdd(dy, p.p.At(c, n), hn::MulAdd(d, p.q.At(c, n), p.r.At(c, n)));
    if (HWY_UNLIKELY(!AllFinite(v))) return Exactly(v, at, n);
    StoreFirst(v, dx + at, n);
  }
  void Exactly(V v, int64_t at, int64_t n) const {
    StoreRepaired<false>(v, repair, at, n, dx, [&](int64_t e, int64_t c) {
      const NormFactors f = repair.factors(c);
      const double centred = double{static_cast<float>(t.x[e])} - double{repair.shift[c]};
      const double dy = t.Ignores(c, e, repair.shift[c]) ? 0 : double{static_cast<float>(t.dy[e])};
      return f.p * dy + f.q * centred + f.r;
    });
  }
};
template <class E, class Param>
HWY_INLINE void ApplyGrad(const NormTermsOf<E>& t, const LaneRepair& repair, int64_t at,
                          int64_t rows, int64_t width, const GradParams<Param>& p, E* dx) {
  if (t.a) return ForVectors(at, rows, width, Grad<E, Param, kMaskedByX>{t, repair, p, dx});
  if (t.y) return ForVectors(at, rows, width, Grad<E, Param, kMasked>{t, repair, p, dx});
  ForVectors(at, rows, width, Grad<E, Param, kGrad>{t, repair, p, dx});
}

template <class E>
void RowsGradOf(const NormTermsOf<E>& t, int64_t at, int64_t rows, const LaneRepair& repair,
                const ChannelFactors& f, E* dx) {
  const int64_t channels = repair.channels;
  const float *mean = repair.shift, *ta = t.a ? t.a : f.p, *tb = t.a ? t.b : f.p;
  const int64_t copies = RowsAtOnce(rows, channels), wide = rows / copies;
  const WideParam wm(mean, channels, copies), wp(f.p, channels, copies), wq(f.q, channels, copies);
  const WideParam wr(f.r, channels, copies), wa(ta, channels, copies), wb(tb, channels, copies);
  const GradParams<OwnParam> own{{mean}, {f.p}, {f.q}, {f.r}, {ta}, {tb}};
  const GradParams<OwnParam> several{wm.get(), wp.get(), wq.get(), wr.get(), wa.get(), wb.get()};
  ApplyGrad(t, repair, at, wide, copies * channels, several, dx);
  const int64_t done = wide * copies;
  ApplyGrad(t, repair, at + done * channels, rows - done, channels, own, dx);
}

template <class E>
void PlaneGradOf(const NormTermsOf<E>& t, int64_t at, int64_t n, const LaneRepair& repair,
                 const ChannelFactors& f, E* dx) {
  const int64_t c = repair.plane;
  const GradParams<SameParam> same{Same(repair.shift[c]),  Same(f.p[c]),
                                   Same(f.q[c]),           Same(f.r[c]),
                                   Same(t.a ? t.a[c] : 0), Same(t.a ? t.b[c] : 0)};
  ApplyGrad(t, repair, at, 1, n, same, dx);
}

// The functions that are dispatched, for float and for bfloat16.
void RowsAffine(const NormAffineOf<float>& t, int64_t at, int64_t rows, const LaneRepair& repair,
                const float* a, const float* b) {
  RowsAffineOf(t, at, rows, repair, a, b);
}
void RowsAffineHalf(const NormAffineOf<bfloat16>& t, int64_t at, int64_t rows,
                    const LaneRepair& repair, const float* a, const float* b) {
  RowsAffineOf(t, at, rows, repair, a, b);
}
void PlaneAffine(const NormAffineOf<float>& t, int64_t at, int64_t n, const LaneRepair& repair,
                 float a, float b) {
  PlaneAffineOf(t, at, n, repair, a, b);
}
void PlaneAffineHalf(const NormAffineOf<bfloat16>& t, int64_t at, int64_t n,
                     const LaneRepair& repair, float a, float b) {
  PlaneAffineOf(t, at, n, repair, a, b);
}
void RowsGrad(const NormTermsOf<float>& t, int64_t at, int64_t rows, const LaneRepair& repair,
              const ChannelFactors& f, float* dx) {
  RowsGradOf(t, at, rows, repair, f, dx);
}
void RowsGradHalf(const NormTermsOf<bfloat16>& t, int64_t at, int64_t rows,
                  const LaneRepair& repair, const ChannelFactors& f, bfloat16* dx) {
  RowsGradOf(t, at, rows, repair, f, dx);
}
void PlaneGrad(const NormTermsOf<float>& t, int64_t at, int64_t n, const LaneRepair& repair,
               const ChannelFactors& f, float* dx) {
  PlaneGradOf(t, at, n, repair, f, dx);
}
void PlaneGradHalf(const NormTermsOf<bfloat16>& t, int64_t at, int64_t n, const LaneRepair& repair,
                   const ChannelFactors& f, bfloat16* dx) {
  PlaneGradOf(t, at, n, repair, f, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {
namespace {

HWY_EXPORT(RowsAffine);
HWY_EXPORT(RowsAffineHalf);
HWY_EXPORT(PlaneAffine);
HWY_EXPORT(PlaneAffineHalf);
HWY_EXPORT(RowsGrad);
HWY_EXPORT(RowsGradHalf);
HWY_EXPORT(PlaneGrad);
HWY_EXPORT(PlaneGradHalf);

// The loop for elements of type E.
#define CORACLE_LOOP_OF(NAME)                  \
  template <class E>                           \
  auto NAME##Loop() {                          \
    if constexpr (std::is_same_v<E, float>)    \
      return HWY_DYNAMIC_DISPATCH(NAME);       \
    else                                       \
      return HWY_DYNAMIC_DISPATCH(NAME##Half); \
  }
CORACLE_LOOP_OF(RowsAffine)
CORACLE_LOOP_OF(PlaneAffine)
CORACLE_LOOP_OF(RowsGrad)
CORACLE_LOOP_OF(PlaneGrad)
#undef CORACLE_LOOP_OF

// Calls rows(first row, number) for blocks of rows, or plane(channel, offset) for planes. Starts
// with the last rows, which the previous sweep has left in the cache.
template <class Rows, class Plane>
void ForBlocks(const NormView& v, Rows&& rows, Plane&& plane) {
  const int64_t block = 1 + 32768 / (1 + (v.inner == 1 ? v.groups : v.inner));
  if (v.inner == 1) {
    ParallelFor(v.size, block, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t n = std::min(end - begin, block);
        end -= n;
        rows(end, n);
      }
    });
    return;
  }
  const int64_t planes = v.groups * (v.size / v.inner);
  ParallelFor(planes, block, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      plane(p % v.groups, v.At(p % v.groups, p / v.groups * v.inner));
  });
}

}  // namespace

template <class E>
void ChannelAffine(const NormView& v, const NormAffineOf<E>& t, const float* shift, const float* a,
                   const float* b, const ExactFactors& exact) {
  const auto rows = RowsAffineLoop<E>();
  const auto plane = PlaneAffineLoop<E>();
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) {
        rows(t, first * v.groups, n, {exact, shift, v.groups}, a, b);
      },
      [&](int64_t c, int64_t at) {
        plane(t, at, v.inner, {exact, shift, 0, c}, a[c], b[c]);
      });
}

template <class E>
void ChannelGradApply(const NormView& v, const NormTermsOf<E>& t, const float* mean, const float* p,
                      const float* q, const float* r, const ExactFactors& exact, E* dx) {
  const auto rows = RowsGradLoop<E>();
  const auto plane = PlaneGradLoop<E>();
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) {
        rows(t, first * v.groups, n, {exact, mean, v.groups}, {p, q, r}, dx);
      },
      [&](int64_t c, int64_t at) {
        plane(t, at, v.inner, {exact, mean, 0, c}, {p, q, r}, dx);
      });
}

template void ChannelAffine(const NormView&, const NormAffineOf<float>&, const float*, const float*,
                            const float*, const ExactFactors&);
template void ChannelGradApply(const NormView&, const NormTermsOf<float>&, const float*,
                               const float*, const float*, const float*, const ExactFactors&,
                               float*);
template void ChannelAffine(const NormView&, const NormAffineOf<bfloat16>&, const float*,
                            const float*, const float*, const ExactFactors&);
template void ChannelGradApply(const NormView&, const NormTermsOf<bfloat16>&, const float*,
                               const float*, const float*, const float*, const ExactFactors&,
                               bfloat16*);

}  // namespace coracle::inline internal
#endif
