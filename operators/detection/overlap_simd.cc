#include <coracle/operators/detection/overlap_simd.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/detection/overlap_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it includes this file again for every instruction set.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;

// One box, in all lanes.
struct Splat {
  V x1, y1, x2, y2, extra;

  Splat(D d, const Box& box, double e)
      : x1(hn::Set(d, box.x1)),
        y1(hn::Set(d, box.y1)),
        x2(hn::Set(d, box.x2)),
        y2(hn::Set(d, box.y2)),
        extra(hn::Set(d, e)) {}
};

// The areas of intersection and union (negative or nan for irregular boxes).
struct Shared {
  V common, all;
};
HWY_INLINE Shared SharedAreas(D d, const double* x1, const double* y1, const double* x2,
                              const double* y2, const double* area, const Splat& s, V own) {
  const V zero = hn::Zero(d);
  const V w = hn::Sub(hn::Min(hn::LoadU(d, x2), s.x2), hn::Max(hn::LoadU(d, x1), s.x1));
  const V h = hn::Sub(hn::Min(hn::LoadU(d, y2), s.y2), hn::Max(hn::LoadU(d, y1), s.y1));
  const auto apart = hn::Or(hn::Lt(w, zero), hn::Lt(h, zero));
  const V product = hn::Mul(hn::Add(w, s.extra), hn::Add(h, s.extra));
  const V common = hn::IfThenElse(apart, zero, product);
  return {common, hn::Sub(hn::Add(hn::LoadU(d, area), own), common)};
}

// FindOverlap for [begin, end), a multiple of the vector's lanes.
HWY_INLINE int64_t FirstInVectors(const BoxColumns& b, int64_t begin, int64_t end, const Box& box,
                                  double extra, double threshold) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Splat s(d, box, extra);
  const V own = hn::Set(d, Area(box, extra)), zero = hn::Zero(d);
  // Slightly below the threshold, to allow for rounding; the caller decides exactly.
  const V least = hn::Set(d, threshold * (1 - 1e-9)), tiny = hn::Set(d, -1e-300);
  for (int64_t i = begin; i < end; i += lanes) {
    const Shared a = SharedAreas(d, b.x1.data() + i, b.y1.data() + i, b.x2.data() + i,
                                 b.y2.data() + i, b.area.data() + i, s, own);
    const auto over = hn::Ge(a.common, hn::MulAdd(least, a.all, tiny));
    const auto found = hn::And(over, hn::And(hn::Gt(a.common, zero), hn::Gt(a.all, zero)));
    if (!hn::AllFalse(d, found)) return i + static_cast<int64_t>(hn::FindFirstTrue(d, found));
  }
  return end;
}

int64_t FirstOverlap(const BoundedBoxes& b, int64_t begin, int64_t n, const Box& box, double extra,
                     double threshold) {
  const hn::ScalableTag<float> f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  const auto x1 = hn::Set(f, BoundedBoxes::Below(box.x1));
  const auto y1 = hn::Set(f, BoundedBoxes::Below(box.y1));
  const auto x2 = hn::Set(f, -BoundedBoxes::Below(-box.x2));
  const auto y2 = hn::Set(f, -BoundedBoxes::Below(-box.y2));
  int64_t i = begin;
  for (; i + lanes <= n; i += lanes) {
    const auto right = hn::Min(hn::LoadU(f, b.x2.data() + i), x2);
    const auto bottom = hn::Min(hn::LoadU(f, b.y2.data() + i), y2);
    const auto beside = hn::Lt(right, hn::Max(hn::LoadU(f, b.x1.data() + i), x1));
    const auto above = hn::Lt(bottom, hn::Max(hn::LoadU(f, b.y1.data() + i), y1));
    if (hn::AllTrue(f, hn::Or(beside, above))) continue;
    const int64_t found = FirstInVectors(b.boxes, i, i + lanes, box, extra, threshold);
    if (found < i + lanes) return found;
  }
  for (; i < n; ++i) {
    if (Overlap(b.boxes.At(i), box, extra) > threshold) return i;
  }
  return n;
}

HWY_INLINE V Iou(D d, const Shared& a) {
  const V zero = hn::Zero(d);
  const auto regular = hn::And(hn::Gt(a.common, zero), hn::Gt(a.all, zero));
  return hn::IfThenElseZero(regular, hn::Div(a.common, a.all));
}

template <bool kGaussian>
HWY_INLINE Decay DecayOf(const BoxColumns& b, int64_t n, const Box& box, double extra,
                         const double* of_better) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Splat s(d, box, extra);
  const V own = hn::Set(d, Area(box, extra)), zero = hn::Zero(d), one = hn::Set(d, 1.0);
  V largest = zero, least = kGaussian ? zero : one;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V iou = Iou(d, SharedAreas(d, b.x1.data() + i, b.y1.data() + i, b.x2.data() + i,
                                     b.y2.data() + i, b.area.data() + i, s, own));
    const V m = hn::LoadU(d, of_better + i);
    largest = hn::Max(largest, iou);
    if (kGaussian)
      least = hn::Min(least, hn::Sub(m, hn::Mul(iou, iou)));
    else
      least = hn::Min(least, hn::IfThenElse(hn::Gt(m, zero), hn::Mul(hn::Sub(one, iou), m), one));
  }
  Decay found{hn::GetLane(hn::MaxOfLanes(d, largest)), hn::GetLane(hn::MinOfLanes(d, least))};
  for (; i < n; ++i) {
    const double iou = Overlap(b.At(i), box, extra), m = of_better[i];
    const double term = kGaussian ? m - iou * iou : m > 0 ? (1 - iou) * m : 1;
    found.largest = std::max(found.largest, iou);
    found.least = std::min(found.least, term);
  }
  return found;
}

