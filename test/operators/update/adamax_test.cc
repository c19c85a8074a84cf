#include <coracle/test/operators/update_test.h>

namespace coracle::adamax_test {

UpdateCase Case() {
  return {"adamax",
          {{"beta1", 0.75f}, {"beta2", 0.5f}, {"epsilon", 0.125f}},
          {{"Moment", "MomentOut", {0.5, 0, -1}}, {"InfNorm", "InfNormOut", {0.25, 2, 1}}},
          {"LearningRate", "Beta1Pow"},
          {0.1, 0.75}};
}

// Second element: Moment = -1/4; InfNorm = max(1, 1 + 1/8); Param + 0.4 (1/4) / 1.125.
TEST(Adamax, Values) {
  Case()
      .Make()
      .Expect("MomentOut", {3}, {0.5, -0.25, -0.75})
      .Expect("InfNormOut", {3}, {0.5, 1.125, 0.625})
      .Expect("ParamOut", {3}, {0.6, -1.911111111111, 0.98});
}

TEST(Adamax, Edges) {
  Case().CheckEdges();
  Case().CheckLarge();
}
}  // namespace coracle::adamax_test
