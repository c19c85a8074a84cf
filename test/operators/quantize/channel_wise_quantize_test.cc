#include <coracle/test/op_test.h>

namespace coracle::channel_wise_quantize_test {

// Three bits: Q = 3.
TEST(ChannelWiseQuantize, Values) {
  const std::vector<double> x = {1, -2, 0.5, 4, 1, 0};
  OpTest("fake_channel_wise_quantize_abs_max")
      .Attr("bit_length", 3)
      .Input("X", {2, 3}, x)
      .Expect("OutScale", {2}, {2, 4})
      .Expect("Out", {2, 3}, {2, -3, 1, 3, 1, 0});
  OpTest("fake_channel_wise_quantize_abs_max")
      .Attr("bit_length", 3)
      .Attr("quant_axis", 1)
      .Input("X", {2, 3, 1}, x)
      .Expect("OutScale", {3}, {4, 2, 0.5})
      .Expect("Out", {2, 3, 1}, {1, -3, 3, 3, 2, 0});
  OpTest("fake_channel_wise_quantize_dequantize_abs_max")
      .Attr("bit_length", 3)
      .Input("X", {2, 3}, x)
      .Expect("OutScale", {2}, {2, 4})
      .Expect("Out", {2, 3}, {4.0 / 3, -2, 2.0 / 3, 4, 4.0 / 3, 0});
  OpTest("fake_channel_wise_quantize_abs_max")
      .Input("X", {2, 0}, {})
      .Expect("OutScale", {2}, {0, 0})
      .Expect("Out", {2, 0}, {});
}

TEST(ChannelWiseQuantize, ScalesInTest) {
  OpTest op("fake_channel_wise_quantize_abs_max");
  op.Attr("bit_length", 3).Attr("is_test", true).Input("X", {2, 1}, {1, -2});
  op.Input("InScale", {2}, {2, 1}).Expect("OutScale", {2}, {2, 1}).Expect("Out", {2, 1}, {2, -3});
}

TEST(ChannelWiseQuantize, Constraints) {
  for (const std::string type :
       {"fake_channel_wise_quantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max"}) {
    OpTest(type).Attr("quant_axis", 1).RandomInput("X", {2}).ExpectError(type + ".C1");
    for (const int32_t axis : {2, -1})
      OpTest(type).Attr("quant_axis", axis).RandomInput("X", {2, 2, 2}).ExpectError(type + ".C1");
  }
  OpTest("fake_channel_wise_quantize_abs_max")
      .RandomInput("X", {2, 3})
      .RandomInput("InScale", {3})
      .ExpectError("fake_channel_wise_quantize_abs_max.C2");
  // Not silently the scales of this X.
  OpTest("fake_channel_wise_quantize_abs_max")
      .Attr("is_test", true)
      .RandomInput("X", {2, 3})
      .ExpectError("fake_channel_wise_quantize_abs_max.C2");
}
}  // namespace coracle::channel_wise_quantize_test
