#pragma once
// Assigns memory to the storages of a plan: which values share one, and at which offset it is.
// Internal to executor/.

#include <coracle/executor/plan/plan.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// When each value is used, as recorded by the planner.
struct MemoryUsage {
  // An input and output of an op that may share memory; `alias`: they have the same elements.
  struct Pair {
    StepId step;
    ValueId in, out;
    bool alias;
  };
  std::vector<std::pair<StepId, ValueId>> uses;
  IdVector<StepId, std::vector<ValueId>> reads;
  std::vector<Pair> sharing;  // in the order of the steps
  // Written by any op of the block or of a nested block.
  std::unordered_set<std::string> written_names;
};

// Finds the lifetime of each storage, lets values share storages if their ops allow it, and assigns
// places to the plan's results. Before the call, each arena value has a storage of its own.
void ShareMemory(Plan& plan, const MemoryUsage& usage);

// Assigns every storage in the arena its offset: a sweep over the steps that takes the smallest
// free range that fits. Sets plan.arena_bytes. Offsets are multiples of 64.
void LayOutArena(Plan& plan);

// The number of bytes rounded up to where the next storage can begin.
constexpr uint64_t AlignedBytes(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace coracle::inline internal
