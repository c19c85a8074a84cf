#pragma once
// Each rank updates, and stores the optimizer state of, its own part of the parameters (stage 1 of
// Rajbhandari and others, ZeRO, 2020). Internal to distribute/.

#include <coracle/distribute/gradients.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// An update that can be made in parts.
struct ShardedUpdate {
  OpDesc* op;
  std::string param, gradient;
  std::vector<std::string> states;
  // The variable in which this rank's part is summed over the ranks; "" if all of it is.
  std::string summed = {};
};

// The updates of dense parameters of at least options.shard_least elements by ops that compute each
// element by itself (RowRule::kEach), with states that nothing else uses and that the startup
// program fills with a constant; in the order of the program.
std::vector<ShardedUpdate> FindShardedUpdates(ProgramDesc& main, const ProgramDesc& startup,
                                              const AllReduceOptions& options);

// Moves the gradients of which, after backward, only such an update of the root block reads a part
// to a list of their own. A rank needs only its part of them.
std::vector<ParameterGradient> TakeScattered(const ProgramDesc& main,
                                             const std::vector<ShardedUpdate>& updates,
                                             std::vector<ParameterGradient>* gradients);

// Scatters the sum of these gradients as one message after the op that completes them; the first
// of their updates waits for it.
void ScatterBucket(ProgramDesc& main, const OpenBucket& bucket, const AllReduceOptions& options,
                   std::vector<ShardedUpdate>* updates, OpInserter* inserter);

// Rewrites the updates and their states. Returns the states.
std::vector<ShardedState> RewriteUpdates(ProgramDesc& main, ProgramDesc& startup,
                                         const std::vector<ShardedUpdate>& updates,
                                         const AllReduceOptions& options, OpInserter* inserter);

}  // namespace coracle::inline internal
