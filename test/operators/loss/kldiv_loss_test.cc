#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::kldiv_loss_test {

OpTest Kldiv(const std::string& reduction) {
  OpTest test("kldiv_loss");
  test.Attr("reduction", reduction).Input("X", {2, 2}, {-1, -2, -0.5, 3});
  test.Input("Target", {2, 2}, {0.5, 0.25, 0, -1});
  return test;
}

TEST(KldivLoss, Values) {
  const double a = 0.5 * (std::log(0.5) + 1), b = 0.25 * (std::log(0.25) + 2);
  Kldiv("none").Expect("Loss", {2, 2}, {a, b, 0, 0});
  Kldiv("sum").Expect("Loss", {1}, {a + b});
  Kldiv("mean").Expect("Loss", {1}, {(a + b) / 4});
  Kldiv("batchmean").Expect("Loss", {1}, {(a + b) / 2});
}

TEST(KldivLoss, NoElements) {
  OpTest("kldiv_loss")
      .Attr("reduction", std::string("sum"))
      .Input("X", {0, 2}, {})
      .Input("Target", {0, 2}, {})
      .Expect("Loss", {1}, {0});
  OpTest("kldiv_loss")
      .Input("X", {0, 2}, {})
      .Input("Target", {0, 2}, {})
      .Expect("Loss", {1}, {std::nan("")});
}

TEST(KldivLoss, Gradients) {
  for (const char* reduction : {"none", "mean", "batchmean", "sum"}) {
    Kldiv(reduction).CheckGradient({"X"}).CheckHigherGradients();
    OpTest test("kldiv_loss");
    test.Attr("reduction", std::string(reduction)).RandomInput("X", {3});
    test.Input("Target", {3}, {0.5, 0.25, 0}).CheckGradient({"X"});
  }
}

TEST(KldivLoss, Constraints) {
  OpTest("kldiv_loss").RandomInput("X", {}).RandomInput("Target", {}).ExpectError("kldiv_loss.C1");
  OpTest("kldiv_loss")
      .RandomInput("X", {2, 2})
      .RandomInput("Target", {2, 1})
      .ExpectError("kldiv_loss.C2");
}
}  // namespace coracle::kldiv_loss_test
