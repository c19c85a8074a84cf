#pragma once
// The gradient of the norm of order p (operators/kernels/norm_of.h) over some dims.

#include <coracle/framework/op/kernel/half_kernel.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/slice_norms.h>
#include <coracle/operators/reduce/axes.h>

#include <cmath>
#include <functional>
#include <limits>

namespace coracle::inline internal {

// The norms of slices, and the gradients that arrive for them.
struct NormSlopes {
  // The gradient of element d of slice j: Out@GRAD times
  //   0 for p = 0,
  //   sign(d) where |d| is the norm for p = +-inf, else 0,
  //   sign(d) (|d| / norm)^(p - 1) for others; 0 where d or the norm is 0.
  double Of(double d, int64_t j) const {
    if (p == 0 || d == 0) return 0;
    const double sign = std::isnan(d) ? d : std::copysign(1, d);
    if (p == 1) return sign * dout[j];
    if (std::isinf(p)) return std::isnan(d) || std::abs(d) == value[j] ? sign * dout[j] : 0;
    if (value[j] == 0) return 0;
    const double ratio = d / unit[j] / value[j];
    if (p == 2) return ratio * dout[j];
    if (p == 3) return ratio * std::abs(ratio) * dout[j];
    if (std::abs(ratio) >= std::numeric_limits<double>::min())
      return sign * std::pow(std::abs(ratio), p - 1) * dout[j];
    const double log_ratio = std::log(std::abs(d)) - std::log(unit[j]) - std::log(value[j]);
    return sign * std::exp((p - 1) * log_ratio) * dout[j];
  }
  // For p = 2: what the elements of each slice are multiplied by. False where Of is needed.
  bool MakeFactors(int64_t count) {
    bool all = true;
    for (int64_t j = 0; j < count; ++j) {
      const double norm = unit[j] * value[j], factor = dout[j] / norm;
      const bool zero = value[j] == 0 || dout[j] == 0;
      factors[j] = zero ? 0 : factor;
      all &= zero || (std::isnormal(factor) && std::isnormal(norm));
    }
    return all;
  }

  double p;
  double *unit, *value, *dout, *factors;
};

// Whether an Out of type T is accurate enough for the gradient: the norm is a normal number of T,
// and the power p - 1 multiplies the rounding of a float by at most kHighestOrderOfFloats.
template <class T>
bool IsAccurateNorm(double norm, double p) {
  constexpr double kHighestOrderOfFloats = 64;
  return (sizeof(T) == sizeof(double) || std::abs(p) <= kHighestOrderOfFloats) &&
         norm >= static_cast<double>(std::numeric_limits<T>::min()) &&
         norm <= static_cast<double>(std::numeric_limits<T>::max());
}

// X@GRAD from X, Out@GRAD and, where it is there, Out. Norms that Out does not hold with all digits
// are made again.
template <class T>
Kernel NormGradKernel(const PrepareContext& ctx, const ReducedAxes& axes, double p) {
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const TensorArg out = HalfInput(ctx, "Out") ? TensorArg() : ctx.Input("Out");
  if (x.numel == 0) return [](Workspace&) {};
  const ReduceNest nest = MakeReduceNest(x.shape, axes.reduce);
  const BroadcastNest spread = MakeBroadcastNest(x.shape, axes.spread, -1);
  const int64_t count = nest.out_numel;
  const TensorArg scratch = ctx.Scratch(DType::kFloat64, {4, count});
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *norms = out ? ws.Data<const T>(out) : nullptr;
    T* o = ws.Data<T>(dx);
    double* memory = ws.Data<double>(scratch);
    NormSlopes slopes{p, memory, memory + count, memory + 2 * count, memory + 3 * count};
    const auto store = [&](int64_t j, const ScaledNorm& norm) {
      slopes.unit[j] = norm.unit;
      slopes.value[j] = norm.value;
    };
    bool given = norms != nullptr || p == 0 || p == 1;
    for (int64_t j = 0; j < count; ++j) {
      slopes.dout[j] = static_cast<double>(ws.Data<const T>(dout)[j]);
      const double norm = norms ? static_cast<double>(norms[j]) : 0;
      store(j, {1, norm});
      given &=
          p == 0 || p == 1 || std::isinf(p) || (p > 0 && norm == 0) || IsAccurateNorm<T>(norm, p);
    }
    if (!given) ForEachNorm(nest, p, in, store);
    const bool scales = p == 2 && slopes.MakeFactors(count);
    ParallelFor(spread.numel, 32768, [&](int64_t begin, int64_t end) {
      ForEachRow(spread, begin, end, [&](int64_t at, int64_t j, int64_t, int64_t n) {
        const bool one = spread.y_repeats();
        const double* factors = slopes.factors + j;
        for (int64_t i = 0; scales && one && i < n; ++i)
          o[at + i] = static_cast<T>(static_cast<double>(in[at + i]) * factors[0]);
        for (int64_t i = 0; scales && !one && i < n; ++i)
          o[at + i] = static_cast<T>(static_cast<double>(in[at + i]) * factors[i]);
        for (int64_t i = 0; !scales && i < n; ++i)
          o[at + i] = static_cast<T>(slopes.Of(static_cast<double>(in[at + i]), one ? j : j + i));
      });
    });
  };
}

// How the gradient rule of such a gradient op writes its parts: the norm of an x like X, and the
// gradient of X for a gradient like Out@GRAD.
struct NormRule {
  double p;
  ReducedAxes axes;
  std::function<Variable(const Variable& x)> norm;
  std::function<Variable(const Variable& x, const Variable& dout)> gradient;
};
void SetGradientsOfNormGrad(GradientContext& g, const NormRule& rule);

}  // namespace coracle::inline internal
