#pragma once
// Shared by convolutions, pools and other ops on images.

#include <coracle/convert/onnx/export/op_context.h>

namespace coracle::onnx {

// ONNX has the channels at axis 1: values with the channels last are transposed, and back.
Value ToChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last);
Value FromChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last);
bool ChannelsLast(const std::string& layout);  // "NHWC", "NDHWC"
Shape ChannelsFirst(const Shape& shape, bool channels_last);

// Converts Paddle's paddings, one number or {before, after} for each axis, to ONNX's pads: all
// before, then all after.
Ints PadsOf(const Ints& paddings, size_t axes);

// The attributes of Conv for an op with the attrs of conv2d and the input Filter.
NodeAttrs ConvAttrsOf(OpContext& op);
// The pool of `x`, which has the shape of the op's input X, by the attrs of pool2d.
Value Pooled(OpContext& op, const Value& x);

}  // namespace coracle::onnx
