#pragma once
// Ops whose result is known while the plan is made. Internal to executor/.

#include <coracle/executor/plan_draft.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/interpreter.h>

#include <optional>
#include <string>

namespace coracle {

// Whether an op of this kind may run at planning time at all.
bool IsFoldable(const OpSpec& def);
// Whether a constant of this name and type may stand for an op's output.
bool IsFoldableOutput(const BlockDesc& block, const std::string& name, const VarMeta& meta);
// The values of the op's variables once it has run; nothing when an input is not known. `metas` has
// the types of the inputs.
std::optional<VarValues> RunNow(const PlanDraft& draft, const OpDesc& op, const OpSpec& def,
                                const MetaTable& metas);

}  // namespace coracle
