#include <coracle/executor/internal/activation.h>
#include <coracle/executor/internal/nan_check.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/out_of_memory.h>
#include <coracle/framework/tensor/rng.h>
#include <fmt/format.h>

namespace coracle {
namespace {

using Clock = std::chrono::steady_clock;

// Frames that a stage of a sub-block keeps for different shapes; the root block keeps one, since
// its frames are large.
constexpr size_t kMaxFrames = 8;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Activation::Activation(RunState& state, int32_t unit) : state_(state), unit_(unit) {}
Activation::~Activation() = default;

void Activation::Begin() {
  ++run_number_;
  for (VarCell& cell : own_) cell.set = false;
}

const std::vector<Tensor>& Activation::Run(std::span<const Tensor> feeds, uint64_t step) {
  Begin();
  size_t at = StageAt(0, 0);
  Frame* frame = &FrameFor(stages_[at], feeds, nullptr);
  RunStage(*frame, stages_[at], feeds, step);
  while (frame->plan()->next_op >= 0) {
    const Plan& before = *frame->plan();
    const std::vector<Tensor>& handed = stages_[at].fetched;
    const size_t next = StageAt(static_cast<size_t>(before.next_op), before.NumKnownNext());
    frame = &FrameFor(stages_[next], handed, &before);
    RunStage(*frame, stages_[next], handed, step);
    at = next;
  }
  return stages_[at].fetched;
}

size_t Activation::StageAt(size_t first_op, size_t known) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].first_op == first_op && stages_[i].known == known) return i;
  }
  stages_.push_back({first_op, known, {}, {}});
  return stages_.size() - 1;
}

Frame& Activation::FrameFor(Stage& stage, std::span<const Tensor> feeds, const Plan* before) {
  const Scope& scope = *state_.scope;
  for (size_t i = 0; i < stage.frames.size(); ++i) {
    Frame& frame = *stage.frames[i];
    if (!Frame::Fits(*frame.plan(), before, feeds, slots_, scope)) continue;
    if (!frame.StillFits(scope) && !Frame::FitsScope(*frame.plan(), scope)) continue;
    std::rotate(stage.frames.begin(), stage.frames.begin() + static_cast<ptrdiff_t>(i),
                stage.frames.begin() + static_cast<ptrdiff_t>(i) + 1);
    return *stage.frames.front();
  }
  std::shared_ptr<const Plan> plan =
      state_.compiled->GetPlan(unit_, stage.first_op, before, feeds, slots_, scope);
  if (stage.frames.size() >= (unit_ == 0 ? 1 : kMaxFrames)) stage.frames.pop_back();  // its memory
  Adopt(*plan);
  stage.frames.insert(stage.frames.begin(), std::make_unique<Frame>(std::move(plan), *this));
  return *stage.frames.front();
}

// Cells for the slots that the plan knows.
void Activation::Adopt(const Plan& plan) {
  if (slots_.size() < plan.own_slots.size()) slots_.resize(plan.own_slots.size(), nullptr);
  for (size_t i = 0; i < plan.own_slots.size(); ++i) {
    if (plan.own_slots[i] && !slots_[i]) slots_[i] = &own_.emplace_back();
  }
}

void Activation::RunStage(Frame& frame, Stage& stage, std::span<const Tensor> feeds,
                          uint64_t step) {
  frame.Bind(*state_.scope, feeds);
  frame.SetRun(state_.compiled->seed(), step);
  RunSteps(frame);
  const Plan& plan = *frame.plan();
  stage.fetched.resize(plan.fetch_values.size());
  for (size_t i = 0; i < plan.fetch_values.size(); ++i)
    frame.Fetch(plan.fetch_values[i], unit_ == 0 && plan.next_op < 0, &stage.fetched[i]);
}

void Activation::RunSteps(Frame& frame) {
  const std::vector<PlanStep>& steps = frame.plan()->steps;
  size_t i = 0;
  NameOutOfMemory(
      [&] {
        for (; i < steps.size(); ++i) RunStep(frame, i);
      },
      [&] { return frame.plan()->NameOfStep(i); });
}

void Activation::RunStep(Frame& frame, size_t i) {
  const CompileOptions& options = state_.compiled->options();
  const PlanStep& step = frame.plan()->steps[i];
  state_.limits->CheckTime([&] {
    return fmt::format("before op {} of {} ({})", i + 1, frame.plan()->steps.size(), step.op_type);
  });
  if (!options.profile) {
    step.kernel(frame);
  } else {
    RunTimed(frame, i);
  }
  if (options.check_nan_inf) CheckFinite(frame, step);
}

// What the kernel spends in ops of sub-blocks is theirs.
void Activation::RunTimed(Frame& frame, size_t step) {
  const double before = state_.profiled;
  const Clock::time_point start = Clock::now();
  frame.plan()->steps[step].kernel(frame);
  const double own = SecondsSince(start) - (state_.profiled - before);
  state_.profiled += own;
  frame.times()[step].seconds += own;
  ++frame.times()[step].runs;
}

// In selected rows: the index among the stored elements.
void Activation::CheckFinite(Frame& frame, const PlanStep& step) const {
  for (int32_t v : step.outputs) {
    const PlanValue& value = frame.plan()->values[static_cast<size_t>(v)];
    const VarValue& held = frame.ValueOf(frame.ArgOf(v));
    const auto* rows = std::get_if<SelectedRows>(&held);
    const auto* tensor = rows ? &rows->value : std::get_if<Tensor>(&held);
    if (!tensor) continue;
    const int64_t index = FindNonFinite(tensor->raw(), tensor->dtype(), tensor->numel());
    if (index < 0) continue;
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{}: output var {} {} has a nan or inf at index {}", step.op_type,
                            Quote(value.name), value.meta.ToString(), index),
                "  " + step.where);
  }
}

// --- sub-blocks ---

Activation& Activation::Child(const SubBlockUse& use) {
  const size_t site = static_cast<size_t>(use.site);
  if (children_.size() <= site) children_.resize(site + 1);
  if (!children_[site]) children_[site] = std::make_unique<Activation>(state_, use.unit);
  return *children_[site];
}

void Activation::BindSlot(int32_t slot, VarCell* cell) {
  const size_t i = static_cast<size_t>(slot);
  if (slots_.size() <= i) slots_.resize(i + 1, nullptr);
  slots_[i] = cell;
}

VarCell& Activation::View(size_t binding) {
  while (views_.size() <= binding) views_.emplace_back();
  return views_[binding];
}

void Activation::RunInside(uint64_t outer_run, uint64_t step, int block, StepScopes::Step* keep) {
  if (outer_run != outer_run_) runs_inside_ = 0;
  outer_run_ = outer_run;
  state_.limits->CheckTime([] { return std::string("in a sub-block"); });
  keep_ = keep;
  Run({}, InnerStep(step, block, runs_inside_++));
}

void Activation::CollectTimes(std::vector<OpTime>* times) const {
  for (const Stage& stage : stages_) {
    for (const auto& frame : stage.frames)
      times->insert(times->end(), frame->times().begin(), frame->times().end());
  }
  for (const auto& child : children_) {
    if (child) child->CollectTimes(times);
  }
}

uint64_t Activation::Bytes() const {
  uint64_t bytes = 0;
  for (const Stage& stage : stages_) {
    for (const auto& frame : stage.frames)
      bytes += frame->plan()->FrameBytes() + frame->plan()->constant_bytes + frame->ValueBytes();
  }
  for (const auto& child : children_) {
    if (child) bytes += child->Bytes();
  }
  return bytes;
}

}  // namespace coracle
