#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/kernels/simd_unary.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd_loops-inl.h>
#include <coracle/operators/kernels/simd_math-inl.h>
// clang-format on

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace coracle::simd::HWY_NAMESPACE {

// Phi(x), the normal distribution: erfc by the Chebyshev fit of Press et al., Numerical Recipes
// (erfcc), whose relative error is below 1.2e-7 everywhere. exp(-x^2 / 2) comes out too.
inline Vec NormalCdf(Vec x) {
  const Vec z = hn::Mul(hn::Abs(Clamp(x, -14.0f, 14.0f)), Set(0.70710678f));
  const Vec t = hn::Div(Set(1.0f), hn::MulAdd(z, Set(0.5f), Set(1.0f)));
  Vec p = Set(0.17087277f);
  p = hn::MulAdd(p, t, Set(-0.82215223f));
  p = hn::MulAdd(p, t, Set(1.48851587f));
  p = hn::MulAdd(p, t, Set(-1.13520398f));
  p = hn::MulAdd(p, t, Set(0.27886807f));
  p = hn::MulAdd(p, t, Set(-0.18628806f));
  p = hn::MulAdd(p, t, Set(0.09678418f));
  p = hn::MulAdd(p, t, Set(0.37409196f));
  p = hn::MulAdd(p, t, Set(1.00002368f));
  p = hn::MulAdd(p, t, Set(-1.26551223f));
  const Vec e = hn::Exp(Tag(), Clamp(hn::NegMulAdd(z, z, p), -104.0f, 0.0f));
  const Vec half_erfc = hn::Mul(hn::Mul(t, Set(0.5f)), e);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(Tag())), half_erfc, hn::Sub(Set(1.0f), half_erfc));
}
inline Vec NormalPdf(Vec x) {
  const Vec c = Clamp(x, -14.0f, 14.0f);
  return hn::Mul(Set(0.39894228f), hn::Exp(Tag(), hn::Mul(hn::Mul(c, c), Set(-0.5f))));
}
// tanh(sqrt(2 / pi) (x + 0.044715 x^3)); past |x| = 10 it is +-1 in any case.
inline Vec GeluTanhTerm(Vec x) {
  const Vec c = Clamp(x, -10.0f, 10.0f);
  const Vec inner = hn::MulAdd(hn::Mul(hn::Mul(c, c), c), Set(0.044715f), c);
  return hn::Tanh(Tag(), hn::Mul(inner, Set(0.79788456f)));
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
// Each with Value(x) and, where v is what the gradient reads, Slope(v).
struct Relu : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::IfThenZeroElse(hn::Lt(x, zero), x); }
  Vec Grad(Vec out, Vec g) const { return hn::IfThenElseZero(hn::Gt(out, zero), g); }
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
    return hn::IfThenElseZero(hn::And(hn::Gt(out, zero), hn::Lt(out, a)), g);
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
  Vec Value(Vec x) const { return KeepNan(x, hn::Mul(x, NormalCdf(x))); }
  Vec Grad(Vec x, Vec g) const {
    return hn::Mul(g, KeepNan(x, hn::MulAdd(Clamp(x, -14, 14), NormalPdf(x), NormalCdf(x))));
  }
};
struct GeluTanh : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const {
    const Vec half = hn::Mul(x, Set(0.5f));
    return KeepNan(x, hn::MulAdd(half, GeluTanhTerm(x), half));
  }
  Vec Grad(Vec x, Vec g) const {
    const Vec t = GeluTanhTerm(x), v = Clamp(x, -10, 10), half = Set(0.5f);
    const Vec inner_slope =
        hn::Mul(hn::MulAdd(hn::Mul(v, v), Set(0.134145f), one), Set(0.79788456f));
    const Vec tail = hn::Mul(hn::Mul(hn::Mul(half, v), hn::NegMulAdd(t, t, one)), inner_slope);
    return hn::Mul(g, KeepNan(x, hn::Add(hn::MulAdd(half, t, half), tail)));
  }
};
struct HardSigmoid : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return KeepNan(x, hn::Min(hn::Max(hn::MulAdd(x, a, b), zero), one)); }
  Vec Grad(Vec out, Vec g) const {
    return hn::IfThenElseZero(hn::And(hn::Gt(out, zero), hn::Lt(out, one)), hn::Mul(a, g));
  }
};
struct HardSwish : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const {
    const Vec gate = hn::Min(hn::Max(hn::Add(x, c), zero), a);
    return KeepNan(x, hn::Div(hn::Mul(x, gate), b));
  }
  Vec Grad(Vec x, Vec g) const {
    const Vec shifted = hn::Add(x, c);
    const Vec middle = hn::Div(hn::Add(shifted, x), b), top = hn::Div(a, b);
    const Vec slope = hn::IfThenElse(hn::Lt(shifted, a), middle, top);
    return hn::IfThenElseZero(hn::Gt(shifted, zero), hn::Mul(g, slope));
  }
};
struct Swish : WithParams {
  using WithParams::WithParams;
  Vec Value(Vec x) const { return hn::Mul(x, SafeSigmoid(hn::Mul(a, x))); }
  Vec Grad(Vec x, Vec g) const {
    const Vec ax = hn::Mul(a, x), s = SafeSigmoid(ax);
    return hn::Mul(g, hn::MulAdd(hn::Mul(ax, s), hn::Sub(one, s), s));
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
};
template <class F>
constexpr Loops LoopsOf() {
  return {Map<ValueOf<F>>, Map2<GradOf<F>>};
}

Loops Find(Unary op) {
  switch (op) {
    case Unary::kScale:
      return {Map<Scale>, nullptr};
    case Unary::kShiftScale:
      return {Map<ShiftScale>, nullptr};
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
  return {nullptr, nullptr};
}

UnaryLoop UnaryOf(Unary op) { return Find(op).value; }
GradLoop UnaryGradOf(Unary op) { return Find(op).grad; }

}  // namespace coracle::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::simd {

HWY_EXPORT(UnaryOf);
HWY_EXPORT(UnaryGradOf);

UnaryLoop FindUnary(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryOf)(op); }
GradLoop FindUnaryGrad(Unary op) { return HWY_DYNAMIC_DISPATCH(UnaryGradOf)(op); }

}  // namespace coracle::simd
#endif
