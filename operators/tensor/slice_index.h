#pragma once
// Indices of several dimensions, for gather_nd and scatter_nd_add.

#include <coracle/operators/rules/index.h>

#include <string>

namespace coracle::inline internal {

// The index of the slice x[i0, i1, ...] given by entry i of Index [.., depth]. Throws kOutOfRange
// for an index outside of its dimension.
class SliceIndex {
 public:
  SliceIndex(const std::string& name, const TensorArg& x, const TensorArg& index)
      : name_(name), x_(x.shape), depth_(static_cast<int>(index.shape[index.shape.rank() - 1])) {}
  int64_t operator()(const IndexReader& at, int64_t i) const {
    int64_t row = 0;
    for (int d = 0; d < depth_; ++d) {
      const int64_t value = at[i * depth_ + d];
      if (value < 0 || value >= x_[d])
        ThrowIndexRange(name_, "Index", i * depth_ + d, value, x_[d]);
      row = row * x_[d] + value;
    }
    return row;
  }
  int depth() const { return depth_; }

 private:
  std::string name_;
  Shape x_;
  int depth_;
};

}  // namespace coracle::inline internal
