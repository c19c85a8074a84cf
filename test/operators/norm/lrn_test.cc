#include <cmath>

#include "../../op_test.h"

namespace coracle {

TEST(Lrn, Values) {
  // Squares 1, 4, 9, 16; sums of three: 5, 14, 29, 25.
  for (const std::string layout : {"AnyLayout", "NHWC"}) {
    const Shape shape = layout == "NHWC" ? Shape{1, 1, 1, 4} : Shape{1, 4, 1, 1};
    OpTest("lrn")
        .Attr("n", 3)
        .Attr("k", 1.f)
        .Attr("alpha", 2.f)
        .Attr("beta", 0.5f)
        .Attr("data_format", layout)
        .Input("X", shape, {1, -2, 3, 4})
        .Expect("MidOut", shape, {11, 29, 59, 51})
        .Expect(
            "Out", shape,
            {1 / std::sqrt(11.0), -2 / std::sqrt(29.0), 3 / std::sqrt(59.0), 4 / std::sqrt(51.0)});
  }
  // Pixels do not mix.
  OpTest("lrn")
      .Attr("k", 0.f)
      .Attr("alpha", 1.f)
      .Attr("beta", 1.f)
      .Input("X", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Expect("MidOut", {1, 2, 1, 2}, {10, 20, 10, 20})
      .Expect("Out", {1, 2, 1, 2}, {0.1, 0.1, 0.3, 0.2});
  OpTest("lrn").Input("X", {0, 2, 1, 1}, {}).Expect("Out", {0, 2, 1, 1}, {});
}

TEST(Lrn, Gradients) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    OpTest("lrn")
        .Attr("n", 3)
        .Attr("alpha", 0.5f)
        .Attr("data_format", layout)
        .RandomInput("X", {2, 4, 2, 3})
        .CheckGradient({"X"});
  }
}

TEST(Lrn, Constraints) {
  OpTest("lrn").RandomInput("X", {2, 2}).ExpectError("lrn.C1");
  for (const int n : {0, -1, 4})
    OpTest("lrn").Attr("n", n).RandomInput("X", {1, 1, 1, 1}).ExpectError("lrn.C2");
  OpTest("lrn_grad")
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("Out", {1, 1, 1, 1})
      .RandomInput("MidOut", {1, 1, 1, 2})
      .RandomInput("Out@GRAD", {1, 1, 1, 1})
      .ExpectError("lrn_grad.C3");
}

}  // namespace coracle
