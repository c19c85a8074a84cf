#pragma once
// Activation: a block being run: its stages' frames, and the cells of variables that outlive a
// stage. One for the root block; each place where an op runs a sub-block has its own, which keeps
// its memory from run to run. Internal to executor/.

#include <coracle/executor/internal/compiled_program.h>
#include <coracle/executor/internal/frame.h>
#include <coracle/framework/base/resource_limits.h>

#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace coracle {

// What all activations of one run have in common.
struct RunState {
  const CompiledProgram* compiled = nullptr;
  Scope* scope = nullptr;
  std::shared_ptr<ResourceLimits> limits;  // of all frames and of what runs make
  double profiled = 0;                     // seconds of all ops so far, when they are timed
};

class Activation {
 public:
  Activation(RunState& state, int32_t unit);
  ~Activation();
  Activation(const Activation&) = delete;
  Activation& operator=(const Activation&) = delete;

  // Runs the block once. The result is what was fetched, for the root block.
  const std::vector<Tensor>& Run(std::span<const Tensor> feeds, uint64_t step);

  RunState& state() { return state_; }
  VarCell* cell(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  StepScopes::Step* keep() { return keep_; }

  // --- for the frame of the outer block that runs this one ---
  Activation& Child(const SubBlockUse& use);
  void BindSlot(int32_t slot, VarCell* cell);
  // A cell of this activation that shows a value of the outer frame.
  VarCell& View(size_t binding);
  // Runs it, the block `block`, within run `outer_run` of the enclosing activation, whose random
  // step is `step`.
  void RunInside(uint64_t outer_run, uint64_t step, int block, StepScopes::Step* keep);
  uint64_t run_number() const { return run_number_; }

  void CollectTimes(
      std::vector<OpTime>* times) const;  // those of ops inside are not the outer op's
  uint64_t Bytes() const;                 // of all frames here and inside

 private:
  struct Stage {
    size_t first_op = 0;
    size_t known = 0;  // how many values its plans rely on: a stage may end where it began
    std::vector<std::unique_ptr<Frame>> frames;  // used last first
    std::vector<Tensor> fetched;
  };

  void Begin();
  Frame& FrameFor(Stage& stage, std::span<const Tensor> feeds, const Plan* before);
  void Adopt(const Plan& plan);
  void RunStage(Frame& frame, Stage& stage, std::span<const Tensor> feeds, uint64_t step);
  void RunSteps(Frame& frame);
  void RunStep(Frame& frame, size_t i);
  void RunTimed(Frame& frame, size_t step);
  void CheckFinite(Frame& frame, const PlanStep& step) const;
  size_t StageAt(size_t first_op, size_t known);

  RunState& state_;
  int32_t unit_;
  std::vector<VarCell*> slots_;
  std::deque<VarCell> own_, views_;
  std::deque<Stage> stages_;
  std::vector<std::unique_ptr<Activation>> children_;  // by site
  StepScopes::Step* keep_ = nullptr;
  uint64_t run_number_ = 0, outer_run_ = 0, runs_inside_ = 0;
};

}  // namespace coracle
