#pragma once
// Norms of whole tensors.

#include <coracle/framework/op/op_context.h>

namespace coracle::inline internal {

// The sum of squares of a float tensor: fixed pieces are summed in float, or in double if squares
// would overflow or vanish, and their sums in double. The bits do not depend on the number
// of threads.
class SumOfSquares {
 public:
  SumOfSquares(const PrepareContext& ctx, const TensorArg& x);

  double operator()(Workspace& ws) const;  // in parallel

  // Its two steps: blocks of elements [begin, end), whole ones of kSweepBlock except for the last,
  // each on any thread; then the total.
  void SumBlocks(Workspace& ws, int64_t begin, int64_t end) const;
  double Total(Workspace& ws) const;

 private:
  TensorArg x_, partial_;
};

}  // namespace coracle::inline internal
