#include <coracle/test/operators/update_test.h>

#include <cmath>

namespace coracle::rmsprop_test {

UpdateCase Case(bool centered) {
  return {"rmsprop",
          {{"decay", 0.75f}, {"epsilon", 0.125f}, {"momentum", 0.5f}, {"centered", centered}},
          {{"MeanSquare", "MeanSquareOut", {0.25, 1, 4}},
           {"Moment", "MomentOut", {0.5, 0, -0.25}},
           {"MeanGrad", "MeanGradOut", {0.25, -0.5, 1}}}};
}

// Second element: MeanSquare 1, Moment = 0.1 * -1 / sqrt(1.125).
TEST(Rmsprop, Values) {
  Case(false)
      .Make()
      .Expect("MeanSquareOut", {3}, {0.25, 1, 3})
      .Expect("MomentOut", {3}, {0.331649658093, -0.094280904158, -0.125})
      .Expect("MeanGradOut", {3}, {0.25, -0.5, 1})
      .Expect("ParamOut", {3}, {0.668350341907, -1.905719095842, 0.625});
}

// Second element: MeanGrad = -0.625; Moment = 0.1 * -1 / sqrt(1 - 0.625^2 + 0.125).
TEST(Rmsprop, Centered) {
  Case(true)
      .Make()
      .Expect("MeanSquareOut", {3}, {0.25, 1, 3})
      .Expect("MeanGradOut", {3}, {0.3125, -0.625, 0.75})
      .Expect("MomentOut", {3}, {0.344942532656, -0.116691993198, -0.125})
      .Expect("ParamOut", {3}, {0.655057467344, -1.883308006802, 0.625});
}

TEST(Rmsprop, WithoutMeanGrad) {
  UpdateCase plain = Case(false);
  plain.state.pop_back();
  plain.absent = {"MeanGradOut"};
  plain.Make().Expect("ParamOut", {3}, {0.668350341907, -1.905719095842, 0.625});
}

TEST(Rmsprop, Edges) {
  for (bool centered : {false, true}) {
    Case(centered).CheckEdges();
    Case(centered).CheckLarge();
  }
}

// The variance of a constant gradient rounds to a little below zero.
TEST(Rmsprop, VarianceIsNeverNegative) {
  UpdateCase constant = Case(true);
  constant.state[0].values = {0.01, 0.01, 0.01};
  constant.state[2].values = {0.1000001, -0.1000001, 0.1000001};
  constant.attrs = {{"decay", 1.0f}, {"epsilon", 1e-10f}, {"centered", true}};
  const Tensor out = constant.Make().Output("ParamOut");
  for (float x : out.span<float>()) EXPECT_TRUE(std::isfinite(x));
}

TEST(Rmsprop, C3_CenteredNeedsMeanGrad) {
  UpdateCase centered = Case(true);
  centered.state.pop_back();
  centered.Make().ExpectError("rmsprop.C3");
}
}  // namespace coracle::rmsprop_test
