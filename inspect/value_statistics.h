#pragma once
// Statistics of the elements of a tensor.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// Over the finite elements; 0 if there are none. `count` includes all elements.
struct ValueStatistics {
  int64_t count = 0, zeros = 0, not_finite = 0;
  double min = 0, max = 0, mean = 0;
  double deviation = 0;  // sqrt(mean((x - mean)^2))
  double norm = 0;       // sqrt(sum(x^2))
  // The number of elements in each part of [min, max], which is divided into equal parts; the last
  // part includes max.
  std::vector<int64_t> histogram = {};
};

// Uses the real parts of complex elements. Reads the elements twice and needs little memory.
ValueStatistics StatisticsOf(const Tensor& tensor, size_t bins = 64);

}  // namespace coracle::inline internal
