#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::quantize_linear_test {

const float kNan = std::nanf("");

// Ties go to even integers, and the negative end has one integer more.
TEST(QuantizeLinear, OneScale) {
  OpTest("quantize_linear")
      .Attr("quant_axis", -1)
      .Input("X", {8}, {0.5, 1.5, -0.5, 127, -127, 140, -140, 0})
      .Input("Scale", {1}, {127})
      .Input("ZeroPoint", {1}, {0})
      .Expect("Y", {8}, {0, 2, 0, 127, -127, 127, -128, 0}, 0)
      .Expect("OutScale", {1}, {127});
  OpTest("quantize_linear")
      .Attr("quant_axis", -1)
      .Attr("bit_length", 4)
      .Attr("round_type", 1)
      .Input("X", {5}, {0.5, 1.5, -0.5, -8, 20})
      .Input("Scale", {1}, {7})
      .Expect("Y", {5}, {1, 2, -1, -7, 7}, 0);
}

TEST(QuantizeLinear, ScalesOfChannels) {
  OpTest("quantize_linear")
      .Attr("quant_axis", 1)
      .Attr("bit_length", 3)
      .Input("X", {2, 2, 2}, {1, 2, 1, 2, -9, 3, 6, -6})
      .Input("Scale", {2}, {3, 6})
      .Expect("Y", {2, 2, 2}, {1, 2, 0, 1, -4, 3, 3, -3}, 0);
}

TEST(QuantizeLinear, SpecialNumbers) {
  // A scale of 0 counts as 1e-6; nan stays.
  OpTest test("quantize_linear");
  test.Attr("quant_axis", -1)
      .TensorInput("X", Tensor::Of<float>({4}, {kNan, 1e30f, -INFINITY, 0}))
      .TensorInput("Scale", Tensor::Of<float>({1}, {0}));
  const Tensor y = test.Output("Y");
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_EQ(y.data<float>()[1], 127);
  EXPECT_EQ(y.data<float>()[2], -128);
  EXPECT_EQ(y.data<float>()[3], 0);
  OpTest("quantize_linear")
      .Attr("quant_axis", 0)
      .Input("X", {0, 3}, {})
      .Input("Scale", {0}, {})
      .Expect("Y", {0, 3}, {});
}

// state = 0.9 1 + 1, accum = 0.9 1 + 2, scale = accum / state.
TEST(QuantizeLinear, MovingAverage) {
  const double scale = 2.9 / 1.9;
  OpTest("quantize_linear")
      .Attr("quant_axis", -1)
      .Attr("is_test", false)
      .Input("X", {3}, {2, -1, scale})
      .Input("Scale", {1}, {5})
      .Input("InAccum", {1}, {1})
      .Input("InState", {1}, {1})
      .Expect("OutScale", {1}, {scale})
      .Expect("OutAccum", {1}, {2.9})
      .Expect("OutState", {1}, {1.9})
      .Expect("Y", {3}, {127, std::nearbyint(-127 / scale), 127}, 0);
  OpTest("quantize_linear")
      .Attr("quant_axis", -1)
      .Attr("is_test", false)
      .Attr("only_observer", true)
      .Input("X", {2}, {2, -1})
      .Input("Scale", {1}, {5})
      .Expect("OutScale", {1}, {2})
      .Expect("Y", {2}, {2, -1});
}

TEST(QuantizeLinear, LargestOfChannels) {
  OpTest("quantize_linear")
      .Attr("quant_axis", 0)
      .Attr("is_test", false)
      .Attr("bit_length", 2)
      .Input("X", {2, 2}, {1, -4, 0, 0.5})
      .Input("Scale", {2}, {9, 9})
      .Expect("OutScale", {2}, {4, 0.5})
      .Expect("Y", {2, 2}, {0, -1, 0, 1}, 0);
}

TEST(DequantizeLinear, Values) {
  OpTest("dequantize_linear")
      .Attr("quant_axis", -1)
      .IntInput("X", {3}, {127, -128, 0}, DType::kInt8)
      .Input("Scale", {1}, {2})
      .Input("ZeroPoint", {1}, {0})
      .Expect("Y", {3}, {2, -256.0 / 127, 0}, 1e-6);
  OpTest("dequantize_linear")
      .Attr("quant_axis", 1)
      .Attr("bit_length", 4)
      .Input("X", {2, 2}, {7, 7, -7, 1})
      .Input("Scale", {2}, {1, 3})
      .Expect("Y", {2, 2}, {1, 3, -1, 3.0 / 7});
  OpTest("dequantize_linear")
      .Attr("quant_axis", -1)
      .IntInput("X", {1}, {127}, DType::kInt8)
      .TensorInput("Scale", Tensor::Of<float>({1}, {2}).Cast(DType::kFloat16))
      .ExpectDType("Y", DType::kFloat16);
}

// Quantising and dequantising changes a number by half a step at most, and its integer not at all.
TEST(DequantizeLinear, RoundTrip) {
  std::vector<int64_t> codes;
  for (int64_t q = -128; q < 128; ++q) codes.push_back(q);
  for (const float threshold : {1.0f, 0.37f, 123.0f}) {
    const Tensor scale = Tensor::Of<float>({1}, {threshold});
    OpTest back("dequantize_linear");
    back.Attr("quant_axis", -1)
        .IntInput("X", {256}, codes, DType::kInt8)
        .TensorInput("Scale", scale);
    OpTest again("quantize_linear");
    again.Attr("quant_axis", -1)
        .TensorInput("X", back.Output("Y"))
        .TensorInput("Scale", scale)
        .Expect("Y", {256}, std::vector<double>(codes.begin(), codes.end()), 0);
  }
}

TEST(QuantizeLinear, Constraints) {
  for (const std::string type : {"quantize_linear", "dequantize_linear"}) {
    const auto op = [&](int axis, const Shape& scale) {
      OpTest test(type);
      test.Attr("quant_axis", axis).RandomInput("X", {2, 3}).RandomInput("Scale", scale);
      return test;
    };
    op(2, {3}).ExpectError(type + ".C1");
    op(-2, {1}).ExpectError(type + ".C1");
    op(1, {2}).ExpectError(type + ".C2");
    op(-1, {2}).ExpectError(type + ".C2");
    op(-1, {1}).RandomInput("InAccum", {2}).ExpectError(type + ".C3");
    op(-1, {1}).IntInput("InState", {1}, {1}).ExpectError(type + ".C3");
    EXPECT_NO_THROW(op(1, {3}).Output("Y"));
  }
  OpTest("quantize_linear")
      .Attr("round_type", 2)
      .RandomInput("X", {2})
      .RandomInput("Scale", {2})
      .ExpectError("round_type");
}

}  // namespace coracle::quantize_linear_test
