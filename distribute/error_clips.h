#pragma once
// Error clips of one of several ranks do what they do on one rank. Internal to distribute/.

#include <coracle/distribute/whole_values.h>

namespace coracle::inline internal {

// During backward, gradients of batch variables are split over the ranks. A clip by value acts on
// each part, and so does a clip of each row. For a norm of all rows, the ranks add up their
// squares. The gradient of a variable without rows is first summed over the ranks. A sum over
// the rows is an exception, because each rank already has its whole gradient. If the weight of the
// loss is only declared (`declared`), it is not known which of these a
// variable is. Throws kInvalidArgument for a clip that would act
// on a part of what one rank clips: in a block, of selected rows, of slices that share rows.
void ClipAsOneRank(ProgramDesc& main, const PartValues& parts, const WholeWriter& writer,
                   const AllReduceOptions& options, bool declared, OpInserter* inserter);

}  // namespace coracle::inline internal
