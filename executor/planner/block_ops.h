#pragma once
// Rewrites the ops of a block for use in the enclosing block. Internal to executor/.

#include <coracle/executor/planner/plan_draft.h>

#include <memory>
#include <vector>

namespace coracle::inline internal {

// Returns the ops of the block that `op` runs once: planned in this order in the draft's block,
// they have the same effect as `op`. They use the op's names for the block's arguments and
// results, and the block's names for its other variables, with a suffix if the enclosing block
// has such a variable. A result that `op` also reads, or that is persistable, is assigned last.
// Throws InternalError unless the op's declaration says that it runs its block once with
// arguments and results.
std::vector<std::unique_ptr<OpDesc>> OpsInPlaceOf(const OpDesc& op, const PlanDraft& draft);

}  // namespace coracle::inline internal
