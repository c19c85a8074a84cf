#include <coracle/test/operators/update_test.h>

namespace coracle::ftrl_test {

UpdateCase Case(float lr_power, float l1, float l2) {
  return {"ftrl",
          {{"l1", l1}, {"l2", l2}, {"lr_power", lr_power}},
          {{"SquaredAccumulator", "SquaredAccumOut", {0.25, 1, 4}},
           {"LinearAccumulator", "LinearAccumOut", {0.5, -2, 0.125}}},
          {"LearningRate"},
          {0.5}};
}

// First element: n = 0.5; L = 1 - 2 (sqrt(0.5) - 0.5); Param = (0.25 - L) / (2 sqrt(0.5) + 1). The
// third has |L| <= l1.
TEST(Ftrl, Values) {
  Case(-0.5f, 0.25f, 0.5f)
      .Make()
      .Expect("SquaredAccumOut", {3}, {0.5, 2, 4})
      .Expect("LinearAccumOut", {3}, {0.585786437627, -1.343145750508, 0.125})
      .Expect("ParamOut", {3}, {-0.139087296473, 0.285533905892, 0});
}

TEST(Ftrl, OtherPower) {
  Case(-0.75f, 0, 0)
      .Make()
      .Expect("SquaredAccumOut", {3}, {0.5, 2, 4})
      .Expect("LinearAccumOut", {3}, {0.517899666184, -0.27282867797, 0.125})
      .Expect("ParamOut", {3}, {-0.435499972598, 0.08111245122, -0.022097086894});
}

TEST(Ftrl, NoRateNoChange) {
  UpdateCase still = Case(-0.5f, 0.25f, 0.5f);
  still.scalar_values = {0};
  still.Make()
      .Expect("SquaredAccumOut", {3}, {0.25, 1, 4})
      .Expect("LinearAccumOut", {3}, {0.5, -2, 0.125})
      .Expect("ParamOut", {3}, {1, -2, 0.5});
}

TEST(Ftrl, Edges) {
  Case(-0.5f, 0.25f, 0.5f).CheckEdges();
  Case(-0.5f, 0.25f, 0.5f).CheckLarge();
}
}  // namespace coracle::ftrl_test
