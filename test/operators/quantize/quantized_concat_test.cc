#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::quantized_concat_test {

using quantized_tools::AddQuantized;
using quantized_tools::Draw;
using quantized_tools::IsRounded;
using quantized_tools::Number;
using quantized_tools::Quantized;

TEST(QuantizedConcat, RandomCases) {
  Draw draw(8);
  for (int i = 0; i < 150; ++i) {
    const int64_t outer = draw.Int(1, 4), inner = draw.Int(1, 40), count = draw.Int(1, 4);
    const DType out_dtype = std::vector<DType>{
        DType::kInt8, DType::kUInt8, DType::kFloat32}[static_cast<size_t>(draw.Int(0, 2))];
    const bool bytes = IsByte(out_dtype);
    const float scale = bytes ? draw.Real(0.001, 0.1) : 1;
    const auto zero =
        static_cast<int32_t>(bytes ? quantized_tools::Least(out_dtype) + draw.Int(0, 255) : 0);
    std::vector<Quantized> parts;
    int64_t rows = 0;
    OpTest test("quantized_concat");
    test.Attr("axis", draw.Flip() ? 1 : -2).Attr("out_dtype", Number(out_dtype));
    for (int64_t p = 0; p < count; ++p) {
      const int64_t mine = draw.Int(p == 0 ? 1 : 0, 5);
      rows += mine;
      parts.push_back(draw.Any({outer, mine, inner}));
      if (bytes && draw.Flip()) {  // the parameters of Out
        parts.back().q = draw.Bytes(out_dtype, {outer, mine, inner});
        parts.back().scale = scale;
        parts.back().zero = zero;
      }
      AddQuantized(test, "X", parts.back());
    }
    if (bytes)
      test.TensorInput("OutScale", Tensor::Of<float>({1}, {scale}))
          .TensorInput("OutZeroPoint", Quantized::Filled(out_dtype, {1}, zero));
    SCOPED_TRACE(fmt::format("case {}", i));
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor out = test.Output("Out", mode);
      ASSERT_EQ(out.dtype(), out_dtype);
      ASSERT_EQ(out.shape(), Shape({outer, rows, inner}));
      int64_t first = 0;
      for (const Quantized& part : parts) {
        const int64_t mine = part.q.shape()[1];
        for (int64_t e = 0; e < part.q.numel(); ++e) {
          const int64_t at = e / (mine * inner) * rows * inner + first * inner + e % (mine * inner);
          if (bytes)
            ASSERT_TRUE(IsRounded(out, at, part.Real(e) / static_cast<double>(scale), zero, 1e-9));
          else
            ASSERT_EQ(out.data<float>()[at], static_cast<float>(part.Real(e)));
        }
        first += mine;
      }
    }
  }
}

TEST(QuantizedConcat, ByHand) {
  // 0.5 (3 - 1) = 1 and 2 (-1) = -2 are 2 and -4 steps of 0.5.
  OpTest("quantized_concat")
      .Attr("out_dtype", Number(DType::kUInt8))
      .IntInput("X", {1}, {3}, DType::kUInt8)
      .TensorInput("XScale", Tensor::Of<float>({1}, {0.5f}))
      .IntInput("XZeroPoint", {1}, {1}, DType::kUInt8)
      .IntInput("X", {1}, {-1}, DType::kInt8)
      .TensorInput("XScale", Tensor::Of<float>({1}, {2}))
      .IntInput("XZeroPoint", {1}, {0}, DType::kInt8)
      .TensorInput("OutScale", Tensor::Of<float>({1}, {0.5f}))
      .IntInput("OutZeroPoint", {1}, {10}, DType::kUInt8)
      .Expect("Out", {2}, {12, 6});
}

// A scale that is nan makes numbers without a value, even if it is Out's as well.
TEST(QuantizedConcat, StrangeParameters) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {1.f, kNan, kInf, 0.f, -1.f}) {
    for (const float out : {1.f, kNan, kInf, 0.f, -1.f}) {
      OpTest test("quantized_concat");
      test.Attr("out_dtype", Number(DType::kInt8))
          .IntInput("X", {3}, {-128, 0, 3}, DType::kInt8)
          .TensorInput("XScale", Tensor::Of<float>({1}, {x}))
          .TensorInput("OutScale", Tensor::Of<float>({1}, {out}));
      const Tensor exact = test.Output("Out", KernelMode::kReference);
      const Tensor fast = test.Output("Out", KernelMode::kAuto);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(fast.data<int8_t>()[i], exact.data<int8_t>()[i]) << x << " " << out << " " << i;
    }
  }
}

OpTest Valid(const Shape& second = {2, 3}, int32_t axis = 0, DType out = DType::kUInt8) {
  OpTest test("quantized_concat");
  test.Attr("axis", axis).Attr("out_dtype", Number(out));
  test.TensorInput("X", Tensor::Zeros(DType::kInt8, {2, 3}));
  test.TensorInput("X", Tensor::Zeros(DType::kInt8, second));
  test.TensorInput("OutScale", Tensor::Of<float>({1}, {1}));
  return test;
}

TEST(QuantizedConcat, Constraints) {
  const Tensor one = Tensor::Of<float>({1}, {1}), two = Tensor::Of<float>({2}, {1, 1});
  const std::string type = "quantized_concat";
  Valid({2, 3}, 2).TensorInput("XScale", one).TensorInput("XScale", one).ExpectError(type + ".C1");
  Valid({2, 4}).TensorInput("XScale", one).TensorInput("XScale", one).ExpectError(type + ".C2");
  Valid({2}).TensorInput("XScale", one).TensorInput("XScale", one).ExpectError(type + ".C2");
  Valid().TensorInput("XScale", one).ExpectError(type + ".C3");
  Valid().TensorInput("XScale", one).TensorInput("XScale", two).ExpectError(type + ".C4");
  Valid({2, 3}, 0, DType::kFloat32)
      .TensorInput("XScale", one)
      .TensorInput("XScale", one)
      .ExpectError(type + ".C5");
}

}  // namespace coracle::quantized_concat_test
