#pragma once
// Element types of ONNX and of Coracle.

#include <coracle/framework/tensor/dtype.h>

#include <optional>
#include <string>

namespace coracle::onnx {

// The dtype that holds the elements of TensorProto.DataType `data_type`: its own, or for uint16 and
// uint32 the next signed one, int32 and int64. None for strings, for uint64, which no dtype holds,
// and for floats of 8 bits and integers of 4.
std::optional<DType> FromDataType(int data_type);
// The number of TensorProto.DataType.
int ToDataType(DType dtype);
// "FLOAT"; "13" stands for a number that ONNX has not given away.
std::string DataTypeName(int data_type);

}  // namespace coracle::onnx
