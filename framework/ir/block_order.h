#pragma once
// Reorders and renumbers blocks. Internal to Coracle.

#include <coracle/framework/ir/program.h>

#include <vector>

namespace coracle::inline internal {

// Appends copies of the variables and ops of `from` and copies its other fields, except indices.
// REQUIRES: `to` has none of the variables.
void CopyContents(const BlockDesc& from, BlockDesc& to);

// In `order`: an empty block that no op runs.
inline constexpr int kEmptyBlock = -1;

// Block i becomes the former block order[i]; blocks missing from `order` are removed. Indices of
// parents, forward blocks and attrs are updated; indices that name no block, or a removed one, are
// kept. REQUIRES: order[0] is 0, and a block comes after its parent.
void ReorderBlocks(ProgramDesc& program, const std::vector<int>& order);

}  // namespace coracle::inline internal
