#pragma once
// Mathematical functions among the rows of the activation family; see activation_formulas.h.

#include <coracle/operators/activation/formula_row.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/simd.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

namespace coracle::activation {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390, kPi = 3.14159265358979323846;

struct Exp : Row {
  static constexpr const char* kType = "exp";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "e^X";
  static constexpr bool kFromOut = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kExp;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::exp(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return out;
  }
  template <class T>
  static T Curve(T, const P<T>&) {
    return 1;
  }
};
struct Log : Row {
  static constexpr const char* kType = "log";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr double kSlopeTimesX = 1;
  static constexpr const char* kFormula = "the natural logarithm of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / x;
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -(1 / x) / x;
  }
};
struct Sqrt : Row {
  static constexpr const char* kType = "sqrt";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the square root of X";
  static constexpr bool kFromOut = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kSqrt;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::sqrt(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return T(0.5) / out;
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return T(-0.5) / out / out;
  }
};
struct Rsqrt : Row {
  static constexpr const char* kType = "rsqrt";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "1 / the square root of X";
  static constexpr bool kFromOut = true;
  template <class T>
  static T Value(T x, const P<T>&) {
    return 1 / std::sqrt(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return T(-0.5) * out * out * out;
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return T(-1.5) * out * out;
  }
};
struct Square : Row {
  static constexpr const char* kType = "square";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "X^2";
  static constexpr bool kIntegers = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kSquare;
  template <class T>
  static T Value(T x, const P<T>&) {
    return WrapMul(x, x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return WrapMul(T(2), x);
  }
  template <class T>
  static T Curve(T, const P<T>&) {
    return 2;
  }
};
struct Abs : Row {
  static constexpr const char* kType = "abs";
  static constexpr const char* kFormula = "|X|, of complex X a real number; the gradient at 0 is 0";
  static constexpr bool kIntegers = true, kComplex = true, kHasCurvature = false, kCutsOff = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kAbs;
  template <class T>
  static T Value(T x, const P<T>&) {
    if constexpr (std::is_integral_v<T>)
      return x < 0 ? WrapSub(T(0), x) : x;
    else
      return std::abs(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return x < 0 ? T(-1) : x == 0 ? T(0) : T(1);
  }
};
struct Reciprocal : Row {
  static constexpr const char* kType = "reciprocal";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "1 / X";
  static constexpr bool kFromOut = true;
  template <class T>
  static T Value(T x, const P<T>&) {
    return 1 / x;
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return -out * out;
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return -2 * out;
  }
};
struct Pow : Row {
  static constexpr const char* kType = "pow";
  static constexpr bool kFactorSlot = true;
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "X to the power of factor";
  static constexpr bool kIntegers = true;
  static constexpr std::array<AttrRow, 1> kAttrs = {{{"factor", 1.0f, "the exponent"}}};
  template <class T>
  static T Power(T x, T y) {
    if constexpr (std::is_integral_v<T>)
      return SaturateTo<T>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    else
      return std::pow(x, y);
  }
  template <class T>
  static T Value(T x, const P<T>& p) {
    return Power(x, p[0]);
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return p[0] == 0 ? T(0) : WrapMul(p[0], Power(x, WrapSub(p[0], T(1))));
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const T factor = WrapMul(p[0], WrapSub(p[0], T(1)));
    return factor == 0 ? T(0) : WrapMul(factor, Power(x, WrapSub(p[0], T(2))));
  }
};
struct Sign : Row {
  static constexpr const char* kType = "sign";
  static constexpr const char* kFormula = "-1, 0 or 1 as X is below, at or above 0; nan for nan";
  static constexpr bool kIntegers = true, kHasGradient = false;
  template <class T>
  static T Value(T x, const P<T>&) {
    return x != x ? x : static_cast<T>((x > 0) - (x < 0));
  }
};
struct Floor : Row {
  static constexpr const char* kType = "floor";
  static constexpr const char* kFormula = "the largest integer not above X";
  static constexpr bool kHasGradient = false;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::floor(x);
  }
};
struct Ceil : Row {
  static constexpr const char* kType = "ceil";
  static constexpr const char* kFormula = "the smallest integer not below X";
  static constexpr bool kHasGradient = false;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::ceil(x);
  }
};
struct Round : Row {
  static constexpr const char* kType = "round";
  static constexpr const char* kFormula = "the nearest integer, halves away from 0";
  static constexpr bool kHasGradient = false;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::round(x);
  }
};
struct Sin : Row {
  static constexpr const char* kType = "sin";
  static constexpr const char* kFormula = "sin(X)";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::sin(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return std::cos(x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -std::sin(x);
  }
};
struct Cos : Row {
  static constexpr const char* kType = "cos";
  static constexpr const char* kFormula = "cos(X)";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::cos(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return -std::sin(x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -std::cos(x);
  }
};

// The first and second derivative of the logarithm of the gamma function. The recurrence psi(x) =
// psi(x + 1) - 1/x raises arguments above 10, where the asymptotic series (DLMF 5.11.2) has
// 16 digits.
inline double Digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0 && x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x < 0) return Digamma(1 - x) - kPi / std::tan(kPi * (x - std::round(x)));
  double sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x), rest = 1. / 240 - z * (1. / 132 - z * (691. / 32760 - z / 12));
  const double tail = z * (1. / 12 - z * (1. / 120 - z * (1. / 252 - z * rest)));
  return sum + std::log(x) - 0.5 / x - tail;
}
inline double Trigamma(double x) {
  if (x <= 0 && x == std::floor(x)) return std::numeric_limits<double>::infinity();
  if (x < 0) {
    const double s = std::sin(kPi * (x - std::round(x)));
    return kPi * kPi / (s * s) - Trigamma(1 - x);
  }
  double sum = 0;
  for (; x < 10; x += 1) sum += 1 / (x * x);
  const double z = 1 / (x * x), rest = 1. / 30 - z * (5. / 66 - z * (691. / 2730 - z * 7 / 6));
  const double tail = z * (1. / 6 - z * (1. / 30 - z * (1. / 42 - z * rest)));
  return sum + (1 + 0.5 / x + tail) / x;
}

