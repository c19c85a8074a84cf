#pragma once
// The stages of a training step in their order, and how to find the stage of an op.

#include <coracle/framework/ir/block.h>

#include <vector>

namespace coracle {

// See optimizer/training_step.cc for what each of them appends.
enum class TrainingStage {
  kForward,
  kScaleLoss,
  kBackward,
  kErrorClip,
  kCheckLoss,
  kAccumulate,
  kUnscale,
  kAverage,
  kClip,
  kSchedule,
  kDecay,
  kUpdate,
  kParameterAverages,
  kScaleUpdate,
  kOptimize,     // a stage of the update that the program does not identify
  kCommunicate,  // between ranks
};

// The value of op_role; kForward if it is not an integer in the range of int. Safe on unverified
// programs, unlike OpDesc::role(), which throws for such an attr.
int RoleOf(const OpDesc& op);

const char* ToString(TrainingStage stage);  // "gradient clip"

// The stage of each op of the block. op_role separates forward, backward and update; the op's
// slots and the names of its outputs identify the stage of an update. An update op without
// such a mark is an update (or a decay) if its op_role_var names a parameter; else it gets the
// stage of an op that reads its outputs, else the stage of the previous update op. Linear in the
// size of the block; safe on unverified programs.
std::vector<TrainingStage> StagesOf(const BlockDesc& block);

}  // namespace coracle
