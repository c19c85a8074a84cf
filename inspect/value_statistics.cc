#include <coracle/inspect/value_statistics.h>
#include <coracle/operators/kernels/norm_of.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr int64_t kChunk = 65536;

// Calls f(x) for each element as a double, converting piece by piece.
template <class F>
void ForEachElement(const Tensor& tensor, F&& f) {
  const auto* bytes = static_cast<const char*>(std::as_const(tensor).raw());
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype()));
  for (int64_t begin = 0; begin < tensor.numel(); begin += kChunk) {
    const int64_t n = std::min(kChunk, tensor.numel() - begin);
    // The view is only used for reading.
    const Tensor piece = Tensor::View(tensor.dtype(), {n}, const_cast<char*>(bytes + begin * size))
                             .Cast(DType::kFloat64);
    for (double x : std::as_const(piece).span<double>()) f(x);
  }
}

}  // namespace

ValueStatistics StatisticsOf(const Tensor& tensor, size_t bins) {
  ValueStatistics s;
  s.count = tensor.numel();
  double sum = 0, squares = 0, min = HUGE_VAL, max = -HUGE_VAL;
  ForEachElement(tensor, [&](double x) {
    if (!std::isfinite(x)) {
      ++s.not_finite;
      return;
    }
    s.zeros += x == 0;
    sum += x;
    squares += x * x;
    min = std::min(min, x);
    max = std::max(max, x);
  });
  s.histogram.assign(bins, 0);
  const int64_t finite = s.count - s.not_finite;
  if (finite == 0 || bins == 0) return s;
  s.min = min;
  s.max = max;
  s.mean = sum / static_cast<double>(finite);
  s.norm = IsSafeSum(squares) ? std::sqrt(squares) : NormOf(2, [&](const auto& f) {
    ForEachElement(tensor, [&](double x) {
      if (std::isfinite(x)) f(x);
    });
  });
  double spread = 0;
  const double last = static_cast<double>(bins - 1);
  // Uses half of the width, because max - min may overflow.
  const double width = max / 2 - min / 2;
  ForEachElement(tensor, [&](double x) {
    if (!std::isfinite(x)) return;
    spread += (x - s.mean) * (x - s.mean);
    const double share = width > 0 ? (x / 2 - min / 2) / width : 0;
    ++s.histogram[static_cast<size_t>(std::min(last, std::floor(share * (last + 1))))];
  });
  s.deviation = std::sqrt(spread / static_cast<double>(finite));
  return s;
}

}  // namespace coracle::inline internal
