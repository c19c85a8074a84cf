#include <coracle/executor/activation.h>
#include <coracle/framework/tensor/rng.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// How many frames a stage of a sub-block keeps, for different shapes. The root block keeps only
// one, since its frames are large.
constexpr size_t kMaxFrames = 8;

template <class T>
T& Alternative(VarValue& value) {
  T* held = std::get_if<T>(&value);
  return held ? *held : value.emplace<T>();
}

// Makes an empty value of the type, reusing the memory of the previous value if possible.
void MakeEmpty(VarType type, VarCell* cell) {
  if (type == VarType::kLoDTensorArray) {
    Alternative<TensorArray>(cell->value).clear();
  } else if (type == VarType::kStepScopes) {
    auto& scopes = Alternative<std::shared_ptr<StepScopes>>(cell->value);
    if (!scopes) scopes = std::make_shared<StepScopes>();
    scopes->clear();
  } else if (type == VarType::kLoDRankTable) {
    Alternative<RankTable>(cell->value);
  } else if (type == VarType::kSelectedRows) {
    Alternative<SelectedRows>(cell->value);
  }
  cell->set = true;
}

}  // namespace

Activation::Activation(ExecutionState& state, PlanCache& plans, ProcedureId procedure)
    : state_(state), plans_(plans), procedure_(procedure) {}
Activation::~Activation() = default;

// --- stages ---

const std::vector<Tensor>& Activation::Run(std::span<const Tensor> feeds, uint64_t step,
                                           StepScopes::Step* save_to) {
  ++run_number_;
  for (VarCell& cell : own_cells_) cell.set = false;
  const RunNumbers run{state_.seed, step, save_to, state_.comm.get()};
  Stage* stage = &StageAt(0, 0);
  const Plan* plan = &RunStage(*stage, nullptr, feeds, run);
  while (plan->next) {
    Stage& next = StageAt(plan->next->first_op, plan->NumKnownNext());
    plan = &RunStage(next, plan, stage->results, run);
    stage = &next;
  }
  return stage->results;
}

const Plan& Activation::RunStage(Stage& stage, const Plan* before, std::span<const Tensor> feeds,
                                 const RunNumbers& run) {
  Frame& frame = FrameFor(stage, {before, feeds, cells_, *state_.scope});
  const Plan& plan = frame.plan();
  EmptyNewCells(plan);
  frame.Begin(*state_.scope, feeds, run);
  RunSteps(frame, state_, IsRoot());
  const bool to_caller = IsRoot() && !plan.next;
  stage.results.resize(plan.results.size());
  for (size_t i = 0; i < plan.results.size(); ++i)
    frame.Fetch(plan.results[i], to_caller, &stage.results[i]);
  return plan;
}

Activation::Stage& Activation::StageAt(size_t first_op, size_t known_values) {
  for (Stage& stage : stages_) {
    if (stage.first_op == first_op && stage.known_values == known_values) return stage;
  }
  stages_.push_back({first_op, known_values, {}, {}});
  return stages_.back();
}

Frame& Activation::FrameFor(Stage& stage, const StageInput& input) {
  if (Frame* frame = FindFrame(stage, input)) return *frame;
  std::shared_ptr<const Plan> plan = plans_.Get(procedure_, stage.first_op, input);
  // The old frame is freed before the new one allocates, so that they are never in memory at the
  // same time.
  if (stage.frames.size() >= (IsRoot() ? 1 : kMaxFrames)) stage.frames.pop_back();
  AddCells(*plan);
  auto frame = std::make_unique<Frame>(std::move(plan), cells_, *this);
  stage.frames.insert(stage.frames.begin(), std::move(frame));
  return *stage.frames.front();
}

Frame* Activation::FindFrame(Stage& stage, const StageInput& input) {
  for (auto it = stage.frames.begin(); it != stage.frames.end(); ++it) {
    const Frame& frame = **it;
    if (!GuardsHold(frame.plan(), input)) continue;
    // MatchesScope looks up every name in the scope, so it is called only if the scope has changed.
    if (!frame.StillMatches(input.scope) && !MatchesScope(frame.plan(), input.scope)) continue;
    std::rotate(stage.frames.begin(), it, it + 1);
    return stage.frames.front().get();
  }
  return nullptr;
}

void Activation::AddCells(const Plan& plan) {
  if (cells_.size() < plan.cells.size()) cells_.resize(plan.cells.size());
  for (CellId cell : plan.cells.ids()) {
    if (plan.cells[cell] == CellOwner::kActivation && !cells_[cell])
      cells_[cell] = &own_cells_.emplace_back();
  }
}

void Activation::EmptyNewCells(const Plan& plan) {
  for (const auto& [cell, type] : plan.new_cells) {
    if (!cells_[cell]->set) MakeEmpty(type, cells_[cell]);
  }
}

// --- sub-blocks ---

void Activation::Call(const BlockCall& call, Frame& caller, StepScopes::Step* save_to,
                      StepScopes::Step* saved) {
  Activation& child = ChildAt(call);
  for (size_t i = 0; i < call.bindings.size(); ++i)
    child.BindCell(call.bindings[i].inner, Resolve(call, i, caller, saved, child));
  const uint64_t run = child.CountRunInside(run_number_);
  state_.limits->CheckTime([] { return std::string("in a sub-block"); });
  child.Run({}, InnerStep(caller.step(), call.block, run), save_to);
}

Activation& Activation::ChildAt(const BlockCall& call) {
  if (!children_.Has(call.site)) children_.resize(call.site.index() + 1);
  std::unique_ptr<Activation>& child = children_[call.site];
  if (!child) child = std::make_unique<Activation>(state_, plans_, call.procedure);
  return *child;
}

VarCell* Activation::Resolve(const BlockCall& call, size_t binding, Frame& caller,
                             StepScopes::Step* saved, Activation& child) {
  return std::visit(
      Overloaded{[](NoValue) -> VarCell* { return nullptr; },
                 [&](CellId cell) { return cells_[cell]; },
                 [&](ArgumentCell argument) {
                   cells_[argument.cell]->set = true;
                   return cells_[argument.cell];
                 },
                 [&](ValueId value) { return child.ViewAt(binding, caller.Held(value)); },
                 [&](SavedItem value) {
                   return saved && value.index < saved->size() ? &(*saved)[value.index] : nullptr;
                 }},
      call.bindings[binding].source);
}

// A value that the block only reads stays in the caller's frame; the cell holds a view of it.
VarCell* Activation::ViewAt(size_t binding, const VarValue& value) {
  while (views_.size() <= binding) views_.emplace_back();
  VarCell& view = views_[binding];
  view.value = value;
  view.set = true;
  return &view;
}

void Activation::BindCell(CellId cell, VarCell* bound) {
  if (!cells_.Has(cell)) cells_.resize(cell.index() + 1);
  cells_[cell] = bound;
}

// Counts the runs within one run of the caller. Random ops of the block use this number
// (InnerStep), so a loop draws new numbers in each round, but the same ones in each repetition of
// a step.
uint64_t Activation::CountRunInside(uint64_t outer_run) {
  if (outer_run != outer_run_) runs_inside_ = 0;
  outer_run_ = outer_run;
  return runs_inside_++;
}

}  // namespace coracle::inline internal
