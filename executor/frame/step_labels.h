#pragma once
// The labels of a plan's steps in a trace. Internal to executor/.

#include <coracle/executor/plan/plan.h>
#include <coracle/framework/base/trace.h>

namespace coracle::inline internal {

// The label of each step: op type, output with its type, kernel, and place of the op. The arg `ops`
// has the place as pairs (block, op) of its origins; the workspace is the part of the plan's arena
// in use during the step.
IdVector<StepId, Trace::LabelId> AddStepLabels(const Plan& plan, Trace& trace);

}  // namespace coracle::inline internal
