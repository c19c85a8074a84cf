#pragma once
// Moves elements independently of their dtype: fills, copies and strided copies by element size.
// All run on several threads, and the result does not depend on their number.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace coracle::inline internal {

// Copies `bytes` bytes; does nothing if source and target are the same memory (an in-place op).
void CopyBytes(const void* from, void* to, int64_t bytes);
void FillZeroBytes(void* to, int64_t bytes);
// Writes `count` copies of the element of `size` (1, 2, 4, 8 or 16) bytes at `value`.
void FillElements(void* to, int64_t count, const void* value, size_t size);

// A copy between two strided views with the same dims, prepared once: dims of size 1 are dropped,
// and neighbouring dims are merged if both views allow it. Strides are in elements and may be 0
// (source) or negative. Contiguous rows are copied by memcpy, transpositions by tiles.
class StridedCopy {
 public:
  StridedCopy() = default;
  // REQUIRES: the product of dims is at most 2^62, and element_size is 1, 2, 4, 8 or 16.
  StridedCopy(size_t element_size, const std::vector<int64_t>& dims,
              const std::vector<int64_t>& from_strides, const std::vector<int64_t>& to_strides);

  // `from` and `to` are the addresses of the elements with index 0 in all dims; no overlap.
  void operator()(const void* from, void* to) const;

 private:
  struct Axis {
    int64_t dim, from, to;
  };
  template <class T>
  void RunTyped(const T* from, T* to) const;
  template <class T>
  void RunTiled(const T* from, T* to) const;
  template <class Body>
  void ForEachOuter(int64_t units, int64_t begin, int64_t end, Body&& body) const;

  size_t element_size_ = 1;
  std::vector<Axis> outer_;  // loops around the inner one (two if tiled)
  Axis inner_{1, 1, 1};      // innermost in the target
  Axis across_{1, 1, 1};     // innermost in the source, if tiled
  bool tiled_ = false;
  bool empty_ = true;
  int64_t outer_count_ = 1;
};

// Strides of a contiguous tensor with these dims. REQUIRES: the product does not overflow.
std::vector<int64_t> ContiguousStrides(const std::vector<int64_t>& dims);

}  // namespace coracle::inline internal
