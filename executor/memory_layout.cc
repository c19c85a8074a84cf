#include <coracle/executor/internal/planner.h>
#include <coracle/framework/base/checked.h>

#include <algorithm>
#include <map>

namespace coracle {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Free ranges of an arena that grows at its end.
class FreeList {
 public:
  uint64_t Take(uint64_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return Grow(bytes);
    uint64_t offset = best->first, rest = best->second - bytes;
    free_.erase(best);
    if (rest > 0) free_[offset + bytes] = rest;
    return offset;
  }

  void Give(uint64_t offset, uint64_t bytes) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  uint64_t size() const { return end_; }

 private:
  uint64_t Grow(uint64_t bytes) {
    uint64_t offset = end_;
    if (!free_.empty()) {  // a free range at the end is extended
      auto last = std::prev(free_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        free_.erase(last);
      }
    }
    end_ = static_cast<uint64_t>(
        CheckedAdd(static_cast<int64_t>(offset), static_cast<int64_t>(bytes)));
    return offset;
  }

  std::map<uint64_t, uint64_t> free_;  // offset -> bytes
  uint64_t end_ = 0;
};

}  // namespace

void LayOutArena(Plan& plan) {
  std::vector<std::vector<int32_t>> begins(plan.steps.size() + 1), ends(plan.steps.size() + 1);
  for (size_t i = 0; i < plan.storages.size(); ++i) {
    const Storage& s = plan.storages[i];
    if (s.kind != StorageKind::kArena || s.bytes == 0 || s.first < 0) continue;
    begins[static_cast<size_t>(s.first)].push_back(static_cast<int32_t>(i));
    ends[static_cast<size_t>(std::max(s.first, s.last))].push_back(static_cast<int32_t>(i));
  }
  FreeList arena;
  for (size_t step = 0; step < begins.size(); ++step) {
    // The largest first: they find the tightest places.
    std::sort(begins[step].begin(), begins[step].end(), [&](int32_t a, int32_t b) {
      uint64_t x = plan.storages[static_cast<size_t>(a)].bytes,
               y = plan.storages[static_cast<size_t>(b)].bytes;
      return x != y ? x > y : a < b;
    });
    for (int32_t i : begins[step]) {
      Storage& s = plan.storages[static_cast<size_t>(i)];
      s.offset = arena.Take(RoundUp(s.bytes));
    }
    for (int32_t i : ends[step]) {
      const Storage& s = plan.storages[static_cast<size_t>(i)];
      arena.Give(s.offset, RoundUp(s.bytes));
    }
  }
  plan.arena_bytes = arena.size();
}

}  // namespace coracle
