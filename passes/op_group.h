#pragma once
// Replaces groups of ops of the root block by one op each, which runs them in its own block.
// Internal to passes/.

#include <coracle/framework/op/op_context.h>
#include <coracle/passes/pass.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A variable and its type before or after an op of a group.
struct GroupVar {
  std::string name;
  VarMeta meta;
};

struct OpGroup {
  std::vector<size_t> members;  // positions, ascending
  // In the order of first use.
  std::vector<GroupVar> inputs, outputs;
  AttrList attrs;  // attrs of the op that only this group has

  const GroupVar* FindOutput(const std::string& name) const;
  void AddInput(const GroupVar& var);  // unless it is an input or an output
};

// Replaces each group by an op of the given type at the position of its last member, declared like
// fused_elementwise. A group whose results are not needed is left unchanged. With `in_place`, X is
// ordered so that each output is at the index of an input that it may overwrite; otherwise X has
// the group's inputs in their order.
void ReplaceGroups(ProgramDesc& program, const PassContext& context, const std::string& type,
                   bool in_place, const std::vector<OpGroup>& groups);

}  // namespace coracle::inline internal
