#include <cmath>

#include "../../op_test.h"
#include "../inferred_shape.h"

namespace coracle {
namespace {

OpTest Norm(int32_t groups, const std::string& layout = "NCHW", float epsilon = 0) {
  OpTest test("group_norm");
  test.Attr("groups", groups).Attr("epsilon", epsilon).Attr("data_layout", layout);
  return test;
}

}  // namespace

TEST(GroupNorm, Values) {
  // Channels {1, 3} and {2, 2, 4, 4}: of means 2 and 3, variances 1 and 1.
  Norm(2)
      .Input("X", {1, 2, 2}, {1, 3, 2, 4})
      .Input("Scale", {2}, {2, 10})
      .Input("Bias", {2}, {0.5, 1})
      .Expect("Y", {1, 2, 2}, {-1.5, 2.5, -9, 11})
      .Expect("Mean", {1, 2}, {2, 3})
      .Expect("Variance", {1, 2}, {1, 1});
  // The same pixels with channels last; one group has both channels: mean 2.5, variance 1.25.
  const double d = std::sqrt(1.25);
  Norm(1, "NHWC")
      .Input("X", {1, 2, 2}, {1, 2, 3, 4})
      .Expect("Y", {1, 2, 2}, {-1.5 / d, -0.5 / d, 0.5 / d, 1.5 / d})
      .Expect("Mean", {1, 1}, {2.5})
      .Expect("Variance", {1, 1}, {1.25});
  // Five channels in groups of two, two, one and none.
  Norm(4, "NCHW", 1)
      .Input("X", {1, 5}, {1, 1, 0, 2, 7})
      .Expect("Mean", {1, 4}, {1, 1, 7, 0})
      .Expect("Variance", {1, 4}, {0, 1, 0, 0})
      .Expect("Y", {1, 5}, {0, 0, -1 / std::sqrt(2.0), 1 / std::sqrt(2.0), 0});
  Norm(1).Input("X", {0, 2, 3}, {}).Expect("Y", {0, 2, 3}, {}).Expect("Mean", {0, 1}, {});
}

TEST(GroupNorm, Gradients) {
  for (const std::string layout : {"NCHW", "NHWC"}) {
    for (const int32_t groups : {1, 2, 3, 5}) {
      Norm(groups, layout, 0.1f)
          .NoOutput("Mean")
          .NoOutput("Variance")
          .RandomInput("X", layout == "NCHW" ? Shape{2, 5, 2, 3} : Shape{2, 2, 3, 5})
          .RandomInput("Scale", {5})
          .RandomInput("Bias", {5})
          .CheckGradient({"X", "Scale", "Bias"});
    }
  }
  Norm(2, "NCHW", 0.1f)
      .NoOutput("Mean")
      .NoOutput("Variance")
      .RandomInput("X", {3, 4, 2})
      .CheckGradient({"X"});
}

TEST(GroupNorm, HigherGradients) {
  for (const int32_t groups : {1, 2, 4}) {
    OpTest test = Norm(groups, "NCHW", 0.1f);
    test.NoOutput("Mean").NoOutput("Variance");
    test.RandomInput("X", {2, 4, 3}).RandomInput("Scale", {4}).RandomInput("Bias", {4});
    test.CheckSecondGradient({"X", "Scale"}).CheckHigherGradients();
  }
  Norm(2, "NCHW", 0.1f)
      .NoOutput("Mean")
      .NoOutput("Variance")
      .RandomInput("X", {2, 4, 2, 2})
      .CheckSecondGradient({"X"});
}

TEST(GroupNorm, UnknownDimsWhileBuilding) {
  EXPECT_EQ("[-1, 2]",
            InferredShape("group_norm", {{"X", {-1, -1, 4, 4}}}, "Mean", {{"groups", int32_t{2}}}));
}

TEST(GroupNorm, Constraints) {
  Norm(1).Input("X", {2}, {1, 2}).ExpectError("group_norm.C1");
  Norm(1).RandomInput("X", {1, 2}).RandomInput("Bias", {3}).ExpectError("group_norm.C2");
  Norm(1).RandomInput("X", {1, 2}).IntInput("Scale", {2}, {1, 1}).ExpectError("group_norm.C3");
  for (const int32_t groups : {0, 3})
    Norm(groups).RandomInput("X", {1, 2}).ExpectError("group_norm.C4");
  OpTest("group_norm_grad")
      .Attr("groups", 1)
      .RandomInput("X", {1, 2})
      .RandomInput("Y@GRAD", {2, 1})
      .ExpectError("group_norm_grad.C5");
}

}  // namespace coracle
