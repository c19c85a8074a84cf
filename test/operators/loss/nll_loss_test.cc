#include <coracle/test/op_test.h>

namespace coracle::nll_loss_test {

OpTest Nll(const std::string& reduction, bool weighted) {
  OpTest test("nll_loss");
  test.Attr("reduction", reduction).Input("X", {3, 2}, {-1, -2, -3, -4, -5, -6});
  test.IntInput("Label", {3}, {1, -100, 0});
  if (weighted) test.Input("Weight", {2}, {0.5, 2});
  return test;
}

TEST(NllLoss, Values) {
  Nll("none", false).Expect("Out", {3}, {2, 0, 5}).Expect("Total_weight", {1}, {0});
  Nll("none", true).Expect("Out", {3}, {4, 0, 2.5});
  Nll("sum", false).Expect("Out", {1}, {7}).Expect("Total_weight", {1}, {2});
  Nll("sum", true).Expect("Out", {1}, {6.5}).Expect("Total_weight", {1}, {2.5});
  Nll("mean", false).Expect("Out", {1}, {3.5});
  Nll("mean", true).Expect("Out", {1}, {6.5 / 2.5});
}

TEST(NllLoss, Images) {
  // X[n, c, h, w] = -(100 n + 10 c + pixel).
  std::vector<double> x;
  for (int n = 0; n < 2; ++n) {
    for (int c = 0; c < 3; ++c) {
      for (int pixel = 0; pixel < 2; ++pixel) x.push_back(-(100 * n + 10 * c + pixel));
    }
  }
  OpTest("nll_loss")
      .Attr("reduction", std::string("none"))
      .Input("X", {2, 3, 1, 2}, x)
      .IntInput("Label", {2, 1, 2}, {0, 2, 1, 0}, DType::kInt32)
      .Expect("Out", {2, 1, 2}, {0, 21, 110, 101});
}

TEST(NllLoss, NothingCounts) {
  for (const char* reduction : {"mean", "sum"}) {
    OpTest("nll_loss")
        .Attr("reduction", std::string(reduction))
        .Attr("ignore_index", int64_t{0})
        .RandomInput("X", {2, 2})
        .IntInput("Label", {2}, {0, 0})
        .Expect("Out", {1}, {0});
    OpTest("nll_loss")
        .Attr("reduction", std::string(reduction))
        .Input("X", {0, 2}, {})
        .IntInput("Label", {0}, {})
        .Expect("Out", {1}, {0})
        .Expect("Total_weight", {1}, {0});
  }
}

TEST(NllLoss, Gradients) {
  for (const char* reduction : {"none", "mean", "sum"}) {
    for (const bool weighted : {false, true})
      Nll(reduction, weighted).CheckGradient({"X"}).CheckHigherGradients();
  }
}

TEST(NllLoss, Constraints) {
  OpTest("nll_loss")
      .RandomInput("X", {2})
      .IntInput("Label", {2}, {0, 0})
      .ExpectError("nll_loss.C1");
  OpTest("nll_loss")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {2, 1}, {0, 0})
      .ExpectError("nll_loss.C2");
  OpTest("nll_loss").RandomInput("X", {2, 3}).RandomInput("Label", {2}).ExpectError("nll_loss.C2");
  OpTest("nll_loss")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {2}, {0, 0})
      .RandomInput("Weight", {2})
      .ExpectError("nll_loss.C3");
  for (int64_t label : {int64_t{3}, int64_t{-1}, INT64_MIN}) {
    OpTest("nll_loss")
        .RandomInput("X", {2, 3})
        .IntInput("Label", {2}, {0, label})
        .ExpectError("nll_loss.C4");
  }
  OpTest("nll_loss_grad")
      .RandomInput("X", {2, 3})
      .IntInput("Label", {2}, {0, 0})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("nll_loss_grad.C5");
}
}  // namespace coracle::nll_loss_test
