// squared_l2_norm, and total_norm, the norm of a gradient for clips. total_norm is float64: the
// norm of floats may exceed the largest float, and its square may be below the smallest.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/decimal.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/operators.h>

#include <algorithm>
#include <cmath>

namespace coracle::squared_l2_norm_op {

// Selected rows. Those of one index are added up; ForEachElement visits the sums in the order of
// the indices.
template <class T>
struct MergedRows {
  explicit MergedRows(const PrepareContext& ctx) : x(ctx, "X"), grouper(ctx) {}
  template <class F>
  void ForEachElement(Workspace& ws, const F& f) const {
    const RowsView in = x(ws);
    const RowGroups groups = grouper(ws, in);
    for (int64_t k = 0; k < groups.count(); ++k) {
      SumGroup(groups, k, in.data<T>(), in.width, [&](int64_t, const T* sum, int64_t n) {
        for (int64_t j = 0; j < n; ++j) f(static_cast<double>(sum[j]));
      });
    }
  }
  RowsInput x;
  RowGrouper grouper;
};

template <class T>
Kernel SquaredNormOfRows(const PrepareContext& ctx) {
  const MergedRows<T> rows(ctx);
  const TensorArg out = ctx.Output("Out");
  return [=](Workspace& ws) {
    double squares = 0;
    rows.ForEachElement(ws, [&](double v) { squares += v * v; });
    ws.Data<T>(out)[0] = static_cast<T>(squares);
  };
}

template <class T>
KernelOf<T> SquaredNormReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return SquaredNormOfRows<T>(ctx);
  const std::vector<TensorArg> x = ctx.Inputs("X"), out = ctx.Outputs("Out");
  return [=](Workspace& ws) {
    for (size_t k = 0; k < x.size(); ++k) {
      double sum = 0;
      for (T value : ws.Span<const T>(x[k]))
        sum += static_cast<double>(value) * static_cast<double>(value);
      ws.Data<T>(out[k])[0] = static_cast<T>(sum);
    }
  };
}

Kernel SquaredNormFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32 || IsSparse(ctx.Input("X"))) return {};
  return SweepItems(ctx, 65536, [](const PrepareContext& item) -> TensorWork {
    const TensorArg x = item.Input("X"), out = item.Output("Out");
    const SumOfSquares squares(item, x);
    return {x.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) { squares.SumBlocks(ws, begin, end); },
            [=](Workspace& ws) { *ws.Data<float>(out) = static_cast<float>(squares.Total(ws)); }};
  });
}

// --- total_norm ---

void InferTotalNorm(InferContext& ctx) { ctx.SetOutput("Out", DType::kFloat64, {1}); }

// The order, and the unit of the norm.
struct Order {
  explicit Order(const PrepareContext& ctx)
      : p(DecimalOf(ctx.Attr<float>("porder"))),
        // Beyond these limits every result is 0 or inf, and the negative of an int may overflow.
        exponent(std::clamp(ctx.Attr<int32_t>("exponent"), -10000, 10000)) {}
  double Out(const ScaledNorm& norm) const {
    if (norm.unit > 1) return std::ldexp(norm.unit, -exponent) * norm.value;
    return std::ldexp(norm.product(), -exponent);
  }
  double p;
  int32_t exponent;
};

template <class T>
Kernel TotalNormOfRows(const PrepareContext& ctx) {
  const MergedRows<T> rows(ctx);
  const TensorArg out = ctx.Output("Out");
  const Order order(ctx);
  return [=](Workspace& ws) {
    const ScaledNorm norm =
        ScaledNormOf(order.p, [&](const auto& f) { rows.ForEachElement(ws, f); });
    ws.Data<double>(out)[0] = order.Out(norm);
  };
}

template <class T>
KernelOf<T> TotalNormReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return TotalNormOfRows<T>(ctx);
  const std::vector<TensorArg> x = ctx.Inputs("X"), out = ctx.Outputs("Out");
  const Order order(ctx);
  return [=](Workspace& ws) {
    for (size_t k = 0; k < x.size(); ++k) {
      const auto norm = ScaledNormOf(order.p, ws.Data<const T>(x[k]), x[k].numel);
      ws.Data<double>(out[k])[0] = order.Out(norm);
    }
  };
}

// Up to this order, doubles can hold the powers of all floats, and their sums.
constexpr double kSafeOrder = 6;

