#pragma once
// InsertAllReduce: a training program as one rank of several runs it, each on its part of a batch.

#include <coracle/distribute/ranks.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace coracle {

struct AllReduceOptions {
  int nranks = 1;
  // Gradients are exchanged together, in the order in which backward makes them, as soon as they
  // are so many million bytes; 0: each by itself.
  double bucket_mb = 25;
  // A variable [1] of the loss's dtype that is to be fed: the share of the rank's rows in the rows
  // of all ranks. It is made if the program does not have it. "": every rank has 1 / nranks.
  std::string share = {};
  // Variables, such as the loss and metrics, of which the value of the whole batch is wanted.
  std::vector<std::string> wanted = {};
  // The statistics of batch_norm are those of the whole batch, by sync_batch_norm in its place:
  // one small exchange more each way for each of them.
  bool sync_batch_norm = false;
  // Each rank keeps and updates a part of the optimizer's state, and the ranks gather the
  // parameters: for updates that take each element by itself (adam, momentum, not lamb) of
  // parameters of at least `shard_least` elements. Gradients of which a rank needs no more than its
  // part (no clip or decay reads them) are not summed on all ranks, but scattered.
  bool shard_state = false;
  int64_t shard_least = 4096;
  int ring_id = 0;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// What is exchanged together.
struct GradientBucket {
  std::vector<std::string> gradients;
  int64_t bytes = 0;  // -1 for sparse gradients, whose size a step decides
};
// A state of the optimizer, of which each rank has a part in the variable `shard` [ceil(elements /
// nranks)] in place of `name`: its elements in row-major order, what lies behind them on the last
// ranks has no meaning.
struct ShardedState {
  std::string name, shard;
  Shape shape;
};
struct AllReduceReport {
  std::vector<GradientBucket> buckets;    // in the order of the exchanges
  std::vector<GradientBucket> scattered;  // those of which each rank gets a part
  std::vector<ShardedState> states;
  // The persistable variables of which the startup program gives all ranks those of rank 0.
  std::vector<std::string> broadcast;
  // Persistable variables that forward ops change by the rank's rows. `local`: running statistics
  // of batch_norm, which are not exchanged, since no step reads them; see AverageLocals.
  // `averaged`: states that steps read; behind the last op that writes one it becomes the mean over
  // the ranks, by their rows. `own`: results of a step, and states that are no floats or of an open
  // shape; each rank keeps its own.
  std::vector<std::string> local, averaged, own;
  // Lines, see WholeValues::unknown: losses, and what else is wanted, whose parts weigh by rows for
  // want of a rule; error clips of a rank's part, and gradients of rows that ranks cannot add.
  std::vector<std::string> unknown;
  // Of the wanted variables, see WholeValues::of.
  std::map<std::string, std::string> whole;
};

// Between steps: the whole states on rank 0, beside the shards; and each rank's shards of the whole
// states that the scope has, which are erased. All ranks must call JoinShards; it throws what
// exchanges throw.
void JoinShards(const Ranks& ranks, const std::vector<ShardedState>& states, Scope& scope);
void DivideStates(const Ranks& ranks, const std::vector<ShardedState>& states, Scope& scope);
// A tensor of the same dtype and shape on all ranks becomes their sum. All ranks must call it.
void SumOverRanks(const Ranks& ranks, Tensor* tensor);
// Between steps: variables of floats of which each rank has its own become their mean over the
// ranks. All ranks must call it.
void AverageLocals(const Ranks& ranks, const std::vector<std::string>& names, Scope& scope);

// Rewrites a program with backward and update ops, and its startup program.
//
// The gradient of the loss is multiplied by the weight of the rank's part where it begins: 1 /
// nranks or `share` for a mean over the rows of a batch, the rank's share of the elements for one
// over sequences, nothing for a sum. A loss that adds terms of different weights adds them times
// their weights. Counts that such a formula divides by become those of all ranks, and so does every
// mean or sum in a formula that is not linear; its gradient is added up over the ranks (see
// InsertWholeValues). Sequences are padded to the longest of all ranks. So all gradients are the
// rank's part of that of the whole batch; an error clip by norm goes by the norm of all parts. The
// gradients of parameters (op_role_var of backward ops) are summed over the ranks, in buckets, each
// exchange behind the op that completes its last member; a c_sync_comm_stream waits for it before
// the first op that uses one of them. Where gradients are accumulated over several runs
// (TrainingStep::accumulate), the sums are exchanged instead, in the block that runs once for an
// update. Flags that decide whether an update is made (a loss or the gradients of error clips that
// are not finite) become those of all ranks. Updates that draw (dpsgd) draw the same on all ranks,
// by main.random_seed. The startup program broadcasts what rank 0 has drawn or read: parameters,
// trained or not, and other persistable variables that are no constants.
//
// Throws kInvalidArgument for a program without gradients of parameters, one that has exchanges
// already, and one whose update depends on values of the rank alone in another way: it would make
// ranks differ; with sync_batch_norm also for a batch_norm within a block and its second gradients.
// Nothing is changed then.
AllReduceReport InsertAllReduce(ProgramDesc& main, ProgramDesc& startup,
                                const AllReduceOptions& options);

}  // namespace coracle
