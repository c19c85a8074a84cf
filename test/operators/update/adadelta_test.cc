#include <coracle/test/operators/update_test.h>

namespace coracle::adadelta_test {

UpdateCase Case() {
  return {"adadelta",
          {{"rho", 0.75f}, {"epsilon", 0.125f}},
          {{"AvgSquaredGrad", "AvgSquaredGradOut", {0.25, 1, 4}},
           {"AvgSquaredUpdate", "AvgSquaredUpdateOut", {0.5, 0, 1}}},
          {},
          {}};
}

// First element: G = 0.25; u = -sqrt(0.625 / 0.375) / 2; U = 0.375 + u^2 / 4.
TEST(Adadelta, Values) {
  Case()
      .Make()
      .Expect("AvgSquaredGradOut", {3}, {0.25, 1, 3})
      .Expect("AvgSquaredUpdateOut", {3}, {0.479166666667, 0.027777777778, 0.75})
      .Expect("ParamOut", {3}, {0.354502775632, -1.666666666667, 0.5});
}

TEST(Adadelta, LearningRate) {
  UpdateCase with_rate = Case();
  with_rate.scalars = {"LearningRate"};
  with_rate.scalar_values = {0.5};
  with_rate.Make().Expect("ParamOut", {3}, {1 - 0.645497224368 / 2, -2 + 0.333333333333 / 2, 0.5});
  with_rate.CheckEdges();  // C2
}

TEST(Adadelta, Edges) {
  Case().CheckEdges();
  Case().CheckLarge();
}
}  // namespace coracle::adadelta_test
