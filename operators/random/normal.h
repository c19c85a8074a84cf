#pragma once
// The standard normal distribution.

namespace coracle::inline internal {

double NormalCdf(double x);
// The inverse of NormalCdf, for p in (0, 1): a rational function with relative error under 1e-9 (P.
// J. Acklam's coefficients), then one step of Halley's method.
double NormalQuantile(double p);

}  // namespace coracle::inline internal
