#include <coracle/test/op_test.h>

namespace coracle::center_loss_test {

OpTest CenterLoss(bool update, const Shape& label = {3, 1}) {
  OpTest test("center_loss");
  test.Attr("cluster_num", 3).Attr("need_update", update);
  test.Input("X", {3, 2}, {1, 2, 3, 4, 5, 6}).IntInput("Label", label, {2, 0, 2});
  test.Input("Centers", {3, 2}, {1, 1, 9, 9, 2, 2}).Input("CenterUpdateRate", {1}, {0.5});
  return test;
}

TEST(CenterLoss, Values) {
  for (const Shape& label : {Shape{3}, Shape{3, 1}}) {
    CenterLoss(true, label)
        .Expect("SampleCenterDiff", {3, 2}, {-1, 0, 2, 3, 3, 4})
        .Expect("Loss", {3, 1}, {0.5, 6.5, 12.5})
        // Class 0: one sample; class 2: the sum (2, 4) of two.
        .Expect("CentersOut", {3, 2}, {1.5, 1.75, 9, 9, 2 + 1.0 / 3, 2 + 2.0 / 3});
  }
  CenterLoss(false).Expect("CentersOut", {3, 2}, {1, 1, 9, 9, 2, 2});
  CenterLoss(true).NoOutput("SampleCenterDiff").Expect("Loss", {3, 1}, {0.5, 6.5, 12.5});
}

TEST(CenterLoss, MovesCentersInPlace) {
  CenterLoss(true)
      .InPlace("Centers", "CentersOut")
      .Expect("CentersOut", {3, 2}, {1.5, 1.75, 9, 9, 2 + 1.0 / 3, 2 + 2.0 / 3});
}

TEST(CenterLoss, NoSamples) {
  OpTest("center_loss")
      .Attr("cluster_num", 1)
      .Attr("need_update", true)
      .Input("X", {0, 2}, {})
      .IntInput("Label", {0, 1}, {})
      .Input("Centers", {1, 2}, {3, 4})
      .Input("CenterUpdateRate", {1}, {1})
      .Expect("Loss", {0, 1}, {})
      .Expect("CentersOut", {1, 2}, {3, 4});
}

TEST(CenterLoss, Gradients) {
  CenterLoss(false).NoOutput("CentersOut").CheckGradient({"X"}).CheckHigherGradients();
  CenterLoss(false).NoOutput("CentersOut").NoOutput("SampleCenterDiff").CheckGradient({"X"});
}

TEST(CenterLoss, Constraints) {
  const auto refused = [](const Shape& x, const Shape& label, const Shape& centers,
                          const Shape& rate, const char* id) {
    OpTest test("center_loss");
    test.Attr("cluster_num", 3).Attr("need_update", false).RandomInput("X", x);
    test.IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), 0));
    test.RandomInput("Centers", centers).RandomInput("CenterUpdateRate", rate).ExpectError(id);
  };
  refused({2}, {2}, {3, 2}, {1}, "center_loss.C1");
  refused({2, 2}, {3}, {3, 2}, {1}, "center_loss.C2");
  refused({2, 2}, {2, 2}, {3, 2}, {1}, "center_loss.C2");
  refused({2, 2}, {2}, {2, 2}, {1}, "center_loss.C3");
  refused({2, 2}, {2}, {3, 3}, {1}, "center_loss.C3");
  refused({2, 2}, {2}, {3, 2}, {2}, "center_loss.C4");
  for (int64_t label : {int64_t{3}, int64_t{-1}, INT64_MAX}) {
    OpTest("center_loss")
        .Attr("cluster_num", 3)
        .Attr("need_update", true)
        .RandomInput("X", {1, 2})
        .IntInput("Label", {1}, {label})
        .RandomInput("Centers", {3, 2})
        .RandomInput("CenterUpdateRate", {1})
        .ExpectError("center_loss: Label holds " + std::to_string(label));
  }
}
}  // namespace coracle::center_loss_test
