#pragma once
// The gradient of a bilinear op's gradient op.

#include <coracle/framework/op/op_context.h>

#include <string>

namespace coracle::inline internal {

// For `type` with Out bilinear in X and Y, and its gradient op `type`_grad with inputs X, Y and
// Out@GRAD; both take `attrs`. `g` belongs to `type`_grad. With DX, DY the gradients of
// X@GRAD, Y@GRAD:
//   dOut' = DX Y + X DY,  X' = the gradient of X in X DY,  Y' = the gradient of Y in DX Y.
void SetBilinearGradGradient(GradientContext& g, const std::string& type, const AttrList& attrs);

}  // namespace coracle::inline internal
