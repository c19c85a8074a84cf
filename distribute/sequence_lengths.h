#pragma once
// Pads the sequences of all ranks to the length of the longest sequence of the whole batch, as one
// rank does.

#include <coracle/distribute/all_reduce.h>

namespace coracle::inline internal {

// Gives the ops of the root block that pad to the longest sequence (sequence_pad, sequence_mask
// without a length) the largest length of all ranks, by an exchange of one number.
void AgreeOnLengths(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle::inline internal
