#include <coracle/test/op_test.h>

namespace coracle::lstm_unit_test {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(LstmUnit, Values) {
  const double c = Sigmoid(2.0 + 0.5) * 3 + Sigmoid(1.0) * std::tanh(-1.0);
  OpTest("lstm_unit")
      .Attr("forget_bias", 0.5f)
      .Input("X", {1, 4}, {1, 2, 0.25, -1})
      .Input("C_prev", {1, 1}, {3})
      .Expect("C", {1, 1}, {c})
      .Expect("H", {1, 1}, {Sigmoid(0.25) * std::tanh(c)})
      .CheckGradient({"X", "C_prev"});
  OpTest("lstm_unit")
      .RandomInput("X", {3, 8})
      .RandomInput("C_prev", {3, 2})
      .CheckGradient({"X", "C_prev"});
  OpTest("lstm_unit").Input("X", {0, 4}, {}).Input("C_prev", {0, 1}, {}).Expect("H", {0, 1}, {});
}

TEST(LstmUnit, GradientOfOneOutput) {
  for (const char* unused : {"C", "H"}) {
    OpTest("lstm_unit")
        .RandomInput("X", {2, 4})
        .RandomInput("C_prev", {2, 1})
        .NoOutput(unused)
        .CheckGradient({"X", "C_prev"});
  }
}

TEST(LstmUnit, Constraints) {
  OpTest("lstm_unit")
      .RandomInput("X", {2, 4})
      .RandomInput("C_prev", {2, 2})
      .ExpectError("lstm_unit.C1");
  OpTest("lstm_unit_grad")
      .RandomInput("X", {2, 4})
      .RandomInput("C_prev", {2, 1})
      .RandomInput("H@GRAD", {1, 1})
      .ExpectError("lstm_unit_grad.C2");
}
}  // namespace coracle::lstm_unit_test
