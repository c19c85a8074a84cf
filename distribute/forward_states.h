#pragma once
// ForwardStates: the persistable variables that forward ops change by a rank's rows, or by what the
// rank draws. Internal to the folder distribute/.

#include <coracle/distribute/part_values.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

struct ForwardStates {
  // Running statistics (RowRule::kStatistic) that no other op of the model reads, so that no step
  // depends on them. By name.
  std::vector<std::string> statistics;
  // Float variables that an op reads before one writes them, so that a step depends on the steps
  // before it. After the op `last` of the root block they are complete. By name.
  struct State {
    std::string name;
    const OpDesc* last;
  };
  std::vector<State> states;
  // All others, which have no mean: results of a step, and variables that are not dense float
  // tensors of a known shape in the root block. By name.
  std::vector<std::string> own;
};

// Variables that are equal on all ranks, such as a step counter or the outputs of sync_batch_norm,
// are left out.
ForwardStates FindForwardStates(const ProgramDesc& main, const OpRegistry& ops,
                                const PartValues& parts);

}  // namespace coracle::inline internal
