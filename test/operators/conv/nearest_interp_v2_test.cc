#include "../../op_test.h"

namespace coracle {
namespace {

OpTest Interp(bool align = false) {
  OpTest test("nearest_interp_v2");
  test.Attr("align_corners", align);
  return test;
}

const std::vector<double> kImage = {1, 2, 3, 4};

}  // namespace

TEST(NearestInterpV2, Values) {
  const std::vector<double> doubled = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
  Interp()
      .Attr("scale", std::vector<float>{2, 2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 4}, doubled)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Interp()
      .Attr("scale", std::vector<float>{2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 4}, doubled);
  Interp()
      .Attr("out_h", 1)
      .Attr("out_w", 3)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 1, 3}, {1, 1, 2})
      .CheckGradient({"X"});
  // Corners: rows 0, 0.5 -> 1, 1.
  Interp(true)
      .Attr("out_h", 3)
      .Attr("out_w", 2)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 3, 2}, {1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"});
  Interp(true)
      .Attr("out_h", 1)
      .Attr("out_w", 1)
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 1, 1}, {1});
  Interp()
      .Attr("scale", std::vector<float>{2})
      .Input("X", {0, 1, 2, 2}, {})
      .Expect("Out", {0, 1, 4, 4}, {});
}

TEST(NearestInterpV2, ChannelsLast) {
  Interp()
      .Attr("data_layout", std::string("NHWC"))
      .Attr("scale", std::vector<float>{1, 2})
      .Input("X", {1, 1, 2, 2}, kImage)
      .Expect("Out", {1, 1, 4, 2}, {1, 2, 1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(NearestInterpV2, SizeFromTensors) {
  Interp()
      .Attr("scale", std::vector<float>{4})
      .Input("X", {1, 1, 2, 2}, kImage)
      .IntInput("SizeTensor", {1}, {1})
      .IntInput("SizeTensor", {1}, {4}, DType::kInt32)
      .IntInput("OutSize", {2}, {9, 9})
      .Expect("Out", {1, 1, 1, 4}, {1, 1, 2, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  Interp()
      .Input("X", {1, 1, 2, 2}, kImage)
      .IntInput("OutSize", {2}, {1, 4}, DType::kInt32)
      .Expect("Out", {1, 1, 1, 4}, {1, 1, 2, 2});
  Interp()
      .Attr("out_h", 9)
      .Input("X", {1, 1, 2, 2}, kImage)
      .TensorInput("Scale", Tensor::Of<float>({2}, {1.f, 2.f}))
      .Expect("Out", {1, 1, 2, 4}, {1, 1, 2, 2, 3, 3, 4, 4});
}

TEST(NearestInterpV2, FirstVersion) {
  OpTest("nearest_interp")
      .Attr("scale", 2.f)
      .Attr("align_corners", false)
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Out", {1, 1, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(NearestInterpV2, Constraints) {
  for (const std::string type : {"nearest_interp", "nearest_interp_v2"}) {
    auto op = [&] {
      OpTest test(type);
      test.Input("X", {1, 1, 2, 2}, kImage);
      return test;
    };
    OpTest(type).Input("X", {1}, {1}).ExpectError(type + ".C1");
    OpTest(type).Input("X", {1, 1, 0, 2}, {}).ExpectError(type + ".C2");
    op().IntInput("OutSize", {3}, {1, 1, 1}).ExpectError(type + ".C3");
    op().ExpectError(type + ".C4");
    op().Attr("out_h", 2).Attr("out_w", -3).ExpectError(type + ".C4");
    op().TensorInput("Scale", Tensor::Of<float>({1}, {1e30f})).ExpectError(type + ".C4");
    op().TensorInput("Scale", Tensor::Of<float>({3}, {1, 1, 1})).ExpectError(type + ".C5");
    OpTest(type + "_grad")
        .Attr("out_h", 2)
        .Attr("out_w", 2)
        .Input("X", {1, 1, 1, 1}, {1})
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C6");
  }
}

}  // namespace coracle
