#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::clip_test {

TEST(Clip, Values) {
  OpTest("clip")
      .Attr("min", -1.f)
      .Attr("max", 1.f)
      .Input("X", {2, 3}, {-2, -0.5, 0.1, 0.7, 1.2, 3})
      .Expect("Out", {2, 3}, {-1, -0.5, 0.1, 0.7, 1, 1})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(Clip, BoundsFromInputs) {
  OpTest("clip")
      .Attr("min", 9.f)
      .Attr("max", -9.f)
      .Input("X", {3}, {-2, 0.5, 3})
      .Input("Min", {1}, {-1})
      .Input("Max", {1}, {2})
      .Expect("Out", {3}, {-1, 0.5, 2});
}

TEST(Clip, Integers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("clip")
        .Attr("min", -1.5f)
        .Attr("max", 1e30f)
        .IntInput("X", {3}, {-2, 0, 7}, dtype)
        .Expect("Out", {3}, {-1, 0, 7});
    OpTest("clip")
        .Attr("min", 0.f)
        .Attr("max", 0.f)
        .IntInput("X", {2}, {-2, 7}, dtype)
        .IntInput("Max", {1}, {5}, dtype)
        .Expect("Out", {2}, {0, 5});
  }
}

TEST(Clip, EdgeShapesAndValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  OpTest("clip").Attr("min", 0.f).Attr("max", 1.f).Input("X", {}, {5}).Expect("Out", {}, {1});
  OpTest("clip").Attr("min", 0.f).Attr("max", 1.f).Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
  OpTest("clip")
      .Attr("min", -1.f)
      .Attr("max", 1.f)
      .Input("X", {3}, {-inf, inf, nan})
      .Expect("Out", {3}, {-1, 1, nan});
}

TEST(Clip, InPlace) {
  OpTest("clip")
      .Attr("min", -1.f)
      .Attr("max", 1.f)
      .InPlace("X", "Out")
      .Input("X", {2}, {-2, 0.5})
      .Expect("Out", {2}, {-1, 0.5});
}

TEST(Clip, C1_MinAboveMax) {
  OpTest("clip").Attr("min", 2.f).Attr("max", 1.f).Input("X", {1}, {0}).ExpectError("clip.C1");
}

TEST(Clip, C2_BoundNotOneElement) {
  OpTest("clip")
      .Attr("min", 0.f)
      .Attr("max", 1.f)
      .Input("X", {1}, {0})
      .Input("Min", {2}, {0, 1})
      .ExpectError("clip.C2");
}

TEST(Clip, C3_BoundOfAnotherType) {
  OpTest("clip")
      .Attr("min", 0.f)
      .Attr("max", 1.f)
      .Input("X", {1}, {0})
      .IntInput("Min", {1}, {0})
      .ExpectError("clip.C3");
}

// Bounds in float32 for a tensor of 16 bits: thresholds times a loss scale may exceed
// float16's range.
TEST(Clip, FloatBoundsOfHalves) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor out = OpTest("clip")
                           .Attr("min", 0.f)
                           .Attr("max", 0.f)
                           .TensorInput("X", Tensor::Of<float>({3}, {-8, 0.5f, 60000}).Cast(dtype))
                           .TensorInput("Min", Tensor::Of<float>({1}, {-2}))
                           .TensorInput("Max", Tensor::Of<float>({1}, {1e6f}))
                           .Output("Out");
    ASSERT_EQ(out.dtype(), dtype);
    const Tensor wide = out.Cast(DType::kFloat32);
    EXPECT_EQ(wide.data<float>()[0], -2);
    EXPECT_EQ(wide.data<float>()[1], 0.5f);
    EXPECT_NEAR(wide.data<float>()[2], 60000, 200);
  }
}

}  // namespace coracle::clip_test
