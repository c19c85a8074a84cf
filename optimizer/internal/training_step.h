#pragma once
// The stages of a training step, and the state that they share while a step is appended.

#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/writer.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>

#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A Writer of ops with the role Optimize.
Writer UpdateWriter(BlockDesc& block, const TrainingMark& mark = {});

// The name of the gradient, converted to float32 if it has 16 bits. A sum of gradients needs more
// digits than 16 bits hold, and a gradient divided by the loss scale may be too small for them.
std::string WideGradient(const Writer& w, const std::string& grad);

// A group of all parameters for an optimizer that outlives the group.
OptimizerGroup GroupOf(Optimizer& optimizer);

// A block that is being filled. Without guards it is `outer` itself; with guards it is the
// sub-block of one conditional_block, which Close appends to `outer`. See AppendGuarded.
class GuardedBlock {
 public:
  GuardedBlock(BlockDesc& outer, const std::vector<std::string>& guards);
  BlockDesc& block() const { return *block_; }
  void Close(const TrainingMark& mark = {});  // of the conditional_block

 private:
  BlockDesc* block_;
  std::optional<Writer> outer_;  // appends the conditional_block
  std::string condition_;
};

// The part of a step that belongs to one optimizer.
struct OptimizerTurn {
  const OptimizerGroup& group;
  std::vector<ParamAndGrad> pairs;      // the result of backward or the accumulation
  std::vector<ParamAndGrad> gradients;  // the result of the last stage, in the same order
};

// The description of the step, and the results of the stages so far.
struct StepState {
  StepState(const TrainingStep& step, LossScaling& loss_scaling, BlockDesc& block,
            ProgramDesc& startup_program);

  BlockDesc& block() const { return open.back().block(); }  // where stages append
  // Opens a block: ops that later stages append run only if all of these guards hold too.
  void RunOnlyIf(const std::vector<std::string>& guards);
  // Closes the innermost blocks until only `depth` are open.
  void CloseTo(size_t depth);

  const TrainingStep& wanted;
  LossScaling& scaling;
  ProgramDesc& startup;
  Variable loss, scaled_loss;       // empty if gradients are given
  std::vector<ParamAndGrad> pairs;  // of all optimizers
  std::vector<std::string> guards;  // of the updates of all optimizers
  // An optimizer with trainable parameters has unscaled its gradients.
  bool unscaled = false;
  // State that gets a value when a group of accumulated runs begins.
  struct Reset {
    std::string state;
    double value;
    TrainingStage stage;  // that uses the state
  };
  std::vector<Reset> resets;
  std::list<GuardedBlock> open;  // innermost last
  std::optional<OptimizerTurn> turn;
};

struct StepStage {
  TrainingStage stage;
  enum { kOnce, kEachOptimizer } when;
  const char* doc;
  void (*append)(StepState& step);
};

// The order of a training step. Consecutive kEachOptimizer entries are appended for one optimizer
// after the other.
const std::vector<StepStage>& TrainingStages();

}  // namespace coracle::inline internal
