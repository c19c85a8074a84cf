#pragma once
// A tensor split into pieces along one axis: concat joins them, split cuts them.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/kernels/copy.h>

#include <vector>

namespace coracle::inline internal {

class AxisSplit {
 public:
  // The whole is [outer, sum of widths], piece i is [outer, widths[i]], in elements.
  AxisSplit(size_t element_size, int64_t outer, const std::vector<int64_t>& widths)
      : element_size_(static_cast<int64_t>(element_size)) {
    int64_t total = 0;
    for (int64_t width : widths) total += width;
    int64_t offset = 0;
    for (int64_t width : widths) {
      offsets_.push_back(offset * element_size_);
      join_.emplace_back(element_size, std::vector<int64_t>{outer, width},
                         std::vector<int64_t>{width, 1}, std::vector<int64_t>{total, 1});
      cut_.emplace_back(element_size, std::vector<int64_t>{outer, width},
                        std::vector<int64_t>{total, 1}, std::vector<int64_t>{width, 1});
      offset += width;
    }
  }
  size_t size() const { return offsets_.size(); }
  void Join(size_t i, const void* piece, void* whole) const {
    join_[i](piece, static_cast<char*>(whole) + offsets_[i]);
  }
  void Cut(size_t i, const void* whole, void* piece) const {
    cut_[i](static_cast<const char*>(whole) + offsets_[i], piece);
  }

 private:
  int64_t element_size_;
  std::vector<int64_t> offsets_;  // in bytes
  std::vector<StridedCopy> join_, cut_;
};

}  // namespace coracle::inline internal
