#include <coracle/quantize/fake_ops.h>

#include <string_view>

namespace coracle::inline internal {
namespace {

constexpr std::string_view kStepSuffix = "@STEP", kAxisMark = "_OF_AXIS_";

}  // namespace

FakeKind FakeKindOf(const OpDesc& op) {
  const std::string& type = op.type();
  if (type == "fake_quantize_dequantize_abs_max") return FakeKind::kTensor;
  if (type == kFakeChannel) return FakeKind::kChannel;
  if (type == kFakeAverage) return FakeKind::kAverage;
  return type == kFakeLearned ? FakeKind::kLearned : FakeKind::kNone;
}

bool IsLearnedGrad(const OpDesc& op) { return op.type() == std::string(kFakeLearned) + "_grad"; }

std::string StepName(const std::string& of) { return of + std::string(kStepSuffix); }

std::string StepName(const std::string& of, int axis) {
  return StepName(of) + std::string(kAxisMark) + std::to_string(axis);
}

std::string WeightOfStep(const std::string& step) {
  return step.substr(0, step.rfind(kStepSuffix));
}

}  // namespace coracle::inline internal
