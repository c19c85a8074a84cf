#pragma once
// A fused group of ops that expose their formulas (LaneKernel), as a tape of instructions
// on registers.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/elementwise/fused_group.h>
#include <coracle/operators/kernels/simd.h>

#include <optional>
#include <vector>

namespace coracle::inline internal {

// The runs of elements that a tape processes: all elements, or those of a piece of the cut.
struct FusedRuns {
  FusedRuns(const FusedVars& vars, const FusedCut* cut);

  int64_t count = 1, elements = 0;
  std::vector<int64_t> dims;  // around the runs
  // By variable: the elements in a run (1 if it is constant), and the step from one run to the next
  // along each of the dims.
  std::vector<int64_t> own;
  std::vector<std::vector<int64_t>> steps;
};

// Pointers: one for each variable of the group, then one for each tile of memory.
struct FusedTape {
  std::vector<simd::LaneInstruction> code;
  std::vector<size_t> stores;   // indices in the code where results are stored
  std::vector<size_t> tensors;  // arguments and results that are read or written by elements
  // Arguments with one element in a run, which is first copied to a whole tile.
  struct Repeated {
    size_t var, pointer;
  };
  std::vector<Repeated> repeated;
  size_t pointers = 0;
};

// The tape of ops with these kernels. The index of an arg is its variable, and its elements are
// those in a run. nullopt if an op does not expose its formulas, or an argument is broadcast within
// a run. Out[i] may have the memory of X[i].
std::optional<FusedTape> MakeTape(const FusedVars& vars, const FusedRuns& runs,
                                  const std::vector<Kernel>& ops);

// The kernel of a fused_elementwise that runs the tape in threads.
Kernel TapeKernel(const PrepareContext& context, const FusedVars& vars, const FusedRuns& runs,
                  FusedTape tape);

}  // namespace coracle::inline internal
