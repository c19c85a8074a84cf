#pragma once
// How a fused_elementwise runs its ops on the pieces of its tensors.

#include <coracle/framework/op/op_spec.h>
#include <coracle/operators/elementwise/fused_group.h>

#include <array>
#include <vector>

namespace coracle {

// Where a variable of the group is while a piece is computed: in a tensor of the op, or in memory
// of the part of the work.
struct FusedPlace {
  TensorArg outer;      // of X or Out
  int64_t offset = -1;  // in the part's memory
};

// A result that is made in the part's memory, and copied to Out at the end of the piece.
struct FusedFlush {
  size_t var = 0;
  TensorArg to;
  bool past_caches = false;
};

// A variable's part of a piece that is read ahead, and how much of it before each op: whole lines.
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
  // By variable: in bytes, along the dims up to the cut.
  std::vector<std::array<int64_t, Shape::kMaxRank>> steps;
  std::vector<FusedFlush> flushes;
  std::vector<size_t> ahead;  // variables that are read one piece ahead
  FusedKernels kernels[2];    // of the last piece along the dim that is cut; of the others
  size_t pointers = 0;        // of variables, then of scratch memory, then of the pieces ahead
  int64_t parts = 1, part_bytes = 0;
  TensorArg memory;
  std::vector<TensorArg> inputs;
};

// Runs the pieces of one part of the work.
void RunFusedPart(const FusedPlan& plan, Workspace& ws, int64_t part);

}  // namespace coracle
