#pragma once
// MakePlan: shapes inferred once, constants folded, kernels prepared, memory laid out. Internal to
// executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>

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
  const Scope* scope = nullptr;  // types of persistables that are there already
};

// Throws for shapes that contradict each other, an op without kernel, or a fetch that nothing
// computes.
Plan MakePlan(const PlanRequest& request);

// Gives every kArena storage its offset: a sweep over the steps that takes the smallest free range
// that fits. Sets plan.arena_bytes. Offsets are multiples of 64.
void LayOutArena(Plan& plan);

}  // namespace coracle
