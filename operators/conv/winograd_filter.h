#pragma once
// Restores the elements of a filter from the transformed filter that Winograd's convolutions read,
// so that a constant filter need not be stored twice.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/conv/winograd_simd.h>

#include <cstdint>
#include <vector>

namespace coracle::winograd {

class FilterRestorer {
 public:
  FilterRestorer() = default;
  // Writes G f G^T, as TransformFilter does for all panels, and keeps the information that the
  // transformed filter lacks: a byte for each element, and four more for each element that is tiny
  // compared to others of its kernel, an infinity, or nan. REQUIRES: the matrix is not rotated.
  FilterRestorer(int m, const FilterMatrix& matrix, const float* filter, float* transformed);

  // Restores every bit of the filter from the output of the constructor.
  void Restore(const float* transformed, float* filter) const;
  size_t nbytes() const;

 private:
  int m_ = 0;
  FilterMatrix matrix_;
  Tensor differences_;                        // of all panels
  std::vector<std::vector<int32_t>> listed_;  // by panel
};

}  // namespace coracle::winograd
