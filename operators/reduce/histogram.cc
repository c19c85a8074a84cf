#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace coracle::histogram_op {

constexpr int64_t kMaxBins = int64_t{1} << 40;

void InferHistogram(InferContext& ctx) {
  const int32_t min = ctx.Attr<int32_t>("min"), max = ctx.Attr<int32_t>("max");
  ctx.Require("C1", min <= max, "min", min, "max", max);
  const auto bins = ctx.Attr<int64_t>("bins");
  ctx.Require("C1", bins > 0 && bins <= kMaxBins, "bins", bins);
  ctx.SetOutput("Out", DType::kInt64, {bins});
}

// (x - min) * bins / (max - min), in T for floats; integers divide exactly.
template <class T>
int64_t BinOf(T x, T min, T max, int64_t bins) {
  if constexpr (std::is_floating_point_v<T>) {
    T above = x - min, width = max - min;
    if (std::isinf(width * static_cast<T>(bins))) {
      above = (x / 2 - min / 2) / (max / 2 - min / 2);
      width = 1;
    }
    const T bin = above * static_cast<T>(bins) / width;
    return bin < static_cast<T>(bins) ? static_cast<int64_t>(bin) : bins - 1;
  } else {
    // Differences of int64 values fit into 65 bits.
    const auto above = static_cast<__int128>(x) - min, width = static_cast<__int128>(max) - min;
    return static_cast<int64_t>(above * bins / width);
  }
}

template <class T>
KernelOf<T> Histogram(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const T low = static_cast<T>(ctx.Attr<int32_t>("min"));
  const T high = static_cast<T>(ctx.Attr<int32_t>("max"));
  const int64_t bins = ctx.Attr<int64_t>("bins");
  const std::string failure = ctx.Failure("C2");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    int64_t* count = ws.Data<int64_t>(out);
    std::fill_n(count, bins, 0);
    T min = low, max = high;
    if (min == max && x.numel > 0) {
      for (int64_t i = 0; i < x.numel; ++i) {
        if (!std::isfinite(static_cast<double>(in[i]))) ThrowInvalid(failure + ", got inf or nan");
      }
      const auto [least, most] = std::minmax_element(in, in + x.numel);
      min = *least;
      max = *most;
      if (min == max) {
        const T one = 1;
        min = min == std::numeric_limits<T>::lowest() ? min : static_cast<T>(min - one);
        max = max == std::numeric_limits<T>::max() ? max : static_cast<T>(max + one);
      }
    }
    for (int64_t i = 0; i < x.numel; ++i) {
      if (!(in[i] >= min && in[i] <= max)) continue;
      const int64_t bin = min == max ? 0 : BinOf(in[i], min, max, bins);
      ++count[std::clamp<int64_t>(bin, 0, bins - 1)];
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("histogram")
          .Doc("Out = the number of elements of X in each of bins equal parts of [min, max]; the "
               "last part includes max, and elements outside are not counted. If min equals max, "
               "the range is that of the elements, widened by 1 on both sides if they are all "
               "equal.")
          .Constraint("C1", "min must not exceed max, and bins must lie in [1, 2^40]")
          .Constraint("C2", "without a range the elements must be finite")
          .Input("X", "tensor of numbers")
          .Output("Out", "int64 tensor [bins]")
          .Attr<int64_t>("bins", 100, "number of parts")
          .Range(1, static_cast<double>(kMaxBins))
          .Attr<int32_t>("min", 0, "lower end of the range")
          .Attr<int32_t>("max", 0, "upper end of the range")
          .NotDifferentiable("counts are piecewise constant")
          .Rows(RowRule::kMixes)
          .Infer(InferHistogram)
          .Reference(Histogram<float>, Histogram<double>, Histogram<int32_t>, Histogram<int64_t>));
}

}  // namespace coracle::histogram_op
