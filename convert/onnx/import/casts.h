#pragma once
// Conversions that Cast and the ops on quantized elements share.

#include <coracle/convert/onnx/import/node_context.h>

#include <cstdint>
#include <string>

namespace coracle::onnx {

// The value of an attr that names a dtype, such as out_dtype.
inline int32_t DTypeAttr(DType dtype) { return static_cast<int32_t>(dtype); }

// The op cast, also from and to strings and uint64, which NodeContext::Cast refuses.
Variable ExactCast(NodeContext& node, const Variable& x, DType dtype);

// x as the nearest numbers of a small type of floats, in the dtype that holds these. `mode` is the
// round_mode of Cast, for float8e8m0.
Variable RoundedToFormat(NodeContext& node, const Variable& x, int data_type, bool saturate,
                         const std::string& mode = "up");

}  // namespace coracle::onnx
