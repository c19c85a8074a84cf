#pragma once
// The loop over a frame's steps. Internal to executor/.

#include <coracle/communication/comm_context.h>
#include <coracle/executor/frame/frame.h>
#include <coracle/framework/base/resource_limits.h>

#include <memory>

namespace coracle::inline internal {

// The state shared by all activations of one run.
struct ExecutionState {
  bool profile = false;
  Trace* trace = nullptr;  // records the ops of this run; nullptr: none
  bool check_nan_inf = false;
  uint64_t seed = 0;
  std::unique_ptr<CommContext> comm;  // nullptr: one rank
  Scope* scope = nullptr;
  std::shared_ptr<ResourceLimits> limits;  // for all frames and for memory allocated by runs
  double profiled_seconds = 0;             // total of all timed steps so far
};

// Runs each step of the frame's plan once. Errors and limits name the step. `in_root_block` is
// passed on to observers (value_observer.h).
void RunSteps(Frame& frame, ExecutionState& state, bool in_root_block);

}  // namespace coracle::inline internal
