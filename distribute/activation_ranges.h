#pragma once
// Gives the moving averages of ranges in training with quantisation the largest values of the whole
// batch, as one rank has them.

#include <coracle/distribute/all_reduce.h>

namespace coracle::inline internal {

// The ops of the root block that follow the largest |X| of a batch, such as
// fake_quantize_dequantize_moving_average_abs_max, get the largest one of all ranks, by an exchange
// of one number for each op. Infinite and nan values count as an infinity, which leaves the
// averages unchanged. A rank whose rows do not count has the value -1.
void AgreeOnRanges(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle::inline internal
