#pragma once
// Maps element types between ONNX and Coracle.

#include <coracle/framework/tensor/tensor.h>

#include <optional>
#include <string>

namespace coracle::onnx {

// The dtype that holds the elements of TensorProto.DataType `data_type`: the same type or, for
// uint16 and uint32, the next signed one, int32 and int64. None for strings, for uint64, and for
// 8-bit floats and 4-bit integers.
std::optional<DType> FromDataType(int data_type);
// The number of TensorProto.DataType.
int ToDataType(DType dtype);
// "FLOAT"; the number itself ("99") if ONNX has not assigned it.
std::string DataTypeName(int data_type);

}  // namespace coracle::onnx
