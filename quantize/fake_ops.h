#pragma once
// Ops of training with quantisation: which ops round operands, and the names of their state.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle::inline internal {

enum class FakeKind {
  kNone,     // another op
  kTensor,   // the scale is the largest absolute value of the tensor
  kChannel,  // the same for each channel
  kAverage,  // a moving average of the largest absolute values of batches
  kLearned,  // the step is a parameter
};
FakeKind FakeKindOf(const OpDesc& op);
// Whether the op computes the gradients of a kLearned op.
bool IsLearnedGrad(const OpDesc& op);

inline constexpr const char* kFakeAverage = "fake_quantize_dequantize_moving_average_abs_max";
inline constexpr const char* kFakeChannel = "fake_channel_wise_quantize_dequantize_abs_max";
inline constexpr const char* kFakeLearned = "fake_quantize_dequantize_learned_step";

// The variables of the moving average of an activation.
struct RangeNames {
  explicit RangeNames(const std::string& activation)
      : range(activation + "@RANGE"), sum(range + "_SUM"), count(range + "_COUNT") {}
  std::string range, sum, count;
};
// The learned step of an activation or a weight (`axis` distinguishes a second one of a weight),
// and the activation or weight that a step belongs to.
std::string StepName(const std::string& of);
std::string StepName(const std::string& of, int axis);
std::string WeightOfStep(const std::string& step);

}  // namespace coracle::inline internal
