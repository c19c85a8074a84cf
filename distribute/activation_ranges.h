#pragma once
// Gives the moving averages of ranges in training with quantisation the largest values of the whole
// batch, as one rank has them.

#include <coracle/distribute/all_reduce.h>

namespace coracle::inline internal {

// Ops of the root block that follow the largest |X| of a batch (fake_quantize_dequantize_
// moving_average_abs_max) get that of all ranks, by an exchange of one number for each variable X.
// Values that are not finite count as an infinity, which no average takes. A rank whose rows do not
// count has the value 0.
void AgreeOnRanges(ProgramDesc& program, const AllReduceOptions& options);

}  // namespace coracle::inline internal
