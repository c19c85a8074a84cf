#pragma once
// Slice: the ops of a block that can be between two sets of variables. It uses the block's index of
// uses, so its cost depends on the cheaper of the two sides, not on the size of the block.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Returns, in order, the positions of all ops between the wanted variables and the targets; some
// other ops may be among them. nullopt: the whole block must be examined, because an op with a
// sub-block uses variables that its slots do not list.
std::optional<std::vector<uint32_t>> OpsBetween(const BlockDesc& block, const OpRegistry& ops,
                                                const std::vector<std::string>& wanted,
                                                const std::vector<std::string>& targets);

}  // namespace coracle::inline internal
