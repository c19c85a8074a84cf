#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/internal/schedule_formula.h>
#include <coracle/optimizer/lr_schedule.h>
#include <coracle/optimizer/optimizer.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {

using namespace formula;  // NOLINT: the functions on numbers

namespace {

double EvaluateAt(const LrSchedule& schedule, double t) {
  return schedule.At(static_cast<int64_t>(t));
}
Variable EvaluateAt(const LrSchedule& schedule, const Variable& t) { return schedule.Append(t); }

// The counter of the block, which an op increments once per run before any op reads it.
std::string CounterOf(const Writer& w, ProgramDesc& startup) {
  ProgramDesc& main = w.block().program();
  const OpDesc* counts = FindPart(w.block(), TrainingStage::kSchedule, TrainingPart::kCounter);
  if (counts) return counts->Output("Out").at(0);
  const std::string name =
      MakeState(main, startup, main.FreeName(kStepCounter), DType::kInt64, {1}, -1);
  w.Part(TrainingPart::kCounter).Into(name, "increment", {{"X", {name}}}, {{"step", 1.0f}});
  return name;
}

}  // namespace

std::string AppendLrSchedule(const LrSchedule& schedule, BlockDesc& block, ProgramDesc& startup,
                             DType dtype) {
  const EditGuard guard(block.program(), startup);
  ProgramDesc& main = block.program();
  const Writer w(block, DefaultOps(),
                 {.role = kLRSched,
                  .mark = {.stage = TrainingStage::kSchedule},
                  .name = [&main](const std::string&) { return main.UniqueName("lr_schedule"); },
                  .stop_gradient = true});
  const std::string counter = CounterOf(w, startup);
  const Variable t = Cast(w.Var(counter), DType::kFloat64);
  const Writer result = w.Part(TrainingPart::kRate, counter);
  const SlotList rate = {{"X", {schedule.Append(t).name()}}};
  const AttrList attrs = CastAttrs(DType::kFloat64, dtype);
  if (block.idx() == 0) return result.Make("cast", rate, attrs).name();
  std::string kept =
      MakeState(main, startup, main.UniqueName("learning_rate"), dtype, {1}, schedule.At(0));
  result.Into(kept, "cast", rate, attrs);
  return kept;
}

void internal::RequireRate(const char* schedule, double rate) {
  if (rate >= 0 && std::isfinite(rate)) return;
  ThrowInvalid(fmt::format(
      "learning-rate schedule {}: a rate must be finite and not negative, got {}", schedule, rate));
}

LrSchedulePtr FixedRate(double rate) {
  RequireRate("fixed", rate);
  return Schedule([=](const auto& t) { return Number(t, rate); });
}

LrSchedulePtr WarmupRate(const LrSchedulePtr& after, int64_t steps, double start, double end) {
  if (!after) ThrowInvalid("learning-rate schedule warmup: there is no schedule after it");
  RequireRate("warmup", start);
  RequireRate("warmup", end);
  if (steps <= 0) {
    ThrowInvalid(
        fmt::format("learning-rate schedule warmup: steps must be positive, got {}", steps));
  }
  const double all = static_cast<double>(steps);
  return Schedule([=](const auto& t) {
    const auto rising = start + (end - start) * (t / all);
    return IfLess(t, all, rising, EvaluateAt(*after, t));
  });
}

LrSchedulePtr SequenceRate(const std::vector<std::pair<int64_t, LrSchedulePtr>>& parts) {
  std::vector<int64_t> firsts;
  for (const auto& [first, schedule] : parts) {
    firsts.push_back(first);
    if (!schedule) ThrowInvalid("learning-rate schedule sequence: a part has no schedule");
  }
  RequireAscending("sequence", "steps", firsts);
  if (parts.empty() || firsts.front() != 0) {
    ThrowInvalid(
        fmt::format("learning-rate schedule sequence: the first part must begin at step 0, got {}",
                    firsts.empty() ? -1 : firsts.front()));
  }
  return Schedule([=](const auto& t) {
    // A part that has not begun is evaluated at its first step, and the result is not used.
    const auto since = [&](int64_t first) { return Max(t - static_cast<double>(first), 0.0); };
    auto rate = EvaluateAt(*parts.front().second, t);
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto& [first, schedule] = parts[i];
      rate = IfLess(t, static_cast<double>(first), rate, EvaluateAt(*schedule, since(first)));
    }
    return rate;
  });
}

}  // namespace coracle
