#pragma once
// The formulas of the activations, one struct for each row of the family: the value f(x), and the
// first and second derivative as functions of v, which is the output for rows with kFromOut and the
// input for others. p holds the attrs in the order of kAttrs. To add an activation, add a struct
// here (or in math_formulas.h), its name to AllRows at the end, and a row
// to test/operators/activation/activation_test.cc.

#include <coracle/operators/activation/formula_row.h>
#include <coracle/operators/activation/math_formulas.h>
#include <coracle/operators/kernels/simd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace coracle::activation {

template <class T>
T SigmoidOf(T x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const T e = std::exp(x);
  return e / (1 + e);
}
template <class T>
T LogOnePlusExp(T x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

struct Relu : Row {
  static constexpr const char* kType = "relu";
  static constexpr const char* kFormula = "max(X, 0), nan for nan";
  static constexpr bool kFromOut = true, kCutsOff = true, kIntegers = true, kHasCurvature = false;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kRelu;
  template <class T>
  static T Value(T x, const P<T>&) {
    return x < 0 ? T(0) : x;
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return out <= 0 ? T(0) : T(1);
  }
};
struct LeakyRelu : Row {
  static constexpr const char* kType = "leaky_relu";
  static constexpr const char* kFormula = "X where X >= 0, else alpha X";
  static constexpr bool kHasCurvature = false;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kLeakyRelu;
  static constexpr std::array<AttrRow, 1> kAttrs = {{{"alpha", 0.02f, "slope below 0"}}};
  static constexpr const char* kVersion0 = "max(X, alpha X)";
  static constexpr float kSameTo = 1;
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x < 0 ? p[0] * x : x;
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return x > 0 ? T(1) : p[0];
  }
};
struct Relu6 : Row {
  static constexpr const char* kType = "relu6";
  static constexpr const char* kFormula = "min(max(X, 0), threshold)";
  static constexpr bool kFromOut = true, kCutsOff = true, kHasCurvature = false;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kRelu6;
  static constexpr std::array<AttrRow, 1> kAttrs = {{{"threshold", 6.0f, "highest value"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    const T low = x < 0 ? T(0) : x;
    return low > p[0] ? p[0] : low;
  }
  template <class T>
  static T Slope(T out, const P<T>& p) {
    return out <= 0 || out >= p[0] ? T(0) : T(1);
  }
};
struct Elu : Row {
  static constexpr const char* kType = "elu";
  static constexpr const char* kFormula = "X where X >= 0, else alpha (e^X - 1)";
  static constexpr std::array<AttrRow, 1> kAttrs = {{{"alpha", 1.0f, "the lower limit is -alpha"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x < 0 ? p[0] * std::expm1(x) : x;
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return x < 0 ? p[0] * std::exp(x) : T(1);
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    return x < 0 ? p[0] * std::exp(x) : T(0);
  }
};
struct Sigmoid : Row {
  static constexpr const char* kType = "sigmoid";
  static constexpr const char* kFormula = "1 / (1 + e^-X)";
  static constexpr bool kFromOut = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kSigmoid;
  template <class T>
  static T Value(T x, const P<T>&) {
    return SigmoidOf(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return out * (1 - out);
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return 1 - 2 * out;
  }
};
struct LogSigmoid : Row {
  static constexpr const char* kType = "logsigmoid";
  static constexpr const char* kFormula = "log(1 / (1 + e^-X))";
  template <class T>
  static T Value(T x, const P<T>&) {
    return -LogOnePlusExp(-x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return SigmoidOf(-x);
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return -SigmoidOf(x) * SigmoidOf(-x);
  }
};
struct Tanh : Row {
  static constexpr const char* kType = "tanh";
  static constexpr const char* kFormula = "tanh(X)";
  static constexpr bool kFromOut = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kTanh;
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::tanh(x);
  }
  template <class T>
  static T Slope(T out, const P<T>&) {
    return 1 - out * out;
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return -2 * out;
  }
};
struct Softplus : Row {
  static constexpr const char* kType = "softplus";
  static constexpr OpPrecision kPrecision = OpPrecision::kFloat32;
  static constexpr const char* kFormula =
      "log(1 + e^(beta X)) / beta, and X where beta X > threshold";
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"beta", 1.0f, "steepness"}, {"threshold", 20.0f, "beta X above which the result is X"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x * p[0] > p[1] ? x : LogOnePlusExp(x * p[0]) / p[0];
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return x * p[0] > p[1] ? T(1) : SigmoidOf(x * p[0]);
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    return x * p[0] > p[1] ? T(0) : p[0] * SigmoidOf(x * p[0]) * SigmoidOf(-x * p[0]);
  }
};
struct Softsign : Row {
  static constexpr const char* kType = "softsign";
  static constexpr const char* kFormula = "X / (1 + |X|)";
  template <class T>
  static T Value(T x, const P<T>&) {
    return std::isinf(x) ? std::copysign(T(1), x) : x / (1 + std::abs(x));
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    const T a = 1 + std::abs(x);
    return 1 / a / a;
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T a = 1 + std::abs(x);
    return (x < 0 ? T(2) : T(-2)) / a / a / a;
  }
};
struct HardSigmoid : Row {
  static constexpr const char* kType = "hard_sigmoid";
  static constexpr const char* kFormula = "min(max(slope X + offset, 0), 1)";
  static constexpr bool kFromOut = true, kCutsOff = true, kHasCurvature = false;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kHardSigmoid;
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"slope", 0.2f, "slope of the middle part"}, {"offset", 0.5f, "value at 0"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    const T y = p[0] * x + p[1];
    return y < 0 ? T(0) : y > 1 ? T(1) : y;
  }
  template <class T>
  static T Slope(T out, const P<T>& p) {
    return out <= 0 || out >= 1 ? T(0) : p[0];
  }
};
struct HardSwish : Row {
  static constexpr const char* kType = "hard_swish";
  static constexpr const char* kFormula = "X min(max(X + offset, 0), threshold) / scale";
  static constexpr bool kCutsOff = true;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kHardSwish;
  static constexpr std::array<AttrRow, 3> kAttrs = {{{"threshold", 6.0f, "highest gate"},
                                                     {"scale", 6.0f, "divisor; not 0"},
                                                     {"offset", 3.0f, "shift of the gate"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    const T shifted = x + p[2], open = shifted < 0 ? T(0) : shifted;
    const T gate = open > p[0] ? p[0] : open;
    return gate == 0 ? T(0) : x * (gate / p[1]);
  }
  // With a negative threshold, the gate is constant everywhere.
  template <class T>
  static T Slope(T x, const P<T>& p) {
    const T shifted = x + p[2];
    if (p[0] < 0 || shifted >= p[0]) return p[0] / p[1];
    return shifted <= 0 ? T(0) : (shifted + x) / p[1];
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const T shifted = x + p[2];
    return shifted <= 0 || shifted >= p[0] ? T(0) : 2 / p[1];
  }
};
struct HardShrink : Row {
  static constexpr const char* kType = "hard_shrink";
  static constexpr const char* kFormula = "X where |X| > threshold, else 0; a nan stays a nan";
  static constexpr bool kHasCurvature = false, kCutsOff = true;
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"threshold", 0.5f, "largest |X| with result 0"}}};
  static constexpr const char* kVersion0 = "X ((X < -threshold) + (X > threshold))";
  static constexpr float kSameTo = std::numeric_limits<float>::infinity();
  static auto Value(auto x, const auto& p) { return std::abs(x) <= p[0] ? decltype(x)(0) : x; }
  static auto Slope(auto x, const auto& p) { return decltype(x)(std::abs(x) <= p[0] ? 0 : 1); }
};
struct Swish : Row {
  static constexpr const char* kType = "swish";
  static constexpr const char* kFormula = "X / (1 + e^(-beta X))";
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kSwish;
  static constexpr std::array<AttrRow, 1> kAttrs = {{{"beta", 1.0f, "steepness of the gate"}}};
  // 0 times an infinite X is 0 here.
  template <class T>
  static T Inner(T x, const P<T>& p) {
    return p[0] == 0 ? T(0) : p[0] * x;
  }
  template <class T>
  static T Value(T x, const P<T>& p) {
    const T s = SigmoidOf(Inner(x, p));
    return s == 0 ? T(0) : x * s;
  }
  // A saturated gate (0 or 1) has slope 0, however large X is.
  template <class T>
  static T Slope(T x, const P<T>& p) {
    const T ax = Inner(x, p), s = SigmoidOf(ax), d = s * (1 - s);
    return d == 0 ? s : s + ax * d;
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const T ax = Inner(x, p), s = SigmoidOf(ax), d = s * (1 - s);
    return d == 0 ? T(0) : p[0] * d * (2 + ax * (1 - 2 * s));
  }
};
struct Silu : Row {
  static constexpr const char* kType = "silu";
  static constexpr float kFirstParam = 1;
  static constexpr const char* kFormula = "X / (1 + e^-X)";
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kSwish;
  template <class T>
  static T Value(T x, const P<T>&) {
    return Swish::Value<T>(x, {1, 0, 0});
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    return Swish::Slope<T>(x, {1, 0, 0});
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    return Swish::Curve<T>(x, {1, 0, 0});
  }
};
struct Mish : Row {
  static constexpr const char* kType = "mish";
  static constexpr const char* kFormula =
      "X tanh(s), s = log(1 + e^X); under a positive threshold s = X where X > threshold, and e^X "
      "where X < -threshold";
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"threshold", 20.0f, "limits beyond which s is simplified; 0: never"}}};
  // t = tanh(s) and its first and second derivative by X.
  template <class T>
  struct Gate {
    T value, slope, curve;
  };
  // With e = e^x and q = e^2 + 2 e + 2: t = e (e + 2) / q, t' = 4 e (1 + e) / q^2 and t'' = t' (1 +
  // e / (1 + e) - 4 e (1 + e) / q), which avoids differences of nearly equal numbers. Above 0, the
  // formulas use w = e^-x and q / e^2.
  template <class T>
  static Gate<T> GateAt(T x, const P<T>& p) {
    const T w = std::exp(-std::abs(x));
    if (p[0] > 0 && std::abs(x) > p[0]) {
      const T t = std::tanh(x > 0 ? x : w), e = x > 0 ? T(1) : w, slope = (1 - t * t) * e;
      return {t, slope, slope * ((x > 0 ? T(0) : T(1)) - 2 * t * e)};
    }
    if (x > 0) {
      const T q = 1 + 2 * w + 2 * w * w, slope = 4 * (1 + w) * w * w / q / q;
      return {(1 + 2 * w) / q, slope, slope * (1 + 1 / (1 + w) - 4 * (1 + w) / q)};
    }
    const T q = w * w + 2 * w + 2, slope = 4 * w * (1 + w) / q / q;
    return {w * (w + 2) / q, slope, slope * (1 + w / (1 + w) - 4 * w * (1 + w) / q)};
  }
  template <class T>
  static T Value(T x, const P<T>& p) {
    const T t = GateAt(x, p).value;
    return t == 0 ? T(0) : x * t;
  }
  // f' = t + x t' and f'' = 2 t' + x t''; a saturated gate (0 or 1) has slope 0.
  template <class T>
  static T Slope(T x, const P<T>& p) {
    const Gate<T> gate = GateAt(x, p);
    return gate.slope == 0 ? gate.value : gate.value + x * gate.slope;
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const Gate<T> gate = GateAt(x, p);
    return gate.slope == 0 ? T(0) : 2 * gate.slope + x * gate.curve;
  }
};

