#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::mean_test {

TEST(Mean, Values) {
  OpTest("mean")
      .Input("X", {2, 2}, {1, 2, 3, 5})
      .Expect("Out", {1}, {2.75})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("mean").Input("X", {}, {7}).Expect("Out", {1}, {7}).CheckGradient({"X"});
  OpTest("mean").Input("X", {0}, {}).Expect("Out", {1}, {std::nan("")});
}

TEST(Mean, FastAgainstReference) {
  for (int64_t n : {1, 7, 64, 1025, 65536, 100003, 1200001})
    OpTest("mean").RandomInput("X", {n}, 0.5, 1.5).CheckFast(1e-6);
}

TEST(MeanGrad, C1_OutGradNotOneElement) {
  OpTest("mean_grad")
      .RandomInput("X", {2})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("mean_grad.C1");
}
TEST(MeanGrad, C2_DTypes) {
  OpTest("mean_grad")
      .RandomInput("X", {2})
      .IntInput("Out@GRAD", {1}, {1})
      .ExpectError("mean_grad.C2");
}

}  // namespace coracle::mean_test
