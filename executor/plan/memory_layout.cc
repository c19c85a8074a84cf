#include <coracle/executor/plan/memory_plan.h>
#include <coracle/framework/base/checked.h>

#include <algorithm>
#include <map>

namespace coracle::inline internal {
namespace {

// Free ranges of an arena that grows at its end. Adjacent free ranges are merged at once. An
// allocation takes the smallest range that fits, which preserves large ranges.
class FreeList {
 public:
  uint64_t Allocate(uint64_t bytes) {
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

  void Release(uint64_t offset, uint64_t bytes) {
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

// The largest first, because small storages fit into the remaining gaps; among equal sizes, the
// longest-lived first. The last criterion makes the layout deterministic.
void SortBySize(const Plan& plan, std::vector<StorageId>* storages) {
  std::sort(storages->begin(), storages->end(), [&](StorageId a, StorageId b) {
    const Storage &x = plan.storages[a], &y = plan.storages[b];
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    return x.last != y.last ? x.last > y.last : a < b;
  });
}

}  // namespace

void LayOutArena(Plan& plan) {
  IdVector<StepId, std::vector<StorageId>> begins, ends;
  begins.resize(plan.steps.size() + 1);
  ends.resize(plan.steps.size() + 1);
  for (StorageId storage : plan.storages.ids()) {
    const Storage& s = plan.storages[storage];
    if (!s.IsIn<InArena>() || s.bytes == 0 || !s.first) continue;
    begins[s.first].push_back(storage);
    ends[std::max(s.first, s.last)].push_back(storage);
  }
  FreeList arena;
  for (StepId step : begins.ids()) {
    SortBySize(plan, &begins[step]);
    for (StorageId storage : begins[step]) {
      Storage& s = plan.storages[storage];
      s.offset = arena.Allocate(AlignedBytes(s.bytes));
    }
    // Inputs are released only after all outputs of the step have their places, since an
    // op's outputs must not overlap its inputs. (Inputs that the op may overwrite share a
    // storage already.)
    for (StorageId storage : ends[step]) {
      const Storage& s = plan.storages[storage];
      arena.Release(s.offset, AlignedBytes(s.bytes));
    }
  }
  plan.arena_bytes = arena.size();
}

}  // namespace coracle::inline internal