// Folds joined(sum, power(|x|)) over all elements, in blocks that run on any thread. A block has
// several sums, so that the compiler can vectorize.
template <class Power, class Joined>
TensorWork BlockedNorm(const PrepareContext& item, const Order& order, Power power, Joined joined) {
  const TensorArg x = item.Input("X"), out = item.Output("Out");
  const TensorArg partial =
      item.Scratch(DType::kFloat64, {(x.numel + kSweepBlock - 1) / kSweepBlock});
  const auto block = [=](const float* in, int64_t n) {
    constexpr int64_t kSums = 8;
    double sums[kSums] = {};
    int64_t i = 0;
    for (; i + kSums <= n; i += kSums) {
      for (int64_t k = 0; k < kSums; ++k)
        sums[k] = joined(sums[k], power(std::abs(static_cast<double>(in[i + k]))));
    }
    for (; i < n; ++i) sums[0] = joined(sums[0], power(std::abs(static_cast<double>(in[i]))));
    for (int64_t k = 1; k < kSums; ++k) sums[0] = joined(sums[0], sums[k]);
    return sums[0];
  };
  const auto run = [=](Workspace& ws, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kSweepBlock) {
      ws.Data<double>(partial)[i / kSweepBlock] =
          block(ws.Data<const float>(x) + i, std::min(kSweepBlock, end - i));
    }
  };
  const auto after = [=](Workspace& ws) {
    double total = 0;
    for (const double sum : ws.Span<const double>(partial)) total = joined(total, sum);
    ScaledNorm norm = {1, total};
    if (!std::isinf(order.p)) norm.value = std::pow(total, 1 / order.p);
    const bool done = order.p <= kSafeOrder || std::isinf(order.p) || IsSafeSum(total);
    if (!done && !std::isnan(total))
      norm = RescaledNormOf(order.p, EachOf(ws.Data<const float>(x), x.numel));
    *ws.Data<double>(out) = order.Out(norm);
  };
  return {x.numel, run, after};
}

TensorWork FastNorm(const PrepareContext& item, const Order& order) {
  const auto add = [](double sum, double power) { return sum + power; };
  const auto larger = [](double sum, double a) { return a > sum || a != a ? a : sum; };
  const auto same = [](double a) { return a; };
  const double p = order.p;
  if (std::isinf(p)) return BlockedNorm(item, order, same, larger);
  if (p == 1) return BlockedNorm(item, order, same, add);
  if (p == 3)
    return BlockedNorm(
        item, order, [](double a) { return a * a * a; }, add);
  if (p != 2)
    return BlockedNorm(
        item, order, [p](double a) { return std::pow(a, p); }, add);
  const TensorArg x = item.Input("X"), out = item.Output("Out");
  const SumOfSquares squares(item, x);
  return {x.numel,
          [=](Workspace& ws, int64_t begin, int64_t end) { squares.SumBlocks(ws, begin, end); },
          [=](Workspace& ws) {
            *ws.Data<double>(out) = order.Out({1, std::sqrt(squares.Total(ws))});
          }};
}

Kernel TotalNormFast(const PrepareContext& ctx) {
  const Order order(ctx);
  if (ctx.Input("X").dtype != DType::kFloat32 || IsSparse(ctx.Input("X")) || order.p == 0)
    return {};
  return SweepItems(ctx, order.p == 2 ? 65536 : 16384,
                    [order](const PrepareContext& item) { return FastNorm(item, order); });
}

// --- declarations ---

// dX = 2 dOut X.
void SquaredNormGradient(GradientContext& g) {
  const Variable x = g.In("X"), product = x * g.Grad("Out");
  // Out is [1], and so is its product with an X of rank 0, which is reshaped.
  g.Set("X", 2.0 * (x.shape().rank() == 0 ? Reshape(product, {}) : product));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("squared_l2_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the sum of the squares of all elements of X. Duplicates in selected "
                   "rows are added up first.")
              .Input("X", "floating-point tensor or selected rows")
              .Output("Out", "tensor [1]")
              .Takes(VarType::kSelectedRows, {"X"})
              .MultiTensor({})
              .Rows(RowRule::kSum)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .Gradient(SquaredNormGradient)
              .Reference(SquaredNormReference<float>, SquaredNormReference<double>)
              .Fast(SquaredNormFast));
  ops.Add(OpDef("total_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the norm of order p = porder of all elements of X, (sum |X|^p)^(1/p), or "
                   "for inf the largest |X|, divided by 2^exponent. The result is correct for all "
                   "finite numbers: no sum overflows or loses small summands. Duplicates in "
                   "selected rows are added up first. The clips of gradients by norm use it.")
              .Input("X", "floating-point tensor or selected rows")
              .Output("Out", "float64 tensor [1]")
              .Takes(VarType::kSelectedRows, {"X"})
              .Attr<float>("porder", 2.0f, "the order p, as the decimal number it was written as")
              .Range(0, {})
              .Attr<int32_t>("exponent", 0,
                             "exponent of the power of two that divides Out: the norm of float64 "
                             "numbers can exceed the range of float64")
              .MultiTensor({})
              .Rows(RowRule::kMixes)
              .Infer(InferTotalNorm)
              .NoGradient("it is applied to gradients, after differentiation")
              .Reference(TotalNormReference<float>, TotalNormReference<double>)
              .Fast(TotalNormFast));
}

}  // namespace coracle::squared_l2_norm_op
