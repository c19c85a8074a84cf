#pragma once
// MakePlan: shapes inferred once, constants folded, kernels prepared, memory laid out.
// Internal to executor/.

#include <coracle/executor/frozen_parameters.h>
#include <coracle/executor/guards.h>
#include <coracle/executor/procedure.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/block_use.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

// What all plans of a compiled program have in common.
struct PlanContext {
  const ProgramDesc& program;
  const ProgramOrigins& origins;
  const std::vector<BlockUse>& uses;  // by block
  const OpRegistry& ops;
  KernelMode kernels = KernelMode::kAuto;
  FileAccess files;
  FrozenParameters& frozen;
  uint64_t memory_limit = UINT64_MAX;  // bytes of one value
  bool tune = false;                   // see CompileOptions
  bool optimized = false;              // passes have been over the program

  const BlockUse& UseOf(int block) const { return uses[static_cast<size_t>(block)]; }
};

// One stage to be planned.
struct PlanRequest {
  ProcedureId procedure;
  size_t first_op = 0;
  const StageInput& input;
  IdVector<FeedId, FeedGuard> feeds;     // as in `input`, with their names
  std::vector<ValueGuard> known_values;  // that the plan may rely on
  std::vector<std::string> fetches;
};

// The plan of the ops from first_op on, up to the first one whose shapes depend on what is not
// known (see Plan::next). `procedures` may grow. Throws for shapes that contradict each other, an
// op without kernel, or a fetch that nothing computes.
Plan MakePlan(const PlanContext& context, const PlanRequest& request, ProcedureTable& procedures);

}  // namespace coracle
