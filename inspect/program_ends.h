#pragma once
// The inputs and outputs of a program.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

// The dense variables of the root block that a program is fed: those of its feed ops, in their
// order; without feed ops, variables that its ops read before any op writes them. Excludes
// parameters and other persistable variables.
std::vector<std::string> InputNames(const ProgramDesc& program, const OpRegistry& ops);

// The variables that its fetch ops fetch, in their order; without fetch ops, the dense variables of
// the root block that an op writes and no op reads. Excludes persistable variables and outputs that
// only a gradient op reads (SlotDef::intermediate).
std::vector<std::string> OutputNames(const ProgramDesc& program, const OpRegistry& ops);

// Whether the root block has feed ops (OpKind::kFeed), or fetch ops.
bool HasOpOfKind(const BlockDesc& root, OpKind kind, const OpRegistry& ops);

}  // namespace coracle