constexpr double kSqrtHalf = 0.70710678118654752440, kInvSqrtTwoPi = 0.39894228040143267794;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;

// Beyond this limit both gates are 0 or 1 with slope 0, also in double; 0 times an infinite x would
// give nan there. A nan stays nan.
constexpr double kGateLimit = 50;
template <class T>
T InGateLimits(T x) {
  return std::clamp(x, T(-kGateLimit), T(kGateLimit));
}
template <class T>
T AboveGateLimit(T x) {
  return std::max(x, T(-kGateLimit));
}

// x / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x sigmoid(2 u), which
// is accurate where tanh(u) is near -1.
struct GeluTanh : Row {
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kGeluTanh;
  template <class T>
  static T Inner(T x) {
    return T(kSqrtTwoOverPi) * (x + T(0.044715) * x * x * x);
  }
  template <class T>
  static T Value(T x, const P<T>&) {
    return AboveGateLimit(x) * SigmoidOf(2 * Inner(x));
  }
  template <class T>
  static T Slope(T v, const P<T>&) {
    const T x = InGateLimits(v);
    const T s = SigmoidOf(2 * Inner(x)), du = T(kSqrtTwoOverPi) * (1 + T(0.134145) * x * x);
    return s + 2 * x * s * (1 - s) * du;
  }
  template <class T>
  static T Curve(T v, const P<T>&) {
    const T x = InGateLimits(v);
    const T s = SigmoidOf(2 * Inner(x)), du = T(kSqrtTwoOverPi) * (1 + T(0.134145) * x * x);
    const T ddu = T(kSqrtTwoOverPi) * T(0.26829) * x, bell = 2 * s * (1 - s);
    return bell * (2 * du + x * (ddu + 2 * (1 - 2 * s) * du * du));
  }
};
// x Phi(x), with the normal distribution Phi and its density phi.
struct Gelu : Row {
  static constexpr const char* kType = "gelu";
  static constexpr const char* kFormula =
      "X Phi(X) with the normal distribution Phi, or with approximate X / 2 (1 + tanh(sqrt(2 / pi) "
      "(X + 0.044715 X^3)))";
  static constexpr const char* kFlag = "approximate";
  static constexpr const char* kFlagDoc = "whether the tanh approximation is used";
  using WithFlag = GeluTanh;
  static constexpr std::optional<simd::Unary> kSimd = simd::Unary::kGeluErf;
  template <class T>
  static T Cdf(T x) {
    return T(0.5) * std::erfc(-x * T(kSqrtHalf));
  }
  template <class T>
  static T Pdf(T x) {
    return T(kInvSqrtTwoPi) * std::exp(T(-0.5) * x * x);
  }
  template <class T>
  static T Value(T x, const P<T>&) {
    return AboveGateLimit(x) * Cdf(x);
  }
  template <class T>
  static T Slope(T v, const P<T>&) {
    const T x = InGateLimits(v);
    return Cdf(x) + x * Pdf(x);
  }
  template <class T>
  static T Curve(T v, const P<T>&) {
    const T x = InGateLimits(v);
    return Pdf(x) * (2 - x * x);
  }
};

