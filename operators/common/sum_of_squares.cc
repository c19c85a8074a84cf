#include <coracle/framework/base/parallel.h>
#include <coracle/operators/common/simd.h>
#include <coracle/operators/common/sum_of_squares.h>

#include <algorithm>

namespace coracle {

std::function<double(Workspace&)> SumOfSquares(const PrepareContext& ctx, const TensorArg& x) {
  constexpr int64_t kBlock = 16384, kPiece = 2048;
  const int64_t blocks = (x.numel + kBlock - 1) / kBlock;
  const TensorArg partial = ctx.Scratch(DType::kFloat64, {blocks});
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    double* sums = ws.Data<double>(partial);
    ParallelFor(blocks, 2, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        double sum = 0;
        const int64_t stop = std::min(x.numel, (b + 1) * kBlock);
        for (int64_t i = b * kBlock; i < stop; i += kPiece)
          sum += simd::Dot(in + i, in + i, std::min(kPiece, stop - i));
        sums[b] = sum;
      }
    });
    double total = 0;
    for (int64_t b = 0; b < blocks; ++b) total += sums[b];
    return total;
  };
}

}  // namespace coracle
