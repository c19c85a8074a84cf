#pragma once
// Activation: a block being run, with the frames of its stages and the cells of variables that
// outlive a stage. There is one for the root block and one for each call site of a sub-block; each
// keeps its memory from run to run. Internal to executor/.

#include <coracle/executor/frame/frame.h>
#include <coracle/executor/frame/run_steps.h>
#include <coracle/executor/planner/plan_cache.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace coracle::inline internal {

class Activation final : public BlockCaller {
 public:
  // `state` and `plans` must outlive it.
  Activation(ExecutionState& state, PlanCache& plans, ProcedureId procedure);
  ~Activation();
  Activation(const Activation&) = delete;
  Activation& operator=(const Activation&) = delete;

  // Runs the block once. For the root block, the result holds the fetched values, valid until the
  // next run. `step`: for random ops; `save_to`: see Workspace::RunBlock.
  const std::vector<Tensor>& Run(std::span<const Tensor> feeds, uint64_t step,
                                 StepScopes::Step* save_to = nullptr);

  // Calls f(const Frame&) for all frames of this activation, then for those of its sub-blocks.
  template <class F>
  void ForEachFrame(const F& f) const {
    for (const Stage& stage : stages_) {
      for (const auto& frame : stage.frames) f(*frame);
    }
    for (const auto& child : children_) {
      if (child) child->ForEachFrame(f);
    }
  }

 private:
  // A part of the block that one plan covers. It begins at an op, when some of the values on which
  // shapes depend are known. (The next stage may begin there too, with one more value known.)
  struct Stage {
    size_t first_op = 0;
    size_t known_values = 0;
    std::vector<std::unique_ptr<Frame>> frames;  // most recently used first
    std::vector<Tensor> results;
  };

  // --- stages ---
  bool IsRoot() const { return procedure_ == kRootProcedure; }
  Stage& StageAt(size_t first_op, size_t known_values);
  Frame& FrameFor(Stage& stage, const StageInput& input);
  Frame* FindFrame(Stage& stage, const StageInput& input);
  // Runs the stage on these feeds and returns the plan that was used.
  const Plan& RunStage(Stage& stage, const Plan* before, std::span<const Tensor> feeds,
                       const RunNumbers& run);
  // Adds cells for everything that the plan uses, and the values that it begins with.
  void AddCells(const Plan& plan);
  void EmptyNewCells(const Plan& plan);

  // --- sub-blocks ---
  void Call(const BlockCall& call, Frame& caller, StepScopes::Step* save_to,
            StepScopes::Step* saved) override;
  Activation& ChildAt(const BlockCall& call);
  // The cell that a binding of `child` refers to; nullptr if there is none.
  VarCell* Resolve(const BlockCall& call, size_t binding, Frame& caller, StepScopes::Step* saved,
                   Activation& child);
  // A cell with a view of a value in the caller's frame.
  VarCell* ViewAt(size_t binding, const VarValue& value);
  void BindCell(CellId cell, VarCell* bound);
  // Counts this activation's runs within one run of the caller.
  uint64_t CountRunInside(uint64_t outer_run);

  ExecutionState& state_;
  PlanCache& plans_;
  const ProcedureId procedure_;
  Cells cells_;  // own_cells_ and those that the caller bound
  std::deque<VarCell> own_cells_;
  std::deque<VarCell> views_;  // views of values in the caller's frame, by binding
  std::deque<Stage> stages_;
  IdVector<CallSiteId, std::unique_ptr<Activation>> children_;
  uint64_t run_number_ = 0;
  // The caller's run, and the number of our runs within it.
  uint64_t outer_run_ = 0, runs_inside_ = 0;
};

}  // namespace coracle::inline internal
