#include <coracle/test/op_test.h>

#include <string>
#include <vector>

namespace coracle::resize_axis_test {

// Resizes the row {1, 2, 3, 4} of 4 elements, axis 1 of [1, 4].
OpTest Row(const std::string& mode, const std::string& place, int64_t size) {
  OpTest test("resize_axis");
  test.Attr("axis", 1).Attr("mode", mode).Attr("coordinate_transformation_mode", place);
  test.Input("X", {1, 4}, {1, 2, 3, 4}).IntInput("Size", {1}, {size});
  return test;
}

// Positions by ONNX's formulas for 4 elements becoming 8: half_pixel at (k + 0.5) / 2 - 0.5.
TEST(ResizeAxis, Values) {
  Row("linear", "half_pixel", 8).Expect("Out", {1, 8}, {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4});
  Row("linear", "asymmetric", 8).Expect("Out", {1, 8}, {1, 1.5, 2, 2.5, 3, 3.5, 4, 4});
  Row("linear", "align_corners", 7).Expect("Out", {1, 7}, {1, 1.5, 2, 2.5, 3, 3.5, 4});
  Row("linear", "half_pixel", 1).Expect("Out", {1, 1}, {2.5});
  Row("linear", "pytorch_half_pixel", 1).Expect("Out", {1, 1}, {1});
  Row("nearest", "asymmetric", 8)
      .Attr("nearest_mode", "floor")
      .Expect("Out", {1, 8}, {1, 1, 2, 2, 3, 3, 4, 4});
  // At 0.5 and 2.5: halves to the lower element, or to the upper one.
  Row("nearest", "half_pixel", 2).Expect("Out", {1, 2}, {1, 3});
  Row("nearest", "half_pixel", 2)
      .Attr("nearest_mode", "round_prefer_ceil")
      .Expect("Out", {1, 2}, {2, 4});
  Row("linear", "half_pixel", 4).Expect("Out", {1, 4}, {1, 2, 3, 4});
  Row("linear", "half_pixel", 0).Expect("Out", {1, 0}, {});
  // The mean of two elements, with weights 1, 3, 3, 1 in eighths: reach 2.
  Row("linear", "half_pixel", 2)
      .Attr("antialias", true)
      .Attr("exclude_outside", true)
      .Expect("Out", {1, 2}, {(3 * 1 + 3 * 2 + 3) / 7.0, (2 + 3 * 3 + 3 * 4) / 7.0});
}

// Keys' kernel at distances 0.25, 0.75, 1.25 and 1.75.
TEST(ResizeAxis, Cubic) {
  const double a = -0.75;
  const auto near = [&](double t) { return ((a + 2) * t - (a + 3)) * t * t + 1; };
  const auto far = [&](double t) { return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a; };
  const double at = far(1.25) * 1 + near(0.25) * 2 + near(0.75) * 3 + far(1.75) * 4;
  const Tensor out = Row("cubic", "half_pixel", 8).Output("Out");
  EXPECT_NEAR(static_cast<double>(out.data<float>()[3]), at, 1e-6);
}

TEST(ResizeAxis, ScaleAndRegion) {
  Row("linear", "asymmetric", 4)
      .TensorInput("Scale", Tensor::Of<double>({1}, {1.25}))
      .Expect("Out", {1, 4}, {1, 1.8, 2.6, 3.4});
  // From 0.5 to 1.5 of three steps: positions 1.5, 3 and 4.5, the last outside.
  Row("linear", "tf_crop_and_resize", 3)
      .Attr("extrapolation_value", 9.f)
      .TensorInput("Region", Tensor::Of<double>({2}, {0.5, 1.5}))
      .Expect("Out", {1, 3}, {2.5, 4, 9});
}

TEST(ResizeAxis, OtherAxesAreKept) {
  OpTest("resize_axis")
      .Attr("axis", 1)
      .Attr("mode", "linear")
      .Input("X", {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .IntInput("Size", {1}, {3})
      .Expect("Out", {2, 3, 2}, {1, 2, 2, 3, 3, 4, 5, 6, 6, 7, 7, 8});
}

TEST(ResizeAxis, Gradients) {
  for (const std::string mode : {"nearest", "linear", "cubic"})
    for (const int64_t size : {2, 3, 7}) Row(mode, "half_pixel", size).CheckGradient({"X"});
  Row("linear", "half_pixel", 2)
      .Attr("antialias", true)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"})
      .CheckHigherGradients();
  Row("linear", "tf_crop_and_resize", 3)
      .Attr("extrapolation_value", 9.f)
      .TensorInput("Region", Tensor::Of<double>({2}, {0.5, 1.5}))
      .CheckGradient({"X"});
}

TEST(ResizeAxis, C1_Axis) {
  OpTest("resize_axis")
      .Attr("axis", 2)
      .Input("X", {1, 4}, {1, 2, 3, 4})
      .IntInput("Size", {1}, {2})
      .ExpectError("resize_axis.C1");
}
TEST(ResizeAxis, C2_Size) { Row("linear", "half_pixel", -1).ExpectError("resize_axis.C2"); }
TEST(ResizeAxis, C3_Region) {
  Row("linear", "half_pixel", 2)
      .TensorInput("Region", Tensor::Of<double>({1}, {0}))
      .ExpectError("resize_axis.C3");
}
TEST(ResizeAxis, C4_Integers) {
  OpTest("resize_axis")
      .Attr("axis", 0)
      .Attr("mode", "linear")
      .IntInput("X", {2}, {1, 2})
      .IntInput("Size", {1}, {3})
      .ExpectError("resize_axis.C4");
}
TEST(ResizeAxis, C5_NoElements) {
  OpTest("resize_axis")
      .Attr("axis", 0)
      .Input("X", {0}, {})
      .IntInput("Size", {1}, {2})
      .ExpectError("resize_axis.C5");
}

TEST(ResizeAxis, C6_GradientOfAnotherShape) {
  OpTest("resize_axis_grad")
      .Attr("axis", 0)
      .Input("X", {2}, {1, 2})
      .IntInput("Size", {1}, {3})
      .Input("Out@GRAD", {4}, {1, 1, 1, 1})
      .ExpectError("resize_axis_grad.C6");
}

}  // namespace coracle::resize_axis_test
