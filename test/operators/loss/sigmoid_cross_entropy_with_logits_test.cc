#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::sigmoid_cross_entropy_with_logits_test {

TEST(SigmoidCrossEntropyWithLogits, Values) {
  // sigmoid(ln 3) = 3/4, sigmoid(-ln 3) = 1/4.
  const double x = std::log(3);
  OpTest("sigmoid_cross_entropy_with_logits")
      .Input("X", {2, 2}, {x, x, -x, 0})
      .Input("Label", {2, 2}, {1, 0, 1, 0.5})
      .Expect("Out", {2, 2}, {-std::log(0.75), std::log(4), std::log(4), std::log(2)})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(SigmoidCrossEntropyWithLogits, IgnoreAndNormalize) {
  OpTest("sigmoid_cross_entropy_with_logits")
      .Attr("ignore_index", -1)
      .Attr("normalize", true)
      .Input("X", {4}, {0, 5, 0, 0})
      .Input("Label", {4}, {1, -1, 0, -1})
      .Expect("Out", {4}, {std::log(2) / 2, 0, std::log(2) / 2, 0})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("sigmoid_cross_entropy_with_logits_grad")
      .Attr("ignore_index", 0)
      .Input("X", {2}, {std::log(3), 1})
      .Input("Label", {2}, {1, 0})
      .Input("Out@GRAD", {2}, {2, 2})
      .Expect("X@GRAD", {2}, {-0.5, 0});
}

TEST(SigmoidCrossEntropyWithLogits, AllIgnored) {
  OpTest("sigmoid_cross_entropy_with_logits")
      .Attr("ignore_index", 1)
      .Attr("normalize", true)
      .Input("X", {2}, {3, 4})
      .Input("Label", {2}, {1, 1})
      .Expect("Out", {2}, {0, 0});
}

TEST(SigmoidCrossEntropyWithLogits, ExtremeAndSmall) {
  OpTest("sigmoid_cross_entropy_with_logits")
      .Input("X", {4}, {1e4, -1e4, 1e4, -1e4})
      .Input("Label", {4}, {0, 0, 1, 1})
      .Expect("Out", {4}, {1e4, 0, 0, 1e4});
  OpTest("sigmoid_cross_entropy_with_logits")
      .Input("X", {}, {0})
      .Input("Label", {}, {1})
      .Expect("Out", {}, {std::log(2)});
  OpTest("sigmoid_cross_entropy_with_logits")
      .Input("X", {0}, {})
      .Input("Label", {0}, {})
      .Expect("Out", {0}, {});
}

TEST(SigmoidCrossEntropyWithLogits, C1_Label) {
  OpTest("sigmoid_cross_entropy_with_logits")
      .RandomInput("X", {2, 2})
      .RandomInput("Label", {2, 1})
      .ExpectError("sigmoid_cross_entropy_with_logits.C1");
  OpTest("sigmoid_cross_entropy_with_logits_grad")
      .RandomInput("X", {2})
      .RandomInput("Label", {1})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("sigmoid_cross_entropy_with_logits_grad.C1");
}

TEST(SigmoidCrossEntropyWithLogitsGrad, C2_Gradient) {
  OpTest("sigmoid_cross_entropy_with_logits_grad")
      .RandomInput("X", {2})
      .RandomInput("Label", {2})
      .RandomInput("Out@GRAD", {1})
      .ExpectError("sigmoid_cross_entropy_with_logits_grad.C2");
}
}  // namespace coracle::sigmoid_cross_entropy_with_logits_test
