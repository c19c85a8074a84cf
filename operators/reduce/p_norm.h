#pragma once
// The derivative of the norm of order p (operators/kernels/norm_of.h).

#include <coracle/framework/op/writer.h>

#include <functional>

namespace coracle {

// For gradient rules: `dout` times the derivative of the norm `out` of order p by the elements d,
//   0 for p = 0, sign(d) where |d| = out for p = +-inf,
//   sign(d) (|d| / out)^(p - 1) for others, and 0 where out is 0.
// spread(v) gives a value of out's shape a shape that broadcasts against d. norm(x) appends the
// norm of an x like d, since `out` may be rounded to few digits, or to infinity.
struct NormRule {
  double p;
  std::function<Variable(const Variable&)> norm, spread;
};
Variable NormGradient(const Variable& d, const Variable& out, const Variable& dout,
                      const NormRule& rule);

}  // namespace coracle
