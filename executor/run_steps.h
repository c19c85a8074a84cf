#pragma once
// The loop over a frame's steps. Internal to executor/.

#include <coracle/communication/comm_context.h>
#include <coracle/executor/frame.h>
#include <coracle/framework/base/resource_limits.h>

#include <memory>

namespace coracle {

// What all activations of one run have in common.
struct ExecutionState {
  bool profile = false;
  Trace* trace = nullptr;  // that ops of this run are recorded in; nullptr: none
  bool check_nan_inf = false;
  uint64_t seed = 0;
  std::unique_ptr<CommContext> comm;  // nullptr: one rank
  Scope* scope = nullptr;
  std::shared_ptr<ResourceLimits> limits;  // of all frames and of what runs make
  double profiled_seconds = 0;             // of all steps so far, when they are timed
};

// Runs the steps of the frame's plan, each once. Errors and limits name the step. `in_root_block`:
// for those who observe values (value_observer.h).
void RunSteps(Frame& frame, ExecutionState& state, bool in_root_block);

}  // namespace coracle
