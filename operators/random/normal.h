#pragma once
// The standard normal distribution.

namespace coracle {

double NormalCdf(double x);
// Its inverse, for p in (0, 1): relative error under 1e-9 in the rational function (P. J. Acklam's
// coefficients), then one step of Halley's method against NormalCdf.
double NormalQuantile(double p);

}  // namespace coracle
