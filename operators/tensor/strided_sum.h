#pragma once
// The sum over some axes of a strided view: the gradient of a broadcast.

#include <coracle/framework/base/resource_limits.h>

#include <array>
#include <cstdint>
#include <vector>

namespace coracle {

struct SumAxis {
  int64_t dim, stride;  // stride in elements of the source
};

// to[i] = sum over `summed` of the source at index i of `kept` (row-major over kept). At most 18
// axes of each kind. One thread adds up one element, always in the same order.
class StridedSum {
 public:
  StridedSum(std::vector<SumAxis> kept, std::vector<SumAxis> summed)
      : kept_(std::move(kept)), summed_(std::move(summed)) {
    for (const SumAxis& axis : kept_) kept_count_ *= axis.dim;
    for (const SumAxis& axis : summed_) summed_count_ *= axis.dim;
  }

  template <class T>
  void operator()(const T* from, T* to) const {
    ParallelFor(kept_count_, 1 + 32768 / (1 + summed_count_), [&](int64_t begin, int64_t end) {
      Odometer at(kept_, begin);
      for (int64_t i = begin; i < end; ++i, at.Next()) to[i] = Sum(from + at.offset());
    });
  }

 private:
  class Odometer {
   public:
    Odometer(const std::vector<SumAxis>& axes, int64_t position) : axes_(axes) {
      for (size_t i = axes_.size(); i-- > 0;) {
        index_[i] = position % axes_[i].dim;
        position /= axes_[i].dim;
        offset_ += index_[i] * axes_[i].stride;
      }
    }
    int64_t offset() const { return offset_; }
    void Next() {
      for (size_t i = axes_.size(); i-- > 0;) {
        offset_ += axes_[i].stride;
        if (++index_[i] < axes_[i].dim) return;
        offset_ -= axes_[i].dim * axes_[i].stride;
        index_[i] = 0;
      }
    }

   private:
    const std::vector<SumAxis>& axes_;
    std::array<int64_t, 18> index_{};
    int64_t offset_ = 0;
  };

  // 16-bit elements are added up in float.
  template <class T>
  T Sum(const T* from) const {
    using Wide = decltype(T() + T());
    Wide sum = 0;
    if (summed_count_ == 0) return T(sum);
    Odometer at(summed_, 0);
    for (int64_t k = 0; k < summed_count_; ++k, at.Next()) sum += from[at.offset()];
    return T(sum);
  }

  std::vector<SumAxis> kept_, summed_;
  int64_t kept_count_ = 1, summed_count_ = 1;
};

}  // namespace coracle
