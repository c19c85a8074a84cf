#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/simd_unary.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_lanes-inl.h>
#include <coracle/operators/kernels/simd_loops-inl.h>
#include <coracle/operators/kernels/simd_math-inl.h>
// clang-format on

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

// Phi(x), the normal distribution, and its density. With a = |x| and t = 1 / (1 + a / 4), Phi(-a) =
// e^(-a^2 / 2) t p(t), where p is the minimax polynomial for a in [0, 14]. The relative error is
// below 3e-7, and 3e-6 where Phi is below 1e-30; below 1e-38 the result is 0.
struct Normal {
  explicit Normal(Vec x) {
    const Vec a = hn::Min(hn::Abs(x), Set(14.0f));
    const Vec t = Reciprocal(hn::MulAdd(a, Set(0.25f), Set(1.0f)));
    Vec p = Set(0.0257233529f);
    p = hn::MulAdd(p, t, Set(-0.152808716f));
    p = hn::MulAdd(p, t, Set(0.296120693f));
    p = hn::MulAdd(p, t, Set(-0.205782100f));
    p = hn::MulAdd(p, t, Set(0.201757668f));
    p = hn::MulAdd(p, t, Set(0.0329280847f));
    p = hn::MulAdd(p, t, Set(0.103746663f));
    p = hn::MulAdd(p, t, Set(0.0985168447f));
    p = hn::MulAdd(p, t, Set(0.0997974813f));
    bell = ExpNonPositive(hn::Mul(hn::Mul(a, a), Set(-0.5f)));
    const Vec tail = hn::Mul(bell, hn::Mul(p, t));
    cdf = hn::IfThenElse(hn::Lt(x, hn::Zero(Tag())), tail, hn::Sub(Set(1.0f), tail));
  }
  Vec pdf() const { return hn::Mul(Set(0.39894228f), bell); }

  Vec cdf, bell;  // bell = e^(-x^2 / 2)
};
// (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), as sigmoid(2 u), which is accurate
// where tanh(u) is near -1. Beyond |x| = 10 it is 0 or 1.
inline Vec GeluTanhGate(Vec x) {
  const Vec c = Clamp(x, -14.0f, 14.0f);
  const Vec inner = hn::MulAdd(hn::Mul(hn::Mul(c, c), c), Set(0.044715f), c);
  return SafeSigmoid(hn::Mul(inner, Set(1.59576912f)));
}

struct WithParams {
  explicit WithParams(Params p) : a(Set(p.a)), b(Set(p.b)), c(Set(p.c)) {}
  Vec a, b, c;
  Vec zero = hn::Zero(Tag());
  Vec one = Set(1.0f);
};

struct Scale : WithParams {
  using WithParams::WithParams;
  Vec operator()(Vec x) const { return hn::MulAdd(x, a, b); }
};
struct ShiftScale : WithParams {
  using WithParams::WithParams;
  Vec operator()(Vec x) const { return hn::Mul(hn::Add(x, b), a); }
};
// g slope, but 0 where the slope is 0, even if g is not finite.
inline Vec TimesSlope(Vec g, Vec slope) {
  return hn::IfThenZeroElse(hn::Eq(slope, hn::Zero(Tag())), hn::Mul(g, slope));
}
// Each has Value(x) and Grad(v, g), where v is the variable that the gradient reads. Grad is 0
// where the value was cut off (Row::kCutsOff); a nan is never cut off.
struct Relu : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::IfThenZeroElse(hn::Lt(x, zero), x); }
  Vec Grad(Vec out, Vec g) const { return hn::IfThenZeroElse(hn::Le(out, zero), g); }
};
struct LeakyRelu : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(a, x), x); }
  Vec Grad(Vec x, Vec g) const { return hn::IfThenElse(hn::Gt(x, zero), g, hn::Mul(a, g)); }
};
struct Relu6 : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return KeepNan(x, hn::Min(hn::Max(x, zero), a)); }
  Vec Grad(Vec out, Vec g) const {
    return hn::IfThenZeroElse(hn::Or(hn::Le(out, zero), hn::Ge(out, a)), g);
  }
};
struct Sigmoid : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return SafeSigmoid(x); }
  Vec Grad(Vec out, Vec g) const { return hn::Mul(g, hn::Mul(out, hn::Sub(one, out))); }
};
struct Tanh : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return SafeTanh(x); }
  Vec Grad(Vec out, Vec g) const { return hn::Mul(g, hn::NegMulAdd(out, out, one)); }
};
struct Exp : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return SafeExp(x); }
  Vec Grad(Vec out, Vec g) const { return hn::Mul(g, out); }
};
struct Sqrt : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::Sqrt(x); }
  Vec Grad(Vec out, Vec g) const { return hn::Mul(g, hn::Div(Set(0.5f), out)); }
};
struct Abs : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::Abs(x); }
  Vec Grad(Vec x, Vec g) const {
    const Vec signed_g = hn::IfThenElse(hn::Lt(x, zero), hn::Neg(g), g);
    return hn::IfThenZeroElse(hn::Eq(x, zero), signed_g);
  }
};
struct Square : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::Mul(x, x); }
  Vec Grad(Vec x, Vec g) const { return hn::Mul(g, hn::Add(x, x)); }
};
struct GeluErf : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return KeepNan(x, hn::Mul(hn::Max(x, Set(-14.0f)), Normal(x).cdf)); }
  Vec Grad(Vec x, Vec g) const {
    const Normal normal(x);
    return hn::Mul(g, KeepNan(x, hn::MulAdd(Clamp(x, -14, 14), normal.pdf(), normal.cdf)));
  }
};
struct GeluTanh : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return KeepNan(x, hn::Mul(hn::Max(x, Set(-14.0f)), GeluTanhGate(x))); }
  Vec Grad(Vec x, Vec g) const {
    const Vec s = GeluTanhGate(x), v = Clamp(x, -14, 14);
    const Vec inner_slope =
        hn::Mul(hn::MulAdd(hn::Mul(v, v), Set(0.134145f), one), Set(1.59576912f));
    const Vec gate_slope = hn::Mul(hn::Mul(s, hn::Sub(one, s)), inner_slope);
    return hn::Mul(g, KeepNan(x, hn::MulAdd(v, gate_slope, s)));
  }
};
struct HardSigmoid : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const {
    const Vec y = hn::MulAdd(x, a, b);
    return KeepNan(y, hn::Min(hn::Max(y, zero), one));
  }
  Vec Grad(Vec out, Vec g) const {
    return TimesSlope(g, hn::IfThenZeroElse(hn::Or(hn::Le(out, zero), hn::Ge(out, one)), a));
  }
};
struct HardSwish : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const {
    const Vec gate = hn::Min(hn::Max(hn::Add(x, c), zero), a);
    return KeepNan(x, hn::IfThenZeroElse(hn::Eq(gate, zero), hn::Mul(x, hn::Div(gate, b))));
  }
  Vec Grad(Vec x, Vec g) const {
    const Vec shifted = hn::Add(x, c);
    const Vec middle = hn::Div(hn::Add(shifted, x), b), top = hn::Div(a, b);
    const Vec low = hn::IfThenZeroElse(hn::Le(shifted, zero), middle);
    const auto flat = hn::Or(hn::Ge(shifted, a), hn::Lt(a, zero));
    return TimesSlope(g, hn::IfThenElse(flat, top, low));
  }
};
struct Swish : WithParams {
  using WithParams::WithParams;
  // 0 times an infinite x is 0 here.
  Vec Inner(Vec x) const { return hn::IfThenZeroElse(hn::Eq(a, zero), hn::Mul(a, x)); }
  Vec Value(Vec x) const {
    const Vec s = SafeSigmoid(Inner(x));
    return hn::IfThenZeroElse(hn::Eq(s, zero), hn::Mul(x, s));
  }
  // A saturated gate (0 or 1) has slope 0, however large x is.
  Vec Grad(Vec x, Vec g) const {
    const Vec ax = Inner(x), s = SafeSigmoid(ax), d = hn::Mul(s, hn::Sub(one, s));
    return hn::Mul(g, hn::IfThenElse(hn::Eq(d, zero), s, hn::MulAdd(ax, d, s)));
  }
};

