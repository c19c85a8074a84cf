#pragma once
// MakePlan: shapes inferred once, constants folded, kernels prepared, memory laid out. Internal to
// executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>
#include <coracle/executor/internal/unit.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/op/block_use.h>

#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle {

struct PlanRequest {
  const ProgramDesc* program = nullptr;
  const std::vector<BlockUse>* uses = nullptr;  // by block
  UnitTable* units = nullptr;                   // may grow
  int32_t unit = 0;                             // whose block is planned
  const OpRegistry* ops = nullptr;
  KernelMode kernels = KernelMode::kAuto;
  FileAccess files;
  uint64_t memory_limit = UINT64_MAX;  // bytes of one value
  std::vector<std::string> feeds;
  std::vector<VarMeta> feed_metas;
  std::vector<std::string> fetches;
  size_t first_op = 0;  // a later stage starts there
  std::span<VarCell* const>
      slots;  // of the activation; shorter than the unit's when none is there yet
  std::vector<ValueGuard> relies;  // values that the plan may rely on
  const Scope* scope = nullptr;    // types of persistables that are there already
};

// The plan of the ops from first_op on, up to the first one whose shapes depend on what is not
// known (see Plan::next_op). Throws for shapes that contradict each other, an op without kernel, or
// a fetch that nothing computes.
Plan MakePlan(const PlanRequest& request);

// What the planner saw of who uses which memory when.
struct MemoryUsage {
  // An op's input and output that may be one memory; `alias`: they hold the same elements.
  struct Pair {
    int32_t step, in, out;
    bool alias;
  };
  std::vector<std::pair<int32_t, int32_t>> uses;  // (step, value)
  std::vector<std::vector<int32_t>> step_inputs;  // values, by step
  std::vector<Pair> sharing;                      // in the order of the steps
  const std::unordered_map<std::string, int>* writes_of_names = nullptr;  // in the whole block
};

// Finds how long each storage lives, lets values share storages where their ops allow it, and gives
// the fetched ones their places. Until then each arena value has a storage of its own.
void ShareMemory(Plan& plan, const MemoryUsage& usage);

// Gives every kArena storage its offset: a sweep over the steps that takes the smallest free range
// that fits. Sets plan.arena_bytes. Offsets are multiples of 64.
void LayOutArena(Plan& plan);

}  // namespace coracle
