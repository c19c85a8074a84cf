#pragma once
// Gives ops that need the largest value of a batch the largest value of all ranks, as on one rank.
// Internal to distribute/.

#include <coracle/distribute/all_reduce.h>

namespace coracle::inline internal {

// Ops of the root block that mix rows only because they look for the largest value in X get it from
// all ranks, by an exchange of one number: the longest sequence (sequence_pad, sequence_mask
// without a length), or the largest |X| of a moving average (training with quantisation). For the
// latter, values that are infinite or nan count as an infinity, which leaves the averages
// unchanged, and a rank whose rows do not count has the value -1.
void AgreeOnLargest(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle::inline internal
