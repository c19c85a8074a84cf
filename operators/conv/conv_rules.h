#pragma once
// The part of the shape rule that all convolutions share.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_shapes.h>

namespace coracle::inline internal {

struct ConvShapes {
  Shape output;
  int64_t out_channels = -1;
};

// Checks constraints C1 to C7 of conv2d, and returns the shape of the sums. The op has conv2d's
// slots Input and Filter, its constraints of these ids, and its attrs.
ConvShapes CheckConvShapes(const InferContext& ctx);

// For OpDef::MultiplyAdds.
double ConvMultiplyAdds(const OpShapes& op);

}  // namespace coracle::inline internal
