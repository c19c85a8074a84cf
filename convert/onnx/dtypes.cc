#include <coracle/convert/onnx/dtypes.h>
#include <coracle/proto/onnx.pb.h>

#include <algorithm>
#include <cctype>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

struct Row {
  TensorProto::DataType data_type;
  DType dtype;
  int small_bits = 0;  // the bits of a type that is narrower than its dtype
};

// The first row of a dtype gives the type in which it is written.
constexpr Row kRows[] = {
    {TensorProto::FLOAT, DType::kFloat32},
    {TensorProto::DOUBLE, DType::kFloat64},
    {TensorProto::FLOAT16, DType::kFloat16},
    {TensorProto::BFLOAT16, DType::kBFloat16},
    {TensorProto::INT8, DType::kInt8},
    {TensorProto::UINT8, DType::kUInt8},
    {TensorProto::INT16, DType::kInt16},
    {TensorProto::INT32, DType::kInt32},
    {TensorProto::INT64, DType::kInt64},
    {TensorProto::UINT16, DType::kInt32},
    {TensorProto::UINT32, DType::kInt64},
    {TensorProto::UINT64, DType::kUInt64},
    {TensorProto::BOOL, DType::kBool},
    {TensorProto::COMPLEX64, DType::kComplex64},
    {TensorProto::COMPLEX128, DType::kComplex128},
    {TensorProto::STRING, DType::kString},
    {TensorProto::INT4, DType::kInt8, 4},
    {TensorProto::UINT4, DType::kUInt8, 4},
    {TensorProto::INT2, DType::kInt8, 2},
    {TensorProto::UINT2, DType::kUInt8, 2},
    {TensorProto::FLOAT8E4M3FN, DType::kFloat16, 8},
    {TensorProto::FLOAT8E4M3FNUZ, DType::kFloat16, 8},
    {TensorProto::FLOAT8E5M2, DType::kFloat16, 8},
    {TensorProto::FLOAT8E5M2FNUZ, DType::kFloat16, 8},
    {TensorProto::FLOAT4E2M1, DType::kFloat16, 4},
    {TensorProto::FLOAT8E8M0, DType::kFloat32, 8},
};

const Row* Find(int data_type) {
  for (const Row& row : kRows) {
    if (row.data_type == data_type) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<DType> HoldingDType(int data_type) {
  const Row* row = Find(data_type);
  return row ? std::optional(row->dtype) : std::nullopt;
}

std::optional<DType> FromDataType(int data_type) {
  return IsSmall(data_type) ? std::nullopt : HoldingDType(data_type);
}

int ToDataType(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.data_type;
  }
  return TensorProto::UNDEFINED;
}

std::string DataTypeName(int data_type) {
  return TensorProto::DataType_IsValid(data_type)
             ? TensorProto::DataType_Name(static_cast<TensorProto::DataType>(data_type))
             : std::to_string(data_type);
}

bool IsHeldWider(int data_type) {
  return data_type == TensorProto::UINT16 || data_type == TensorProto::UINT32 || IsSmall(data_type);
}

int SmallBits(int data_type) {
  const Row* row = Find(data_type);
  return row ? row->small_bits : 0;
}

bool IsSmall(int data_type) { return SmallBits(data_type) > 0; }

bool IsSmallInteger(int data_type) {
  return IsSmall(data_type) && !IsFloating(Find(data_type)->dtype);
}

bool IsSmallSigned(int data_type) {
  return data_type == TensorProto::INT4 || data_type == TensorProto::INT2;
}

std::string FloatFormat(int data_type) {
  if (!IsSmall(data_type) || IsSmallInteger(data_type)) return "";
  std::string name = DataTypeName(data_type);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace coracle::onnx
