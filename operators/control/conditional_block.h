#pragma once
// Makes the op conditional_block for a finished block.

#include <coracle/framework/ir/program.h>

#include <string>

namespace coracle {

// A conditional_block that runs `block`, which is finished, if `condition` (one bool) holds; to be
// appended to the parent, where its variable for scopes is declared.
OpDesc ConditionalBlockOp(BlockDesc& block, const std::string& condition);

}  // namespace coracle
