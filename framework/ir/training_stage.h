#pragma once
// The stages of a training step in their order, and how the ops of a program tell theirs.

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
  kOptimize,     // some stage of the update: the program does not tell which
  kCommunicate,  // between ranks
};

// op_role; kForward where it is no number that an int holds. For programs that were never verified:
// OpDesc::role() throws there.
int RoleOf(const OpDesc& op);

const char* ToString(TrainingStage stage);  // "gradient clip"

// The stage of each op of the block: op_role tells forward, backward and update apart, and slots
// and the names of what is written tell the stages of an update. An op without such a mark
// belongs to the parameter in its op_role_var, else to the stage that reads what it writes, else
// to the stage of the update before it. Linear in the size of the block; safe on programs that
// were never verified.
std::vector<TrainingStage> StagesOf(const BlockDesc& block);

}  // namespace coracle
