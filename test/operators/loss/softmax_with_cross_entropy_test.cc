#include <coracle/operators/kernels/softmax.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::softmax_with_cross_entropy_test {

TEST(SoftmaxWithCrossEntropy, HardLabels) {
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {2, 3}, {0, std::log(2), std::log(5), 0, 0, std::log(2)})
      .IntInput("Label", {2, 1}, {1, 2})
      .Expect("Softmax", {2, 3}, {0.125, 0.25, 0.625, 0.25, 0.25, 0.5})
      .Expect("Loss", {2, 1}, {std::log(4), std::log(2)})
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
}

TEST(SoftmaxWithCrossEntropy, SoftLabels) {
  OpTest("softmax_with_cross_entropy")
      .Attr("soft_label", true)
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .Input("Label", {1, 2}, {0.5, 0.5})
      .Expect("Loss", {1, 1}, {-0.5 * std::log(0.25) - 0.5 * std::log(0.75)})
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
}

TEST(SoftmaxWithCrossEntropy, SoftLabelsThatDoNotAddUpToOne) {
  OpTest("softmax_with_cross_entropy")
      .Attr("soft_label", true)
      .RandomInput("Logits", {3, 4})
      .RandomInput("Label", {3, 4}, 0, 2)
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
}

TEST(SoftmaxWithCrossEntropy, GradientOfTheLossAlone) {
  // softmax - one_hot, times the loss's gradient.
  OpTest("softmax_with_cross_entropy_grad")
      .Input("Softmax", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {2, 1}, {1, 0})
      .Input("Loss@GRAD", {2, 1}, {2, -1})
      .Expect("Logits@GRAD", {2, 2}, {0.5, -0.5, 0.5, -0.5});
}

TEST(SoftmaxWithCrossEntropy, IgnoredRows) {
  OpTest("softmax_with_cross_entropy")
      .Attr("ignore_index", 7)
      .Input("Logits", {2, 2}, {0, std::log(3), 0, 0})
      .IntInput("Label", {2, 1}, {7, 0})
      .Expect("Softmax", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .Expect("Loss", {2, 1}, {0, std::log(2)})
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
  OpTest("softmax_with_cross_entropy_grad")
      .Attr("ignore_index", 0)
      .Input("Softmax", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {2, 1}, {1, 0})
      .Input("Loss@GRAD", {2, 1}, {1, 1})
      .Expect("Logits@GRAD", {2, 2}, {0.25, -0.25, 0, 0});
}

TEST(SoftmaxWithCrossEntropy, AlongAnotherAxis) {
  OpTest("softmax_with_cross_entropy")
      .Attr("axis", 0)
      .Input("Logits", {2, 2}, {0, 0, std::log(3), 0})
      .IntInput("Label", {1, 2}, {0, 1}, DType::kInt32)
      .Expect("Loss", {1, 2}, {std::log(4), std::log(2)})
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
}

TEST(SoftmaxWithCrossEntropy, WithoutSoftmax) {
  OpTest("softmax_with_cross_entropy")
      .Attr("use_softmax", false)
      .Input("Logits", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {2, 1}, {0, 1})
      .Expect("Softmax", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .Expect("Loss", {2, 1}, {std::log(4), std::log(2)})
      .CheckGradient({"Logits"})
      .CheckSecondGradient({"Logits"});
  OpTest("softmax_with_cross_entropy")
      .Attr("use_softmax", false)
      .Attr("soft_label", true)
      .Input("Logits", {1, 2}, {0.25, 0.75})
      .Input("Label", {1, 2}, {0.2, 0.8})
      .Expect("Loss", {1, 1}, {-0.2 * std::log(0.25) - 0.8 * std::log(0.75)})
      .CheckGradient({"Logits"});
}

TEST(SoftmaxWithCrossEntropy, WithoutTheSoftmaxOutput) {
  OpTest("softmax_with_cross_entropy")
      .NoOutput("Softmax")
      .NoOutput("Backprop")
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .IntInput("Label", {1, 1}, {0})
      .Expect("Loss", {1, 1}, {std::log(4)});
}

TEST(SoftmaxWithCrossEntropy, ExtremeLogits) {
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {2, 2}, {1e4, -1e4, 1e4, 1e4})
      .IntInput("Label", {2, 1}, {1, 0})
      .Expect("Loss", {2, 1}, {2e4, std::log(2)});
  OpTest("softmax_with_cross_entropy")
      .Attr("soft_label", true)
      .Input("Logits", {1, 2}, {1e4, 1e4 + 2})
      .Input("Label", {1, 2}, {0.5, 0.5})
      .Expect("Loss", {1, 1}, {std::log1p(std::exp(-2)) + 1});
}

TEST(SoftmaxWithCrossEntropy, InPlace) {
  OpTest("softmax_with_cross_entropy")
      .InPlace("Logits", "Softmax")
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .IntInput("Label", {1, 1}, {0})
      .Expect("Loss", {1, 1}, {std::log(4)})
      .Expect("Softmax", {1, 2}, {0.25, 0.75});
  OpTest("softmax_with_cross_entropy")
      .InPlace("Logits", "Softmax")
      .Attr("soft_label", true)
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .Input("Label", {1, 2}, {1, 0})
      .Expect("Loss", {1, 1}, {std::log(4)});
}

TEST(SoftmaxWithCrossEntropy, SmallShapes) {
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {2}, {0, 0})
      .IntInput("Label", {1}, {0})
      .Expect("Loss", {1}, {std::log(2)});
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {0, 3}, {})
      .IntInput("Label", {0, 1}, {})
      .Expect("Loss", {0, 1}, {});
}

