#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/kernels/sweep.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

// Squares of numbers beyond 1e19 are no floats: such a piece is added up again in double, and so is
// one with a nan or an infinity, which stays what it is.
double SumOfPiece(const float* x, int64_t n) {
  const float sum = simd::Dot(x, x, n);
  if (std::isfinite(sum)) return static_cast<double>(sum);
  double wide = 0;
  for (int64_t i = 0; i < n; ++i) wide += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return wide;
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

}  // namespace coracle
