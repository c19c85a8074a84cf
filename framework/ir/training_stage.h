#pragma once
// The stages of a training step in their order, and the parts of a step that callers look up. The
// code that appends an op of the step says in attrs of the op what it is; no code guesses it from
// the names of variables.

#include <coracle/framework/ir/program.h>

#include <optional>
#include <string>
#include <string_view>
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

const char* ToString(TrainingStage stage);  // "gradient clip"
std::optional<TrainingStage> FindStage(std::string_view title);

// The ops of a stage that callers look up.
enum class TrainingPart {
  kNone,
  kCounter,     // counts the steps of a schedule, or the norms of a clip
  kRate,        // writes the learning rate of a schedule; of: the counter
  kNorm,        // keeps the norm of a clip
  kLimit,       // fill_constant: the limit of a norm
  kStatistics,  // clip_statistics
  kFinite,      // updates the flag whether all gradients that entered error clips are finite
};

// The place of an op in a training step.
struct TrainingMark {
  std::optional<TrainingStage> stage = {};
  TrainingPart part = TrainingPart::kNone;
  // The owner of the op: the variable whose gradient an error clip clips, or the name under
  // which a gradient clip is reported ("default_group").
  std::string of = {};
};

// The attrs of the mark: STRINGs. Empty ones are not written.
inline constexpr const char* kTrainingStageAttr = "training_stage";  // "gradient clip"
inline constexpr const char* kTrainingPartAttr = "training_part";    // "norm"
inline constexpr const char* kTrainingOfAttr = "training_of";

// Adds the attrs of the mark that the op does not have yet.
void SetMark(OpDesc& op, const TrainingMark& mark);
// Does so for the ops of the block from index `first` on.
void SetMarks(BlockDesc& block, size_t first, const TrainingMark& mark);
// Reads them back. Safe on unverified programs.
TrainingMark MarkOf(const OpDesc& op);

// The stage of the op's mark. Without a mark, as in programs of Paddle, the op_role decides; an op
// of the role Optimize is an update if it has an input Param or its op_role_var names a parameter.
// Safe on unverified programs.
TrainingStage StageOf(const OpDesc& op);

// The first op of the block that is this part of the stage; nullptr if there is none.
const OpDesc* FindPart(const BlockDesc& block, TrainingStage stage, TrainingPart part);

// Parts of the training step of a program, by the names of their variables.
struct TrainingParts {
  struct Schedule {
    std::string rate, counter;
  };
  // A clip by norm, of the stage kClip.
  struct NormClip {
    std::string of;
    std::string norm;     // the norms before the clip, float [n]
    std::string counter;  // the number of steps so far, int64 [1]
    double limit = 0;
  };
  // A clip that an op clip_statistics counts, of the stage kClip or kErrorClip.
  struct CountedClip {
    TrainingStage stage;
    std::string of;
    std::string statistics;  // float64 [3]
  };
  std::vector<std::string> rates;  // the learning rates of the update ops
  std::vector<Schedule> schedules;
  std::vector<NormClip> norm_clips;
  std::vector<CountedClip> counted_clips;
  // bool [1], persistable: whether all gradients that entered error clips are finite.
  std::vector<std::string> finite_flags;
};

// The parts in the order of their first ops. Only rates are found in a program without marks.
// Linear in the size of the program, which must be verified.
TrainingParts PartsOf(const ProgramDesc& program);

}  // namespace coracle
