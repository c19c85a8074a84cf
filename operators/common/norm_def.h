#pragma once
// What the declarations of batch_norm and layer_norm share.

#include <coracle/framework/op/op_def.h>

#include <string>

namespace coracle {

// Adds the slots of `<norm>_grad_grad` that are not inputs of `<norm>_grad`, and says where
// gradients end.
inline OpDef WithGradGradSlots(OpDef def, const std::string& norm) {
  def.OptionalInput("X@GRAD@GRAD", "gradient of " + norm + "_grad's X@GRAD")
      .OptionalInput("Scale@GRAD@GRAD", "gradient of its Scale@GRAD")
      .OptionalInput("Bias@GRAD@GRAD", "gradient of its Bias@GRAD")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Y@GRAD@GRAD", "gradient of Y@GRAD")
      .NoGradient("third derivatives of " + norm + " are not in use");
  return def;
}

}  // namespace coracle
