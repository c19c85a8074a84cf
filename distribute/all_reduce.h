#pragma once
// InsertAllReduce: rewrites a training program for one of several ranks. Each rank computes a part
// of every batch. docs/distribute.md explains how.

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
  // Gradients are exchanged in buckets, in the order in which backward makes them: a bucket is full
  // when it has this many million bytes. 0: each gradient by itself.
  double bucket_mb = 25;
  // A variable [1] of the loss's dtype to be fed: the rank's rows divided by the rows of all ranks.
  // It is made if the program does not have it. "": every rank has 1 / nranks.
  std::string share = {};
  // Variables, such as the loss and metrics, whose value for the whole batch is wanted.
  std::vector<std::string> wanted = {};
  // Replaces batch_norm by sync_batch_norm, which uses the statistics of the whole batch: one more
  // small exchange in each direction.
  bool sync_batch_norm = false;
  // Each rank keeps and updates a part of the optimizer's state, and the ranks gather the
  // parameters: for updates that compute each element by itself (adam, momentum, not lamb) of
  // parameters of at least `shard_least` elements. Gradients that only such an update reads are
  // scattered instead of summed on all ranks.
  bool shard_state = false;
  int64_t shard_least = 4096;
  int ring_id = 0;
  // How losses combine if no rule is known: "ROWS" (the mean, by the rank's rows), "SUM", or the
  // name of a variable that is computed before the loss (the mean, by its number of elements, or by
  // its value if it is a sum over the rows). "": an error.
  std::string loss_weight = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Gradients that are exchanged together.
struct GradientBucket {
  std::vector<std::string> gradients;
  int64_t bytes = 0;  // -1 for a sparse gradient, whose size a step decides
};
// A state of the optimizer that is divided among the ranks. `shard` [ceil(elements / nranks)]
// replaces `name` and holds its elements in row-major order; elements past the end, on the last
// ranks, have no meaning.
struct ShardedState {
  std::string name, shard;
  Shape shape;
};
struct AllReduceReport {
  std::vector<GradientBucket> buckets;    // in the order of the exchanges
  std::vector<GradientBucket> scattered;  // each rank gets its part of these
  std::vector<ShardedState> states;
  // Persistable variables that the startup program copies from rank 0 to all ranks.
  std::vector<std::string> broadcast;
  // Persistable variables that forward ops change by the rank's rows or draws. `local`: running
  // statistics, which are not exchanged because no step reads them. `averaged`: states that steps
  // read; after the last op that writes one, it becomes the mean over the ranks, weighted by rows.
  // `own`: results of a step, and states that are not float or have an open shape; each rank keeps
  // its own.
  std::vector<std::string> local, averaged, own;
  // By the wanted variable: the variable that has the value of the whole batch, if it is another.
  std::map<std::string, std::string> whole;
  // Wanted variables that are no loss and for which no rule is known. No exchange makes them whole.
  std::vector<std::string> unknown;
};

// Rewrites a program with backward and update ops, and its startup program.
//
// The gradient of the loss is multiplied by the weight of the rank's part of the batch, so that
// every gradient is the rank's part of the gradient for the whole batch. Counts and other numbers
// that a formula uses in a way that is not linear are first made whole. The gradients of parameters
// are then summed over the ranks in buckets, each after the op that completes its last gradient; a
// c_sync_comm_stream waits for it before the first op that uses one. If gradients are accumulated
// over several runs (TrainingStep::accumulate), their sums are exchanged instead, once for an
// update. Flags that decide whether an update is made become equal on all ranks. Updates that draw
// (dpsgd) draw the same on all ranks. The startup program broadcasts what rank 0 has drawn or read.
//
// Throws kInvalidArgument, and changes nothing, for a program without gradients of parameters, for
// one that exchanges values already, for a loss for which no rule is known and no loss_weight is
// given, and for ops that would make the ranks differ from one rank (an error
// clip in a loop, an update by a value of one rank, ...). The message says which op it is.
AllReduceReport InsertAllReduce(ProgramDesc& main, ProgramDesc& startup,
                                const AllReduceOptions& options);

}  // namespace coracle
