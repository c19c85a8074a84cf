#pragma once
// The end of a stage: what must outlive its plan is stored where others find it.
// Internal to executor/.

#include <coracle/executor/plan_draft.h>

#include <string>

namespace coracle {

// The plan reaches the end of the block. Stores what the op that runs the block, the enclosing
// blocks and the gradient blocks read afterwards. Throws when a result has no value.
void EndBlock(PlanDraft& draft);

// The plan ends before op `next`. Every value that is still used goes to the next stage: dense
// tensors as its feeds, others in their cells. `last`: the op that ends the stage; `shape_var`: the
// variable whose value decides the shapes of op `next`, "" when that is no single one's.
void EndStage(PlanDraft& draft, size_t next, const OpDesc& last, const std::string& shape_var);

}  // namespace coracle
