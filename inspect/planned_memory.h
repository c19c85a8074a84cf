#pragma once
// The memory of a program's run as planned before the run.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct PlannedStep {
  std::string op_type;  // "conv2d", or "copy", "store", "keep" for ops that the executor adds
  std::string output;   // its first output; "" if it has none
};

// A range of the arena and the steps during which it is in use. Several variables may share it.
struct PlannedStorage {
  std::vector<std::string> names;  // empty: internal memory of an op
  uint64_t offset = 0, bytes = 0;
  size_t first = 0, last = 0;
};

struct PlannedMemory {
  std::vector<PlannedStep> steps;  // steps of the compiled program, in which passes have fused ops
  std::vector<PlannedStorage> storages;
  std::vector<uint64_t> in_use;  // bytes of the arena at each step
  uint64_t arena_bytes = 0;
  uint64_t result_bytes = 0;    // memory that the caller may read after the run
  uint64_t constant_bytes = 0;  // memory that the planner computed in advance
  // Where the plan ends because shapes depend on values of the run: "from step 12 on ..."; "" if it
  // is complete. Excludes the memory of sub-blocks, which are planned when they run.
  std::string ends = "";
};

// Compiles and plans the root block without running it. Unknown dims of the inputs count as 1.
// Freezes parameters in `values`, as `coracle run` does. Throws the errors of compiling.
PlannedMemory PlanMemory(const ProgramDesc& program, const Scope& values, const OpRegistry& ops);

}  // namespace coracle::inline internal
