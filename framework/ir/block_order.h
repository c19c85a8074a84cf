#pragma once
// Blocks in another order, with new numbers. Internal to Coracle.

#include <coracle/framework/ir/program.h>

#include <vector>

namespace coracle {

// Appends copies of the variables and ops of `from`, and what else it says but for its indices.
// REQUIRES: `to` has none of the variables.
void CopyContents(const BlockDesc& from, BlockDesc& to);

// For `order`: an empty block that no op runs.
inline constexpr int kEmptyBlock = -1;

// Block i becomes what was block order[i]; blocks that `order` does not name are removed. Indices
// of parents, forward blocks and attrs follow; those that name no block, or a removed one, stay as
// they are. REQUIRES: order[0] is 0, and a block comes behind its parent.
void ReorderBlocks(ProgramDesc& program, const std::vector<int>& order);

}  // namespace coracle
