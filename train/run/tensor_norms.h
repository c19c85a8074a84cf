#pragma once
// Sizes of tensors, in double; of complex ones by the sizes of their elements.

#include <coracle/framework/tensor/tensor.h>

namespace coracle {

struct TensorNorms {
  double l2 = 0, mean_abs = 0, max_abs = 0;  // all 0 for no elements; nan where an element is one
};

TensorNorms NormsOf(const Tensor& tensor);

}  // namespace coracle