TEST(SoftmaxWithCrossEntropy, FastAgainstReference) {
  for (int64_t n : {2, 3, 10, 16, 17, 40, 129}) {
    OpTest("softmax_with_cross_entropy")
        .RandomInput("Logits", {3, n}, -10, 10)
        .IntInput("Label", {3, 1}, {0, n - 1, n / 2})
        .CheckFast(1e-5);
    OpTest("softmax_with_cross_entropy")
        .Attr("soft_label", true)
        .RandomInput("Logits", {4, n}, -10, 10)
        .RandomInput("Label", {4, n}, 0, 1)
        .CheckFast(1e-4);
  }
}

TEST(SoftmaxWithCrossEntropy, FastWithoutTheSoftmaxOutput) {
  for (int64_t n : {1, 3, 16, 17, 40, 129}) {
    OpTest("softmax_with_cross_entropy")
        .NoOutput("Softmax")
        .NoOutput("Backprop")
        .RandomInput("Logits", {3, n}, -10, 10)
        .IntInput("Label", {3, 1}, {0, n - 1, n / 2})
        .CheckFast(1e-5);
  }
}

TEST(SoftmaxWithCrossEntropy, MinusInfinity) {
  constexpr double kLow = -std::numeric_limits<double>::infinity();
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {1, 3}, {kLow, 0, std::log(3)})
      .IntInput("Label", {1, 1}, {1})
      .Expect("Softmax", {1, 3}, {0, 0.25, 0.75})
      .Expect("Loss", {1, 1}, {std::log(4)});
}

// The loss, and (softmax - one hot) Mean@GRAD / number of losses.
TEST(FusedSoftmaxWithCrossEntropy, Values) {
  OpTest("fused_softmax_with_cross_entropy")
      .Attr("ignore_index", 7)
      .Input("Logits", {3, 3}, {0, std::log(2), std::log(5), 9, 9, 9, 0, 0, std::log(2)})
      .IntInput("Label", {3, 1}, {1, 7, 2})
      .Input("Mean@GRAD", {1}, {6})
      .Expect("Loss", {3, 1}, {std::log(4), 0, std::log(2)})
      .Expect("Logits@GRAD", {3, 3}, {0.25, -1.5, 1.25, 0, 0, 0, 0.5, 0.5, -1});
  OpTest("fused_softmax_with_cross_entropy")
      .Attr("axis", 0)
      .Input("Logits", {2, 2}, {0, 0, std::log(3), 0})
      .IntInput("Label", {1, 2}, {0, 1}, DType::kInt32)
      .Input("Mean@GRAD", {}, {2})
      .Expect("Loss", {1, 2}, {std::log(4), std::log(2)})
      .Expect("Logits@GRAD", {2, 2}, {-0.75, 0.5, 0.75, -0.5});
}

TEST(FusedSoftmaxWithCrossEntropy, SoftLabels) {
  OpTest("fused_softmax_with_cross_entropy")
      .Attr("soft_label", true)
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .Input("Label", {1, 2}, {0.5, 1.5})
      .Input("Mean@GRAD", {1}, {2})
      .Expect("Loss", {1, 1}, {-0.5 * std::log(0.25) - 1.5 * std::log(0.75)})
      .Expect("Logits@GRAD", {1, 2}, {0, 0});
}

TEST(FusedSoftmaxWithCrossEntropy, Probabilities) {
  OpTest("fused_softmax_with_cross_entropy")
      .Attr("use_softmax", false)
      .Input("Logits", {2, 2}, {0.25, 0.75, 0.5, 0.5})
      .IntInput("Label", {2, 1}, {0, 1})
      .Input("Mean@GRAD", {1}, {1})
      .Expect("Loss", {2, 1}, {std::log(4), std::log(2)})
      .Expect("Logits@GRAD", {2, 2}, {-2, 0, 0, -1});
}

TEST(FusedSoftmaxWithCrossEntropy, InPlaceAndSmall) {
  OpTest("fused_softmax_with_cross_entropy")
      .InPlace("Logits", "Logits@GRAD")
      .Input("Logits", {1, 2}, {0, std::log(3)})
      .IntInput("Label", {1, 1}, {0})
      .Input("Mean@GRAD", {1}, {1})
      .Expect("Loss", {1, 1}, {std::log(4)})
      .Expect("Logits@GRAD", {1, 2}, {-0.75, 0.75});
  OpTest("fused_softmax_with_cross_entropy")
      .Input("Logits", {0, 3}, {})
      .IntInput("Label", {0, 1}, {})
      .Input("Mean@GRAD", {1}, {1})
      .Expect("Loss", {0, 1}, {})
      .Expect("Logits@GRAD", {0, 3}, {});
}

