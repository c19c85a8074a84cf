#pragma once
// What the ops of gradient clips are written with.

#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>

namespace coracle {

inline Writer ClipWriter(BlockDesc& block) {
  return Writer(block, DefaultOps(),
                {.role = kOptimize, .prefix = "gradient_clip", .stop_gradient = true});
}

inline bool IsSparse(const Variable& var) { return var.desc().type() == VarType::kSelectedRows; }

}  // namespace coracle
