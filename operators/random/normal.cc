#include <coracle/operators/random/normal.h>

#include <cmath>
#include <numbers>

namespace coracle::inline internal {
namespace {

template <int N>
double Horner(const double (&coefficients)[N], double x) {
  double value = 0;
  for (double c : coefficients) value = value * x + c;
  return value;
}

double CentralQuantile(double p) {
  static constexpr double kNumerator[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                          -2.759285104469687e+02, 1.383577518672690e+02,
                                          -3.066479806614716e+01, 2.506628277459239e+00};
  static constexpr double kDenominator[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                            -1.556989798598866e+02, 6.680131188771972e+01,
                                            -1.328068155288572e+01, 1.0};
  const double q = p - 0.5, r = q * q;
  return q * Horner(kNumerator, r) / Horner(kDenominator, r);
}

double LowerTailQuantile(double p) {
  static constexpr double kNumerator[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                          -2.400758277161838e+00, -2.549732539343734e+00,
                                          4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double kDenominator[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                            2.445134137142996e+00, 3.754408661907416e+00, 1.0};
  const double q = std::sqrt(-2.0 * std::log(p));
  return Horner(kNumerator, q) / Horner(kDenominator, q);
}

}  // namespace

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double NormalQuantile(double p) {
  constexpr double kTail = 0.02425;
  double x = p < kTail       ? LowerTailQuantile(p)
             : p > 1 - kTail ? -LowerTailQuantile(1 - p)
                             : CentralQuantile(p);
  const double error = NormalCdf(x) - p;
  const double step = error * std::sqrt(2.0 * std::numbers::pi) * std::exp(x * x / 2);
  return x - step / (1 + x * step / 2);
}

}  // namespace coracle::inline internal
