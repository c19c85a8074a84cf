#pragma once
// Values of an update that would differ between the ranks. Internal to distribute/.

#include <coracle/framework/op/op_inserter.h>

#include <set>
#include <string>

namespace coracle::inline internal {

// Follows values through the ops of the update, beginning with the values of forward and backward
// except `exchanged`, and exchanges the flags that decide whether there is an update. Then all
// persistable variables and conditions of the update are equal on all ranks. Throws
// kInvalidArgument if the ranks cannot be kept equal.
void AgreeOnFlags(const ProgramDesc& main, const std::set<std::string>& exchanged, int ring_id,
                  OpInserter* inserter);

// Whether the op makes a flag that says whether its inputs are finite.
bool ChecksFinite(const OpDesc& op);

}  // namespace coracle::inline internal
