#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/kernels/sweep.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace coracle::inline internal {
namespace {

// In double, squares neither overflow nor vanish. Uses several sums, so that the compiler
// can vectorize.
double WideSum(const float* x, int64_t n) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k)
      sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  for (; i < n; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// Tests the bits, which is faster than a sum in double.
bool AllZero(const float* x, int64_t n) {
  uint32_t any = 0;
  for (int64_t i = 0; i < n; ++i) any |= std::bit_cast<uint32_t>(x[i]) << 1;
  return any == 0;
}

// Squares of numbers beyond 1e19 overflow a float, and squares of numbers below 1e-19 have few
// digits or none: such a piece is summed again in double. A nan or an infinity is returned as
// it is.
double SumOfPiece(const float* x, int64_t n) {
  constexpr float kLeast = 1e-25f;  // more than the squares of a piece can lose
  const float sum = simd::Dot(x, x, n);
  if (sum > kLeast && std::isfinite(sum)) return static_cast<double>(sum);
  return sum == 0 && AllZero(x, n) ? 0 : WideSum(x, n);
}

}  // namespace

SumOfSquares::SumOfSquares(const PrepareContext& ctx, const TensorArg& x)
    : x_(x), partial_(ctx.Scratch(DType::kFloat64, {(x.numel + kSweepBlock - 1) / kSweepBlock})) {}

void SumOfSquares::SumBlocks(Workspace& ws, int64_t begin, int64_t end) const {
  constexpr int64_t kPiece = 2048;
  const float* in = ws.Data<const float>(x_);
  double* sums = ws.Data<double>(partial_);
  for (; begin < end; begin += kSweepBlock) {
    double sum = 0;
    const int64_t stop = std::min(end, begin + kSweepBlock);
    for (int64_t i = begin; i < stop; i += kPiece)
      sum += SumOfPiece(in + i, std::min(kPiece, stop - i));
    sums[begin / kSweepBlock] = sum;
  }
}

double SumOfSquares::Total(Workspace& ws) const {
  double total = 0;
  for (double sum : ws.Span<const double>(partial_)) total += sum;
  return total;
}

double SumOfSquares::operator()(Workspace& ws) const {
  ParallelFor(partial_.numel, 8, [&](int64_t begin, int64_t end) {
    SumBlocks(ws, begin * kSweepBlock, std::min(x_.numel, end * kSweepBlock));
  });
  return Total(ws);
}

}  // namespace coracle::inline internal