template <class F>
struct ValueOf : F {
  using F::F;
  Vec operator()(Vec x) const { return F::Value(x); }
};
template <class F>
struct GradOf : F {
  using F::F;
  Vec operator()(Vec v, Vec g) const { return F::Grad(v, g); }
};

struct Loops {
  UnaryLoop value;
  GradLoop grad;
  Lanes value_lanes, grad_lanes;
};
template <class F>
Loops LoopsOf() {
  return {Map<ValueOf<F>>, Map2<GradOf<F>>, LanesOfOne<ValueOf<F>>(), LanesOfTwo<GradOf<F>>()};
}

Loops Find(Unary op) {
  switch (op) {
    case Unary::kScale:
      return {Map<Scale>, nullptr, LanesOfOne<Scale>(), {}};
    case Unary::kShiftScale:
      return {Map<ShiftScale>, nullptr, LanesOfOne<ShiftScale>(), {}};
    case Unary::kRelu:
      return LoopsOf<Relu>();
    case Unary::kLeakyRelu:
      return LoopsOf<LeakyRelu>();
    case Unary::kRelu6:
      return LoopsOf<Relu6>();
    case Unary::kSigmoid:
      return LoopsOf<Sigmoid>();
    case Unary::kTanh:
      return LoopsOf<Tanh>();
    case Unary::kExp:
      return LoopsOf<Exp>();
    case Unary::kSqrt:
      return LoopsOf<Sqrt>();
    case Unary::kAbs:
      return LoopsOf<Abs>();
    case Unary::kSquare:
      return LoopsOf<Square>();
    case Unary::kGeluErf:
      return LoopsOf<GeluErf>();
    case Unary::kGeluTanh:
      return LoopsOf<GeluTanh>();
    case Unary::kHardSigmoid:
      return LoopsOf<HardSigmoid>();
    case Unary::kHardSwish:
      return LoopsOf<HardSwish>();
    case Unary::kSwish:
      return LoopsOf<Swish>();
  }
  return {nullptr, nullptr, {}, {}};
}

UnaryLoop UnaryOf(Unary op) { return Find(op).value; }
GradLoop UnaryGradOf(Unary op) { return Find(op).grad; }
Lanes UnaryLanesOf(Unary op) { return Find(op).value_lanes; }
Lanes UnaryGradLanesOf(Unary op) { return Find(op).grad_lanes; }

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::simd {

HWY_EXPORT(UnaryOf);
HWY_EXPORT(UnaryGradOf);
HWY_EXPORT(UnaryLanesOf);
HWY_EXPORT(UnaryGradLanesOf);

UnaryLoop FindUnary(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryOf)(op); }
GradLoop FindUnaryGrad(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryGradOf)(op); }
Lanes FindLanes(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryLanesOf)(op); }
Lanes FindGradLanes(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryGradLanesOf)(op); }

}  // namespace coracle::simd
#endif
