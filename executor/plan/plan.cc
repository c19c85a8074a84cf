#include <coracle/executor/plan/plan.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::inline internal {

void PlanValue::SetMeta(const VarMeta& changed) {
  meta = changed;
  numel = IsDense() && meta.shape.IsKnown() ? meta.shape.numel() : 0;
}

std::string_view PlanStep::Name() const {
  return std::visit(Overloaded{[](const RunKernel& run) { return std::string_view(run.op_type); },
                               [](const CopyElements&) { return std::string_view("copy"); },
                               [](const StoreInCell&) { return std::string_view("store"); },
                               [](const SaveForGradient&) { return std::string_view("keep"); }},
                    action);
}

TensorArg Plan::ArgOf(ValueId value) const {
  const PlanValue& v = values[value];
  return {value.ToNumber(), v.meta.dtype, v.meta.shape, v.numel, v.meta.type};
}

std::string_view Plan::OutputOf(const PlanStep& step) const {
  return step.outputs.empty() ? std::string_view() : NameOf(values[step.outputs[0]]);
}

OpName Plan::NameOfStep(StepId id) const {
  const PlanStep& step = steps[id];
  return {std::string(step.Name()), std::string(OutputOf(step)), step.where};
}

size_t Plan::NumKnownNext() const {
  if (!next || next->shape_var.empty()) return 0;
  return (next->first_op == first_op ? guards.values.size() : 0) + 1;
}

std::string Plan::DescribeLargestTemporary() const {
  ValueId largest(0);
  for (ValueId value : values.ids()) {
    if (StorageOf(value).bytes > StorageOf(largest).bytes) largest = value;
  }
  std::string writer = "memory of an op's own";
  for (const PlanStep& step : steps) {
    for (ValueId output : step.outputs) {
      if (output == largest) writer = fmt::format("output of {}", step.Name());
    }
  }
  const PlanValue& value = values[largest];
  return fmt::format("the largest temporary is {} {} ({}); feed smaller batches or raise the limit",
                     value.name.empty() ? "scratch" : Quote(NameOf(value)),
                     MetaOf(value).ToString(), writer);
}

}  // namespace coracle::inline internal
