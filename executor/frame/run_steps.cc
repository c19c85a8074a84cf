#include <coracle/executor/frame/nan_check.h>
#include <coracle/executor/frame/run_steps.h>
#include <coracle/executor/frame/value_observer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <chrono>

namespace coracle::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

// Subtracts the time of steps in sub-blocks, which are timed separately.
void RunTimed(Frame& frame, StepId id, ExecutionState& state) {
  const double before = state.profiled_seconds;
  const Clock::time_point start = Clock::now();
  frame.Run(frame.plan().steps[id]);
  const double passed = std::chrono::duration<double>(Clock::now() - start).count();
  const double inside = state.profiled_seconds - before;
  state.profiled_seconds += passed - inside;
  frame.times()[id].seconds += passed - inside;
  ++frame.times()[id].runs;
}

void Perform(Frame& frame, StepId id, ExecutionState& state) {
  if (state.profile)
    RunTimed(frame, id, state);
  else
    frame.Run(frame.plan().steps[id]);
}

void PerformTraced(Frame& frame, StepId id, ExecutionState& state) {
  const TraceSpan span(*state.trace, frame.LabelIn(*state.trace, id));
  Perform(frame, id, state);
}

// For selected rows, the index in the message counts stored elements. Waits for exchanges, since
// their results are checked too.
void CheckFinite(Frame& frame, const PlanStep& step, ExecutionState& state) {
  if (state.comm && step.Name().starts_with("c_")) state.comm->WaitForAll();
  for (ValueId output : step.outputs) {
    const VarValue& held = frame.Held(output);
    const auto* rows = std::get_if<SelectedRows>(&held);
    const auto* tensor = rows ? &rows->value : std::get_if<Tensor>(&held);
    if (!tensor) continue;
    const int64_t index = FindNonFinite(tensor->raw(), tensor->dtype(), tensor->numel());
    if (index < 0) continue;
    const Plan& plan = frame.plan();
    const PlanValue& value = plan.values[output];
    const int64_t given = rows ? index : plan.origins->IndexOf(value.name, tensor->shape(), index);
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{}: output var {} {} has a nan or inf at index {}", step.Name(),
                            Quote(plan.NameOf(value)), plan.MetaOf(value).ToString(), given),
                "  " + step.where);
  }
}

// Steps that only move values (copies, cells) do not count as writes of a variable.
void ShowWritten(Frame& frame, const PlanStep& step, bool in_root_block,
                 const ValueObserver& observer) {
  if (!std::holds_alternative<RunKernel>(step.action)) return;
  for (ValueId output : step.outputs)
    observer({frame.plan().values[output].name, frame.Held(output), in_root_block});
}

void RunStep(Frame& frame, StepId id, ExecutionState& state) {
  const PlanStep& step = frame.plan().steps[id];
  state.limits->CheckTime([&] {
    return fmt::format("before {}{}{}", step.Name(), step.where.empty() ? "" : ", ", step.where);
  });
  if (state.trace)
    PerformTraced(frame, id, state);
  else
    Perform(frame, id, state);
  if (state.check_nan_inf) CheckFinite(frame, step, state);
}

// Adds the op to an error of a kernel, which does not name it. In nested blocks the innermost op
// is named.
[[noreturn]] void ThrowWithPlace(const Error& error, const Frame& frame, StepId at) {
  const bool stopped =
      error.code() == ErrorCode::kDeadlineExceeded || error.code() == ErrorCode::kCancelled;
  const std::string where = at ? frame.plan().steps[at].where : "";
  if (stopped || where.empty() || !error.details().empty()) throw;
  throw error.WithDetail(where);
}

}  // namespace

void RunSteps(Frame& frame, ExecutionState& state, bool in_root_block) {
  const ValueObserver* observer = ScopedValueObserver::Current();
  StepId at;
  try {
    NameOutOfMemory(
        [&] {
          for (StepId step : frame.plan().steps.ids()) {
            RunStep(frame, at = step, state);
            if (observer) ShowWritten(frame, frame.plan().steps[step], in_root_block, *observer);
          }
          // The values leave the frame now, so exchanges must be complete.
          if (state.comm) state.comm->WaitForAll();
        },
        [&] { return frame.plan().NameOfStep(at); });
  } catch (const Error& error) {
    ThrowWithPlace(error, frame, at);
  }
}

}  // namespace coracle::inline internal
