#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::scale_test {

TEST(Scale, Values) {
  OpTest("scale")
      .Attr("scale", 2.f)
      .Attr("bias", 1.f)
      .Input("X", {3}, {-1, 0, 2.5})
      .Expect("Out", {3}, {-1, 1, 6})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("scale")
      .Attr("scale", 2.f)
      .Attr("bias", 1.f)
      .Attr("bias_after_scale", false)
      .Input("X", {3}, {-1, 0, 2.5})
      .Expect("Out", {3}, {0, 2, 7})
      .CheckGradient({"X"});
}

TEST(Scale, ScaleTensorReplacesTheAttr) {
  OpTest("scale")
      .Attr("scale", 9.f)
      .Input("X", {2}, {1, -2})
      .Input("ScaleTensor", {1}, {3})
      .Expect("Out", {2}, {3, -6})
      .CheckGradient({"X"});
}

// A ScaleTensor that X's dtype does not hold: the product is rounded, and not the factor.
TEST(Scale, WideScaleTensor) {
  const auto check = [](const Tensor& x, double scale, double expected, double relative) {
    OpTest("scale")
        .TensorInput("X", x)
        .TensorInput("ScaleTensor", Tensor::Of<double>({1}, {scale}))
        .Expect("Out", {1}, {expected}, relative * std::min(1.0, std::abs(expected)));
  };
  check(Tensor::Of<float>({1}, {3e38f}), 1e-41, 3e-3, 1e-6);
  check(Tensor::Of<float>({1}, {1e-44f}), 1e40, double{1e-44f} * 1e40, 1e-6);
  check(Tensor::Of<double>({1}, {60000}).Cast(DType::kFloat16), 1e-9, 6e-5, 1e-3);
  check(Tensor::Of<double>({1}, {1}).Cast(DType::kBFloat16), 1.00390625 / 256, 1.00390625 / 256,
        0.004);
  OpTest("scale")
      .RowsInput("X", {4, 1}, {1}, {3})
      .TensorInput("ScaleTensor", Tensor::Of<double>({1}, {1e-41}))
      .ExpectRows("Out", 4, {1}, {3e-41}, 1e-45);
  const double nan = std::nan("");
  check(Tensor::Of<float>({1}, {2}), nan, nan, 0);
}

TEST(Scale, Integers) {
  OpTest("scale")
      .Attr("scale", 3.f)
      .Attr("bias", -1.f)
      .IntInput("X", {3}, {1, 2, std::numeric_limits<int32_t>::max()}, DType::kInt32)
      .Expect("Out", {3}, {2, 5, 2147483644.0})  // wraps: 3 (2^31 - 1) - 1 = 2^32 + 2^31 - 4
      .ExpectDType("Out", DType::kInt32);
}

TEST(Scale, EdgeShapesAndInPlace) {
  OpTest("scale").Attr("scale", 2.f).Input("X", {}, {4}).Expect("Out", {}, {8});
  OpTest("scale").Attr("scale", 2.f).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
  OpTest("scale")
      .Attr("scale", 2.f)
      .InPlace("X", "Out")
      .Input("X", {2}, {4, 5})
      .Expect("Out", {2}, {8, 10});
}

TEST(Scale, FastAgainstReference) {
  for (int64_t n : {1, 3, 8, 17, 63, 100, 70001}) {
    for (bool after : {true, false}) {
      OpTest("scale")
          .Attr("scale", -0.7f)
          .Attr("bias", 0.3f)
          .Attr("bias_after_scale", after)
          .RandomInput("X", {n})
          .CheckFast(1e-6);
    }
  }
}

TEST(Scale, C1_ScaleTensorNotOneElement) {
  OpTest("scale").Input("X", {1}, {0}).Input("ScaleTensor", {2}, {0, 1}).ExpectError("scale.C1");
}
TEST(Scale, C2_ScaleTensorOfAnotherType) {
  OpTest("scale").Input("X", {1}, {0}).IntInput("ScaleTensor", {1}, {0}).ExpectError("scale.C2");
}

}  // namespace coracle::scale_test
