#include <coracle/test/op_test.h>
#include <coracle/test/operators/stopped.h>

namespace coracle::conv_shift_test {

OpTest Of(const Shape& x, const Shape& y) {
  OpTest test("conv_shift");
  test.RandomInput("X", x).RandomInput("Y", y);
  return test;
}

TEST(ConvShift, Values) {
  OpTest("conv_shift")
      .Input("X", {1, 4}, {1, 2, 3, 4})
      .Input("Y", {1, 3}, {100, 10, 1})
      .Expect("Out", {1, 4}, {412, 123, 234, 341});
  OpTest("conv_shift")
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {2, 1}, {3, 4})
      .Expect("Out", {2, 1}, {3, 8});
  OpTest("conv_shift").Input("X", {0, 3}, {}).Input("Y", {0, 1}, {}).Expect("Out", {0, 3}, {});
}

TEST(ConvShift, Gradients) {
  for (int64_t k : {1, 3, 5}) Of({2, 5}, {2, k}).CheckGradient({"X", "Y"}).CheckHigherGradients();
}

TEST(ConvShift, StopsInTime) {
  const Stopped stopped;
  OpTest("conv_shift")
      .RandomInput("X", {1, 1000})
      .RandomInput("Y", {1, 999})
      .ExpectError("correlating rows");
}

TEST(ConvShift, Constraints) {
  Of({3}, {1, 3}).ExpectError("conv_shift.C1");
  Of({2, 3}, {1, 3}).ExpectError("conv_shift.C2");
  Of({1, 3}, {1, 2}).ExpectError("conv_shift.C3");
  Of({1, 3}, {1, 5}).ExpectError("conv_shift.C3");
  OpTest("conv_shift")
      .RandomInput("X", {1, 1})
      .IntInput("Y", {1, 1}, {1})
      .ExpectError("conv_shift.C4");
  OpTest("conv_shift_grad")
      .RandomInput("X", {1, 3})
      .RandomInput("Y", {1, 1})
      .RandomInput("Out@GRAD", {1, 2})
      .ExpectError("conv_shift_grad.C5");
}

}  // namespace coracle::conv_shift_test
