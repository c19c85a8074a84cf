#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/simd_binary.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_lanes-inl.h>
#include <coracle/operators/kernels/simd_loops-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

struct Add {
  Vec operator()(Vec x, Vec y) const { return hn::Add(x, y); }
};
struct Sub {
  Vec operator()(Vec x, Vec y) const { return hn::Sub(x, y); }
};
struct Mul {
  Vec operator()(Vec x, Vec y) const { return hn::Mul(x, y); }
};
struct Div {
  Vec operator()(Vec x, Vec y) const { return hn::Div(x, y); }
};
// The result is nan if either operand is nan.
struct Max {
  Vec operator()(Vec x, Vec y) const {
    return hn::IfThenElse(hn::Or(hn::Gt(y, x), hn::IsNaN(y)), y, x);
  }
};
struct Min {
  Vec operator()(Vec x, Vec y) const {
    return hn::IfThenElse(hn::Or(hn::Lt(y, x), hn::IsNaN(y)), y, x);
  }
};

template <class F>
struct OnVectors : F {
  explicit OnVectors(Params) {}
};
template <class F>
struct ScalarRight {
  explicit ScalarRight(Params p) : y(hn::Set(Tag(), p.a)) {}
  Vec operator()(Vec x) const { return F()(x, y); }
  Vec y;
};
template <class F>
struct ScalarLeft {
  explicit ScalarLeft(Params p) : x(hn::Set(Tag(), p.a)) {}
  Vec operator()(Vec y) const { return F()(x, y); }
  Vec x;
};

template <class F>
void VectorVector(const float* x, const float* y, float* out, int64_t n) {
  Map2<OnVectors<F>>(x, y, out, n, {});
}
template <class F>
void VectorScalar(const float* x, const float* y, float* out, int64_t n) {
  if (n > 0) Map<ScalarRight<F>>(x, out, n, {*y, 0, 0});
}
template <class F>
void ScalarVector(const float* x, const float* y, float* out, int64_t n) {
  if (n > 0) Map<ScalarLeft<F>>(y, out, n, {*x, 0, 0});
}

template <class F>
BinaryLoop InForm(Form form) {
  if (form == Form::kVectorVector) return VectorVector<F>;
  return form == Form::kVectorScalar ? VectorScalar<F> : ScalarVector<F>;
}

BinaryLoop BinaryOf(Binary op, Form form) {
  switch (op) {
    case Binary::kAdd:
      return InForm<Add>(form);
    case Binary::kSub:
      return InForm<Sub>(form);
    case Binary::kMul:
      return InForm<Mul>(form);
    case Binary::kDiv:
      return InForm<Div>(form);
    case Binary::kMax:
      return InForm<Max>(form);
    case Binary::kMin:
      return InForm<Min>(form);
  }
  return nullptr;
}

Lanes BinaryLanesOf(Binary op) {
  switch (op) {
    case Binary::kAdd:
      return LanesOfTwo<OnVectors<Add>>();
    case Binary::kSub:
      return LanesOfTwo<OnVectors<Sub>>();
    case Binary::kMul:
      return LanesOfTwo<OnVectors<Mul>>();
    case Binary::kDiv:
      return LanesOfTwo<OnVectors<Div>>();
    case Binary::kMax:
      return LanesOfTwo<OnVectors<Max>>();
    case Binary::kMin:
      return LanesOfTwo<OnVectors<Min>>();
  }
  return {};
}

// Four accumulators hide the latency of the additions.
template <class Load>
float Accumulate(int64_t n, const Load& load) {
  const Tag d;
  const size_t lanes = hn::Lanes(d), size = static_cast<size_t>(n);
  Vec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    s0 = load.Add(s0, i);
    s1 = load.Add(s1, i + lanes);
    s2 = load.Add(s2, i + 2 * lanes);
    s3 = load.Add(s3, i + 3 * lanes);
  }
  for (; i + lanes <= size; i += lanes) s0 = load.Add(s0, i);
  if (i < size) s1 = load.AddTail(s1, i, size - i);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

struct SumLoad {
  const float* x;
  Vec Add(Vec s, size_t i) const { return hn::Add(s, hn::LoadU(Tag(), x + i)); }
  Vec AddTail(Vec s, size_t i, size_t count) const {
    Tail a;
    return hn::Add(s, a.Load(x + i, count));
  }
};
struct DotLoad {
  const float *x, *y;
  Vec Add(Vec s, size_t i) const {
    return hn::MulAdd(hn::LoadU(Tag(), x + i), hn::LoadU(Tag(), y + i), s);
  }
  Vec AddTail(Vec s, size_t i, size_t count) const {
    Tail a, b;
    return hn::MulAdd(a.Load(x + i, count), b.Load(y + i, count), s);
  }
};

float SumOf(const float* x, int64_t n) { return Accumulate(n, SumLoad{x}); }
float DotOf(const float* x, const float* y, int64_t n) { return Accumulate(n, DotLoad{x, y}); }

// x - x is 0 for a finite x and a nan otherwise; or-ing the differences keeps any nan's exponent.
bool AllFiniteOf(const float* x, int64_t n) {
  const Tag d;
  const size_t lanes = hn::Lanes(d), size = static_cast<size_t>(n);
  Vec seen = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const Vec v = hn::LoadU(d, x + i);
    seen = hn::Or(seen, hn::Sub(v, v));
  }
  if (i < size) {
    Tail a;
    const Vec v = a.Load(x + i, size - i);
    seen = hn::Or(seen, hn::Sub(v, v));
  }
  return hn::AllTrue(d, hn::Eq(seen, hn::Zero(d)));
}

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::simd {

HWY_EXPORT(BinaryOf);
HWY_EXPORT(BinaryLanesOf);
HWY_EXPORT(SumOf);
HWY_EXPORT(DotOf);
HWY_EXPORT(AllFiniteOf);

BinaryLoop FindBinary(Binary op, Form form) { return HWY_DYNAMIC_DISPATCH(BinaryOf)(op, form); }
Lanes FindLanes(Binary op) { return HWY_DYNAMIC_DISPATCH(BinaryLanesOf)(op); }
float Sum(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumOf)(x, n); }
float Dot(const float* x, const float* y, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(DotOf)(x, y, n);
}
bool AllFinite(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(AllFiniteOf)(x, n); }

}  // namespace coracle::simd
#endif
