#pragma once
// The Writer of the ops of gradient clips.

#include <coracle/framework/op/writer.h>
#include <coracle/operators/operators.h>

namespace coracle::inline internal {

inline Writer ClipWriter(BlockDesc& block) {
  return Writer(block, DefaultOps(),
                {.role = kOptimize,
                 .mark = {.stage = TrainingStage::kClip},
                 .prefix = "gradient_clip",
                 .stop_gradient = true});
}

inline bool IsSparse(const Variable& var) { return var.desc().type() == VarType::kSelectedRows; }

}  // namespace coracle::inline internal
