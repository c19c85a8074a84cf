#pragma once
// What convolutions, pools and other ops on images share.

#include "op_context.h"

namespace coracle::onnx {

// ONNX has the channels at axis 1: a value with them at the end is transposed, and back.
Value ToChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last);
Value FromChannelsFirst(OpContext& op, const Value& value, int rank, bool channels_last);
bool ChannelsLast(const std::string& layout);  // "NHWC", "NDHWC"
Shape ChannelsFirst(const Shape& shape, bool channels_last);

// Paddle's paddings, one number for each axis or {before, after} of each, as ONNX's pads: all
// before, then all after.
Ints PadsOf(const Ints& paddings, size_t axes);

}  // namespace coracle::onnx
