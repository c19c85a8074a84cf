#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/linalg/square.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::cholesky_op {

// Factorises row by row. Element (i, j) of the lower factor is at i * row + j * column, and so is
// element (i, j) of A, of which only this triangle is read; an upper factor is the transpose.
// Returns false if A is not positive definite.
template <class T>
bool Factorise(const T* a, T* l, int64_t n, int64_t row, int64_t column) {
  for (int64_t i = 0; i < n; ++i) {
    if (i % 16 == 15) CheckTimeLimit("factorising a matrix");
    for (int64_t j = 0; j <= i; ++j) {
      double sum = static_cast<double>(a[i * row + j * column]);
      for (int64_t k = 0; k < j; ++k) {
        sum -= static_cast<double>(l[i * row + k * column]) *
               static_cast<double>(l[j * row + k * column]);
      }
      if (i == j && !(sum > 0)) return false;
      const double value =
          i == j ? std::sqrt(sum) : sum / static_cast<double>(l[j * (row + column)]);
      l[i * row + j * column] = static_cast<T>(value);
    }
    for (int64_t j = i + 1; j < n; ++j) l[i * row + j * column] = T(0);
  }
  return true;
}

template <class T>
KernelOf<T> Cholesky(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int64_t n = x.shape[x.shape.rank() - 1];
  if (x.numel == 0) return [](Workspace&) {};
  const bool upper = ctx.Attr<bool>("upper");
  const std::string failure = ctx.Failure("C2");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel / (n * n), 1 + 8192 / (n * n * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * n * n;
        if (!Factorise(in + at, o + at, n, upper ? 1 : n, upper ? n : 1))
          ThrowInvalid(fmt::format("{}, got matrix {}", failure, i));
      }
    });
  };
}

// L is the lower factor (the transpose of an upper one), and P the lower triangle of L^T dL with
// half of its diagonal. Then S = L^-T P L^-1, dX = (S + S^T) / 2. The other triangle of dL does not
// affect P.
void CholeskyGradient(GradientContext& g) {
  const bool upper = g.Attr<bool>("upper");
  const Variable out = g.Out("Out"), dout = g.Grad("Out");
  std::vector<int32_t> axes(static_cast<size_t>(out.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  const auto transposed = [&](const Variable& v) {
    return g.Make("transpose2", {{"X", {v.name()}}}, {{"axis", axes}});
  };
  const auto product = [&](const Variable& a, const Variable& b, bool trans_x) {
    return g.Make("matmul_v2", {{"X", {a.name()}}, {"Y", {b.name()}}}, {{"trans_x", trans_x}});
  };
  const auto lower = [&](const Variable& v, int32_t diagonal) {
    return g.Make("tril_triu", {{"X", {v.name()}}}, {{"lower", true}, {"diagonal", diagonal}});
  };
  const Variable l = upper ? transposed(out) : out, dl = upper ? transposed(dout) : dout;
  const Variable p = product(l, dl, true), with_diagonal = lower(p, 0);
  const Variable halved = 0.5 * (with_diagonal + lower(p, -1));
  const Variable inverse = g.Make("inverse", {{"Input", {l.name()}}}, {}, "Output");
  const Variable s = product(product(inverse, halved, true), inverse, false);
  g.Set("X", 0.5 * (s + transposed(s)));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("cholesky")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the lower triangular L with X = L L^T (under upper the transpose of L) "
                   "for each symmetric matrix of the last two dims of X, only that triangle of X "
                   "is read. The gradient is symmetric.")
              .Constraint("C1", "X must hold square matrices in its last two dims")
              .Constraint("C2", "every matrix must be positive definite")
              .Input("X", "floating-point tensor of rank 2 or more")
              .Output("Out", "tensor of X's shape and dtype")
              .Attr<bool>("upper", false, "whether Out is the upper factor")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { InferSquare(ctx, "X", "Out"); })
              .Gradient(CholeskyGradient)
              .Reference(Cholesky<float>, Cholesky<double>));
}

}  // namespace coracle::cholesky_op
