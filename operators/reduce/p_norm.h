#pragma once
// The norm of order p of some elements d: the number of those that are not 0 (p = 0), the largest
// or smallest |d| (p = +-inf), else (sum |d|^p)^(1/p). As a reduction over |d| in double.

#include <coracle/framework/op/writer.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coracle {

struct CountNorm {
  static double Start() { return 0; }
  static double Step(double acc, double d) { return acc + (d != 0 ? 1 : 0); }
  static double Finish(double acc) { return acc; }
};
struct MaxNorm {
  static double Start() { return 0; }
  static double Step(double acc, double d) { return d > acc || d != d ? d : acc; }
  static double Finish(double acc) { return acc; }
};
struct MinNorm {
  static double Start() { return std::numeric_limits<double>::infinity(); }
  static double Step(double acc, double d) { return d < acc || d != d ? d : acc; }
  static double Finish(double acc) { return acc; }
};
struct SumNorm {
  static double Start() { return 0; }
  static double Step(double acc, double d) { return acc + d; }
  static double Finish(double acc) { return acc; }
};
struct EuclideanNorm {
  static double Start() { return 0; }
  static double Step(double acc, double d) { return acc + d * d; }
  static double Finish(double acc) { return std::sqrt(acc); }
};
struct PowerNorm {
  double p;
  static double Start() { return 0; }
  double Step(double acc, double d) const { return acc + std::pow(d, p); }
  double Finish(double acc) const { return std::pow(acc, 1 / p); }
};

// make(norm) with the struct for this order.
template <class Make>
auto WithNorm(double p, const Make& make) {
  if (p == 0) return make(CountNorm());
  if (p == 1) return make(SumNorm());
  if (p == 2) return make(EuclideanNorm());
  if (std::isinf(p)) return p > 0 ? make(MaxNorm()) : make(MinNorm());
  return make(PowerNorm{p});
}

// For gradient rules: `dout` times the derivative of the norm `out` of order p by the elements d,
//   0 for p = 0, sign(d) where |d| = out for p = +-inf,
//   sign(d) (|d| / (out + epsilon))^(p - 1) for others.
// spread(v) brings a value of out's shape to one that broadcasts against d.
Variable NormGradient(const Variable& d, const Variable& out, const Variable& dout, double p,
                      double epsilon, const std::function<Variable(const Variable&)>& spread);

}  // namespace coracle