Decay DecayGaussian(const BoxColumns& b, int64_t n, const Box& box, double extra,
                    const double* of_better) {
  return DecayOf<true>(b, n, box, extra, of_better);
}
Decay DecayLinear(const BoxColumns& b, int64_t n, const Box& box, double extra,
                  const double* of_better) {
  return DecayOf<false>(b, n, box, extra, of_better);
}

HWY_INLINE void StoreLanes(D d, V v, double* to) { hn::StoreU(v, d, to); }
HWY_INLINE void StoreLanes(D d, V v, float* to) {
  const hn::Rebind<float, D> df;
  (void)d;
  hn::StoreU(hn::DemoteTo(df, v), df, to);
}

template <class T>
HWY_INLINE void OverlapsOf(const ColumnPointers& b, int64_t n, const Box& box, double extra,
                           T* out) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Splat s(d, box, extra);
  const double size = box.Width(extra) * box.Height(extra);
  const V own = hn::Set(d, size + 1e-10), zero = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const V w =
        hn::Sub(hn::Min(hn::LoadU(d, b.x2 + j), s.x2), hn::Max(hn::LoadU(d, b.x1 + j), s.x1));
    const V h =
        hn::Sub(hn::Min(hn::LoadU(d, b.y2 + j), s.y2), hn::Max(hn::LoadU(d, b.y1 + j), s.y1));
    const V common =
        hn::Mul(hn::Max(hn::Add(w, s.extra), zero), hn::Max(hn::Add(h, s.extra), zero));
    const V all = hn::Sub(hn::Add(hn::LoadU(d, b.sizes + j), own), common);
    StoreLanes(d, hn::Div(common, all), out + j);
  }
  for (; j < n; ++j) {
    const Box other{b.x1[j], b.y1[j], b.x2[j], b.y2[j]};
    const double common = GrownCommonArea(box, other, extra);
    out[j] = static_cast<T>(common / (b.sizes[j] + size - common + 1e-10));
  }
}

void OverlapsFloat(const ColumnPointers& b, int64_t n, const Box& box, double extra, float* out) {
  OverlapsOf(b, n, box, extra, out);
}
void OverlapsDouble(const ColumnPointers& b, int64_t n, const Box& box, double extra, double* out) {
  OverlapsOf(b, n, box, extra, out);
}

void ExpDoubles(double* values, int64_t n) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Highway's Exp supports only finite numbers with finite results.
  const V most = hn::Set(d, 700.0);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V x = hn::LoadU(d, values + i);
    if (hn::AllTrue(d, hn::Lt(hn::Abs(x), most))) {
      hn::StoreU(hn::Exp(d, x), d, values + i);
    } else {
      for (int64_t k = i; k < i + lanes; ++k) values[k] = std::exp(values[k]);
    }
  }
  for (; i < n; ++i) values[i] = std::exp(values[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(FirstOverlap);
HWY_EXPORT(DecayGaussian);
HWY_EXPORT(DecayLinear);
HWY_EXPORT(OverlapsFloat);
HWY_EXPORT(OverlapsDouble);
HWY_EXPORT(ExpDoubles);

int64_t FindOverlap(const BoundedBoxes& boxes, int64_t begin, int64_t end, const Box& box,
                    double extra, double threshold) {
  return HWY_DYNAMIC_DISPATCH(FirstOverlap)(boxes, begin, end, box, extra, threshold);
}

Decay FindDecay(const BoxColumns& boxes, int64_t n, const Box& box, double extra, bool gaussian,
                const double* of_better) {
  return gaussian ? HWY_DYNAMIC_DISPATCH(DecayGaussian)(boxes, n, box, extra, of_better)
                  : HWY_DYNAMIC_DISPATCH(DecayLinear)(boxes, n, box, extra, of_better);
}

void GrownOverlaps(const ColumnPointers& boxes, int64_t n, const Box& box, double extra,
                   float* out) {
  HWY_DYNAMIC_DISPATCH(OverlapsFloat)(boxes, n, box, extra, out);
}
void GrownOverlaps(const ColumnPointers& boxes, int64_t n, const Box& box, double extra,
                   double* out) {
  HWY_DYNAMIC_DISPATCH(OverlapsDouble)(boxes, n, box, extra, out);
}

void Exponentials(double* values, int64_t n) { HWY_DYNAMIC_DISPATCH(ExpDoubles)(values, n); }

}  // namespace coracle::inline internal
#endif
