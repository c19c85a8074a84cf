#include <coracle/test/operators/quantize/quantized_binary.h>

namespace coracle::quantized_mul_test {

constexpr const char* kOp = "quantized_mul";

TEST(QuantizedMul, RandomCases) { quantized_binary::RunRandomCases(kOp); }
TEST(QuantizedMul, LargeCase) { quantized_binary::RunLargeCase(kOp); }
TEST(QuantizedMul, StrangeParameters) { quantized_binary::RunStrangeParameters(kOp); }
TEST(QuantizedMul, Empty) { quantized_binary::RunEmpty(kOp); }

TEST(QuantizedMul, ByHand) {
  // 0.5 (7 - 3) 0.25 (-2) = -1; over 1, minus 1.
  OpTest(kOp)
      .Attr("out_dtype", quantized_tools::Number(DType::kInt8))
      .IntInput("X", {1}, {7}, DType::kUInt8)
      .TensorInput("XScale", Tensor::Of<float>({1}, {0.5f}))
      .IntInput("XZeroPoint", {1}, {3}, DType::kUInt8)
      .IntInput("Y", {1}, {-2}, DType::kInt8)
      .TensorInput("YScale", Tensor::Of<float>({1}, {0.25f}))
      .TensorInput("OutScale", Tensor::Of<float>({1}, {1}))
      .IntInput("OutZeroPoint", {1}, {-1}, DType::kInt8)
      .Expect("Out", {1}, {-2})
      .ExpectDType("Out", DType::kInt8);
}

TEST(QuantizedMul, Constraints) {
  // quantized_mul.C1 to quantized_mul.C5
  quantized_binary::RunConstraints(kOp);
}

}  // namespace coracle::quantized_mul_test
