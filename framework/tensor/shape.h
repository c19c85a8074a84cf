#pragma once
// The dimensions of a tensor, outermost first. In programs -1 stands for a dimension that is not
// known yet.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace coracle {

class Shape {
 public:
  static constexpr int kMaxRank = 9;  // Paddle's limit
  // More than any machine holds, and so few that bytes, and small multiples of them, cannot
  // overflow.
  static constexpr int64_t kMaxElements = int64_t{1} << 48;
  static constexpr int64_t kMaxEmpty = int64_t{1} << 31;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);  // throws kInvalidArgument past kMaxRank
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  int64_t& operator[](int axis) { return dims_[axis]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  std::vector<int64_t> ToVector() const { return {begin(), end()}; }
  void Append(int64_t dim);  // throws past kMaxRank

  bool IsKnown() const;  // no dimension is negative
  // The product of the positive dimensions passes kMaxElements, or kMaxEmpty when one is 0: rows of
  // no elements are walked over all the same.
  bool HasTooManyElements() const;
  // Product of the dimensions (1 for rank 0). Throws kOutOfRange when a dimension is negative or
  // HasTooManyElements(), even if one is 0: strides are products of the others.
  int64_t numel() const;
  // Product of dims [begin, end), unchecked: for shapes whose numel() was taken.
  int64_t Product(int begin, int end) const;

  // An axis in [-rank, rank) as one in [0, rank); -1 - rank or lower and rank or higher give false.
  bool NormalizeAxis(int64_t axis, int* normalized) const;

  bool operator==(const Shape& other) const;
  // True when equal but for dimensions that one of the two does not know.
  bool CompatibleWith(const Shape& other) const;

  std::string ToString() const;  // "[2, 3]"

 private:
  int64_t dims_[kMaxRank] = {};
  int rank_ = 0;
};

}  // namespace coracle
