#pragma once
// MakePlan: infers shapes, folds constants, prepares kernels and lays out memory.
// Internal to executor/.

#include <coracle/executor/plan/guards.h>
#include <coracle/executor/plan/procedure.h>
#include <coracle/executor/planner/frozen_parameters.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// The settings shared by all plans of a compiled program.
struct PlanContext {
  const ProgramDesc& program;
  const ProgramOrigins& origins;
  const std::vector<BlockUse>& uses;  // by block
  const OpRegistry& ops;
  KernelMode kernels = KernelMode::kAuto;
  FileAccess files;
  FrozenParameters& frozen;
  uint64_t memory_limit = UINT64_MAX;  // limit for one value, in bytes
  bool tune = false;                   // see CompileOptions
  bool optimized = false;              // passes have rewritten the program

  const BlockUse& UseOf(int block) const { return uses[static_cast<size_t>(block)]; }
};

// One stage to be planned.
struct PlanRequest {
  ProcedureId procedure;
  size_t first_op = 0;
  const StageInput& input;
  IdVector<FeedId, FeedGuard> feeds;     // the feeds in `input`, with their names
  std::vector<ValueGuard> known_values;  // values that the plan may rely on
  std::vector<std::string> fetches;
};

// Plans the ops from first_op on, up to the first op whose shapes depend on something unknown (see
// Plan::next). `procedures` may grow. Throws for contradictory shapes, an op without a kernel, or a
// fetch that no op computes.
Plan MakePlan(const PlanContext& context, const PlanRequest& request, ProcedureTable& procedures);

}  // namespace coracle::inline internal
