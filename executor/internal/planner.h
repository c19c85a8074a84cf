#pragma once
// MakePlan: shapes inferred once, constants folded, kernels prepared, memory laid out. Internal to
// executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>

#include <map>
#include <string>
#include <vector>

namespace coracle {

struct PlanRequest {
  const ProgramDesc* program = nullptr;
  int block = 0;
  const OpRegistry* ops = nullptr;
  KernelMode kernels = KernelMode::kAuto;
  std::vector<std::string> feeds;
  std::vector<VarMeta> feed_metas;
  std::vector<std::string> fetches;
  size_t first_op = 0;  // a later stage starts there
  std::map<std::string, Tensor>
      known;                     // values of feeds and persistables that the plan may rely on
  const Scope* scope = nullptr;  // types of persistables that are there already
};

// The plan of the ops from first_op on, up to the first one whose shapes depend on a value that is
// not known (see Plan::next_op). Throws for shapes that contradict each other, an op without
// kernel, or a fetch that nothing computes.
Plan MakePlan(const PlanRequest& request);

// Gives every kArena storage its offset: a sweep over the steps that takes the smallest free range
// that fits. Sets plan.arena_bytes. Offsets are multiples of 64.
void LayOutArena(Plan& plan);

}  // namespace coracle
