#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace coracle::maxout_test {

OpTest Groups(int32_t groups, int32_t axis = 1) {
  OpTest test("maxout");
  test.Attr("groups", groups).Attr("axis", axis);
  return test;
}

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

// More lines than a block has: channel c of Out is the largest of two neighbours.
TEST(Maxout, LongLines) {
  for (const bool last : {false, true}) {
    constexpr int64_t kPixels = 300;
    std::vector<double> x, out, dx;
    const auto value = [](int64_t c, int64_t i) {
      return static_cast<double>((i * 7 + c * 5) % 11);
    };
    for (int64_t at = 0; at < 4 * kPixels; ++at) {
      const int64_t c = last ? at % 4 : at / kPixels, i = last ? at / 4 : at % kPixels;
      const double other = value(c % 2 ? c - 1 : c + 1, i);
      x.push_back(value(c, i));
      dx.push_back(value(c, i) > other || (value(c, i) == other && c % 2 == 0) ? 3 : 0);
    }
    for (int64_t at = 0; at < 2 * kPixels; ++at) {
      const int64_t c = last ? at % 2 : at / kPixels, i = last ? at / 2 : at % kPixels;
      out.push_back(std::max(value(2 * c, i), value(2 * c + 1, i)));
    }
    const Shape in_shape = last ? Shape{1, 1, kPixels, 4} : Shape{1, 4, 1, kPixels};
    const Shape out_shape = last ? Shape{1, 1, kPixels, 2} : Shape{1, 2, 1, kPixels};
    Groups(2, last ? 3 : 1).Input("X", in_shape, x).Expect("Out", out_shape, out);
    OpTest("maxout_grad")
        .Attr("groups", 2)
        .Attr("axis", last ? 3 : 1)
        .Input("X", in_shape, x)
        .Input("Out@GRAD", out_shape, std::vector<double>(out.size(), 3))
        .Expect("X@GRAD", in_shape, dx);
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

}  // namespace coracle::maxout_test
