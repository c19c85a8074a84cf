// clip_statistics: how often clips act, and how much they remove.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/sum_of_squares.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coracle::clip_statistics_op {

void InferClipStatistics(InferContext& ctx) {
  const size_t count = ctx.NumInputs("Before");
  ctx.Require("C1", count == ctx.NumInputs("After"), count, ctx.NumInputs("After"));
  for (size_t i = 0; i < count; ++i) {
    const VarMeta &before = ctx.Input("Before", i), &after = ctx.Input("After", i);
    const bool same = IsFloating(before.dtype) && before.dtype == after.dtype &&
                      before.shape.CompatibleWith(after.shape);
    ctx.Require("C2", same, "Before", before, "After", after);
  }
  const VarMeta& statistics = ctx.Input("Statistics");
  if (statistics.dtype != DType::kFloat64 || !statistics.shape.CompatibleWith({3}))
    ctx.Fail("C3", statistics);
  ctx.SetOutput("StatisticsOut", statistics);
}

struct Change {
  bool finite = true;  // whether all of Before is finite
  bool differs = false;
  double before = 0, after = 0;  // norms
};

template <class T>
void Compare(const T* before, const T* after, int64_t n, Change* change) {
  for (int64_t i = 0; i < n; ++i)
    change->finite &= std::isfinite(static_cast<double>(static_cast<Wide<T>>(before[i])));
  const double norm = NormOf(2, before, n);
  const bool differs = std::memcmp(before, after, static_cast<size_t>(n) * sizeof(T)) != 0;
  change->differs |= differs;
  change->before = std::hypot(change->before, norm);
  change->after = std::hypot(change->after, differs ? NormOf(2, after, n) : norm);
}

// The share of the norm that the clips removed; 0 if the norm did not get smaller.
double Removed(const Change& change) {
  if (!(change.before > 0) || !(change.after < change.before)) return 0;
  return 1 - change.after / change.before;
}

void Count(const Change& change, const double* then, double* now) {
  const bool acted = change.finite && change.differs;
  now[0] = then[0] + (change.finite ? 1 : 0);
  now[1] = then[1] + (acted ? 1 : 0);
  now[2] = acted ? std::max(then[2], Removed(change)) : then[2];
}

Kernel ClipStatisticsReference(const PrepareContext& ctx) {
  const std::vector<TensorArg> before = ctx.Inputs("Before"), after = ctx.Inputs("After");
  const TensorArg in = ctx.Input("Statistics"), out = ctx.Output("StatisticsOut");
  return [=](Workspace& ws) {
    Change change;
    for (size_t k = 0; k < before.size(); ++k) {
      DispatchDType(before[k].dtype, [&]<class T>() {
        Compare(ws.Data<const T>(before[k]), ws.Data<const T>(after[k]), before[k].numel, &change);
      });
    }
    Count(change, ws.Data<const double>(in), ws.Data<double>(out));
  };
}

Kernel ClipStatisticsFast(const PrepareContext& ctx) {
  const std::vector<TensorArg> before = ctx.Inputs("Before"), after = ctx.Inputs("After");
  const TensorArg in = ctx.Input("Statistics"), out = ctx.Output("StatisticsOut");
  std::vector<SumOfSquares> squares_before, squares_after;
  for (size_t k = 0; k < before.size(); ++k) {
    if (before[k].dtype != DType::kFloat32) return {};
    squares_before.emplace_back(ctx, before[k]);
    squares_after.emplace_back(ctx, after[k]);
  }
  return [=](Workspace& ws) {
    Change change;
    for (size_t k = 0; k < before.size(); ++k) {
      const auto* x = ws.Data<const float>(before[k]);
      const auto* y = ws.Data<const float>(after[k]);
      const double sum = squares_before[k](ws);
      change.finite &= std::isfinite(sum);
      const auto bytes = static_cast<size_t>(before[k].numel) * sizeof(float);
      const bool differs = std::memcmp(x, y, bytes) != 0;
      change.differs |= differs;
      change.before = std::hypot(change.before, std::sqrt(sum));
      change.after = std::hypot(change.after, std::sqrt(differs ? squares_after[k](ws) : sum));
    }
    Count(change, ws.Data<const double>(in), ws.Data<double>(out));
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("clip_statistics")
          .Doc("Statistics of gradient clips. StatisticsOut[0] = Statistics[0] + 1. "
               "StatisticsOut[1] is one more if an element of After differs from Before. "
               "StatisticsOut[2] is the largest share so far of the L2 norm of all Before that a "
               "clip removed (1: all of it). If Before is not finite, nothing is counted.")
          .Constraint("C1", "there must be one After for each Before")
          .Constraint(
              "C2", "each After must be floating-point and have the dtype and shape of its Before")
          .Constraint("C3", "Statistics must be float64[3]")
          .VariadicInput("Before", "gradients")
          .VariadicInput("After", "gradients after the clips")
          .Input("Statistics", "float64 tensor [3]")
          .Output("StatisticsOut", "float64 tensor [3]; usually Statistics itself")
          .Inplace("Statistics", "StatisticsOut")
          .Rows(RowRule::kMixes)
          .Infer(InferClipStatistics)
          .NotDifferentiable("counts have no derivative")
          .Reference(ClipStatisticsReference)
          .Fast(ClipStatisticsFast));
}

}  // namespace coracle::clip_statistics_op
