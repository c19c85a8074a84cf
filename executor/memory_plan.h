#pragma once
// Where a plan's storages lie in memory: who shares one, who lies where. Internal to executor/.

#include <coracle/executor/plan.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle {

// What the planner saw of who uses which memory when.
struct MemoryUsage {
  // An op's input and output that may be one memory; `alias`: they hold the same elements.
  struct Pair {
    StepId step;
    ValueId in, out;
    bool alias;
  };
  std::vector<std::pair<StepId, ValueId>> uses;
  IdVector<StepId, std::vector<ValueId>> reads;
  std::vector<Pair> sharing;                      // in the order of the steps
  std::unordered_set<std::string> written_names;  // by any op of the block or of one inside it
};

// Finds how long each storage lives, lets values share storages where their ops allow it, and gives
// the plan's results their places. Until then each arena value has a storage of its own.
void ShareMemory(Plan& plan, const MemoryUsage& usage);

// Gives every storage in the arena its offset: a sweep over the steps that takes the smallest free
// range that fits. Sets plan.arena_bytes. Offsets are multiples of 64.
void LayOutArena(Plan& plan);

// Room for that many bytes before the next storage begins.
constexpr uint64_t AlignedBytes(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace coracle
