#include <coracle/operators/quantize/range_simd.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/quantize/range_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::inline internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One of several independent chains, which hide the latency of an operation.
struct RangeChain {
  FloatVec least, most, strange;  // strange: nan if one number was nan

  RangeChain() {
    const FloatTag d;
    least = hn::Inf(d);
    most = hn::Neg(hn::Inf(d));
    strange = hn::Zero(d);
  }
  HWY_INLINE void Add(FloatVec v) {
    least = hn::IfThenElse(hn::Lt(v, least), v, least);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
    strange = hn::IfThenElse(hn::IsNaN(v), v, strange);
  }
  FloatRange Whole() const {
    const FloatTag d;
    FloatRange range;
    range.least = hn::GetLane(hn::MinOfLanes(d, least));
    range.most = hn::GetLane(hn::MaxOfLanes(d, most));
    range.has_nan = !hn::AllFalse(d, hn::IsNaN(strange));
    return range;
  }
};

FloatRange FindRange(const float* x, int64_t n) {
  const FloatTag d;
  const int64_t lanes = FloatLanes();
  RangeChain a, b, c, e;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a.Add(hn::LoadU(d, x + i));
    b.Add(hn::LoadU(d, x + i + lanes));
    c.Add(hn::LoadU(d, x + i + 2 * lanes));
    e.Add(hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a.Add(hn::LoadU(d, x + i));
  FloatRange range = a.Whole();
  for (const RangeChain* chain : {&b, &c, &e}) range.Add(chain->Whole());
  for (; i < n; ++i) range.Add({x[i], x[i], x[i] != x[i]});
  return range;
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle::inline internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(FindRange);

FloatRange RangeOf(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(FindRange)(x, n); }

}  // namespace coracle::inline internal
#endif
