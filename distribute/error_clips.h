#pragma once
// Error clips of one of several ranks do what they do on one rank. Internal to distribute/.

#include <coracle/distribute/whole_values.h>

namespace coracle::inline internal {

// The effect of a clip depends on the variable whose gradient it clips:
//   rows        a clip by value, or of each row, acts on the rank's rows; for a norm of all rows
//               the ranks exchange their norms
//   mean, same  the gradient is summed over the ranks, clipped, and multiplied by the rank's share
//   sum         each rank has the whole gradient already
// If the weight of the loss is only declared (`declared`), sums look like means, and a clip of a
// sum is refused. Throws kInvalidArgument for a clip that would act on a part of what one rank
// clips: in a block, of selected rows, of slices that share rows.
void ClipAsOneRank(ProgramDesc& main, const PartValues& parts, const WholeWriter& writer,
                   const AllReduceOptions& options, bool declared, OpInserter* inserter);

}  // namespace coracle::inline internal
