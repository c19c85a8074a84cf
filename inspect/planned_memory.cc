#include <coracle/executor/compiled_program.h>
#include <coracle/executor/plan/memory_plan.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/planned_memory.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

Tensor FeedOf(const ProgramDesc& program, const std::string& name) {
  const VarDesc* var = program.Root().FindVar(name);
  if (!var) return Tensor();
  Shape shape;
  for (int i = 0; i < var->shape().rank(); ++i)
    shape.Append(std::max<int64_t>(var->shape()[i], var->shape()[i] < 0 ? 1 : 0));
  return Tensor(var->dtype(), shape);
}

void AddSteps(const Plan& plan, PlannedMemory* memory) {
  for (const PlanStep& step : plan.steps)
    memory->steps.push_back({std::string(step.Name()), std::string(plan.OutputOf(step))});
  if (!plan.next) return;
  memory->ends =
      fmt::format("the plan ends after {} steps: shapes depend on {}", plan.steps.size(),
                  plan.next->shape_var.empty() ? "what only the run knows"
                                               : "the value of " + Quote(plan.next->shape_var));
}

void AddStorages(const Plan& plan, PlannedMemory* memory) {
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> place(plan.storages.size(), kNone);
  const size_t steps = plan.steps.size();
  std::vector<int64_t> change(steps + 1, 0);
  for (StorageId id : plan.storages.ids()) {
    const Storage& s = plan.storages[id];
    if (!s.IsIn<InArena>() || s.bytes == 0 || !s.first || steps == 0) continue;
    const size_t first = std::min(s.first.index(), steps - 1);
    const size_t last = std::min(std::max(s.first, s.last).index(), steps - 1);
    place[id.index()] = memory->storages.size();
    memory->storages.push_back({{}, s.offset, s.bytes, first, last});
    change[first] += static_cast<int64_t>(AlignedBytes(s.bytes));
    change[last + 1] -= static_cast<int64_t>(AlignedBytes(s.bytes));
  }
  for (const PlanValue& value : plan.values) {
    if (!value.storage || value.name.empty() || place[value.storage.index()] == kNone) continue;
    std::vector<std::string>& names = memory->storages[place[value.storage.index()]].names;
    if (std::find(names.begin(), names.end(), value.name) == names.end())
      names.push_back(value.name);
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < steps; ++i)
    memory->in_use.push_back(static_cast<uint64_t>(bytes += change[i]));
}

}  // namespace

PlannedMemory PlanMemory(const ProgramDesc& program, const Scope& values, const OpRegistry& ops) {
  std::vector<std::string> feeds, fetches;
  if (!HasOpOfKind(program.Root(), OpKind::kFeed, ops)) feeds = InputNames(program, ops);
  if (!HasOpOfKind(program.Root(), OpKind::kFetch, ops)) fetches = OutputNames(program, ops);
  const CompiledProgram compiled(program, feeds, fetches, {}, ops, {&values, nullptr});
  std::vector<Tensor> inputs;
  for (const std::string& name : compiled.feeds()) inputs.push_back(FeedOf(program, name));
  const Cells none;
  const std::shared_ptr<const Plan> plan =
      compiled.plans().Get(kRootProcedure, 0, {nullptr, inputs, none, values});
  PlannedMemory memory;
  AddSteps(*plan, &memory);
  AddStorages(*plan, &memory);
  memory.arena_bytes = plan->arena_bytes;
  memory.result_bytes = plan->result_bytes;
  memory.constant_bytes = plan->constant_bytes;
  return memory;
}

}  // namespace coracle::inline internal
