#pragma once
// Attrs that hold names of variables, in addition to the slots of an op. Internal to Coracle.

#include <coracle/framework/ir/op.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Replaces each name of a variable in the op's attrs by rename(name): in attrs of the types VAR and
// VARS; in STRINGS of an op that runs a block, which name variables of the block; in op_role_var,
// recomputed_from, outer_reads and outer_inputs; and in forward_op.
void RenameInAttrs(OpDesc& op, const std::function<std::string(const std::string&)>& rename);

// The names of variables in an attr of the type VAR, VARS or STRINGS, as above; nullopt if the attr
// holds no names. `runs_block`: the op has a sub-block.
std::optional<std::vector<std::string>> NamesIn(const NamedAttr& attr, bool runs_block);

// Calls f(name) for each variable in an attr of the type VAR or VARS. The op reads these variables
// like its inputs.
void ForEachVarAttr(const OpDesc& op, const std::function<void(const std::string&)>& f);

}  // namespace coracle::inline internal
