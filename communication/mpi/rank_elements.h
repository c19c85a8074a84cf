#pragma once
// RankElements: each rank's share of the buffers of a kReduceScatter. Internal
// to communication/mpi/.

#include <coracle/communication/communicator.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace coracle::inline internal {

// Each rank's elements of all buffers of a kReduceScatter, seen as one sequence.
class RankElements {
 public:
  RankElements(const Exchange& exchange, int ranks)
      : counts_(exchange.counts),
        ranks_(static_cast<size_t>(ranks)),
        size_(SizeOf(exchange.dtype)) {
    for (size_t r = 0; r < ranks_; ++r) {
      int64_t all = 0;
      for (size_t i = r; i < counts_.size(); i += ranks_) all += counts_[i];
      totals_.push_back(all);
    }
  }
  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t most() const { return *std::max_element(totals_.begin(), totals_.end()); }
  // How many of the rank's elements lie in [begin, begin + most).
  int64_t Count(int rank, int64_t begin, int64_t most) const {
    return std::clamp<int64_t>(totals_[static_cast<size_t>(rank)] - begin, 0, most);
  }
  // Calls visit(buffer, index of the first such element in the buffer, its index in the rank's part
  // of the buffer, bytes) for each buffer with elements in that range.
  template <class F>
  void ForEach(int rank, int64_t begin, int64_t most, F visit) const {
    const int64_t end = begin + most;
    int64_t first = 0;  // where this buffer begins in the rank's sequence
    for (size_t buffer = 0; buffer * ranks_ < counts_.size(); ++buffer) {
      const int64_t* count = &counts_[buffer * ranks_];
      const int64_t before = std::accumulate(count, count + rank, int64_t{0});
      const int64_t from = std::max(first, begin), to = std::min(first + count[rank], end);
      if (from < to)
        visit(buffer, before + from - first, from - first, static_cast<size_t>(to - from) * size_);
      first += count[rank];
    }
  }

 private:
  const std::vector<int64_t>& counts_;  // by buffer, then by rank
  const size_t ranks_, size_;
  std::vector<int64_t> totals_;  // by rank
};

}  // namespace coracle::inline internal
