#include <coracle/backward/backward.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::bpr_loss_test {

double Term(double other, double chosen) { return std::log(1 + std::exp(other - chosen)); }

TEST(BprLoss, Values) {
  OpTest("bpr_loss")
      .Input("X", {2, 3}, {1, 2, 0.5, 0, 0, 0})
      .IntInput("Label", {2, 1}, {1, 0})
      .Expect("Y", {2, 1}, {(Term(1, 2) + Term(0.5, 2)) / 2, std::log(2)});
  // No overflow.
  OpTest("bpr_loss")
      .Input("X", {2, 1, 2}, {1000, 0, 1000, 0})
      .IntInput("Label", {2, 1, 1}, {1, 0}, DType::kInt32)
      .Expect("Y", {2, 1, 1}, {1000, 0});
  OpTest("bpr_loss").Input("X", {0, 3}, {}).IntInput("Label", {0, 1}, {}).Expect("Y", {0, 1}, {});
}

TEST(BprLoss, Gradients) {
  OpTest test("bpr_loss");
  test.RandomInput("X", {3, 4}).IntInput("Label", {3, 1}, {3, 0, 1});
  test.CheckGradient({"X"}).CheckHigherGradients();
}

// A class that is masked away costs nothing and gets no gradient.
TEST(BprLoss, ScoresOfMinusInfinity) {
  const Tensor x = Tensor::Of<float>({1, 3}, {-std::numeric_limits<float>::infinity(), 1, 1});
  const Tensor label = Tensor::Of<int64_t>({1, 1}, {1});
  const ValueAndGradient run =
      Differentiate("bpr_loss", {}, {{"X", x}, {"Label", label}}, "X", "Y");
  EXPECT_NEAR(NumbersOf(run.value)[0], std::log(2) / 2, 1e-6);
  EXPECT_EQ(NumbersOf(run.gradient), (std::vector<double>{0, -0.25, 0.25}));
}

TEST(BprLoss, GradientNeedsTheClasses) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({3, -1});
  block.Var("label").SetShape({3, 1});
  block.Var("label").SetDType(DType::kInt64);
  const Writer writer{block, DefaultOps()};
  const Variable y = writer.Make("bpr_loss", {{"X", {"x"}}, {"Label", {"label"}}}, {}, "Y");
  const std::string error = ErrorOf([&] { Gradients({y}, {Variable::Of(block, "x")}); });
  EXPECT_NE(error.find("needs a known number of classes"), std::string::npos) << error;
}

TEST(BprLoss, Constraints) {
  OpTest("bpr_loss").RandomInput("X", {3}).IntInput("Label", {1}, {0}).ExpectError("bpr_loss.C1");
  OpTest("bpr_loss")
      .RandomInput("X", {3, 1})
      .IntInput("Label", {3, 1}, {0, 0, 0})
      .ExpectError("bpr_loss.C2");
  OpTest("bpr_loss")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {2}, {0, 0})
      .ExpectError("bpr_loss.C3");
  for (int64_t label : {int64_t{3}, int64_t{-1}, INT64_MIN}) {
    OpTest("bpr_loss")
        .RandomInput("X", {2, 3})
        .IntInput("Label", {2, 1}, {0, label})
        .ExpectError("bpr_loss: Label holds " + std::to_string(label));
  }
}
}  // namespace coracle::bpr_loss_test
