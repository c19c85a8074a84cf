#include <coracle/convert/onnx/dtypes.h>
#include <coracle/proto/onnx.pb.h>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

struct Row {
  TensorProto::DataType data_type;
  DType dtype;
};

// The first row of a dtype gives the type in which it is written.
constexpr Row kRows[] = {
    {TensorProto::FLOAT, DType::kFloat32},       {TensorProto::DOUBLE, DType::kFloat64},
    {TensorProto::FLOAT16, DType::kFloat16},     {TensorProto::BFLOAT16, DType::kBFloat16},
    {TensorProto::INT8, DType::kInt8},           {TensorProto::UINT8, DType::kUInt8},
    {TensorProto::INT16, DType::kInt16},         {TensorProto::INT32, DType::kInt32},
    {TensorProto::INT64, DType::kInt64},         {TensorProto::UINT16, DType::kInt32},
    {TensorProto::UINT32, DType::kInt64},        {TensorProto::BOOL, DType::kBool},
    {TensorProto::COMPLEX64, DType::kComplex64}, {TensorProto::COMPLEX128, DType::kComplex128},
};

}  // namespace

std::optional<DType> FromDataType(int data_type) {
  for (const Row& row : kRows) {
    if (row.data_type == data_type) return row.dtype;
  }
  return std::nullopt;
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

}  // namespace coracle::onnx
