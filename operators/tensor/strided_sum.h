#pragma once
// The sum over some axes of a strided view: the gradient of a broadcast.

#include <coracle/framework/base/resource_limits.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace coracle::inline internal {

struct SumAxis {
  int64_t dim, stride;  // stride in elements of the source
};

// to[i] = sum over `summed` of the source at index i of `kept` (row-major over kept). At most 18
// axes of each kind. One thread sums an element, always in the same order.
class StridedSum {
 public:
  StridedSum(std::vector<SumAxis> kept, std::vector<SumAxis> summed)
      : kept_(Merged(kept)), summed_(Merged(summed)) {
    for (const SumAxis& axis : kept_) kept_count_ *= axis.dim;
    for (const SumAxis& axis : summed_) summed_count_ *= axis.dim;
  }

  template <class T>
  void operator()(const T* from, T* to) const {
    ParallelFor(kept_count_, 1 + 32768 / (1 + summed_count_), [&](int64_t begin, int64_t end) {
      if (!kept_.empty() && kept_.back().stride == 1) return SumRows(from, to, begin, end);
      Odometer at(kept_, begin);
      for (int64_t i = begin; i < end; ++i, at.Next()) to[i] = Sum(from + at.offset());
    });
  }

 private:
  static constexpr int64_t kBeside = 64;

  // Drops axes of one element and merges axes that are contiguous in memory.
  static std::vector<SumAxis> Merged(const std::vector<SumAxis>& axes) {
    std::vector<SumAxis> merged;
    for (const SumAxis& axis : axes) {
      if (axis.dim == 1) continue;
      if (!merged.empty() && merged.back().stride == axis.dim * axis.stride)
        merged.back() = {merged.back().dim * axis.dim, axis.stride};
      else
        merged.push_back(axis);
    }
    return merged;
  }

  class Odometer {
   public:
    Odometer(const std::vector<SumAxis>& axes, int64_t position)
        : Odometer(axes, position, axes.size()) {}
    // Iterates over the first `count` axes.
    Odometer(const std::vector<SumAxis>& axes, int64_t position, size_t count)
        : axes_(axes), count_(count) {
      for (size_t i = count_; i-- > 0;) {
        index_[i] = position % axes_[i].dim;
        position /= axes_[i].dim;
        offset_ += index_[i] * axes_[i].stride;
      }
    }
    int64_t offset() const { return offset_; }
    void Next() {
      for (size_t i = count_; i-- > 0;) {
        offset_ += axes_[i].stride;
        if (++index_[i] < axes_[i].dim) return;
        offset_ -= axes_[i].dim * axes_[i].stride;
        index_[i] = 0;
      }
    }

   private:
    const std::vector<SumAxis>& axes_;
    size_t count_;
    std::array<int64_t, 18> index_{};
    int64_t offset_ = 0;
  };

  // 16-bit elements are summed in float.
  template <class T>
  T Sum(const T* from) const {
    using Wide = decltype(T() + T());
    constexpr int64_t kLanes = 8;  // independent sums
    Wide sums[kLanes] = {};
    ForEachSummed([&](int64_t offset, const SumAxis& inner) {
      const T* at = from + offset;
      int64_t k = 0;
      if (inner.stride == 1) {
        for (; k + kLanes <= inner.dim; k += kLanes) {
          for (int64_t c = 0; c < kLanes; ++c) sums[c] += at[k + c];
        }
      }
      for (; k < inner.dim; ++k) sums[0] += at[k * inner.stride];
    });
    for (int64_t c = 1; c < kLanes; ++c) sums[0] += sums[c];
    return T(sums[0]);
  }

  // The sums [begin, end), where the innermost kept axis is contiguous in the source.
  template <class T>
  void SumRows(const T* from, T* to, int64_t begin, int64_t end) const {
    const int64_t row = kept_.back().dim;
    while (begin < end) {
      const int64_t n = std::min({end - begin, row - begin % row, kBeside});
      SumBeside(from + Odometer(kept_, begin).offset(), to + begin, n);
      begin += n;
    }
  }

  // n sums of adjacent elements, at most kBeside.
  template <class T>
  void SumBeside(const T* from, T* to, int64_t n) const {
    using Wide = decltype(T() + T());
    Wide sums[kBeside] = {};
    ForEachSummed([&](int64_t offset, const SumAxis& inner) {
      for (int64_t k = 0; k < inner.dim; ++k) {
        const T* row = from + offset + k * inner.stride;
        for (int64_t c = 0; c < n; ++c) sums[c] += row[c];
      }
    });
    for (int64_t c = 0; c < n; ++c) to[c] = T(sums[c]);
  }

  // Calls body(offset, innermost summed axis) for each index of the other summed axes.
  template <class Body>
  void ForEachSummed(const Body& body) const {
    if (summed_count_ == 0) return;
    if (summed_.empty()) return body(0, SumAxis{1, 0});
    const SumAxis& inner = summed_.back();
    if (summed_.size() == 1) return body(0, inner);
    Odometer at(summed_, 0, summed_.size() - 1);
    for (int64_t k = 0; k < summed_count_ / inner.dim; ++k, at.Next()) body(at.offset(), inner);
  }

  std::vector<SumAxis> kept_, summed_;
  int64_t kept_count_ = 1, summed_count_ = 1;
};

}  // namespace coracle::inline internal
