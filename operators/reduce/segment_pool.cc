#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::segment_pool_op {

void InferSegmentPool(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Shape& ids = ctx.InputShape("SegmentIds");
  RequireIndexType(ctx, "C1", "SegmentIds");
  const bool fits = ids.rank() == 1 && x.shape.rank() > 0;
  ctx.Require("C2", fits && InferContext::Matches(ids[0], x.shape[0]), "SegmentIds", ids, "X",
              x.shape);
  const DType dtype = x.dtype;
  x.shape[0] = -1;
  ctx.SetOutput("Out", x);
  ctx.SetOutput("SummedIds", dtype, {-1, 1});
}

enum class Pool { kSum, kMean, kMin, kMax };

Pool PoolOf(const std::string& type) {
  if (type == "SUM") return Pool::kSum;
  if (type == "MEAN") return Pool::kMean;
  return type == "MIN" ? Pool::kMin : Pool::kMax;
}

// to[j] = the sum or mean of rows [begin, end) of x. Processes some columns at a time, in double.
template <class T>
void SumRows(bool mean, const T* x, int64_t begin, int64_t end, int64_t width, T* to) {
  constexpr int64_t kColumns = 64;
  for (int64_t first = 0; first < width; first += kColumns) {
    const int64_t columns = std::min(kColumns, width - first);
    double sums[kColumns] = {};
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        sums[j] += static_cast<double>(x[i * width + first + j]);
    }
    const double divisor = mean && end > begin ? static_cast<double>(end - begin) : 1;
    for (int64_t j = 0; j < columns; ++j) to[first + j] = static_cast<T>(sums[j] / divisor);
  }
}

// to[j] = the pool of rows [begin, end) of x.
template <class T>
void PoolRows(Pool pool, const T* x, int64_t begin, int64_t end, int64_t width, T* to) {
  if (pool == Pool::kSum || pool == Pool::kMean)
    return SumRows(pool == Pool::kMean, x, begin, end, width, to);
  std::fill_n(to, width, T(0));
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const T value = x[i * width + j];
      const bool nan = value != value;
      if (i == begin || nan || (pool == Pool::kMin ? value < to[j] : value > to[j])) to[j] = value;
    }
  }
}

template <class T>
KernelOf<T> SegmentPool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), ids = ctx.Input("SegmentIds");
  const TensorArg out = ctx.Output("Out"), sizes = ctx.Output("SummedIds");
  const Pool pool = PoolOf(ctx.Attr<std::string>("pooltype"));
  const std::string failure = ctx.Failure("C3");
  const int64_t count = x.shape[0];
  const int64_t width = x.numel == 0 ? 0 : x.numel / count;
  return [=](Workspace& ws) {
    const IndexReader at(ws, ids);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t before = i == 0 ? 0 : at[i - 1];
      if (at[i] < before || at[i] == std::numeric_limits<int64_t>::max())
        ThrowInvalid(fmt::format("{}, got {} after {}", failure, at[i], before));
    }
    Shape shape = x.shape;
    shape[0] = count == 0 ? 0 : at[count - 1] + 1;
    T* to = static_cast<T*>(ResizeOutput(ws, out, x.dtype, shape).raw());
    T* size =
        sizes ? static_cast<T*>(ResizeOutput(ws, sizes, x.dtype, {shape[0], 1}).raw()) : nullptr;
    const T* from = ws.Data<const T>(x);
    int64_t begin = 0;
    for (int64_t segment = 0; segment < shape[0]; ++segment) {
      int64_t end = begin;
      while (end < count && at[end] == segment) ++end;
      PoolRows(pool, from, begin, end, width, to + segment * width);
      if (size) size[segment] = static_cast<T>(end - begin);
      begin = end;
    }
  };
}

Variable Gathered(GradientContext& g, const Variable& x) {
  return g.Make("gather", {{"X", {x.name()}}, {"Index", {g.Input("SegmentIds")}}});
}

// Each row of X gets the gradient of its segment: divided by the segment's size for a mean, and
// only where the row has that value for an extremum.
void SegmentPoolGradient(GradientContext& g) {
  const Variable x = g.In("X"), dx = Gathered(g, g.Grad("Out"));
  const Pool pool = PoolOf(g.Attr<std::string>("pooltype"));
  if (pool == Pool::kSum) return g.Set("X", dx);
  if (pool == Pool::kMean) {
    const Variable ones = FillLike(Cast(g.In("SegmentIds"), x.dtype()), 1);
    const Variable sizes =
        g.Make("segment_pool", {{"X", {ones.name()}}, {"SegmentIds", {g.Input("SegmentIds")}}});
    return g.Set("X",
                 g.Make("elementwise_div", {{"X", {dx.name()}}, {"Y", {Gathered(g, sizes).name()}}},
                        {{"axis", int32_t{0}}}));
  }
  const Variable equal = Equal(x, Gathered(g, g.Out("Out"))), number = Equal(x, x);
  const Variable chosen = Or(equal, Not(number));
  g.Set("X", variable_functions::Where(chosen, dx, ZerosLike(dx)));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("segment_pool")
              .Doc("Row s of Out = the sum, mean, minimum or maximum of the rows i of X with "
                   "SegmentIds[i] = s, or 0 if there is none; Out has last id + 1 rows. An "
                   "extremum is nan if its segment has a nan, and passes its whole gradient on to "
                   "every row that attains it.")
              .Constraint("C1", "SegmentIds must be int32 or int64")
              .Constraint("C2", "SegmentIds must be a vector with one id for each row of X")
              .Constraint("C3", "ids must not be negative and must not decrease")
              .Input("X", "floating-point tensor [n, ...]")
              .Input("SegmentIds", "int32 or int64 vector [n]")
              .Output("Out", "tensor [last id + 1, ...]")
              .IntermediateOutput("SummedIds", "[last id + 1, 1], the sizes of the segments")
              .Attr<std::string>("pooltype", "SUM", "SUM, MEAN, MIN or MAX")
              .OneOf({"SUM", "MEAN", "MIN", "MAX"})
              .RunTimeShape()
              .NoGradientTo({"SegmentIds"})
              .Rows(RowRule::kMixes)
              .Infer(InferSegmentPool)
              .Gradient(SegmentPoolGradient)
              .Reference(SegmentPool<float>, SegmentPool<double>));
}

}  // namespace coracle::segment_pool_op
