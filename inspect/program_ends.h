#pragma once
// What goes into a program and what comes out of it.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

// The dense variables of the root block that a program is fed: those of its feed ops, in their
// order; without feed ops those that its ops read before one writes them. Parameters and other
// persistable variables are none of them.
std::vector<std::string> InputNames(const ProgramDesc& program, const OpRegistry& ops);

// What its fetch ops fetch, in their order; without fetch ops the dense variables of the root
// block, persistable ones left out, that an op writes and none reads; outputs that are there for a
// gradient op alone (SlotDef::intermediate) are not among them.
std::vector<std::string> OutputNames(const ProgramDesc& program, const OpRegistry& ops);

// Whether the root block has feed ops (OpKind::kFeed), or fetch ops.
bool HasOpOfKind(const BlockDesc& root, OpKind kind, const OpRegistry& ops);

}  // namespace coracle
