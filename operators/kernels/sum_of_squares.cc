#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/kernels/sweep.h>

#include <algorithm>

namespace coracle {

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
      sum += simd::Dot(in + i, in + i, std::min(kPiece, stop - i));
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
