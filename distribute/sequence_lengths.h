#pragma once
// Sequences are padded to the longest of the whole batch, as one rank pads them, and not to that of
// a rank's part.

#include <coracle/distribute/whole_values.h>

namespace coracle {

// Whether the op makes rows as long as the longest sequence that it gets: a sequence_pad, or a
// sequence_mask, without a length.
bool PadsToLongest(const OpDesc& op);

// Gives those ops of the root block which pad sequences of the rank's part the length of the
// longest of all ranks, by an exchange of one number.
void AgreeOnLengths(ProgramDesc& program, const WholeValueOptions& options);

}  // namespace coracle
