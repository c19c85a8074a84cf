#include <coracle/test/op_test.h>

namespace coracle::view_dtype_test {

OpTest ViewAs(DType dtype) {
  OpTest test("view_dtype");
  test.Attr("dtype", static_cast<int32_t>(dtype));
  return test;
}

// IEEE 754: 1 has the exponent 127, 2 has 128; -0 has only the sign bit.
TEST(ViewDType, BitsOfNumbers) {
  const auto x = Tensor::Of<float>({4}, {1.f, 2.f, -0.f, 0.f});
  ViewAs(DType::kInt32)
      .TensorInput("X", x)
      .Expect("Out", {4}, {1065353216.0, 1073741824.0, -2147483648.0, 0})
      .ExpectDType("Out", DType::kInt32);
  ViewAs(DType::kFloat32)
      .TensorInput("X", Tensor::Of<int32_t>({2}, {1065353216, 0x40490fdb}))
      .Expect("Out", {2}, {1, static_cast<double>(3.14159274f)})
      .ExpectDType("Out", DType::kFloat32);
  ViewAs(DType::kInt64)
      .TensorInput("X", Tensor::Of<double>({2}, {1.0, -2.0}))
      .Expect("Out", {2}, {4607182418800017408.0, -4611686018427387904.0});
  ViewAs(DType::kInt16)
      .TensorInput("X", Tensor::Of<double>({2}, {1.0, -2.0}).Cast(DType::kFloat16))
      .Expect("Out", {2}, {15360, -16384});
  ViewAs(DType::kUInt8)
      .TensorInput("X", Tensor::Of<int64_t>({3}, {-1, -128, 5}).Cast(DType::kInt8))
      .Expect("Out", {3}, {255, 128, 5});
}

TEST(ViewDType, Bools) {
  ViewAs(DType::kUInt8)
      .TensorInput("X", Tensor::Of<bool>({2}, {true, false}))
      .Expect("Out", {2}, {1, 0});
  ViewAs(DType::kBool)
      .TensorInput("X", Tensor::Of<int64_t>({2}, {1, 0}).Cast(DType::kUInt8))
      .Expect("Out", {2}, {1, 0});
}

TEST(ViewDType, C1_Dtype) {
  ViewAs(static_cast<DType>(99)).Input("X", {1}, {0}).ExpectError("view_dtype.C1");
  ViewAs(DType::kString).Input("X", {1}, {0}).ExpectError("view_dtype.C1");
}

TEST(ViewDType, C2_Size) {
  ViewAs(DType::kInt64).Input("X", {2}, {0, 1}).ExpectError("view_dtype.C2");
}

TEST(ViewDType, C3_Bool) {
  ViewAs(DType::kBool)
      .TensorInput("X", Tensor::Of<int64_t>({2}, {1, 2}).Cast(DType::kUInt8))
      .ExpectError("view_dtype.C3");
}

}  // namespace coracle::view_dtype_test
