#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::softmax_test {

const double kInf = std::numeric_limits<double>::infinity();

TEST(Softmax, Values) {
  // exp(ln k) are in proportion 1 : 2 : 5 and 3 : 1 : 4.
  OpTest("softmax")
      .Input("X", {2, 3},
             {0, std::log(2), std::log(5), std::log(3) + 7, std::log(1) + 7, std::log(4) + 7})
      .Expect("Out", {2, 3}, {0.125, 0.25, 0.625, 0.375, 0.125, 0.5});
}

TEST(Softmax, AlongAnotherAxis) {
  OpTest("softmax")
      .Attr("axis", 0)
      .Input("X", {2, 3}, {0, 0, 1, std::log(3), 0, 1})
      .Expect("Out", {2, 3}, {0.25, 0.5, 0.5, 0.75, 0.5, 0.5})
      .CheckGradient({"X"});
  OpTest("softmax")
      .Attr("axis", -2)
      .Input("X", {2, 2, 1}, {0, std::log(3), std::log(4), 0})
      .Expect("Out", {2, 2, 1}, {0.25, 0.75, 0.8, 0.2});
}

TEST(Softmax, ExtremeValues) {
  OpTest("softmax")
      .Input("X", {3, 2}, {1e4, 1e4, -1e4, 1e4, 3, -kInf})
      .Expect("Out", {3, 2}, {0.5, 0.5, 0, 1, 1, 0});
  const double nan = std::nan("");
  OpTest("softmax").Input("X", {2, 2}, {nan, 1, 0, 0}).Expect("Out", {2, 2}, {nan, nan, 0.5, 0.5});
  OpTest("softmax").Input("X", {2}, {-kInf, -kInf}).Expect("Out", {2}, {nan, nan});
  OpTest("softmax").Input("X", {2}, {kInf, 0}).Expect("Out", {2}, {nan, nan});
}

TEST(Softmax, SmallShapes) {
  OpTest("softmax").Input("X", {}, {5}).Expect("Out", {}, {1});
  OpTest("softmax").Input("X", {2}, {1, 1}).Expect("Out", {2}, {0.5, 0.5});
  OpTest("softmax").Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
  OpTest("softmax").Input("X", {3, 0}, {}).Expect("Out", {3, 0}, {});
}

TEST(Softmax, InPlace) {
  OpTest("softmax")
      .InPlace("X", "Out")
      .Input("X", {2}, {0, std::log(3)})
      .Expect("Out", {2}, {0.25, 0.75});
}

TEST(Softmax, Gradients) {
  OpTest("softmax").RandomInput("X", {3, 5}, -2, 2).CheckGradient({"X"}).CheckSecondGradient({"X"});
  OpTest("softmax")
      .Attr("axis", 1)
      .RandomInput("X", {2, 3, 2}, -2, 2)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(Softmax, FastAgainstReference) {
  for (int64_t n : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257}) {
    OpTest("softmax").RandomInput("X", {1 + n % 5, n}, -20, 20).CheckFast(1e-5);
    OpTest("log_softmax").RandomInput("X", {1 + n % 5, n}, -20, 20).CheckFast(1e-5);
  }
  OpTest("softmax").RandomInput("X", {700, 64}, -5, 5).CheckFast(1e-5);
}

TEST(Softmax, C1_Axis) {
  OpTest("softmax").Attr("axis", 2).RandomInput("X", {2, 2}).ExpectError("softmax.C1");
  OpTest("softmax").Attr("axis", -3).RandomInput("X", {2, 2}).ExpectError("softmax.C1");
}

TEST(SoftmaxGrad, C1_GradientOfAnotherShape) {
  OpTest("softmax_grad")
      .RandomInput("Out", {2, 3})
      .RandomInput("Out@GRAD", {2, 2})
      .ExpectError("softmax_grad.C1");
}

TEST(LogSoftmax, Values) {
  OpTest("log_softmax")
      .Input("X", {1, 3}, {0, std::log(2), std::log(5)})
      .Expect("Out", {1, 3}, {std::log(0.125), std::log(0.25), std::log(0.625)});
  OpTest("log_softmax")
      .Attr("axis", 0)
      .Input("X", {2, 1}, {1000, 1000 + std::log(3)})
      .Expect("Out", {2, 1}, {std::log(0.25), std::log(0.75)}, 1e-4);
}

TEST(LogSoftmax, ExtremeValues) {
  OpTest("log_softmax")
      .Input("X", {2, 2}, {-1e4, 1e4, 0, -kInf})
      .Expect("Out", {2, 2}, {-2e4, 0, 0, -kInf});
  OpTest("log_softmax").Input("X", {}, {5}).Expect("Out", {}, {0});
  OpTest("log_softmax").Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
}

TEST(LogSoftmax, Gradients) {
  OpTest("log_softmax")
      .RandomInput("X", {3, 5}, -2, 2)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("log_softmax")
      .Attr("axis", 0)
      .RandomInput("X", {4, 3}, -2, 2)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(LogSoftmax, C1_Axis) {
  OpTest("log_softmax").Attr("axis", 1).RandomInput("X", {2}).ExpectError("log_softmax.C1");
}

TEST(LogSoftmaxGrad, C1_GradientOfAnotherShape) {
  OpTest("log_softmax_grad")
      .RandomInput("Out", {2, 3})
      .RandomInput("Out@GRAD", {6})
      .ExpectError("log_softmax_grad.C1");
}
}  // namespace coracle::softmax_test
