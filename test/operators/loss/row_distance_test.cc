#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>

namespace coracle::row_distance_test {

TEST(CosSim, Values) {
  OpTest("cos_sim")
      .Input("X", {3, 2}, {3, 4, 1, 0, 0, 0})
      .Input("Y", {3, 2}, {4, 3, -2, 0, 1, 1})
      .Expect("Out", {3, 1}, {0.96, -1, 0})
      .Expect("XNorm", {3, 1}, {5, 1, 1e-4})
      .Expect("YNorm", {3, 1}, {5, 2, std::sqrt(2)});
  OpTest("cos_sim")
      .Input("X", {2, 1, 2}, {3, 4, 1, 0})
      .Input("Y", {1, 1, 2}, {0, 2})
      .Expect("Out", {2, 1}, {0.8, 0})
      .Expect("XNorm", {2, 1}, {5, 1})
      .Expect("YNorm", {1, 1}, {2});
  OpTest("cos_sim").Input("X", {0, 2}, {}).Input("Y", {1, 2}, {1, 0}).Expect("Out", {0, 1}, {});
}

TEST(CosSim, KeepsTheLod) {
  OpTest("cos_sim")
      .Input("X", {2, 2}, {3, 4, 1, 0})
      .Lod({{0, 2}})
      .Input("Y", {1, 2}, {0, 2})
      .Expect("Out", {2, 1}, {0.8, 0})
      .ExpectLod("Out", {{0, 2}});
}

TEST(CosSim, Gradients) {
  for (const Shape& y : {Shape{3, 4}, Shape{1, 4}}) {
    OpTest test("cos_sim");
    test.RandomInput("X", {3, 4}, -2, 2, 0.2).RandomInput("Y", y, -2, 2, 0.2);
    test.CheckGradient({"X", "Y"}).CheckHigherGradients();
  }
  OpTest test("cos_sim");
  test.RandomInput("X", {2, 2, 2}, -2, 2, 0.2).RandomInput("Y", {1, 2, 2}, -2, 2, 0.2);
  test.CheckGradient({"X", "Y"});
}

// Squares of these overflow.
TEST(CosSim, LargeNumbers) {
  const auto check = [](auto zero, double size) {
    using T = decltype(zero);
    const auto s = static_cast<T>(size);
    const Tensor x = Tensor::Of<T>({1, 2}, {3 * s, 4 * s}), y = Tensor::Of<T>({1, 2}, {s, 0});
    OpTest("cos_sim").TensorInput("X", x).TensorInput("Y", y).Expect("Out", {1, 1}, {0.6}, 1e-6);
    const std::vector<double> dx = NumbersOf(GradientOf("cos_sim", {}, {{"X", x}, {"Y", y}}, "X"));
    EXPECT_NEAR(dx[0] * size, 0.64 / 5, 1e-6);  // (1 - 0.6 0.6) / |x|
    EXPECT_NEAR(dx[1] * size, -0.48 / 5, 1e-6);
  };
  check(float(), 1e25);
  check(double(), 1e200);
}

TEST(SmoothL1Loss, Values) {
  OpTest("smooth_l1_loss")
      .Input("X", {2, 2}, {0.5, 3, -1, 0})
      .Input("Y", {2, 2}, {0, 0, 1, 0})
      .Expect("Out", {2, 1}, {0.125 + 2.5, 1.5})
      .Expect("Diff", {2, 2}, {0.5, 3, -2, 0});
  OpTest("smooth_l1_loss")
      .Input("X", {2, 1}, {0.5, 3})
      .Lod({{0, 2}})
      .Input("Y", {2, 1}, {0, 0})
      .Expect("Out", {2, 1}, {0.125, 2.5})
      .ExpectLod("Out", {});
  // sigma = 2: the parabola ends at 1 / 4.
  OpTest("smooth_l1_loss")
      .Attr("sigma", 2.f)
      .Input("X", {1, 1, 3}, {0.125, 0.25, -1})
      .Input("Y", {1, 1, 3}, {0, 0, 0})
      .Input("InsideWeight", {1, 1, 3}, {1, 2, 0.5})
      .Input("OutsideWeight", {1, 1, 3}, {2, 1, 3})
      .Expect("Out", {1, 1}, {2 * 0.03125 + (0.5 - 0.125) + 3 * (0.5 - 0.125)});
  // One weight alone counts for nothing.
  OpTest("smooth_l1_loss")
      .Input("X", {1, 1}, {3})
      .Input("Y", {1, 1}, {0})
      .Input("InsideWeight", {1, 1}, {5})
      .Expect("Out", {1, 1}, {2.5});
  OpTest("smooth_l1_loss").Input("X", {0, 2}, {}).Input("Y", {0, 2}, {}).Expect("Out", {0, 1}, {});
}

TEST(SmoothL1Loss, Gradients) {
  OpTest test("smooth_l1_loss");
  test.Input("X", {2, 2}, {0.5, 3, -1, 0.25}).Input("Y", {2, 2}, {0, 0, 1, 0});
  test.CheckGradient({"X", "Y"}).CheckHigherGradients();
  OpTest weighted("smooth_l1_loss");
  weighted.Attr("sigma", 2.f).Input("X", {2, 1, 2}, {0.125, 1, -1, 0.5});
  weighted.Input("Y", {2, 1, 2}, {0, 0, 1, 0}).RandomInput("InsideWeight", {2, 1, 2}, 0.6, 0.9);
  weighted.RandomInput("OutsideWeight", {2, 1, 2}, 0.5, 2).CheckGradient({"X", "Y"});
}

TEST(SquaredL2Distance, Values) {
  OpTest("squared_l2_distance")
      .Input("X", {2, 1, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 1, 2}, {0, 0, 3, 6})
      .Expect("Out", {2, 1}, {5, 4})
      .Expect("sub_result", {2, 2}, {1, 2, 0, -2});
  OpTest("squared_l2_distance")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {1, 2}, {1, 1})
      .Expect("Out", {2, 1}, {1, 13});
  OpTest("squared_l2_distance")
      .Input("X", {0, 2}, {})
      .Input("Y", {1, 2}, {1, 0})
      .Expect("Out", {0, 1}, {})
      .Expect("sub_result", {0, 2}, {});
}

