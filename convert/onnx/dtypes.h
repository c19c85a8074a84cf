#pragma once
// Maps element types between ONNX and Coracle.

#include <coracle/framework/tensor/tensor.h>

#include <optional>
#include <string>

namespace coracle::onnx {

// The dtype that holds the elements of TensorProto.DataType `data_type`: the same type or, for
// types that Coracle lacks, one that holds all their elements:
//   uint16, uint32                      int32, int64
//   int4, int2; uint4, uint2            int8; uint8
//   floats of 8 bits, float4e2m1        float16
//   float8e8m0                          float32
// None for a number that ONNX has not assigned.
std::optional<DType> HoldingDType(int data_type);
// The same without small types: for ops that compute in a type that an attribute names.
std::optional<DType> FromDataType(int data_type);
// The number of TensorProto.DataType.
int ToDataType(DType dtype);
// "FLOAT"; the number itself ("99") if ONNX has not assigned it.
std::string DataTypeName(int data_type);

// Whether the type is uint16, uint32 or a small type: its dtype holds more than its elements.
bool IsHeldWider(int data_type);
// Integers of 2 and 4 bits, floats of 4 and 8 bits.
bool IsSmall(int data_type);
// The bits of an element of a small type.
int SmallBits(int data_type);
// A small type of integers.
bool IsSmallInteger(int data_type);
bool IsSmallSigned(int data_type);  // int2, int4
// The format of a small type of floats as the op round_to_format names it; "" for other types.
std::string FloatFormat(int data_type);

}  // namespace coracle::onnx
