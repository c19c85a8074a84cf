#pragma once
// Groups of ops of the root block that become one op with a block of its own. Internal to passes/.

#include <coracle/framework/op/infer_context.h>
#include <coracle/passes/pass.h>

#include <string>
#include <vector>

namespace coracle {

// A variable as an op of a group finds or leaves it.
struct GroupVar {
  std::string name;
  VarMeta meta;
};

struct OpGroup {
  std::vector<size_t> members;  // positions, ascending
  // In the order of their first use.
  std::vector<GroupVar> inputs, outputs;
  AttrList attrs;  // of the op, in addition to those of all groups

  const GroupVar* FindOutput(const std::string& name) const;
  void AddInput(const GroupVar& var);  // unless it is an input or an output
};

// Each group becomes an op of that type at the place of its last member, declared as
// fused_elementwise is; a group whose results nobody needs stays as it is. `in_place`: outputs
// stand where inputs do that they may overwrite; else X are the group's inputs in their order.
void ReplaceGroups(ProgramDesc& program, const PassContext& context, const std::string& type,
                   bool in_place, const std::vector<OpGroup>& groups);

}  // namespace coracle
