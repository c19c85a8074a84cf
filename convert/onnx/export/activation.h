#pragma once
// Writes activations as nodes, for activation ops and for ops that apply one.

#include <coracle/convert/onnx/export/op_context.h>

namespace coracle::onnx {

// The result of the op of type `type` with these attrs for `x`. Refuses types that are
// not activations.
Value Activate(OpContext& op, const std::string& type, const AttrList& attrs, const Value& x,
               DType dtype);
// The result of a convolution's fused activation: fuse_activation, fuse_alpha and fuse_beta.
Value FusedActivation(OpContext& op, const Value& x, DType dtype);

// X without its fractional part.
Value Truncate(OpContext& op, const Value& x);

}  // namespace coracle::onnx
