#include <coracle/test/operators/update_test.h>

namespace coracle::lamb_test {

UpdateCase Case() {
  return {"lamb",
          {{"weight_decay", 0.25f}, {"beta1", 0.75f}, {"beta2", 0.5f}, {"epsilon", 0.125f}},
          {{"Moment1", "Moment1Out", {0.5, 0, -1}}, {"Moment2", "Moment2Out", {0.25, 1, 4}}},
          {"LearningRate", "Beta1Pow", "Beta2Pow"},
          {0.1, 0.75, 0.5}};
}

// m = Moment1 / 0.25, v = Moment2 / 0.5; first element: r = 2 / (sqrt(0.5) + 0.125) + 0.25.
TEST(Lamb, Values) {
  Case()
      .Make()
      .Expect("Moment1Out", {3}, {0.5, -0.25, -0.75})
      .Expect("Moment2Out", {3}, {0.25, 1, 2})
      .Expect("Beta1PowOut", {1}, {0.5625})
      .Expect("Beta2PowOut", {1}, {0.25})
      .Expect("ParamOut", {3}, {0.807913360524, -1.916775768662, 0.593147465091});
}

// A parameter of norm 0 takes the step as it is: r = 2 / (sqrt(0.5) + 0.125).
TEST(Lamb, ZeroParameter) {
  OpTest("lamb")
      .Attr("weight_decay", 0.25f)
      .Attr("beta1", 0.75f)
      .Attr("beta2", 0.5f)
      .Attr("epsilon", 0.125f)
      .Input("Param", {1}, {0})
      .Input("Grad", {1}, {0.5})
      .Input("Moment1", {1}, {0.5})
      .Input("Moment2", {1}, {0.25})
      .Input("LearningRate", {1}, {0.1})
      .Input("Beta1Pow", {1}, {0.75})
      .Input("Beta2Pow", {1}, {0.5})
      .Expect("ParamOut", {1}, {-0.240353767716});
}

TEST(Lamb, Edges) { Case().CheckEdges(); }
}  // namespace coracle::lamb_test