struct Selu : Row {
  static constexpr const char* kType = "selu";
  static constexpr const char* kFormula = "scale X where X > 0, else scale alpha (e^X - 1)";
  static constexpr bool kFromOut = true;
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"scale", 1.0507009873554805f, "factor of the result; positive"},
       {"alpha", 1.6732632423543773f, "the lower limit is -scale alpha"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x > 0 ? p[0] * x : p[0] * p[1] * std::expm1(x);
  }
  template <class T>
  static T Slope(T out, const P<T>& p) {
    return out > 0 ? p[0] : out + p[0] * p[1];
  }
  template <class T>
  static T Curve(T out, const P<T>&) {
    return T(out > 0 ? 0 : 1);
  }
};
struct Brelu : Row {
  static constexpr const char* kType = "brelu";
  static constexpr const char* kFormula = "min(max(X, t_min), t_max); a nan stays a nan";
  static constexpr bool kHasCurvature = false, kCutsOff = true;
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"t_min", 0.0f, "lowest value"}, {"t_max", 24.0f, "highest value"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x < p[0] ? p[0] : x > p[1] ? p[1] : x;
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return T(x <= p[0] || x >= p[1] ? 0 : 1);
  }
};
struct SoftShrink : Row {
  static constexpr const char* kType = "softshrink";
  static constexpr const char* kFormula =
      "X - lambda where X > lambda, X + lambda where X < -lambda, else 0; a nan stays a nan";
  static constexpr bool kHasCurvature = false, kCutsOff = true;
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"lambda", 0.5f, "largest |X| with result 0"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x > p[0] ? x - p[0] : x < -p[0] ? x + p[0] : x != x ? x : T(0);
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return T(x <= p[0] && x >= -p[0] ? 0 : 1);
  }
};
struct SoftRelu : Row {
  static constexpr const char* kType = "soft_relu";
  static constexpr const char* kFormula = "log(1 + e^min(max(X, -threshold), threshold))";
  static constexpr bool kFromOut = true, kCutsOff = true;
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"threshold", 40.0f, "X is clipped to [-threshold, threshold]"}}};
  // Whether X lies outside of the thresholds, judged by Out.
  template <class T>
  static bool Outside(T out, const P<T>& p) {
    return out <= LogOnePlusExp(-p[0]) || out >= LogOnePlusExp(p[0]);
  }
  template <class T>
  static T Value(T x, const P<T>& p) {
    return LogOnePlusExp(x < -p[0] ? -p[0] : x > p[0] ? p[0] : x);
  }
  template <class T>
  static T Slope(T out, const P<T>& p) {
    return Outside(out, p) ? T(0) : -std::expm1(-out);
  }
  template <class T>
  static T Curve(T out, const P<T>& p) {
    return Outside(out, p) ? T(0) : std::exp(-out);
  }
};
struct Stanh : Row {
  static constexpr const char* kType = "stanh";
  static constexpr const char* kFormula = "scale_b tanh(scale_a X)";
  static constexpr std::array<AttrRow, 2> kAttrs = {
      {{"scale_a", 0.67f, "factor of X"}, {"scale_b", 1.7159f, "factor of the tanh"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return p[1] * std::tanh(p[0] * x);
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    const T t = std::tanh(p[0] * x);
    return p[0] * p[1] * (1 - t * t);
  }
  template <class T>
  static T Curve(T x, const P<T>& p) {
    const T t = std::tanh(p[0] * x);
    return -2 * p[0] * p[0] * p[1] * t * (1 - t * t);
  }
};
struct TanhShrink : Row {
  static constexpr const char* kType = "tanh_shrink";
  static constexpr const char* kFormula = "X - tanh(X)";
  template <class T>
  static T Value(T x, const P<T>&) {
    return x - std::tanh(x);
  }
  template <class T>
  static T Slope(T x, const P<T>&) {
    const T t = std::tanh(x);
    return t * t;
  }
  template <class T>
  static T Curve(T x, const P<T>&) {
    const T t = std::tanh(x);
    return 2 * t * (1 - t * t);
  }
};
struct ThresholdedRelu : Row {
  static constexpr const char* kType = "thresholded_relu";
  static constexpr const char* kFormula = "X where X > threshold, else 0; a nan stays a nan";
  static constexpr bool kHasCurvature = false, kCutsOff = true;
  static constexpr std::array<AttrRow, 1> kAttrs = {
      {{"threshold", 1.0f, "largest X with result 0"}}};
  template <class T>
  static T Value(T x, const P<T>& p) {
    return x <= p[0] ? T(0) : x;
  }
  template <class T>
  static T Slope(T x, const P<T>& p) {
    return T(x <= p[0] ? 0 : 1);
  }
};

template <class... Fs>
struct Rows {};
// Every row becomes an op.
using AllRows = Rows<Relu, LeakyRelu, Relu6, Elu, Sigmoid, LogSigmoid, Tanh, Exp, Log, Sqrt, Rsqrt,
                     Square, Abs, Reciprocal, Pow, Sign, Floor, Ceil, Round, Sin, Cos, Softplus,
                     Softsign, HardSigmoid, HardSwish, HardShrink, Swish, Silu, Mish, Gelu, Acos,
                     Asin, Atan, Cosh, Sinh, Tan, Erf, Log2, Log10, Log1p, Expm1, Lgamma, Trunc,
                     Selu, Brelu, SoftShrink, SoftRelu, Stanh, TanhShrink, ThresholdedRelu>;

}  // namespace coracle::activation
