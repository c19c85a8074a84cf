#pragma once
// What the elements of a tensor are like, in a few numbers.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <vector>

namespace coracle {

// Of the finite elements; 0 where there are none. `count` is that of all.
struct ValueStatistics {
  int64_t count = 0, zeros = 0, not_finite = 0;
  double min = 0, max = 0, mean = 0;
  double deviation = 0;  // sqrt(mean((x - mean)^2))
  double norm = 0;       // sqrt(sum(x^2))
  // How many elements lie in each part of [min, max], all parts as wide; the last part has the
  // largest element.
  std::vector<int64_t> histogram = {};
};

// Of complex elements the real parts count. Reads the elements twice; needs little memory of its
// own.
ValueStatistics StatisticsOf(const Tensor& tensor, size_t bins = 64);

}  // namespace coracle
