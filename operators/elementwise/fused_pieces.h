#pragma once
// The execution of a fused_elementwise on the pieces of its tensors.

#include <coracle/framework/op/op_def.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <array>
#include <vector>

namespace coracle::inline internal {

// The memory of a variable of the group while a piece is computed: a tensor of the op, or memory of
// the part of the work.
struct FusedPlace {
  TensorArg outer;      // the X or Out
  int64_t offset = -1;  // in the part's memory
};

// A result computed in the part's memory and copied to Out at the end of the piece.
struct FusedFlush {
  size_t var = 0;
  TensorArg to;
  bool past_caches = false;
};

// A variable's part of a piece that is prefetched, and its share before each op, in whole lines.
struct FusedAhead {
  int64_t bytes = 0, share = 0;
};

// The kernels of the ops for pieces of one size.
struct FusedKernels {
  std::vector<Kernel> ops;
  ScratchPlaces scratch;
  std::vector<int64_t> flush_bytes;  // by FusedPlan::flushes
  std::vector<FusedAhead> ahead;     // by FusedPlan::ahead
};

struct FusedPlan {
  FusedCut cut;
  std::vector<FusedPlace> places;  // by variable
  // By variable: steps in bytes, along the dims up to the cut.
  std::vector<std::array<int64_t, Shape::kMaxRank>> steps;
  std::vector<FusedFlush> flushes;
  std::vector<size_t> ahead;  // variables that are prefetched one piece ahead
  FusedKernels kernels[2];    // for the last piece along the cut dim; for the others
  size_t pointers = 0;        // to variables, then scratch memory, then the next pieces
  int64_t parts = 1, part_bytes = 0;
  TensorArg memory;
  std::vector<TensorArg> inputs;
};

// Runs the pieces of one part of the work.
void RunFusedPart(const FusedPlan& plan, Workspace& ws, int64_t part);

}  // namespace coracle::inline internal
