#pragma once
// Attrs that hold names of variables, beside the slots of an op. Internal to Coracle.

#include <coracle/framework/ir/op.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// Replaces each name of a variable in the op's attrs by rename(name): of the types VAR and VARS;
// STRINGS of an op that runs a block, which name variables of the block; op_role_var,
// recomputed_from, outer_reads and outer_inputs; the variable that forward_op names.
void RenameInAttrs(OpDesc& op, const std::function<std::string(const std::string&)>& rename);

// The names of variables in an attr of the types VAR, VARS and STRINGS, as above; none where it
// holds something else. `runs_block`: the op has a sub-block.
std::optional<std::vector<std::string>> NamesIn(const NamedAttr& attr, bool runs_block);

// f(name) for each variable that an attr of the type VAR or VARS names: the op reads it as it does
// its inputs.
void ForEachVarAttr(const OpDesc& op, const std::function<void(const std::string&)>& f);

}  // namespace coracle
