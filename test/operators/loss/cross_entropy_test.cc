#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::cross_entropy_test {

TEST(CrossEntropy, HardLabels) {
  OpTest("cross_entropy")
      .Input("X", {2, 3}, {0.25, 0.25, 0.5, 0.1, 0.8, 0.1})
      .IntInput("Label", {2, 1}, {2, 1})
      .Expect("Y", {2, 1}, {std::log(2), -std::log(0.8)})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(CrossEntropy, Int32LabelsOfHigherRank) {
  OpTest("cross_entropy")
      .Input("X", {1, 2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {1, 2, 1}, {0, 1}, DType::kInt32)
      .Expect("Y", {1, 2, 1}, {std::log(4), std::log(2)});
}

TEST(CrossEntropy, LabelsWithoutTheLastDim) {
  OpTest("cross_entropy")
      .Input("X", {2, 3}, {0.25, 0.25, 0.5, 0.1, 0.8, 0.1})
      .IntInput("Label", {2}, {2, 1})
      .Expect("Y", {2}, {std::log(2), -std::log(0.8)})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"})
      .CheckHigherGradients();
  OpTest("cross_entropy")
      .RandomInput("X", {2, 2, 3}, 0.1, 0.9)
      .IntInput("Label", {2, 2}, {2, 1, 0, 0})
      .CheckGradient({"X"});
  OpTest("cross_entropy")
      .RandomInput("X", {2, 2, 3}, 0.1, 0.9)
      .IntInput("Label", {2, 3}, {2, 1, 0, 0, 0, 0})
      .ExpectError("cross_entropy.C2");
}

TEST(CrossEntropy, SoftLabels) {
  OpTest("cross_entropy")
      .Attr("soft_label", true)
      .Input("X", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .Input("Label", {2, 2}, {0.5, 0.5, 1, 0})
      .Expect("Y", {2, 1}, {-0.5 * std::log(0.25) - 0.5 * std::log(0.75), std::log(2)})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(CrossEntropy, IgnoredRows) {
  OpTest("cross_entropy")
      .Attr("ignore_index", -1)
      .Input("X", {3, 2}, {0.25, 0.75, 0.5, 0.5, 0.2, 0.8})
      .IntInput("Label", {3, 1}, {-1, 0, -1})
      .Expect("Y", {3, 1}, {0, std::log(2), 0})
      .CheckGradient({"X"});
  OpTest("cross_entropy_grad")
      .Attr("ignore_index", 1)
      .Input("X", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {2, 1}, {1, 0})
      .Input("Y@GRAD", {2, 1}, {1, 3})
      .Expect("X@GRAD", {2, 2}, {0, 0, -6, 0});
}

TEST(CrossEntropy, ProbabilityZeroIsBounded) {
  OpTest("cross_entropy")
      .Input("X", {1, 2}, {0, 1})
      .IntInput("Label", {1, 1}, {0})
      .Expect("Y", {1, 1}, {1e20});
  OpTest("cross_entropy")
      .Attr("soft_label", true)
      .Input("X", {1, 2}, {0, 1})
      .Input("Label", {1, 2}, {0, 1})
      .Expect("Y", {1, 1}, {0});
}

TEST(CrossEntropy, NoRows) {
  OpTest("cross_entropy")
      .Input("X", {0, 3}, {})
      .IntInput("Label", {0, 1}, {})
      .Expect("Y", {0, 1}, {});
}

TEST(CrossEntropy, C1_Rank) {
  OpTest("cross_entropy")
      .RandomInput("X", {3})
      .IntInput("Label", {1}, {0})
      .ExpectError("cross_entropy.C1");
}

TEST(CrossEntropy, C2_Label) {
  OpTest("cross_entropy")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {2, 3}, {0, 0, 0, 0, 0, 0})
      .ExpectError("cross_entropy.C2");
  OpTest("cross_entropy")
      .RandomInput("X", {2, 3})
      .RandomInput("Label", {2, 1})
      .ExpectError("cross_entropy.C2");
  OpTest("cross_entropy")
      .Attr("soft_label", true)
      .RandomInput("X", {2, 3})
      .RandomInput("Label", {2, 1})
      .ExpectError("cross_entropy.C2");
}

TEST(CrossEntropy, C4_LabelOutOfRange) {
  for (int64_t label : {int64_t{3}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    OpTest("cross_entropy")
        .RandomInput("X", {2, 3}, 0.1, 1)
        .IntInput("Label", {2, 1}, {0, label})
        .ExpectError("label " + std::to_string(label) + " at index 1");
  }
  OpTest("cross_entropy")
      .RandomInput("X", {1, 3}, 0.1, 1)
      .IntInput("Label", {1, 1}, {3}, DType::kInt32)
      .ExpectError("cross_entropy.C4");
}

OpTest Grad(const Shape& x, const Shape& label, const Shape& grad, int64_t k) {
  OpTest test("cross_entropy_grad");
  test.RandomInput("X", x, 0.1, 1)
      .IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), k))
      .RandomInput("Y@GRAD", grad);
  return test;
}

TEST(CrossEntropyGrad, Constraints) {
  Grad({3}, {1}, {1}, 0).ExpectError("cross_entropy_grad.C1");
  Grad({2, 3}, {3, 1}, {2, 1}, 0).ExpectError("cross_entropy_grad.C2");
  Grad({2, 3}, {2, 1}, {2, 3}, 0).ExpectError("cross_entropy_grad.C3");
  Grad({2, 3}, {2, 1}, {2, 1}, 3).ExpectError("cross_entropy_grad.C4");
}

TEST(CrossEntropy2, Values) {
  OpTest("cross_entropy2")
      .Attr("ignore_index", 2)
      .Input("X", {4, 3}, {0.25, 0.25, 0.5, 0.1, 0.8, 0.1, 0.1, 0.8, 0.1, 0, 1, 0})
      .IntInput("Label", {4, 1}, {0, 1, 2, 0})
      .Expect("Y", {4, 1}, {std::log(4), -std::log(0.8), 0, 1e20})
      .Expect("MatchX", {4, 1}, {0.25, 0.8, 0, 0})
      .Expect("XShape", {4, 3, 0}, {});
  OpTest("cross_entropy2")
      .Input("X", {0, 3}, {})
      .IntInput("Label", {0, 1}, {})
      .Expect("Y", {0, 1}, {});
  OpTest("cross_entropy2")
      .Input("X", {3, 2}, {0.25, 0.75, 0.5, 0.5, 0.2, 0.8})
      .IntInput("Label", {3, 1}, {1, -100, 0}, DType::kInt32)
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(CrossEntropy2, Constraints) {
  OpTest("cross_entropy2")
      .RandomInput("X", {3})
      .IntInput("Label", {1}, {0})
      .ExpectError("cross_entropy2.C1");
  OpTest("cross_entropy2")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {3}, {0, 0, 0})
      .ExpectError("cross_entropy2.C2");
  OpTest("cross_entropy2")
      .RandomInput("X", {1, 3}, 0.1, 1)
      .IntInput("Label", {1, 1}, {3})
      .ExpectError("cross_entropy2.C4");
  OpTest("cross_entropy2")
      .RandomInput("X", {1, 1, 1, 1, 1, 1, 1, 1, 1})
      .IntInput("Label", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0})
      .ExpectError("cross_entropy2.C5");
}
}  // namespace coracle::cross_entropy_test
