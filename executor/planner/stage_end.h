#pragma once
// The end of a stage: stores values that outlive its plan where later plans find them.
// Internal to executor/.

#include <coracle/executor/planner/plan_draft.h>

#include <string>

namespace coracle::inline internal {

// Called if the plan reaches the end of the block. Stores the values that the op that runs the
// block, the enclosing blocks and the gradient blocks read afterwards. Throws if a result has
// no value.
void EndBlock(PlanDraft& draft);

// Called if the plan ends before op `next`. Passes every value that is still used to the next
// stage: dense tensors as its feeds, others in their cells. `last`: the op that ends the stage;
// `shape_var`: the variable whose value determines the shapes of op `next`, or "" if it is not a
// single one.
void EndStage(PlanDraft& draft, size_t next, const OpDesc& last, const std::string& shape_var);

}  // namespace coracle::inline internal