TEST(FusedSoftmaxWithCrossEntropy, FastAgainstReference) {
  for (int64_t n : {1, 3, 10, 16, 17, 40, 129, 5000}) {
    OpTest("fused_softmax_with_cross_entropy")
        .RandomInput("Logits", {5, n}, -10, 10)
        .IntInput("Label", {5, 1}, {0, n - 1, n / 2, -100, 0})
        .Input("Mean@GRAD", {1}, {-3})
        .CheckFast(1e-5);
  }
}

// Rows that are written past the caches are the same, wherever they begin and end.
TEST(CrossEntropyRow, Streamed) {
  for (const int64_t n : {1, 15, 16, 17, 40, 129, 20000}) {
    std::vector<float> x(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = std::sin(static_cast<float>(i));
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> plain(x.size() + 4, 7.0f), streamed = plain;
      const auto row = [&](std::vector<float>& y, bool stream) {
        CrossEntropyRow(x.data(), y.data() + at, n, n / 2, 0.5f, stream, nullptr);
      };
      row(plain, false);
      row(streamed, true);
      FinishStreams();
      EXPECT_EQ(plain, streamed) << n << " from " << at;
    }
  }
}

OpTest Fused(const Shape& logits, const Shape& label, const Shape& grad, int64_t k) {
  OpTest test("fused_softmax_with_cross_entropy");
  test.RandomInput("Logits", logits)
      .IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), k))
      .RandomInput("Mean@GRAD", grad);
  return test;
}

TEST(FusedSoftmaxWithCrossEntropy, Constraints) {
  const std::string type = "fused_softmax_with_cross_entropy.";
  Fused({}, {}, {1}, 0).ExpectError(type + "C1");
  Fused({2, 3}, {2, 1}, {1}, 0).Attr("axis", 5).ExpectError(type + "C2");
  Fused({2, 3}, {3, 1}, {1}, 0).ExpectError(type + "C3");
  Fused({2, 3}, {2, 1}, {2}, 0).ExpectError(type + "C4");
  Fused({2, 3}, {2, 1}, {1}, 3).ExpectError(type + "C5");
}

TEST(SoftmaxWithCrossEntropy, C1_Rank) {
  OpTest("softmax_with_cross_entropy")
      .Input("Logits", {}, {1})
      .IntInput("Label", {}, {0})
      .ExpectError("softmax_with_cross_entropy.C1");
}

TEST(SoftmaxWithCrossEntropy, C2_Axis) {
  OpTest("softmax_with_cross_entropy")
      .Attr("axis", 2)
      .RandomInput("Logits", {2, 2})
      .IntInput("Label", {2, 1}, {0, 0})
      .ExpectError("softmax_with_cross_entropy.C2");
}

TEST(SoftmaxWithCrossEntropy, C3_Label) {
  OpTest("softmax_with_cross_entropy")
      .RandomInput("Logits", {2, 2})
      .IntInput("Label", {2}, {0, 0})
      .ExpectError("softmax_with_cross_entropy.C3");
  OpTest("softmax_with_cross_entropy")
      .Attr("soft_label", true)
      .RandomInput("Logits", {2, 2})
      .IntInput("Label", {2, 1}, {0, 0})
      .ExpectError("softmax_with_cross_entropy.C3");
}

TEST(SoftmaxWithCrossEntropy, C5_LabelOutOfRange) {
  OpTest("softmax_with_cross_entropy")
      .RandomInput("Logits", {2, 4})
      .IntInput("Label", {2, 1}, {0, 4})
      .ExpectError("label 4 at index 1 lies outside [0, 4)");
  OpTest("softmax_with_cross_entropy")
      .RandomInput("Logits", {1, 4})
      .IntInput("Label", {1, 1}, {-2})
      .ExpectError("softmax_with_cross_entropy.C5");
}

OpTest Grad(const Shape& softmax, const Shape& label, const Shape& grad, int64_t k) {
  OpTest test("softmax_with_cross_entropy_grad");
  test.RandomInput("Softmax", softmax, 0.1, 1)
      .IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), k))
      .RandomInput("Loss@GRAD", grad);
  return test;
}

TEST(SoftmaxWithCrossEntropyGrad, Constraints) {
  Grad({}, {}, {}, 0).ExpectError("softmax_with_cross_entropy_grad.C1");
  Grad({2, 3}, {2, 1}, {2, 1}, 0).Attr("axis", 5).ExpectError("softmax_with_cross_entropy_grad.C2");
  Grad({2, 3}, {3, 1}, {2, 1}, 0).ExpectError("softmax_with_cross_entropy_grad.C3");
  Grad({2, 3}, {2, 1}, {2, 3}, 0).ExpectError("softmax_with_cross_entropy_grad.C4");
  Grad({2, 3}, {2, 1}, {2, 1}, 3).ExpectError("softmax_with_cross_entropy_grad.C5");
}
}  // namespace coracle::softmax_with_cross_entropy_test
