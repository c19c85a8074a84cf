#pragma once
// The element types that ONNX's op types accept and return in operator sets 13 to 22
// (onnx, docs/Changelog.md).

#include <coracle/framework/tensor/tensor.h>
#include <coracle/proto/onnx.pb.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::onnx {

using MaybeDType = std::optional<DType>;

// The type of output `i` of a node with inputs of these types; none if unknown.
MaybeDType ResultType(const proto::onnx::NodeProto& node, const std::vector<MaybeDType>& inputs,
                      int i);

// Whether the op type is checked by the dtype of its result instead of its first input.
bool IsTypedByResult(const std::string& op_type);
// Whether the op accepts the dtype in this operator set.
bool TakesType(const std::string& op_type, int opset, DType dtype);

}  // namespace coracle::onnx
