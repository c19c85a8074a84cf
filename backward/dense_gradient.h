#pragma once
// Sparse gradients where only dense tensors will do: an executor fetches no selected rows.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/default_ops.h>

#include <string>
#include <vector>

namespace coracle {

// The names, but for variables of the block that hold selected rows: those of dense tensors that
// ops appended to the block make of them. Unknown and empty names stay as they are.
std::vector<std::string> DenseNames(BlockDesc& block, std::vector<std::string> names,
                                    const OpRegistry& ops = DefaultOps());

}  // namespace coracle
