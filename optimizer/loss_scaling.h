#pragma once
// Loss scaling inside a program: the loss is multiplied by a persistable scale before backward, the
// gradients are divided by it and looked at, updates run only where all are finite, and the scale
// moves, all by ordinary ops. See docs/mixed_precision.md; GradScaler is the same for loops that
// hold gradients on the host.
//
//   LossScaling scaling(main, startup, {.growth_interval = 1000});
//   scaling.Minimize(optimizer, loss, startup);
//
// or step by step, for several optimizers, or inside the block of every k-th micro-batch:
//
//   Variable scaled = scaling.Scale(loss);
//   pairs = AppendBackward(scaled, {.callbacks = {scaling.ErrorClip()}});
//   scaling.ApplyGradients(block, startup, optimizer_a, pairs_a);
//   scaling.ApplyGradients(block, startup, optimizer_b, pairs_b);
//   scaling.Update(block);

#include <coracle/optimizer/grad_scaler.h>
#include <coracle/optimizer/optimizer.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle {

class LossScaling {
 public:
  // Makes the state, persistable in both programs: the scale (float32 [1]) and its counts (int32
  // [1]). Throws as LossScaleRuleOf. One object serves one program.
  LossScaling(ProgramDesc& main, ProgramDesc& startup, const GradScalerOptions& options = {});

  // All of it for one optimizer: scales the loss, appends backward, and the rest to the loss's
  // block.
  std::vector<ParamAndGrad> Minimize(Optimizer& optimizer, const Variable& loss,
                                     ProgramDesc& startup, const MinimizeOptions& options = {});

  // loss * scale, in float32: what to differentiate.
  Variable Scale(const Variable& loss);
  // In place of ErrorClipCallback: every error clip acts on the scaled gradient as it would on the
  // true one, and what enters it is looked at first, so that an overflow is not clipped into a
  // finite lie. `count`: what clips do is counted, see CountErrorClip.
  BackwardCallback ErrorClip(bool count = false);
  // Appends to `block`: the gradients divided in place and looked at; then the
  // optimizer's clips and updates, and what `after` appends to their block (averages), which run
  // only if all of these gradients, and what the clips made of them, are finite. Other optimizers
  // are not concerned. Returns the pairs that are updated.
  std::vector<ParamAndGrad> ApplyGradients(BlockDesc& block, ProgramDesc& startup,
                                           Optimizer& optimizer,
                                           const std::vector<ParamAndGrad>& pairs,
                                           const std::function<void(BlockDesc& block)>& after = {});
  // Appends to `block`, the one of ApplyGradients, one move of the scale for all optimizers. Call
  // last; throws kInvalidArgument when no gradient was looked at.
  void Update(BlockDesc& block);

  const std::string& scale_var() const { return scale_; }
  const std::string& skipped_var() const { return skipped_; }  // steps skipped in a row

 private:
  void Unscale(BlockDesc& block, const std::vector<ParamAndGrad>& pairs,
               const std::string& overflow);
  std::string CheckClipped(BlockDesc& block, const std::vector<ParamAndGrad>& clipped,
                           const std::string& overflow);

  LossScaleRule rule_;
  bool enabled_;
  ProgramDesc& startup_;
  std::string scale_, good_steps_, bad_steps_, skipped_;
  // Persistable: whether all gradients that entered error clips since the last Update were finite.
  // "" without error clips.
  std::string entering_finite_;
  std::vector<std::string> overflows_;
};

}  // namespace coracle
