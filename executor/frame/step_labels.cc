#include <coracle/executor/frame/step_labels.h>
#include <coracle/executor/plan/memory_plan.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// The bytes of the arena storages that are live during each step.
IdVector<StepId, int64_t> ArenaInUse(const Plan& plan) {
  IdVector<StepId, int64_t> bytes;
  bytes.resize(plan.steps.size() + 1);
  for (const Storage& storage : plan.storages) {
    if (!storage.IsIn<InArena>() || storage.bytes == 0 || !storage.first) continue;
    const auto size = static_cast<int64_t>(AlignedBytes(storage.bytes));
    const size_t after = std::max(storage.first, storage.last).index() + 1;
    bytes[storage.first] += size;
    bytes[StepId(std::min(after, plan.steps.size()))] -= size;
  }
  for (size_t i = 1; i < bytes.size(); ++i) bytes[StepId(i)] += bytes[StepId(i - 1)];
  return bytes;
}

TraceLabel LabelOf(const Plan& plan, const PlanStep& step) {
  TraceLabel label{"op", std::string(step.Name())};
  const auto add = [&label](const char* key, std::string text) {
    if (!text.empty()) label.args.emplace_back(key, std::move(text));
  };
  label.args.emplace_back("type", label.name);
  add("output", std::string(plan.OutputOf(step)));
  if (!step.outputs.empty()) add("shape", plan.MetaOf(plan.values[step.outputs[0]]).ToString());
  if (const auto* run = std::get_if<RunKernel>(&step.action)) add("kernel", run->how);
  add("place", step.where);
  TraceLabel::Pairs ops;
  for (const OpOrigin& origin : step.origins) ops.push_back({origin.block, origin.op});
  if (!ops.empty()) label.args.emplace_back("ops", std::move(ops));
  return label;
}

}  // namespace

IdVector<StepId, Trace::LabelId> AddStepLabels(const Plan& plan, Trace& trace) {
  const IdVector<StepId, int64_t> in_use = ArenaInUse(plan);
  IdVector<StepId, Trace::LabelId> labels;
  for (StepId id : plan.steps.ids()) {
    TraceLabel label = LabelOf(plan, plan.steps[id]);
    label.workspace = in_use[id];
    labels.Add(trace.AddLabel(std::move(label)));
  }
  return labels;
}

}  // namespace coracle::inline internal
