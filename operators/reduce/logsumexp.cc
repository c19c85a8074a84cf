#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/axes.h>

#include <cmath>
#include <limits>

namespace coracle::logsumexp_op {

constexpr AxisAttrs kAttrs = {"axis", "keepdim"};

void InferLogsumexp(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  CheckDims(ctx, x.shape, kAttrs);
  x.shape = AxesOf(ctx, x.shape, kAttrs).out;
  ctx.SetOutput("Out", x);
}

// The result for the elements x[offset] at the offsets of `dims`. An infinite maximum is returned
// as it is, since the difference to it would be nan.
template <class T>
T LogSumExp(const T* x, const Dims& dims, int64_t count) {
  T max = -std::numeric_limits<T>::infinity();
  DimsWalk at(dims, 0);
  for (int64_t r = 0; r < count; ++r, at.Next()) {
    const T value = x[at.offset()];
    if (value > max || value != value) max = value;
  }
  if (!std::isfinite(max)) return max;
  double sum = 0;
  DimsWalk again(dims, 0);
  for (int64_t r = 0; r < count; ++r, again.Next())
    sum += static_cast<double>(std::exp(x[again.offset()] - max));
  return static_cast<T>(static_cast<double>(max) + std::log(sum));
}

template <class T>
KernelOf<T> LogsumexpReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const ReduceNest nest = MakeReduceNest(x.shape, AxesOf(ctx, x.shape, kAttrs).reduce);
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    const int64_t grain = 1 + 8192 / (1 + nest.reduced_numel);
    ParallelFor(nest.out_numel, grain, [&](int64_t begin, int64_t end) {
      DimsWalk kept(nest.kept, begin);
      for (int64_t j = begin; j < end; ++j, kept.Next())
        o[j] = nest.reduced_numel == 0
                   ? -std::numeric_limits<T>::infinity()
                   : LogSumExp(in + kept.offset(), nest.reduced, nest.reduced_numel);
    });
  };
}

// dX = dOut e^(X - Out). Infinities of Out, and inf in X, count as the largest numbers, so that the
// exponent is not nan: an element -inf gets 0, and an element inf gets dOut while the others get 0.
double LargestOf(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  if (dtype == DType::kBFloat16) return 0x1.fep127;
  return dtype == DType::kFloat32 ? static_cast<double>(std::numeric_limits<float>::max())
                                  : std::numeric_limits<double>::max();
}

void LogsumexpGradient(GradientContext& g) {
  const Variable x = g.In("X");
  const ReducedAxes axes = AxesOf(g, x.shape(), kAttrs);
  const double largest = LargestOf(x.dtype());
  const Variable out = Max(Min(g.Out("Out"), largest), -largest);
  const Variable weights = Exp(Min(x, largest) - Spread(g, out, axes));
  g.Set("X", OfRankLike(x, weights * Spread(g, g.Grad("Out"), axes)));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("logsumexp")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = log(sum of e^X) over the dims in axis, computed as m + log(sum of e^(X - "
                   "m)) with the largest element m; -inf without elements. If no dim is left, Out "
                   "has the shape [1].")
              .Constraint("C1", "each axis must lie in [-rank, rank)")
              .Constraint("C2", "no axis may be named twice")
              .Input("X", "floating-point tensor")
              .Output("Out", "tensor without the reduced dims, or with 1 for them")
              .Attr<std::vector<int32_t>>("axis", {0},
                                          "dims to reduce, negative from the end; none: all")
              .Attr<bool>("keepdim", false, "whether reduced dims stay as 1")
              .Attr<bool>("reduce_all", false, "whether all dims are reduced, whatever axis says")
              .LodUnlessAxis("axis")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Infer(InferLogsumexp)
              .Gradient(LogsumexpGradient)
              .Reference(LogsumexpReference<float>, LogsumexpReference<double>));
}

}  // namespace coracle::logsumexp_op
