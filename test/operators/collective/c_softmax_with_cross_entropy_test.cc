#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::c_softmax_with_cross_entropy_test {

TEST(CSoftmaxWithCrossEntropy, Values) {
  OpTest("c_softmax_with_cross_entropy")
      .Input("Logits", {2, 3}, {0, std::log(2), std::log(5), 0, 0, std::log(2)})
      .IntInput("Label", {2, 1}, {1, 2})
      .Expect("Softmax", {2, 3}, {0.125, 0.25, 0.625, 0.25, 0.25, 0.5})
      .Expect("Loss", {2, 1}, {std::log(4), std::log(2)})
      .CheckGradient({"Logits"})
      .CheckHigherGradients();
  OpTest("c_softmax_with_cross_entropy")
      .Input("Logits", {1, 2}, {1e4, -1e4})
      .IntInput("Label", {1, 1}, {1}, DType::kInt32)
      .Expect("Loss", {1, 1}, {2e4});
  OpTest("c_softmax_with_cross_entropy")
      .Input("Logits", {0, 2}, {})
      .IntInput("Label", {0, 1}, {})
      .Expect("Loss", {0, 1}, {});
  OpTest("c_softmax_with_cross_entropy")
      .InPlace("Logits", "Softmax")
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .IntInput("Label", {1, 1}, {0})
      .Expect("Loss", {1, 1}, {std::log(4)});
}

TEST(CSoftmaxWithCrossEntropy, Constraints) {
  const auto test = [](const Shape& logits, const Shape& label, int64_t k) {
    OpTest made("c_softmax_with_cross_entropy");
    made.RandomInput("Logits", logits);
    made.IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), k));
    return made;
  };
  test({}, {}, 0).ExpectError("c_softmax_with_cross_entropy.C1");
  test({2, 3}, {2}, 0).ExpectError("c_softmax_with_cross_entropy.C2");
  test({2, 3}, {2, 1}, 3).ExpectError("c_softmax_with_cross_entropy.C3");
  test({2, 3}, {2, 1}, -1).ExpectError("c_softmax_with_cross_entropy.C3");
  test({2, 3}, {2, 1}, 0)
      .Attr("nranks", 2)
      .ExpectError("nranks is 2, but one rank runs the program");
}

// Among ranks: test/distribute.
TEST(CSoftmaxWithCrossEntropy, GradientOp) {
  const auto test = [](const Shape& grad) {
    OpTest made("c_softmax_with_cross_entropy_grad");
    made.Input("Softmax", {2, 2}, {0.25, 0.75, 0.5, 0.5})
        .IntInput("Label", {2, 1}, {1, 0})
        .Input("Loss@GRAD", grad, std::vector<double>(static_cast<size_t>(grad.numel()), 2));
    return made;
  };
  test({2, 1}).Expect("Logits@GRAD", {2, 2}, {0.5, -0.5, -1, 1});
  test({2, 2}).ExpectError("c_softmax_with_cross_entropy_grad.C4");
}
}  // namespace coracle::c_softmax_with_cross_entropy_test
