#pragma once
// Slice: which ops of a block can lie between two sets of variables. Asks the block's index of
// uses, so that it costs what the smaller of the two sides costs, and not the block.

#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/op_registry.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::internal {

// Positions, in order, of ops among which are all on which a target depends and that depend on a
// wanted variable. nullopt: the whole block has to be looked at, because an op with a sub-block
// uses variables that its slots do not list.
std::optional<std::vector<uint32_t>> OpsBetween(const BlockDesc& block, const OpRegistry& ops,
                                                const std::vector<std::string>& wanted,
                                                const std::vector<std::string>& targets);

}  // namespace coracle::internal
