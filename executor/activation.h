#pragma once
// Activation: a block being run: its stages' frames, and the cells of variables that outlive a
// stage. One for the root block; each call site of a sub-block has its own, which keeps its memory
// from run to run. Internal to executor/.

#include <coracle/executor/frame.h>
#include <coracle/executor/plan_cache.h>
#include <coracle/executor/run_steps.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace coracle {

class Activation final : public BlockCaller {
 public:
  // `state` and `plans` outlive it.
  Activation(ExecutionState& state, PlanCache& plans, ProcedureId procedure);
  ~Activation();
  Activation(const Activation&) = delete;
  Activation& operator=(const Activation&) = delete;

  // Runs the block once. The result is what was fetched, for the root block; it holds until the
  // next run. `step`: of random ops; `save_to`: see Workspace::RunBlock.
  const std::vector<Tensor>& Run(std::span<const Tensor> feeds, uint64_t step,
                                 StepScopes::Step* save_to = nullptr);

  // Calls f(const Frame&) for all frames here, then for those of the sub-blocks.
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
  // Where a plan may begin: at an op, with so many values known that shapes depend on. (A stage may
  // begin where the one before began, knowing one value more.)
  struct Stage {
    size_t first_op = 0;
    size_t known_values = 0;
    std::vector<std::unique_ptr<Frame>> frames;  // used last first
    std::vector<Tensor> results;
  };

  // --- stages ---
  bool IsRoot() const { return procedure_ == kRootProcedure; }
  Stage& StageAt(size_t first_op, size_t known_values);
  Frame& FrameFor(Stage& stage, const StageInput& input);
  Frame* FindFrame(Stage& stage, const StageInput& input);
  // Runs the stage on these feeds and says by which plan.
  const Plan& RunStage(Stage& stage, const Plan* before, std::span<const Tensor> feeds,
                       const RunNumbers& run);
  // Cells for all that the plan knows of, and the values that it begins with.
  void AddCells(const Plan& plan);
  void EmptyNewCells(const Plan& plan);

  // --- sub-blocks ---
  void Call(const BlockCall& call, Frame& caller, StepScopes::Step* save_to,
            StepScopes::Step* saved) override;
  Activation& ChildAt(const BlockCall& call);
  // The cell that a binding of `child` stands for; nullptr: none.
  VarCell* Resolve(const BlockCall& call, size_t binding, Frame& caller, StepScopes::Step* saved,
                   Activation& child);
  // A cell that shows a value of the caller's frame.
  VarCell* ViewAt(size_t binding, const VarValue& value);
  void BindCell(CellId cell, VarCell* bound);
  // Counts this activation's runs within one run of the caller.
  uint64_t CountRunInside(uint64_t outer_run);

  ExecutionState& state_;
  PlanCache& plans_;
  const ProcedureId procedure_;
  Cells cells_;  // own_cells_ and those that the caller bound
  std::deque<VarCell> own_cells_;
  std::deque<VarCell> views_;  // values of the caller's frame, by binding
  std::deque<Stage> stages_;
  IdVector<CallSiteId, std::unique_ptr<Activation>> children_;
  uint64_t run_number_ = 0;
  uint64_t outer_run_ = 0, runs_inside_ = 0;  // the caller's run, and how many of ours are in it
};

}  // namespace coracle
