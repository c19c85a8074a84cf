// sampling_id: draws one column of each row by its probabilities.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/rng.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::sampling_id_op {

void InferSamplingId(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 2, x.rank());
  ctx.Require("C2", x[1] != 0, x);
  const float min = ctx.Attr<float>("min"), max = ctx.Attr<float>("max");
  ctx.Require("C3", min <= max, "min", min, "max", max);
  ctx.SetOutput("Out", DType::kInt64, {x[0]});
}

// The first column at which the sum of the probabilities exceeds r; the last column if none does,
// -1 if the sum is nan.
template <class T>
int64_t ColumnAt(const T* row, int64_t columns, double r) {
  for (int64_t j = 0; j < columns; ++j) {
    r -= static_cast<double>(row[j]);
    if (r < 0) return j;
  }
  return std::isnan(r) ? -1 : columns - 1;
}

template <class T>
bool HoldsNan(const T* row, int64_t columns) {
  return std::any_of(row, row + columns, [](T x) { return std::isnan(static_cast<double>(x)); });
}

template <class T>
KernelOf<T> SamplingId(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const double min = ctx.Attr<float>("min"), max = ctx.Attr<float>("max");
  const auto seed = static_cast<uint64_t>(static_cast<int64_t>(ctx.Attr<int32_t>("seed")));
  const uint64_t stream = ctx.RandomStream("Out");
  const int64_t rows = x.shape[0], columns = x.shape[1];
  return [=](Workspace& ws) {
    const Philox random(seed != 0 ? seed : ws.seed(), stream, ws.step());
    const T* in = ws.Data<const T>(x);
    for (int64_t i = 0; i < rows; ++i) {
      const double r = min + (max - min) * random.UniformDouble(static_cast<uint64_t>(i));
      const int64_t column = ColumnAt(in + i * columns, columns, r);
      if (column < 0) {
        const bool nan = HoldsNan(in + i * columns, columns);
        ThrowInvalid(fmt::format("sampling_id: row {} of X holds {}", i,
                                 nan ? "a nan" : "inf and -inf, whose sum is a nan"));
      }
      ws.Data<int64_t>(out)[i] = column;
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sampling_id")
              .Doc("Out[i] = the first column j with X[i][0] + ... + X[i][j] > r, r uniform in "
                   "[min, max); the last column if there is no such j. A nan before column j, or "
                   "both inf and -inf, is an error. With min 0, max 1 and rows that sum to 1, j is "
                   "drawn with probability X[i][j].")
              .Constraint("C1", "X must be a matrix")
              .Constraint("C2", "X must have a column")
              .Constraint("C3", "min must not exceed max")
              .Input("X", "floating-point tensor [N, C] of probabilities")
              .Output("Out", "int64 tensor [N]")
              .Attr<float>("min", 0.0f, "least r")
              .Attr<float>("max", 1.0f, "bound of r")
              .Attr<int32_t>("seed", 0, "of the draws; 0: the program's")
              .Random()
              .NotDifferentiable("a draw has no derivative")
              .Rows(RowRule::kEach)
              .Infer(InferSamplingId)
              .Reference(SamplingId<float>, SamplingId<double>));
}

}  // namespace coracle::sampling_id_op
