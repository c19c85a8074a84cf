#pragma once
// The element types that ONNX's op types take and give, as operator sets 13 to 22 have them (onnx,
// docs/Changelog.md).

#include <coracle/framework/tensor/dtype.h>
#include <coracle/proto/onnx.pb.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::onnx {

using MaybeDType = std::optional<DType>;

// That of output `i` of a node whose inputs have these; none where it is not known.
MaybeDType ResultType(const proto::onnx::NodeProto& node, const std::vector<MaybeDType>& inputs,
                      int i);

// Whether the dtype that the op type takes is that of its result, and not that of its first input.
bool IsTypedByResult(const std::string& op_type);
// Whether this operator set's op takes the dtype.
bool TakesType(const std::string& op_type, int opset, DType dtype);

}  // namespace coracle::onnx
