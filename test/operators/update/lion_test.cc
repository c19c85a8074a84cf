#include <coracle/test/operators/update_test.h>

#include <cmath>

namespace coracle::lion_test {

UpdateCase Case() {
  return {"lion",
          {{"beta1", 0.75f}, {"beta2", 0.5f}, {"weight_decay", 0.25f}},
          {{"Moment", "MomentOut", {-0.5, 0, 1}}}};
}

// c = {-0.25, -0.25, 0.75}: Param - 0.1 (sign(c) + Param / 4).
TEST(Lion, Values) {
  Case()
      .Make()
      .Expect("MomentOut", {3}, {0, -0.5, 0.5})
      .Expect("ParamOut", {3}, {1.075, -1.85, 0.3875});
}

TEST(Lion, ZeroAndNan) {
  UpdateCase still = Case();
  still.attrs = {};
  still.state[0].values = {0, 0, std::nan("")};
  const Tensor out = still.Make().Output("ParamOut");
  EXPECT_TRUE(std::isnan(out.span<float>()[2]));
  OpTest("lion")
      .Input("Param", {1}, {3})
      .Input("Grad", {1}, {0})
      .Input("LearningRate", {1}, {0.5})
      .Input("Moment", {1}, {0})
      .Expect("ParamOut", {1}, {3});
}

TEST(Lion, InfiniteParameter) {
  OpTest("lion")
      .Input("Param", {1}, {HUGE_VAL})
      .Input("Grad", {1}, {1})
      .Input("LearningRate", {1}, {0.5})
      .Input("Moment", {1}, {0})
      .Expect("ParamOut", {1}, {HUGE_VAL});
}

TEST(Lion, Edges) {
  Case().CheckEdges();
  Case().CheckLarge();
}
}  // namespace coracle::lion_test
