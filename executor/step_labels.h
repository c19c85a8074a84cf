#pragma once
// What a trace says of the steps of a plan. Internal to executor/.

#include <coracle/executor/plan.h>
#include <coracle/framework/base/trace.h>

namespace coracle {

// The label of each step: op type, output with its type, kernel, place of the op, also as `ops`,
// the pairs (block, op) of its origins, and how much of the plan's arena is in use while the step
// runs.
IdVector<StepId, Trace::LabelId> AddStepLabels(const Plan& plan, Trace& trace);

}  // namespace coracle