TEST(SquaredL2Distance, Gradients) {
  for (const Shape& y : {Shape{3, 2}, Shape{1, 2}}) {
    OpTest test("squared_l2_distance");
    test.RandomInput("X", {3, 2}).RandomInput("Y", y);
    test.CheckGradient({"X", "Y"}).CheckHigherGradients();
  }
  OpTest test("squared_l2_distance");
  test.RandomInput("X", {2, 2, 2}).RandomInput("Y", {1, 2, 2}).CheckGradient({"X", "Y"});
}

TEST(RowDistance, Constraints) {
  for (const std::string type : {"cos_sim", "smooth_l1_loss", "squared_l2_distance"}) {
    OpTest(type).RandomInput("X", {3}).RandomInput("Y", {3}).ExpectError(type + ".C1");
    OpTest(type).RandomInput("X", {3, 2}).RandomInput("Y", {2, 2}).ExpectError(type + ".C2");
    OpTest(type)
        .RandomInput("X", {1, 2})
        .TensorInput("Y", Tensor::Zeros(DType::kFloat64, {1, 2}))
        .ExpectError(type + ".C2");
  }
  OpTest("smooth_l1_loss")
      .RandomInput("X", {3, 2})
      .RandomInput("Y", {1, 2})
      .ExpectError("smooth_l1_loss.C2");
  OpTest("smooth_l1_loss")
      .RandomInput("X", {3, 2})
      .RandomInput("Y", {3, 2})
      .RandomInput("InsideWeight", {3, 2})
      .RandomInput("OutsideWeight", {3, 1})
      .ExpectError("smooth_l1_loss.C3");
}
}  // namespace coracle::row_distance_test
