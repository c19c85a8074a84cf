#pragma once
// The functions of mathematics among the rows of the activation family; see activation_formulas.h.

#include <coracle/operators/activation/formula_row.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace coracle::activation {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390, kPi = 3.14159265358979323846;

// The first and second derivative of the logarithm of the gamma function. Arguments are raised
// above 10 by psi(x) = psi(x + 1) - 1/x; there the asymptotic series (DLMF 5.11.2) has 15 digits.
template <class T>
T Digamma(T x) {
  if (x <= 0 && x == std::floor(x)) return std::numeric_limits<T>::quiet_NaN();
  if (x < 0) return Digamma(1 - x) - T(kPi) / std::tan(T(kPi) * (x - std::round(x)));
  T sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  const T z = 1 / (x * x);
  const T tail =
      z * (T(1. / 12) - z * (T(1. / 120) - z * (T(1. / 252) - z * (T(1. / 240) - z / 132))));
  return sum + std::log(x) - T(0.5) / x - tail;
}
template <class T>
T Trigamma(T x) {
  if (x <= 0 && x == std::floor(x)) return std::numeric_limits<T>::infinity();
  if (x < 0) {
    const T s = std::sin(T(kPi) * (x - std::round(x)));
    return T(kPi * kPi) / (s * s) - Trigamma(1 - x);
  }
  T sum = 0;
  for (; x < 10; x += 1) sum += 1 / (x * x);
  const T z = 1 / (x * x);
  const T tail =
      z * (T(1. / 6) - z * (T(1. / 30) - z * (T(1. / 42) - z * (T(1. / 30) - z * 5 / 66))));
  return sum + (1 + T(0.5) / x + tail) / x;
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
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / (1 + x * x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T s = 1 + x * x;
    return -2 * x / (s * s);
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
    return T(-2 * kTwoOverSqrtPi) * x * std::exp(-x * x);
  }
};
struct Log2 : Row {
  static constexpr const char* kType = "log2";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the logarithm of X to base 2";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log2(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / (x * T(kLn2));
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -1 / (x * x * T(kLn2));
  }
};
struct Log10 : Row {
  static constexpr const char* kType = "log10";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula = "the logarithm of X to base 10";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::log10(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return 1 / (x * T(kLn10));
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -1 / (x * x * T(kLn10));
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
    return -1 / ((1 + x) * (1 + x));
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
    int sign = 0;  // std::lgamma writes a global one, which threads would share
    return static_cast<T>(::lgamma_r(static_cast<double>(x), &sign));
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return Digamma(x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return Trigamma(x);
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
