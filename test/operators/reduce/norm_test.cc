#include <cmath>

#include "../../op_test.h"

namespace coracle::norm_test {

OpTest Along(int32_t axis) {
  OpTest test("norm");
  test.Attr("axis", axis);
  return test;
}

TEST(Norm, Values) {
  const std::vector<double> x = {3, 4, 6, -8};
  Along(1)
      .Input("X", {2, 2}, x)
      .Expect("Out", {2, 2}, {0.6, 0.8, 0.6, -0.8})
      .Expect("Norm", {2, 1}, {5, 10});
  Along(-2).Input("X", {2, 2}, x).Expect("Norm", {1, 2}, {std::sqrt(45), std::sqrt(80)});
  Along(0).NoOutput("Norm").Input("X", {2}, {3, 4}).Expect("Out", {2}, {0.6, 0.8});
  Along(0).Attr("epsilon", 9.f).Input("X", {1}, {4}).Expect("Out", {1}, {0.8});
}

TEST(Norm, Edges) {
  Along(0).Input("X", {2}, {0, 0}).Expect("Out", {2}, {0, 0}).Expect("Norm", {1}, {1e-5});
  Along(1).Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {}).Expect("Norm", {2, 1}, {1e-5, 1e-5});
  Along(1).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {}).Expect("Norm", {0, 1}, {});
}

TEST(Norm, Gradients) {
  for (int32_t axis : {0, 1, -1}) {
    Along(axis).RandomInput("X", {2, 3, 2}).CheckGradient({"X"});
    Along(axis).NoOutput("Norm").RandomInput("X", {2, 3, 2}).CheckGradient({"X"});
  }
  Along(1).RandomInput("X", {2, 3}).CheckHigherGradients();
}

TEST(Norm, AllFiniteNumbers) {
  for (const double x : {1e-200, 1e-100, 1e160, 1e200}) {
    OpTest("norm")
        .Attr("axis", 0)
        .Attr("epsilon", 0.f)
        .TensorInput("X", Tensor::Of<double>({2}, {3 * x, 4 * x}))
        .Expect("Out", {2}, {0.6, 0.8}, 1e-14);
  }
}

TEST(Norm, C1_Axis) {
  Along(2).RandomInput("X", {2, 3}).ExpectError("norm.C1");
  Along(0).RandomInput("X", {}).ExpectError("norm.C1");
}

}  // namespace coracle::norm_test
