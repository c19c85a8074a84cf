#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::onednn_quantize_test {

TEST(OneDnnQuantize, Values) {
  OpTest("quantize")
      .Attr("Scale", 2.0f)
      .Attr("is_negative_input", true)
      .TensorInput("Input", Tensor::Of<float>({7}, {0.25f, 0.75f, -0.75f, 63.4f, 64, -64, -65}))
      .Expect("Output", {7}, {0, 2, -2, 127, 127, -128, -128}, 0)
      .ExpectDType("Output", DType::kInt8);
  // The shift is added before rounding: 128.5 becomes 128, and 129.5 becomes 130.
  OpTest("quantize")
      .Attr("Scale", 2.0f)
      .Attr("Shift", 128.0f)
      .Attr("is_negative_input", true)
      .TensorInput("Input", Tensor::Of<float>({5}, {0.25f, 0.75f, -64, -70, 100}))
      .Expect("Output", {5}, {128, 130, 0, 0, 255}, 0)
      .ExpectDType("Output", DType::kUInt8);
  OpTest("quantize")
      .TensorInput("Input", Tensor::Of<float>({3}, {-1, std::nanf(""), INFINITY}))
      .Expect("Output", {3}, {0, 0, 255}, 0);
  OpTest("quantize")
      .Attr("bfloat16", true)
      .TensorInput("Input", Tensor::Of<float>({2}, {1.00390625f, 3}))  // 1 + 2^-8, a tie
      .Expect("Output", {2}, {1, 3}, 0)
      .ExpectDType("Output", DType::kBFloat16);
  OpTest("quantize")
      .TensorInput("Input", Tensor::Zeros(DType::kFloat32, {0, 2}))
      .Expect("Output", {0, 2}, {});
}

TEST(OneDnnDequantize, Values) {
  OpTest("dequantize")
      .Attr("Scale", 4.0f)
      .IntInput("Input", {3}, {-128, 1, 127}, DType::kInt8)
      .Expect("Output", {3}, {-32, 0.25, 31.75});
  OpTest("dequantize")
      .Attr("Scale", 4.0f)
      .Attr("Shift", 128.0f)
      .IntInput("Input", {3}, {0, 128, 255}, DType::kUInt8)
      .Expect("Output", {3}, {-32, 0, 31.75})
      .ExpectDType("Output", DType::kFloat32);
  OpTest("dequantize")
      .TensorInput("Input", Tensor::Of<float>({1}, {1.5f}).Cast(DType::kBFloat16))
      .Expect("Output", {1}, {1.5});
}

TEST(OneDnnRequantize, Values) {
  OpTest("requantize")
      .Attr("Scale_in", 2.0f)
      .Attr("Scale_out", 3.0f)
      .Attr("Shift_in", 0.0f)
      .Attr("Shift_out", 0.0f)
      .IntInput("Input", {4}, {1, 3, -100, 127}, DType::kInt8)
      .Expect("Output", {4}, {2, 4, -128, 127}, 0)  // 1.5 and 4.5 are ties
      .ExpectDType("Output", DType::kInt8);
  // The shift 100 - 1.5 * 3 = 95.5 is rounded to 96.
  OpTest("requantize")
      .Attr("Scale_in", 2.0f)
      .Attr("Scale_out", 3.0f)
      .Attr("Shift_in", 3.0f)
      .Attr("Shift_out", 100.0f)
      .IntInput("Input", {3}, {0, 2, 255}, DType::kUInt8)
      .Expect("Output", {3}, {96, 99, 255}, 0);
  // Shifts are 1 by default: uint8.
  OpTest("requantize")
      .IntInput("Input", {2}, {0, 7}, DType::kUInt8)
      .Expect("Output", {2}, {0, 7}, 0);
  OpTest("requantize")
      .Attr("Shift_in", 0.0f)
      .IntInput("Input", {2}, {-3, 7}, DType::kInt8)
      .Expect("Output", {2}, {0, 8}, 0)
      .ExpectDType("Output", DType::kUInt8);
  OpTest("requantize")
      .Attr("Scale_out", 2.0f)
      .Attr("Shift_in", 0.0f)
      .Attr("Shift_out", 0.0f)
      .TensorInput("Input", Tensor::Of<float>({1}, {1.5f}).Cast(DType::kBFloat16))
      .Expect("Output", {1}, {3}, 0)
      .ExpectDType("Output", DType::kBFloat16);
}

TEST(OneDnnQuantize, Constraints) {
  const auto floats = Tensor::Of<float>({1}, {1});
  OpTest("quantize").Attr("Scale", 0.0f).TensorInput("Input", floats).ExpectError("quantize.C1");
  OpTest("quantize")
      .Attr("Scale", INFINITY)
      .TensorInput("Input", floats)
      .ExpectError("quantize.C1");
  OpTest("quantize").Attr("Shift", 256.0f).TensorInput("Input", floats).ExpectError("quantize.C2");
  const auto int8 = [](const char* type) {
    OpTest op(type);
    op.IntInput("Input", {1}, {1}, DType::kInt8);
    return op;
  };
  int8("dequantize").Attr("Scale", 0.0f).ExpectError("dequantize.C1");
  int8("dequantize").Attr("Shift", -1.0f).ExpectError("dequantize.C2");
  int8("requantize").Attr("Scale_in", 0.0f).ExpectError("requantize.C1");
  int8("requantize").Attr("Scale_out", 0.0f).ExpectError("requantize.C1");
  int8("requantize").Attr("Shift_out", 300.0f).ExpectError("requantize.C2");
  int8("requantize").ExpectError("requantize.C4");
  for (const std::string type : {"dequantize", "requantize"})
    OpTest(type).TensorInput("Input", floats).ExpectError(type + ".C3");
}

}  // namespace coracle::onednn_quantize_test
