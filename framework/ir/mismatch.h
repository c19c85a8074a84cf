#pragma once
// How a tensor of another type than the wanted one is told of. Internal to Coracle.

#include <coracle/framework/ir/var.h>

#include <string>

namespace coracle {

// "must have the dtype float32, got int64", "must have the shape [2, 3], got [3, 2]", or, where
// both differ (or what is held is no dense tensor), "must be float32[2, 3], got int64[3, 2]".
std::string DescribeMismatch(const VarMeta& wanted, const VarMeta& got);

}  // namespace coracle
