#pragma once
// Cuts sequences out of LoD tensors, with all levels below them, and joins them.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/kernels/sequences.h>

#include <cstdint>

namespace coracle::inline internal {

struct RowRange {
  int64_t begin = 0, end = 0;
  int64_t rows() const { return end - begin; }
};

// The number of sequences of a level, or of rows if there is no such level.
inline int64_t CountAt(const LoD& lod, size_t level, int64_t rows) {
  return level < lod.size() ? static_cast<int64_t>(lod[level].size()) - 1 : rows;
}

// A LoD of `levels` levels without sequences.
inline LoD EmptyLevels(size_t levels) { return LoD(levels, std::vector<uint64_t>{0}); }

// Appends to `to`, level by level, the lengths of the sequences [begin, end) of a level (of rows,
// if there is no such level) and of all sequences in them. Returns their rows. REQUIRES: the LoD is
// valid and has these sequences; `to` has its levels from `level` on.
inline RowRange AppendSequences(const LoD& lod, size_t level, int64_t begin, int64_t end, LoD* to) {
  for (size_t k = level; k < lod.size(); ++k) {
    const Sequences s(lod[k]);
    std::vector<uint64_t>& offsets = (*to)[k - level];
    for (int64_t i = begin; i < end; ++i)
      offsets.push_back(offsets.back() + static_cast<uint64_t>(s.length(i)));
    const int64_t first = s.begin(begin);
    end = s.begin(end);
    begin = first;
  }
  return {begin, end};
}

}  // namespace coracle::inline internal
