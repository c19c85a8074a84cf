#pragma once
// The norm of order p of elements d: the number of nonzero elements (p = 0), the largest or
// smallest |d| (p = +-inf), else (sum |d|^p)^(1/p). The result is correct for all finite numbers,
// including subnormal ones, unless the thread flushes them (framework/base/subnormals.h). If a sum
// overflows, or has summands too small for a double, the elements are divided by the largest of
// them (by the smallest if p < 0) and summed again.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/arithmetic.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace coracle::inline internal {

// unit * value: the norm of float64 elements may exceed the largest double.
struct ScaledNorm {
  double unit = 1, value = 0;
  double product() const { return unit * value; }
};

// Whether a sum of powers of doubles is right. It has not overflowed, and summands that are too
// small for a double would change no digit of it.
inline bool IsSafeSum(double sum) { return sum > 1e-280 && sum <= 1e300; }

// The same for squares of elements of T. Doubles hold the squares of all floats, and their sums.
template <class T>
bool IsSafeSumOfSquares(double sum) {
  return sizeof(T) < sizeof(double) || IsSafeSum(sum);
}

namespace detail {

template <class Each>
double SumOfPowers(double p, double unit, const Each& each) {
  double sum = 0;
  if (p == 2) {
    each([&](double d) { sum += (d / unit) * (d / unit); });
  } else if (p == 1) {
    each([&](double d) { sum += std::abs(d) / unit; });
  } else if (p == 3) {
    each([&](double d) {
      const double a = std::abs(d) / unit;
      sum += a * a * a;
    });
  } else {
    each([&](double d) { sum += std::pow(std::abs(d) / unit, p); });
  }
  return sum;
}

// The plain sum, without a division for each element.
template <class Each>
double SumOfPowers(double p, const Each& each) {
  if (p != 2) return SumOfPowers(p, 1, each);
  double sum = 0;
  each([&](double d) { sum += d * d; });
  return sum;
}

inline double Root(double p, double sum) {
  return p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p);
}

template <class Each>
double Extreme(bool largest, const Each& each) {
  double best = largest ? 0 : std::numeric_limits<double>::infinity();
  each([&](double d) {
    const double a = std::abs(d);
    if ((largest ? a > best : a < best) || a != a) best = a;
  });
  return best;
}

}  // namespace detail

// --- norms; each call of each(f) calls f(double) for all elements ---

// For p != 0, the norm from elements divided by one of them.
template <class Each>
ScaledNorm RescaledNormOf(double p, const Each& each) {
  const double unit = detail::Extreme(p > 0, each);
  if (!(unit > 0) || std::isinf(unit) || std::isinf(p)) return {1, unit};
  return {unit, detail::Root(p, detail::SumOfPowers(p, unit, each))};
}

template <class Each>
ScaledNorm ScaledNormOf(double p, const Each& each) {
  if (p == 0) {
    double count = 0;
    each([&](double d) { count += d != 0 ? 1 : 0; });
    return {1, count};
  }
  if (std::isinf(p)) return RescaledNormOf(p, each);
  const double sum = detail::SumOfPowers(p, each);
  if (IsSafeSum(sum) || std::isnan(sum)) return {1, detail::Root(p, sum)};
  return RescaledNormOf(p, each);
}

// Of order 2, where the elements are numbers of T.
template <class T, class Each>
ScaledNorm EuclideanNormOf(const Each& each) {
  const double sum = detail::SumOfPowers(2, each);
  if (IsSafeSumOfSquares<T>(sum) || std::isnan(sum)) return {1, std::sqrt(sum)};
  return RescaledNormOf(2, each);
}

template <class Each>
double NormOf(double p, const Each& each) {
  return ScaledNormOf(p, each).product();
}

// An `each` for n elements of a floating-point type.
template <class T>
auto EachOf(const T* x, int64_t n) {
  return [x, n](const auto& f) {
    for (int64_t i = 0; i < n; ++i) f(static_cast<double>(static_cast<Wide<T>>(x[i])));
  };
}
template <class T>
ScaledNorm ScaledNormOf(double p, const T* x, int64_t n) {
  return ScaledNormOf(p, EachOf(x, n));
}
template <class T>
double NormOf(double p, const T* x, int64_t n) {
  return ScaledNormOf(p, x, n).product();
}

// Whether T represents this factor exactly, so that elements of T may be multiplied by it.
template <class T>
bool IsFactorOf(double factor) {
  if (factor == 0 || !std::isfinite(factor)) return true;
  if constexpr (sizeof(T) == 2) {
    return static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(factor)))) ==
           factor;
  } else {
    return std::abs(factor) >= static_cast<double>(std::numeric_limits<T>::min()) &&
           std::abs(factor) <= static_cast<double>(std::numeric_limits<T>::max());
  }
}

// The factor that scales elements of T with this norm down to `limit` if the norm exceeds it; nan
// for a nan norm, and nullopt if T cannot represent the factor.
template <class T>
std::optional<double> FactorFor(double limit, const ScaledNorm& norm) {
  const double factor = norm.product() <= limit ? 1 : limit / norm.product();
  if (IsFactorOf<T>(factor) && (factor != 0 || std::isinf(norm.value))) return factor;
  return std::nullopt;
}

// out = x, scaled down to the norm `limit` if the norm of x, `norm`, exceeds it. A nan norm gives
// nans, so that it is noticed. multiply(factor) writes out for a factor of FactorFor.
template <class T, class Multiply>
void ScaleDownTo(double limit, const ScaledNorm& norm, const T* x, T* out, int64_t n,
                 const Multiply& multiply) {
  if (const auto factor = FactorFor<T>(limit, norm)) return multiply(*factor);
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<T>(static_cast<double>(x[i]) / norm.unit / norm.value * limit);
}

}  // namespace coracle::inline internal
