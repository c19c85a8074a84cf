#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/non_finite.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

constexpr const char* kAdvice =
    "lower the learning rate, or look for the first bad op with --check_nan_inf";

bool AllFinite(const Tensor& values) {
  const Tensor x = PartsOf(values);
  bool finite = true;
  DispatchDType(x.dtype(), [&]<class T>() {
    for (const T value : x.span<T>()) finite &= std::isfinite(static_cast<double>(value));
  });
  return finite;
}

}  // namespace

std::string NonFiniteLosses::Step(int64_t step, double loss) {
  if (std::isfinite(loss)) {
    counts_.in_a_row = 0;
    return "";
  }
  if (counts_.steps++ == 0) counts_.first = step;
  ++counts_.in_a_row;
  const NonFiniteLoss policy = config_.training.non_finite_loss;
  const std::string what = fmt::format("the loss is {} at step {}", FormatNumber(loss), step);
  if (policy == NonFiniteLoss::kStop)
    ThrowInvalid(fmt::format("{}: {}; {}", config_.source, what, kAdvice));
  if (policy == NonFiniteLoss::kSkip && counts_.in_a_row == kMostSkipped) {
    ThrowInvalid(
        fmt::format("{}: {}, and was not finite in the {} steps before, which were all "
                    "skipped; {}",
                    config_.source, what, kMostSkipped - 1, kAdvice));
  }
  if (counts_.in_a_row > 1) return "";
  return what + (policy == NonFiniteLoss::kSkip
                     ? ": the step is skipped"
                     : ": its update is made all the same, as non_finite_loss says");
}

std::string NonFiniteLosses::Parameters(const ProgramDesc& program, const Scope& scope,
                                        int64_t step) {
  if (looked_at_ == step) return "";
  looked_at_ = step;
  const std::vector<std::string> names = program.Parameters();
  const auto bad = std::find_if(names.begin(), names.end(), [&scope](const std::string& name) {
    return !AllFinite(scope.Get(name));
  });
  if (bad == names.end()) return "";
  const std::string what =
      fmt::format("the parameter {} is not finite after step {}", Quote(*bad), step);
  if (config_.training.non_finite_loss == NonFiniteLoss::kStop)
    ThrowInvalid(fmt::format("{}: {}; nothing of it is saved; {}", config_.source, what, kAdvice));
  return what;
}

}  // namespace coracle::inline internal
