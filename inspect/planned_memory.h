#pragma once
// The memory of a program's run, as the planner lays it out before the run.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

struct PlannedStep {
  std::string op_type;  // "conv2d", or "copy", "store", "keep" for what the executor adds
  std::string output;   // its first output; "" without one
};

// A range of the arena, and between which steps it is in use. Several variables may share it.
struct PlannedStorage {
  std::vector<std::string> names;  // empty: memory of an op's own
  uint64_t offset = 0, bytes = 0;
  size_t first = 0, last = 0;
};

struct PlannedMemory {
  std::vector<PlannedStep> steps;  // of the program as compiled: passes fuse ops
  std::vector<PlannedStorage> storages;
  std::vector<uint64_t> in_use;  // bytes of the arena at each step
  uint64_t arena_bytes = 0;
  uint64_t result_bytes = 0;    // of what the caller may read after the run
  uint64_t constant_bytes = 0;  // of what the planner computed in advance
  // Where the plan ends because shapes depend on what only the run knows: "from step 12 on ...".
  // "" when it reaches the end. Sub-blocks are planned when they run; their memory is not here.
  std::string ends = "";
};

// Compiles and plans the root block; nothing is run. Unknown dims of the inputs count as 1.
// Parameters in `values` are frozen, as `coracle run` freezes them. Throws what compiling throws.
PlannedMemory PlanMemory(const ProgramDesc& program, const Scope& values, const OpRegistry& ops);

}  // namespace coracle
