// Loops shared by the files that are compiled once per SIMD target; include after highway.h.

#if defined(CORACLE_SIMD_LOOPS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CORACLE_SIMD_LOOPS_INL_H
#undef CORACLE_SIMD_LOOPS_INL_H
#else
#define CORACLE_SIMD_LOOPS_INL_H
#endif

#include <coracle/operators/kernels/simd.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// A buffer for the last, partial vector, so that nothing is read or written past the end.
struct Tail {
  HWY_ALIGN float values[HWY_MAX_BYTES / sizeof(float)] = {};
  Vec Load(const float* from, size_t count) {
    std::memcpy(values, from, count * sizeof(float));
    return hn::Load(Tag(), values);
  }
  void Store(Vec v, float* to, size_t count) {
    hn::Store(v, Tag(), values);
    std::memcpy(to, values, count * sizeof(float));
  }
};

template <class F>
void Map(const float* x, float* out, int64_t n, Params params) {
  const Tag d;
  const F f(params);
  const size_t lanes = hn::Lanes(d), size = static_cast<size_t>(n);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, out + i);
  if (i < size) {
    Tail a;
    a.Store(f(a.Load(x + i, size - i)), out + i, size - i);
  }
}

template <class F>
void Map2(const float* x, const float* y, float* out, int64_t n, Params params) {
  const Tag d;
  const F f(params);
  const size_t lanes = hn::Lanes(d), size = static_cast<size_t>(n);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes)
    hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, out + i);
  if (i < size) {
    Tail a, b;
    const Vec u = a.Load(x + i, size - i), v = b.Load(y + i, size - i);
    a.Store(f(u, v), out + i, size - i);
  }
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
