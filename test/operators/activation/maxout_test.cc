#include <cmath>

#include "../../op_test.h"
#include "../gradient_of.h"

namespace coracle {
namespace {

OpTest Groups(int32_t groups, int32_t axis = 1) {
  OpTest test("maxout");
  test.Attr("groups", groups).Attr("axis", axis);
  return test;
}

}  // namespace

TEST(Maxout, Values) {
  const std::vector<double> x = {1, -2, 3, 4, 0, -1, 5, -6};
  Groups(2).Input("X", {1, 4, 1, 2}, x).Expect("Out", {1, 2, 1, 2}, {3, 4, 5, -1});
  Groups(4).Input("X", {2, 4, 1, 1}, x).Expect("Out", {2, 1, 1, 1}, {4, 5});
  for (int32_t axis : {3, -1})
    Groups(2, axis).Input("X", {1, 1, 2, 4}, x).Expect("Out", {1, 1, 2, 2}, {1, 4, 0, 5});
}

TEST(Maxout, Edges) {
  const double nan = std::nan("");
  Groups(2).Input("X", {1, 4, 1, 1}, {nan, 1, 2, nan}).Expect("Out", {1, 2, 1, 1}, {nan, nan});
  Groups(2).Input("X", {0, 2, 3, 1}, {}).Expect("Out", {0, 1, 3, 1}, {});
  Groups(2).Input("X", {1, 0, 1, 1}, {}).Expect("Out", {1, 0, 1, 1}, {});
}

TEST(Maxout, Gradients) {
  for (int32_t axis : {1, 3, -1}) {
    OpTest test = Groups(2, axis);
    test.RandomInput("X", {2, 4, 3, 4}).CheckGradient({"X"}).CheckHigherGradients();
  }
}

TEST(Maxout, SecondGradientsOfEmptyImages) {
  for (const Shape& shape : {Shape{0, 4, 2, 2}, Shape{1, 0, 2, 3}, Shape{2, 4, 0, 3}}) {
    for (int32_t axis : {1, 3}) {
      Shape x = shape;
      if (axis == 3) std::swap(x[1], x[3]);
      Shape dout = x;
      dout[axis] /= 2;
      const Tensor gradient = GradientOf("maxout_grad", {{"groups", int32_t{2}}, {"axis", axis}},
                                         {{"X", Tensor::Zeros(DType::kFloat32, x)},
                                          {"Out@GRAD", Tensor::Zeros(DType::kFloat32, dout)}},
                                         "Out@GRAD", "X@GRAD");
      EXPECT_EQ(gradient.shape(), dout) << axis;
    }
  }
}

TEST(Maxout, FirstOfEqualsGetsTheGradient) {
  OpTest("maxout_grad")
      .Attr("groups", 3)
      .Input("X", {1, 3, 1, 1}, {1, 2, 2})
      .Input("Out@GRAD", {1, 1, 1, 1}, {5})
      .Expect("X@GRAD", {1, 3, 1, 1}, {0, 5, 0});
}

TEST(Maxout, Constraints) {
  Groups(2).RandomInput("X", {2, 4}).ExpectError("maxout.C1");
  Groups(2, 2).RandomInput("X", {2, 4, 2, 2}).ExpectError("maxout.C2");
  Groups(3).RandomInput("X", {2, 4, 2, 2}).ExpectError("maxout.C3");
  Groups(1).RandomInput("X", {2, 4, 2, 2}).ExpectError("groups");
  OpTest("maxout_grad")
      .Attr("groups", 2)
      .RandomInput("X", {1, 2, 1, 1})
      .RandomInput("Out@GRAD", {1, 2, 1, 1})
      .ExpectError("maxout_grad.C4");
}

}  // namespace coracle
