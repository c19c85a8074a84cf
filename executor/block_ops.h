#pragma once
// The ops of a block, written for the block around it. Internal to executor/.

#include <coracle/executor/plan_draft.h>

#include <memory>
#include <vector>

namespace coracle {

// The ops of the block that `op` runs once: planned in this order in the draft's block, they do
// what `op` does. They name the block's arguments and results as `op` names them, and its other
// variables as the block does, or with a suffix where the block around has such a variable. A
// result that `op` also reads, or that is persistable, is assigned last. Throws InternalError where
// the op's declaration does not say that it runs its block once with arguments and results.
std::vector<std::unique_ptr<OpDesc>> OpsInPlaceOf(const OpDesc& op, const PlanDraft& draft);

}  // namespace coracle
