#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace coracle::positive_negative_pair_op {

constexpr const char* kBefore[] = {"AccumulatePositivePair", "AccumulateNegativePair",
                                   "AccumulateNeutralPair"};
constexpr const char* kPairs[] = {"PositivePair", "NegativePair", "NeutralPair"};

void InferPairs(InferContext& ctx) {
  const VarMeta& score = ctx.Input("Score");
  ctx.Require("C1", score.shape.rank() == 2, score.shape);
  const auto is_column = [&](const char* slot) {
    return InferContext::Matches(NumelOf(ctx.InputShape(slot)), score.shape[0]);
  };
  for (const char* slot : {"Label", "Weight"}) {
    if (!ctx.HasInput(slot)) continue;
    ctx.Require("C2", ctx.InputDType(slot) == score.dtype && is_column(slot), slot, ctx.Input(slot),
                "Score", score);
  }
  ctx.Require("C3", IsIndexType(ctx.InputDType("QueryID")) && is_column("QueryID"),
              ctx.Input("QueryID"), "Score", score);
  const int64_t column = ctx.Attr<int32_t>("column"), columns = score.shape[1];
  ctx.Require("C4", columns < 0 || (column >= -columns && column < columns), "column", column,
              "Score", score.shape);
  int given = 0;
  for (const char* slot : kBefore) {
    if (!ctx.HasInput(slot)) continue;
    ++given;
    const VarMeta& meta = ctx.Input(slot);
    ctx.Require("C5", meta.dtype == score.dtype && InferContext::Matches(NumelOf(meta.shape), 1),
                slot, meta);
  }
  ctx.Require("C5", given == 0 || given == 3, "number of accumulators", given);
  for (const char* slot : kPairs) ctx.SetOutput(slot, score.dtype, {1});
}

template <class T>
KernelOf<T> Pairs(const PrepareContext& ctx) {
  const TensorArg score = ctx.Input("Score"), label = ctx.Input("Label");
  const TensorArg query = ctx.Input("QueryID"), weight = ctx.Input("Weight");
  std::array<TensorArg, 3> before, after;
  for (size_t k = 0; k < 3; ++k) {
    before[k] = ctx.Input(kBefore[k]);
    after[k] = ctx.Output(kPairs[k]);
  }
  const int64_t rows = score.shape[0], columns = score.shape[1];
  const int64_t attr = ctx.Attr<int32_t>("column"), column = attr < 0 ? attr + columns : attr;
  const TensorArg scratch = ctx.Scratch(DType::kInt64, {rows});
  return [=](Workspace& ws) {
    const IndexReader queries(ws, query);
    const T *s = ws.Data<const T>(score), *l = ws.Data<const T>(label);
    const T* w = weight ? ws.Data<const T>(weight) : nullptr;
    int64_t* order = ws.Data<int64_t>(scratch);
    std::iota(order, order + rows, int64_t{0});
    std::sort(order, order + rows, [&](int64_t a, int64_t b) {
      return queries[a] != queries[b] ? queries[a] < queries[b] : a < b;
    });
    std::array<double, 3> sums = {};  // positive, negative, neutral
    for (size_t k = 0; k < 3; ++k)
      sums[k] = before[k] ? static_cast<double>(*ws.Data<const T>(before[k])) : 0;
    for (int64_t i = 0; i < rows; ++i) {
      if (i % 1024 == 0) CheckTimeLimit("comparing pairs");
      const int64_t a = order[i];
      for (int64_t j = i + 1; j < rows && queries[order[j]] == queries[a]; ++j) {
        const int64_t b = order[j];
        if (l[a] == l[b]) continue;
        const T one = s[a * columns + column], other = s[b * columns + column];
        const bool agree = one != other && (one > other) == (l[a] > l[b]);
        const double value = w ? (static_cast<double>(w[a]) + static_cast<double>(w[b])) / 2 : 1;
        sums[one == other ? 2 : agree ? 0 : 1] += value;
      }
    }
    for (size_t k = 0; k < 3; ++k) {
      if (after[k]) *ws.Data<T>(after[k]) = static_cast<T>(sums[k]);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("positive_negative_pair")
          .Doc("Counts the pairs of rows of a query with different labels. A pair is neutral if "
               "the scores are equal, positive if the row with the larger score has the larger "
               "label, else negative; it counts with the mean of its rows' weights.")
          .Constraint("C1", "Score must be a matrix")
          .Constraint("C2", "Label and Weight must have Score's dtype and an element for each row")
          .Constraint("C3", "QueryID must hold an int32 or int64 for each row of Score")
          .Constraint("C4", "column must be a column of Score")
          .Constraint("C5",
                      "the accumulators must hold one element of Score's dtype, and all or none of "
                      "them must be given")
          .Input("Score", "floating-point tensor [N, C]")
          .Input("Label", "tensor [N, 1] of Score's dtype")
          .Input("QueryID", "int64 tensor [N, 1]: the query of each row")
          .OptionalInput("AccumulatePositivePair", "the previous sum [1]; 0 if absent")
          .OptionalInput("AccumulateNegativePair", "the previous sum [1]; 0 if absent")
          .OptionalInput("AccumulateNeutralPair", "the previous sum [1]; 0 if absent")
          .OptionalInput("Weight", "weights of the rows [N, 1]; 1 when absent")
          .Output("PositivePair", "tensor [1]")
          .Output("NegativePair", "tensor [1]")
          .OptionalOutput("NeutralPair", "tensor [1]")
          .Attr<int32_t>("column", 0, "the column of scores, counted from the end if < 0")
          .NoLod()
          .NotDifferentiable("counts have no derivative")
          .Inplace("AccumulatePositivePair", "PositivePair")
          .Inplace("AccumulateNegativePair", "NegativePair")
          .Inplace("AccumulateNeutralPair", "NeutralPair")
          .Rows(RowRule::kMixes)
          .Infer(InferPairs)
          .Reference(Pairs<float>, Pairs<double>));
}

}  // namespace coracle::positive_negative_pair_op
