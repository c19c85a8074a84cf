#include <coracle/test/op_test.h>

namespace coracle::label_smooth_test {

TEST(LabelSmooth, Values) {
  OpTest("label_smooth")
      .Attr("epsilon", 0.5f)
      .Input("X", {2, 2}, {1, 0, 0, 1})
      .Expect("Out", {2, 2}, {0.75, 0.25, 0.25, 0.75})
      .CheckGradient({"X"});
  OpTest("label_smooth")
      .Attr("epsilon", 0.5f)
      .InPlace("X", "Out")
      .Input("X", {1, 2}, {1, 0})
      .Input("PriorDist", {1, 2}, {0.25, 0.75})
      .Expect("Out", {1, 2}, {0.625, 0.375});
  OpTest("label_smooth").Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
}

TEST(LabelSmooth, Constraints) {
  OpTest("label_smooth").Input("X", {}, {1}).ExpectError("label_smooth.C1");
  OpTest("label_smooth")
      .Input("X", {1, 2}, {1, 0})
      .Input("PriorDist", {3}, {1, 1, 1})
      .ExpectError("label_smooth.C2");
  OpTest("label_smooth").Attr("epsilon", 1.5f).Input("X", {1}, {1}).ExpectError("label_smooth.C3");
}

}  // namespace coracle::label_smooth_test
