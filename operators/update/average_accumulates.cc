// average_accumulates: the sums of a parameter that ModelAverage divides.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/rules/same_type.h>
#include <coracle/operators/update/update.h>

#include <algorithm>
#include <cmath>

namespace coracle::average_accumulates_op {

// The largest number of parameters in one sum, for accuracy: Paddle's number.
constexpr int64_t kMaxInOneSum = 16384;

constexpr std::pair<const char*, const char*> kSums[] = {
    {"in_sum_1", "out_sum_1"}, {"in_sum_2", "out_sum_2"}, {"in_sum_3", "out_sum_3"}};
constexpr std::pair<const char*, const char*> kCounts[] = {
    {"in_num_accumulates", "out_num_accumulates"},
    {"in_old_num_accumulates", "out_old_num_accumulates"},
    {"in_num_updates", "out_num_updates"}};

void InferAverageAccumulates(InferContext& ctx) {
  ctx.Require("C3",
              ctx.Attr<int64_t>("min_average_window") <= ctx.Attr<int64_t>("max_average_window"),
              "min_average_window", ctx.Attr<int64_t>("min_average_window"), "max_average_window",
              ctx.Attr<int64_t>("max_average_window"));
  for (auto [in, out] : kSums) {
    const VarMeta &param = ctx.Input("param"), &sum = ctx.Input(in);
    const bool wide = IsHalf(param.dtype) && sum.dtype == DType::kFloat32 &&
                      sum.type == VarType::kLoDTensor && sum.shape.CompatibleWith(param.shape);
    if (!wide) RequireSameType(ctx, "C1", in, "param");
    ctx.SetOutput(out, sum);
  }
  for (auto [in, out] : kCounts) {
    const VarMeta& count = ctx.Input(in);
    ctx.Require(
        "C2", count.dtype == DType::kInt64 && (!count.shape.IsKnown() || count.shape.numel() == 1),
        in, count);
    ctx.SetOutput(out, count);
  }
}

template <class T>
KernelOf<T> AverageAccumulates(const PrepareContext& ctx) {
  struct Pair {
    TensorArg in, out;
  };
  const TensorArg param = ctx.Input("param");
  std::array<Pair, 3> sums, counts;
  for (size_t i = 0; i < 3; ++i) {
    sums[i] = {ctx.Input(kSums[i].first), ctx.Output(kSums[i].second)};
    counts[i] = {ctx.Input(kCounts[i].first), ctx.Output(kCounts[i].second)};
  }
  const double share = ctx.Attr<float>("average_window");
  const int64_t least = ctx.Attr<int64_t>("min_average_window");
  const int64_t most = ctx.Attr<int64_t>("max_average_window");
  return [=](Workspace& ws) {
    std::array<int64_t, 3> n;
    for (size_t i = 0; i < 3; ++i) n[i] = *ws.Data<const int64_t>(counts[i].in);
    auto& [accumulated, old_accumulated, updates] = n;
    updates = WrapAdd<int64_t>(updates, 1);  // wraps around: a file may hold any count
    accumulated = WrapAdd<int64_t>(accumulated, 1);
    const bool carry = updates % kMaxInOneSum == 0;
    const double window = std::min(static_cast<double>(most), static_cast<double>(updates) * share);
    const bool begin_anew =
        accumulated >= least && static_cast<double>(accumulated) >= std::trunc(window);
    const T* p = ws.Data<const T>(param);
    std::array<const T*, 3> in;
    std::array<T*, 3> out;
    for (size_t k = 0; k < 3; ++k) {
      in[k] = ws.Data<const T>(sums[k].in);
      out[k] = ws.Data<T>(sums[k].out);
    }
    ParallelFor(param.numel, kUpdateGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T s1 = in[0][i] + p[i], s2 = in[1][i], s3 = in[2][i];
        if (carry) {
          s2 += s1;
          s1 = 0;
        }
        if (begin_anew) {
          s3 = s1 + s2;
          s1 = s2 = 0;
        }
        out[0][i] = s1;
        out[1][i] = s2;
        out[2][i] = s3;
      }
    });
    if (begin_anew) {
      old_accumulated = accumulated;
      accumulated = 0;
    }
    for (size_t i = 0; i < 3; ++i) *ws.Data<int64_t>(counts[i].out) = n[i];
  };
}

OpDef AverageAccumulatesDef() {
  OpDef def("average_accumulates");
  def.Doc(
         "Adds param to sums over a window of updates. The average over the window is (out_sum_1 + "
         "out_sum_2 + out_sum_3) / (out_num_accumulates + out_old_num_accumulates). Each update "
         "adds one to num_accumulates and num_updates, and param to sum_1. After every 16384 "
         "updates, sum_1 is moved to sum_2. When num_accumulates reaches min_average_window and "
         "min(max_average_window, num_updates average_window), a new window begins: sum_3 becomes "
         "sum_1 + sum_2, old_num_accumulates becomes num_accumulates, and sum_1, sum_2 and "
         "num_accumulates become 0.")
      .Constraint("C1", "the sums must have param's shape and dtype")
      .Constraint("C2", "counts must hold one int64")
      .Constraint("C3", "min_average_window must not exceed max_average_window")
      .Input("param", "the parameter after its update")
      .Input("in_sum_1", "sum of the newest parameters")
      .Input("in_sum_2", "sum of the earlier parameters of this window")
      .Input("in_sum_3", "sum of the previous window")
      .Input("in_num_accumulates", "number of parameters in sum_1 and sum_2")
      .Input("in_old_num_accumulates", "number of parameters in sum_3")
      .Input("in_num_updates", "number of all updates")
      .Rows(RowRule::kEach)
      .Output("out_sum_1", "usually in_sum_1 itself")
      .Output("out_sum_2", "usually in_sum_2 itself")
      .Output("out_sum_3", "usually in_sum_3 itself")
      .Output("out_num_accumulates", "usually in_num_accumulates itself")
      .Output("out_old_num_accumulates", "usually in_old_num_accumulates itself")
      .Output("out_num_updates", "usually in_num_updates itself")
      .Attr<float>("average_window", 0.0f, "length of a window as a share of all updates")
      .Attr<int64_t>("max_average_window", "the longest window")
      .Attr<int64_t>("min_average_window", 10000, "the shortest window");
  for (auto [in, out] : kSums) def.Inplace(in, out);
  for (auto [in, out] : kCounts) def.Inplace(in, out);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(AverageAccumulatesDef()
              .Infer(InferAverageAccumulates)
              .NoGradient("a statistic of a parameter is not part of the loss")
              .Reference(AverageAccumulates<float>, AverageAccumulates<double>));
}

}  // namespace coracle::average_accumulates_op
