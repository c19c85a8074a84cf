#include <coracle/test/op_test.h>
#include <coracle/test/operators/stopped.h>

namespace coracle::inverse_test {

TEST(Inverse, Values) {
  OpTest("inverse")
      .Input("Input", {2, 2, 2}, {1, 2, 3, 4, 0, 2, 4, 0})
      .Expect("Output", {2, 2, 2}, {-2, 1, 1.5, -0.5, 0, 0.25, 0.5, 0});
  OpTest("inverse")
      .Input("Input", {3, 3}, {2, 0, 0, 1, 1, 0, 0, 3, 1})
      .Expect("Output", {3, 3}, {0.5, 0, 0, -0.5, 1, 0, 1.5, -3, 1});
  OpTest("inverse").Input("Input", {1, 1}, {4}).Expect("Output", {1, 1}, {0.25});
  OpTest("inverse").Input("Input", {0, 2, 2}, {}).Expect("Output", {0, 2, 2}, {});
  OpTest("inverse").Input("Input", {2, 0, 0}, {}).Expect("Output", {2, 0, 0}, {});
}

TEST(Inverse, Gradients) {
  OpTest test("inverse");
  test.Input("Input", {2, 2, 2}, {2, 0.5, -0.3, 1.5, -1, 0.2, 0.7, 3});
  test.CheckGradient({"Input"}).CheckHigherGradients();
}

TEST(Inverse, StopsInTime) {
  const Stopped stopped;
  std::vector<double> identity(32 * 32, 0.0);
  for (size_t i = 0; i < 32; ++i) identity[33 * i] = 1;
  OpTest("inverse").Input("Input", {32, 32}, identity).ExpectError("inverting a matrix");
}

TEST(Inverse, Constraints) {
  OpTest("inverse").RandomInput("Input", {4}).ExpectError("inverse.C1");
  OpTest("inverse").RandomInput("Input", {2, 3}).ExpectError("inverse.C1");
  OpTest("inverse").Input("Input", {2, 2}, {1, 2, 2, 4}).ExpectError("inverse.C2");
}

}  // namespace coracle::inverse_test
