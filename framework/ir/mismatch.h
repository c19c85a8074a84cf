#pragma once
// Error text for a tensor of the wrong type. Internal to Coracle.

#include <coracle/framework/ir/var.h>

#include <string>

namespace coracle::inline internal {

// "must have the dtype float32, got int64" or "must have the shape [2, 3], got [3, 2]". If both
// differ, or the value is not a dense tensor: "must be float32[2, 3], got int64[3, 2]".
std::string DescribeMismatch(const VarMeta& wanted, const VarMeta& got);

}  // namespace coracle::inline internal
