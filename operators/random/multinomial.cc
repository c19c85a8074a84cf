// Draws by probabilities: multinomial and bernoulli.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/generator.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace coracle::multinomial_op {

void InferMultinomial(InferContext& ctx) {
  Shape x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 1 || x.rank() == 2, x);
  const int64_t samples = ctx.Attr<int32_t>("num_samples"), columns = x[x.rank() - 1];
  ctx.Require("C2", samples > 0, "num_samples", samples);
  ctx.Require("C2", columns < 0 || ctx.Attr<bool>("replacement") || samples <= columns, samples,
              columns);
  x[x.rank() - 1] = samples;
  ctx.SetOutput("Out", DType::kInt64, x);
}

// The sum of the weights; throws if they are invalid.
template <class T>
double CheckedSum(const T* weights, int64_t columns, int64_t wanted, const std::string& failure) {
  double sum = 0;
  int64_t positive = 0;
  for (int64_t j = 0; j < columns; ++j) {
    const double weight = static_cast<double>(weights[j]);
    if (!(weight >= 0) || std::isinf(weight))
      ThrowInvalid(fmt::format("{}, got {}", failure, weight));
    sum += weight;
    positive += weight > 0;
  }
  if (positive < wanted)
    ThrowInvalid(fmt::format("{}, got {} for {} draws", failure, positive, wanted));
  return sum;
}

// Draws first .. first + samples - 1 of the stream.
template <class T>
void DrawWithReplacement(const Philox& random, uint64_t first, const T* weights, int64_t columns,
                         double sum, int64_t samples, int64_t* out) {
  for (int64_t k = 0; k < samples; ++k) {
    if (k % 256 == 255) CheckTimeLimit("drawing");
    double rest = random.UniformDouble(first + static_cast<uint64_t>(k)) * sum;
    int64_t chosen = -1;
    for (int64_t j = 0; j < columns; ++j) {
      if (!(weights[j] > 0)) continue;
      chosen = j;  // the last one, if rounding leaves a rest
      rest -= static_cast<double>(weights[j]);
      if (rest < 0) break;
    }
    out[k] = chosen;
  }
}

// The smallest of exponential variables with these rates are distributed like successive draws
// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
template <class T>
void DrawWithout(const Philox& random, uint64_t first, const T* weights, int64_t columns,
                 int64_t samples, double* times, int64_t* order, int64_t* out) {
  for (int64_t j = 0; j < columns; ++j) {
    const double u = 1 - random.UniformDouble(first + static_cast<uint64_t>(j));  // in (0, 1]
    times[j] = weights[j] > 0 ? -std::log(u) / static_cast<double>(weights[j])
                              : std::numeric_limits<double>::infinity();
  }
  std::iota(order, order + columns, int64_t{0});
  std::partial_sort(order, order + samples, order + columns, [&](int64_t i, int64_t j) {
    const bool i_can = weights[i] > 0, j_can = weights[j] > 0;
    if (i_can != j_can) return i_can;
    return times[i] != times[j] ? times[i] < times[j] : i < j;
  });
  std::copy_n(order, samples, out);
}

template <class T>
KernelOf<T> Multinomial(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const bool replacement = ctx.Attr<bool>("replacement");
  const int64_t columns = x.shape[x.shape.rank() - 1];
  const int64_t samples = ctx.Attr<int32_t>("num_samples");
  const int64_t rows = x.shape.rank() == 1 ? 1 : x.shape[0];
  const Generator generator(ctx, 0);
  const std::string failure = ctx.Failure("C3");
  const TensorArg times = ctx.Scratch(DType::kFloat64, {std::max<int64_t>(columns, 1)});
  const TensorArg order = ctx.Scratch(DType::kInt64, {std::max<int64_t>(columns, 1)});
  return [=](Workspace& ws) {
    const Philox random = generator(ws);
    const T* weights = ws.Data<const T>(x);
    int64_t* o = ws.Data<int64_t>(out);
    for (int64_t i = 0; i < rows; ++i, weights += columns, o += samples) {
      if (i % 256 == 255) CheckTimeLimit("drawing");
      const double sum = CheckedSum(weights, columns, replacement ? 1 : samples, failure);
      if (replacement)
        DrawWithReplacement(random, static_cast<uint64_t>(i * samples), weights, columns, sum,
                            samples, o);
      else
        DrawWithout(random, static_cast<uint64_t>(i * columns), weights, columns, samples,
                    ws.Data<double>(times), ws.Data<int64_t>(order), o);
    }
  };
}

template <class T>
KernelOf<T> Bernoulli(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const Generator generator(ctx, 0);
  const std::string failure = ctx.Failure("C1");
  return [=](Workspace& ws) {
    const Philox random = generator(ws);
    const T* p = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    for (int64_t i = 0; i < x.numel; ++i) {
      const double probability = static_cast<double>(p[i]);
      if (!(probability >= 0 && probability <= 1))
        ThrowInvalid(fmt::format("{}, got {}", failure, probability));
      o[i] = T(random.UniformDouble(static_cast<uint64_t>(i)) < probability ? 1 : 0);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("multinomial")
          .Doc("Out = num_samples columns of each row of X, drawn with probabilities in proportion "
               "to its elements; without replacement, no column is drawn twice.")
          .Constraint("C1", "X must have rank 1 or 2")
          .Constraint(
              "C2",
              "num_samples must be positive, and must not exceed the columns without replacement")
          .Constraint("C3",
                      "weights must be finite and not negative, and enough of them must be "
                      "positive: one, or num_samples without replacement")
          .Input("X", "floating-point tensor [N, C] or [C] of weights")
          .Output("Out", "int64 tensor [N, num_samples] or [num_samples]")
          .Attr<int32_t>("num_samples", 1, "number of draws")
          .Range(1, {})
          .Attr<bool>("replacement", false, "whether a column may be drawn several times")
          .Random()
          .NotDifferentiable("a draw has no derivative")
          .Rows(RowRule::kEach)
          .Infer(InferMultinomial)
          .Reference(Multinomial<float>, Multinomial<double>));
  ops.Add(OpDef("bernoulli")
              .Doc("Out = 1 with probability X, else 0, element by element.")
              .Constraint("C1", "probabilities must lie in [0, 1]")
              .Input("X", "floating-point tensor of probabilities")
              .Output("Out", "tensor of X's shape and dtype")
              .Random()
              .NotDifferentiable("a draw has no derivative")
              .Inplace("X", "Out")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .Reference(Bernoulli<float>, Bernoulli<double>));
}

}  // namespace coracle::multinomial_op
