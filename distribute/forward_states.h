#pragma once
// ForwardStates: the persistable variables that forward ops change by a rank's rows. Internal to
// distribute/.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <string>
#include <vector>

namespace coracle {

struct ForwardStates {
  // Running statistics (MeanOut and VarianceOut of batch_norm) that no other op of the model reads:
  // no step depends on them. By name.
  std::vector<std::string> statistics;
  // Variables of floats that an op reads before one writes them, so that a step depends on those
  // before it; behind the op `last` of the root block they are complete. By name.
  struct State {
    std::string name;
    const OpDesc* last;
  };
  std::vector<State> states;
  // All others, of which there is no mean: what a step computes anew, and what is no dense tensor
  // of floats with a known shape in the root block. By name.
  std::vector<std::string> own;
};

// What depends on no feed and no draw, such as a counter of steps, all ranks have the same of, and
// so they have of what sync_batch_norm writes.
ForwardStates FindForwardStates(const ProgramDesc& main, const OpRegistry& ops);

}  // namespace coracle
