#pragma once
// States of forward ops that become the same on all ranks in each step.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/op_inserter.h>

namespace coracle {

// Says in the report what forward ops change by a rank's rows. Behind the last op of the root block
// that writes a state, it becomes the mean of the ranks' by their rows. The centers of center_loss,
// whose update is no mean, move by the rows of all ranks instead, so that they are those of one
// rank. A sync_batch_norm gets the share, so that rows which do not count are not in its
// statistics; within a block it cannot, and is refused with kInvalidArgument.
void ExchangeStates(ProgramDesc& main, const AllReduceOptions& options, OpInserter* inserter,
                    AllReduceReport* report);

// The same for a program without gradients, as tests run it.
AllReduceReport InsertStateExchanges(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle
