#pragma once
// InsertLocalSgd: a training program as one rank of several runs it that learn on their own and
// average what they have learned every k updates (McMahan and others, 2017; Stich, Local SGD
// Converges Fast and Communicates Little, 2019; LocalSGD of Paddle's fleet).

#include <coracle/distribute/all_reduce.h>

#include <string>
#include <vector>

namespace coracle {

struct LocalSgdOptions {
  int nranks = 1;
  int64_t steps = 1;      // updates from one average to the next
  double bucket_mb = 25;  // see AllReduceOptions
  // As in AllReduceOptions; a rank weighs as many rows as it had since the last average.
  std::string share = {};
  int ring_id = 0;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct LocalSgdReport {
  std::vector<GradientBucket> buckets;  // what is averaged together; `gradients` are its names
  std::vector<std::string> broadcast, local, averaged, own;  // see AllReduceReport
  // The updates since the last average, persistable, int64 [1]; 0: all ranks are the same.
  std::string counter;
  // All persistable variables that the rewriting added; they begin as zeros, and are zeros behind
  // an average.
  std::vector<std::string> added;
  // Averages at once, wherever the count stands.
  ProgramDesc average;
};

// Each rank updates by the gradients of its own rows. Behind every `steps`-th update the
// parameters, all that updates keep of several elements (velocities, moments, averages) and the
// states of forward ops (AllReduceReport::averaged) become their mean over the ranks, weighted by
// rows: behind it all ranks are the same. With steps = 1 and an update that is linear in the
// gradient (sgd, momentum), and without clips, that is what InsertAllReduce computes. A rank
// without rows in a run (share 0) has gradients of zero there.
//
// The startup program broadcasts what InsertAllReduce's does. Throws kInvalidArgument for what does
// not go together with it: a flag that decides for all ranks whether there is an update (loss
// scaling, a check of the loss), parameters of 16 bits or with master parameters (an average would
// lose digits), sync_batch_norm, exchanges that the program has already, updates in several blocks.
// Then nothing is changed.
LocalSgdReport InsertLocalSgd(ProgramDesc& main, ProgramDesc& startup,
                              const LocalSgdOptions& options);

}  // namespace coracle
