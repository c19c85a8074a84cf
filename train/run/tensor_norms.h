#pragma once
// Norms of tensors, in double. Complex tensors use the absolute values of their elements.

#include <coracle/framework/tensor/tensor.h>

namespace coracle::inline internal {

struct TensorNorms {
  double l2 = 0, mean_abs = 0, max_abs = 0;  // 0 for no elements; nan if an element is nan
};

TensorNorms NormsOf(const Tensor& tensor);

}  // namespace coracle::inline internal
