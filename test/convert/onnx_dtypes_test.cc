#include <coracle/convert/onnx/dtypes.h>
#include <gtest/gtest.h>

namespace coracle::onnx::onnx_dtypes_test {

TEST(OnnxDTypes, EveryDTypeComesBack) {
  for (DType dtype :
       {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64,
        DType::kUInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
        DType::kComplex64, DType::kComplex128, DType::kString}) {
    EXPECT_EQ(FromDataType(ToDataType(dtype)), dtype) << ToString(dtype);
  }
}

// The numbers of TensorProto.DataType, as published.
TEST(OnnxDTypes, NumbersAreThoseOfOnnx) {
  EXPECT_EQ(ToDataType(DType::kFloat32), 1);
  EXPECT_EQ(ToDataType(DType::kInt64), 7);
  EXPECT_EQ(ToDataType(DType::kBFloat16), 16);
  EXPECT_EQ(FromDataType(4), DType::kInt32);  // uint16
  EXPECT_EQ(FromDataType(17), std::nullopt);  // float8e4m3fn
  EXPECT_EQ(HoldingDType(17), DType::kFloat16);
  EXPECT_EQ(HoldingDType(22), DType::kInt8);  // int4
  EXPECT_EQ(HoldingDType(99), std::nullopt);
  EXPECT_EQ(FloatFormat(17), "float8e4m3fn");
  EXPECT_EQ(FloatFormat(22), "");
  EXPECT_EQ(DataTypeName(8), "STRING");
  EXPECT_EQ(DataTypeName(99), "99");
}
}  // namespace coracle::onnx::onnx_dtypes_test
