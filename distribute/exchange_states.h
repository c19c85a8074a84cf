#pragma once
// Makes states of forward ops equal on all ranks in each step.

#include <coracle/distribute/all_reduce.h>
#include <coracle/distribute/part_values.h>
#include <coracle/framework/op/op_inserter.h>

namespace coracle::inline internal {

// Reports the persistable variables that forward ops change by a rank's rows or draws (local,
// averaged and own of AllReduceReport), except those that are equal on all ranks, such as a step
// counter or the outputs of sync_batch_norm. After the last op of the root block that writes a
// state which steps read, it becomes the mean over the ranks, weighted by their rows. The update of
// center_loss is not a mean: its centers move by the rows of all ranks, as on one rank. A
// sync_batch_norm gets the share, so that rows that do not count are not in its statistics; in a
// block it cannot, which throws kInvalidArgument.
void ExchangeStates(ProgramDesc& main, const PartValues& parts, const AllReduceOptions& options,
                    OpInserter* inserter, AllReduceReport* report);

// The same for a program without gradients, as tests run it.
AllReduceReport InsertStateExchanges(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle::inline internal