struct Acos : Row {
  static constexpr const char* kType = "acos";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the arc cosine of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::acos(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return -1 / std::sqrt((1 - x) * (1 + x));
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T s = (1 - x) * (1 + x);
    return -x / (s * std::sqrt(s));
  }
};
struct Asin : Row {
  static constexpr const char* kType = "asin";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the arc sine of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::asin(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / std::sqrt((1 - x) * (1 + x));
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T s = (1 - x) * (1 + x);
    return x / (s * std::sqrt(s));
  }
};
struct Atan : Row {
  static constexpr const char* kType = "atan";
  static constexpr const char* kFormula = "the arc tangent of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::atan(x);
  }
  // Uses 1 / x above 1, whose square does not overflow.
  template <class T>
  static T Slope(T x, const P<T>&) {
    const T u = 1 / x;
    return std::abs(x) > 1 ? u * u / (1 + u * u) : 1 / (1 + x * x);
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const T slope = Slope(x, p);
    return std::abs(x) > 1 ? -2 / x * (slope / (1 + 1 / x / x)) : -2 * x * slope * slope;
  }
};
struct Cosh : Row {
  static constexpr const char* kType = "cosh";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the hyperbolic cosine of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::cosh(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return std::sinh(x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return std::cosh(x);
  }
};
struct Sinh : Row {
  static constexpr const char* kType = "sinh";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the hyperbolic sine of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::sinh(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return std::cosh(x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return std::sinh(x);
  }
};
struct Tan : Row {
  static constexpr const char* kType = "tan";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "tan(X)";
  static constexpr bool kFromOut = true;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::tan(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return 1 + out * out;
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return 2 * out;
  }
};
struct Erf : Row {
  static constexpr const char* kType = "erf";
  static constexpr const char* kFormula = "the error function of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::erf(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return T(kTwoOverSqrtPi) * std::exp(-x * x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T bell = std::exp(-x * x);
    return bell == 0 ? T(0) : T(-2 * kTwoOverSqrtPi) * x * bell;
  }
};
struct Log2 : Row {
  static constexpr const char* kType = "log2";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr double kSlopeTimesX = 1 / kLn2;
  static constexpr const char* kFormula = "the logarithm of X to base 2";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log2(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return T(1 / kLn2) / x;
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -(T(1 / kLn2) / x) / x;
  }
};
struct Log10 : Row {
  static constexpr const char* kType = "log10";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr double kSlopeTimesX = 1 / kLn10;
  static constexpr const char* kFormula = "the logarithm of X to base 10";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log10(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return T(1 / kLn10) / x;
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -(T(1 / kLn10) / x) / x;
  }
};
struct Log1p : Row {
  static constexpr const char* kType = "log1p";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "log(1 + X), exact for small X too";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log1p(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / (1 + x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -(1 / (1 + x)) / (1 + x);
  }
};
struct Expm1 : Row {
  static constexpr const char* kType = "expm1";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "e^X - 1, exact for small X too";
  static constexpr bool kFromOut = true;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::expm1(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return out + 1;
  }
  template <class T>
  static T Curve(T, const P<T>&) {
    return 1;
  }
};
struct Lgamma : Row {
  static constexpr const char* kType = "lgamma";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula =
      "the logarithm of the absolute value of the gamma function of X";
  template <class T>
  static T Value(T x, const P<T>&) {
    // std::lgamma writes a global sign, which threads would share.
    int sign = 0;
    return static_cast<T>(::lgamma_r(static_cast<double>(x), &sign));
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return static_cast<T>(Digamma(static_cast<double>(x)));
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return static_cast<T>(Trigamma(static_cast<double>(x)));
  }
};
struct Trunc : Row {
  static constexpr const char* kType = "trunc";
  static constexpr const char* kFormula = "X without its fractional part";
  static constexpr bool kIntegers = true, kHasGradient = false;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::is_integral_v<T> ? x : static_cast<T>(std::trunc(x));
  }
};

}  // namespace coracle::activation
