#pragma once
// SubBlockPlanner: plans the calls of sub-blocks by one op. Internal to executor/.

#include <coracle/executor/planner/plan_draft.h>
#include <coracle/framework/op/op_context.h>

#include <set>
#include <string>
#include <vector>

namespace coracle::inline internal {

class SubBlockPlanner {
 public:
  // `position`: index of the op in the draft's block.
  SubBlockPlanner(PlanDraft& draft, const OpDesc& op, size_t position)
      : draft_(draft), op_(op), position_(position) {}

  // Adds the op's next call. Variables that the block writes move to cells of the activation,
  // unless they are persistable.
  CallId AddCall(BlockRef block, const BlockArgs& args);
  // Throws unless the block is a sub-block of the op's block.
  const BlockUse& UseOf(BlockRef block) const;

  // For all calls so far: values of this frame that the blocks use, and variables that they write.
  const std::vector<ValueId>& used() const { return used_; }
  const std::set<std::string>& changed() const { return changed_; }
  const std::vector<CallId>& calls() const { return calls_; }

 private:
  void BindArguments(const BlockArgs& args, Procedure& inner, BlockCall* call);
  void BindCaptured(const BlockUse& use, const BlockArgs& args, Procedure& inner, BlockCall* call);
  void NotePersistable(const BlockUse& use, BlockCall* call);
  Binding Bind(CellId inner, ValueId value);
  // Moves the variable's value to its cell, where it stays from now on.
  ValueId MoveToCell(const std::string& name);

  PlanDraft& draft_;
  const OpDesc& op_;
  size_t position_;
  std::vector<CallId> calls_;
  std::vector<ValueId> used_;
  std::set<std::string> changed_;
};

}  // namespace coracle::inline internal
