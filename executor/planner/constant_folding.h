#pragma once
// Computes results that are known while the plan is made. Internal to executor/.

#include <coracle/executor/planner/plan_draft.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>

#include <optional>
#include <string>

namespace coracle::inline internal {

// Whether an op of this type may run at planning time.
bool IsFoldable(const OpSpec& def);
// Whether a constant may replace an op's output with this name and type.
bool IsFoldableOutput(const BlockDesc& block, const std::string& name, const VarMeta& meta);
// The values of the op's variables after it has run; nullopt if an input is unknown. `metas` has
// the types of the inputs.
std::optional<VarValues> RunNow(const PlanDraft& draft, const OpDesc& op, const OpSpec& def,
                                const MetaTable& metas);

}  // namespace coracle::inline internal
