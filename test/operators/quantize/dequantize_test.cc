#include <coracle/test/op_test.h>

#include <cstring>

namespace coracle::dequantize_test {

TEST(FakeDequantizeMaxAbs, Values) {
  OpTest("fake_dequantize_max_abs")
      .Attr("max_range", 127.f)
      .Input("X", {3}, {127, -64, 0})
      .Input("Scale", {1}, {2})
      .Expect("Out", {3}, {2, -128.0 / 127, 0});
  OpTest("fake_dequantize_max_abs")
      .Attr("max_range", 127.f)
      .RandomInput("X", {3})
      .RandomInput("Scale", {2})
      .ExpectError("fake_dequantize_max_abs.C1");
}

TEST(DequantizeAbsMax, Values) {
  for (DType dtype : {DType::kInt8, DType::kInt16}) {
    OpTest("dequantize_abs_max")
        .Attr("max_range", 127.f)
        .IntInput("X", {3}, {127, -128, 0}, dtype)
        .TensorInput("Scale", Tensor::Of<float>({1}, {2}))
        .Expect("Out", {3}, {2, -256.0 / 127, 0}, 1e-6)
        .ExpectDType("Out", DType::kFloat32);
  }
  OpTest("dequantize_abs_max")
      .Attr("max_range", 127.f)
      .IntInput("X", {3}, {127, -128, 0}, DType::kInt8)
      .TensorInput("Scale", Tensor::Zeros(DType::kFloat64, {1}))
      .ExpectError("dequantize_abs_max.C1");
}

OpTest ChannelWise() {
  OpTest test("fake_channel_wise_dequantize_max_abs");
  test.Attr("quant_bits", std::vector<int32_t>{3, 2});
  return test;
}

TEST(FakeChannelWiseDequantize, Values) {
  ChannelWise()
      .Input("X", {2, 2}, {3, -3, 1, 2})
      .Input("Scales", {2}, {1, 6})
      .Expect("Out", {2, 2}, {1, -1, 2, 4});
  ChannelWise()
      .Attr("quant_axis", 1)
      .Input("X", {2, 2}, {3, -3, 1, 2})
      .Input("Scales", {2}, {1, 6})
      .Expect("Out", {2, 2}, {1, -6, 1.0 / 3, 4});
  ChannelWise()
      .Input("X", {2, 2, 1}, {3, -3, 1, 2})
      .Input("Scales", {2}, {1, 6})
      .Input("Scales", {1}, {0.5})
      .Expect("Out", {2, 2, 1}, {0.5, -3, 0.5 / 3, 2});
}

TEST(FakeChannelWiseDequantize, Constraints) {
  const std::string type = "fake_channel_wise_dequantize_max_abs";
  OpTest(type)
      .RandomInput("X", {2, 2})
      .RandomInput("Scales", {2})
      .RandomInput("Scales", {1})
      .ExpectError(type + ".C1");
  ChannelWise()
      .RandomInput("X", {2})
      .RandomInput("Scales", {2})
      .RandomInput("Scales", {1})
      .ExpectError(type + ".C2");
  ChannelWise().RandomInput("X", {2, 3}).RandomInput("Scales", {3}).ExpectError(type + ".C3");
  ChannelWise()
      .RandomInput("X", {2, 3})
      .RandomInput("Scales", {3})
      .RandomInput("Scales", {2})
      .ExpectError(type + ".C4");
}

TEST(DequantizeLog, Values) {
  std::vector<float> dict(128);
  for (size_t i = 0; i < dict.size(); ++i) dict[i] = static_cast<float>(i) / 4;
  OpTest("dequantize_log")
      .IntInput("X", {5}, {0, 127, -128, -1, 4}, DType::kInt8)
      .TensorInput("Dict", Tensor::Of<float>({128}, dict))
      .Expect("Out", {5}, {0, 31.75, 0, -31.75, 1});
  OpTest("dequantize_log")
      .IntInput("X", {1}, {0}, DType::kInt8)
      .TensorInput("Dict", Tensor::Zeros(DType::kFloat32, {127}))
      .ExpectError("dequantize_log.C1");
}

// min, max and the bytes 0, 64, 128, 255 in a float.
Tensor Table() {
  Tensor table = Tensor::Zeros(DType::kFloat32, {2, 3});
  const unsigned char bytes[] = {0, 64, 128, 255};
  for (int row = 0; row < 2; ++row) {
    float* at = table.data<float>() + 3 * row;
    at[0] = -1;
    at[1] = row == 0 ? 1 : 7;
    std::memcpy(at + 2, bytes, 4);
  }
  return table;
}

TEST(LookupTableDequant, Values) {
  OpTest("lookup_table_dequant")
      .TensorInput("W", Table())
      .IntInput("Ids", {1, 2, 1}, {1, 0})
      .Expect("Out", {1, 2, 4}, {-1, 1, 3, -1 + 8 * 255.0 / 256, -1, -0.5, 0, -1 + 2 * 255.0 / 256},
              1e-6);
  OpTest("lookup_table_dequant")
      .Attr("padding_idx", int64_t{0})
      .TensorInput("W", Table())
      .IntInput("Ids", {1, 1}, {0})
      .Expect("Out", {1, 4}, {0, 0, 0, 0});
  OpTest("lookup_table_dequant")
      .TensorInput("W", Table())
      .IntInput("Ids", {0, 1}, {})
      .Expect("Out", {0, 4}, {});
}

TEST(LookupTableDequant, Constraints) {
  OpTest("lookup_table_dequant")
      .TensorInput("W", Tensor::Zeros(DType::kFloat32, {2, 1}))
      .IntInput("Ids", {1, 1}, {0})
      .ExpectError("lookup_table_dequant.C1");
  OpTest("lookup_table_dequant")
      .TensorInput("W", Table())
      .IntInput("Ids", {2}, {0, 0})
      .ExpectError("lookup_table_dequant.C2");
  for (int64_t id : {int64_t{2}, int64_t{-1}, INT64_MAX}) {
    OpTest("lookup_table_dequant")
        .TensorInput("W", Table())
        .IntInput("Ids", {1, 1}, {id})
        .ExpectError("lookup_table_dequant: Ids holds " + std::to_string(id));
  }
}
}  // namespace coracle::dequantize_test
