#pragma once
// Norms of whole tensors.

#include <coracle/framework/op/prepare_context.h>

namespace coracle {

// The sum of squares of a float tensor: of fixed pieces in float, or in double where squares would
// overflow or vanish, then of their sums in double. It has the same bits for any number of threads.
class SumOfSquares {
 public:
  SumOfSquares(const PrepareContext& ctx, const TensorArg& x);

  double operator()(Workspace& ws) const;  // in parallel

  // The two halves of it: blocks of elements [begin, end), whole ones of kSweepBlock but for the
  // last, each on any thread; then the sum of all.
  void SumBlocks(Workspace& ws, int64_t begin, int64_t end) const;
  double Total(Workspace& ws) const;

 private:
  TensorArg x_, partial_;
};

}  // namespace coracle
