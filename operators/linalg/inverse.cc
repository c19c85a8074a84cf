#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/linalg/square.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inverse_op {

// Gauss-Jordan elimination on [A | B], where B starts as the identity. The pivot is the largest
// element of its column. `a` and `b` have n rows of n elements. Returns false if A is singular.
bool Invert(double* a, double* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) b[i * n + j] = i == j ? 1 : 0;
  }
  for (int64_t k = 0; k < n; ++k) {
    if (k % 16 == 15) CheckTimeLimit("inverting a matrix");
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    }
    if (a[pivot * n + k] == 0) return false;
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
      std::swap_ranges(b + k * n, b + (k + 1) * n, b + pivot * n);
    }
    const double scale = 1 / a[k * n + k];
    for (int64_t j = k; j < n; ++j) a[k * n + j] *= scale;
    for (int64_t j = 0; j < n; ++j) b[k * n + j] *= scale;
    for (int64_t i = 0; i < n; ++i) {
      const double factor = a[i * n + k];
      if (i == k || factor == 0) continue;
      for (int64_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      for (int64_t j = 0; j < n; ++j) b[i * n + j] -= factor * b[k * n + j];
    }
  }
  return true;
}

template <class T>
KernelOf<T> Inverse(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("Input"), out = ctx.Output("Output");
  const int64_t n = x.shape[x.shape.rank() - 1];
  if (x.numel == 0) return [](Workspace&) {};
  const TensorArg left = ctx.Scratch(DType::kFloat64, {x.numel});
  const TensorArg right = ctx.Scratch(DType::kFloat64, {x.numel});
  const std::string failure = ctx.Failure("C2");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    double *a = ws.Data<double>(left), *b = ws.Data<double>(right);
    ParallelFor(x.numel / (n * n), 1 + 4096 / (n * n * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * n * n;
        std::copy_n(in + at, n * n, a + at);
        if (!Invert(a + at, b + at, n)) ThrowInvalid(fmt::format("{}, got matrix {}", failure, i));
        std::transform(b + at, b + at + n * n, o + at, [](double v) { return static_cast<T>(v); });
      }
    });
  };
}

// dInput = -Output^T dOutput Output^T.
void InverseGradient(GradientContext& g) {
  const Variable out = g.Out("Output");
  const Variable left = g.Make("matmul_v2", {{"X", {out.name()}}, {"Y", {g.OutputGrad("Output")}}},
                               {{"trans_x", true}});
  const Variable product =
      g.Make("matmul_v2", {{"X", {left.name()}}, {"Y", {out.name()}}}, {{"trans_y", true}});
  g.Set("Input", -product);
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("inverse")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Output = the inverse of each matrix of the last two dims of Input.")
              .Constraint("C1", "Input must hold square matrices in its last two dims")
              .Constraint("C2", "no matrix may be singular")
              .Input("Input", "floating-point tensor of rank 2 or more")
              .Output("Output", "tensor of Input's shape and dtype")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { InferSquare(ctx, "Input", "Output"); })
              .Gradient(InverseGradient)
              .Reference(Inverse<float>, Inverse<double>));
}

}  // namespace coracle::inverse_op
