#pragma once
// Builds the op conditional_block for a finished block.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle::inline internal {

// A conditional_block that runs the finished `block` if `condition` (one bool) is true. Append it
// to the parent block; its variable for scopes is declared there.
OpDesc ConditionalBlockOp(BlockDesc& block, const std::string& condition);

}  // namespace coracle::inline internal
