#pragma once
// Norms of whole tensors.

#include <coracle/framework/op/prepare_context.h>

#include <functional>

namespace coracle {

// The sum of squares of a float tensor, in parallel; the same bits for any number of threads.
std::function<double(Workspace&)> SumOfSquares(const PrepareContext& ctx, const TensorArg& x);

}  // namespace coracle
