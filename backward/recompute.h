#pragma once
// Recomputation: activations are thrown away after the forward pass and computed again where the
// gradient ops need them (Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear memory
// cost", 2016).

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// What is kept, by name or chosen. Both empty: no recomputation.
struct RecomputeOptions {
  // The ops of the loss's block are cut into segments behind the ops that write these variables.
  // The variables, those that cross from one segment to another, and all of the last segment are
  // kept. Names of variables that no op of the block writes (feeds, parameters) have no effect.
  std::vector<std::string> checkpoints = {};
  // Without checkpoints: the cuts are chosen such that the activations that gradients need (kept
  // ones, and those of one segment) take at most so many bytes, with as little recomputation as
  // possible; when that cannot be, such that they take as few as can be.
  uint64_t memory_budget = 0;
  // What an unknown dimension counts for in that estimate.
  int64_t batch_size = 1;

  bool enabled() const { return !checkpoints.empty() || memory_budget > 0; }
};

// What Recompute did.
struct RecomputeReport {
  std::vector<std::string> checkpoints;  // a variable written by the op before each cut
  int ops = 0;                           // that run a second time
  // Bytes of the activations that gradients read, as they were and (estimated) as they are.
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Rewrites the ops from `first_gradient` to the end of the block, which are the gradient ops of
// those before: a value of an earlier segment that they read is computed again, under the name
// <var>@RECOMPUTED, by copies of the ops that made it, put before the first gradient op of the
// segment that reads one. A copy computes the same bits: it reads the same values (one that is
// overwritten in between is saved first), and random ops draw the same numbers. Copies have the
// role Backward and name in the attr recomputed_from the variables of their original. What they
// write besides (running statistics) is thrown away, so that it is not updated twice.
//
// Not computed again, but kept: values of ops with sub-blocks or side effects, or that read or
// write something else than dense tensors; persistable variables; what sub-blocks of gradient ops
// read. Throws kNotFound for a checkpoint that the block does not know. Linear in the size of the
// block.
RecomputeReport Recompute(BlockDesc& block, size_t first_gradient, const RecomputeOptions& options,
                          const OpRegistry& ops);

}  // namespace coracle
