#pragma once
// What the declarations of batch_norm and layer_norm share.

#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/half_array.h>

#include <string>

namespace coracle {

// Constraint C3 for a slot that holds something of each channel or row: X's dtype, or float32 where
// X is of 16 bits (whose range is too small for statistics).
inline void RequireNormDType(const InferContext& ctx, const char* slot) {
  const DType x = ctx.InputDType("X"), given = ctx.InputDType(slot);
  ctx.Require("C3", given == x || (IsHalf(x) && given == DType::kFloat32), slot, given, "X", x);
}
// Of statistics that the op makes.
inline DType StatisticsDType(const InferContext& ctx) {
  const DType x = ctx.InputDType("X");
  return IsHalf(x) ? DType::kFloat32 : x;
}

// Adds the slots of `<norm>_grad_grad` that are not inputs of `<norm>_grad`, and says
// where gradients end.
inline void DeclareGradGradSlots(OpDef& def, const std::string& norm) {
  def.OptionalInput("X@GRAD@GRAD", "gradient of " + norm + "_grad's X@GRAD")
      .OptionalInput("Scale@GRAD@GRAD", "gradient of its Scale@GRAD")
      .OptionalInput("Bias@GRAD@GRAD", "gradient of its Bias@GRAD")
      .OptionalOutput("X@GRAD", "gradient of X")
      .OptionalOutput("Scale@GRAD", "gradient of Scale")
      .OptionalOutput("Y@GRAD@GRAD", "gradient of Y@GRAD")
      .NoGradient("third derivatives of " + norm + " are not in use");
}

}  // namespace coracle
