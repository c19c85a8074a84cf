#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::check_finite_and_unscale_test {

const double kInf = std::numeric_limits<double>::infinity();

OpTest Check(double scale) {
  OpTest op("check_finite_and_unscale");
  op.TensorInput("Scale", Tensor::Of<float>({1}, {static_cast<float>(scale)}));
  return op;
}
bool Found(OpTest& op, KernelMode mode) { return op.Output("FoundInfinite", mode).Item<bool>(); }

TEST(CheckFiniteAndUnscale, DividesAllByTheScale) {
  OpTest op = Check(4);
  op.Outputs("Out", 2)
      .Input("X", {2, 2}, {4, -8, 0, 1})
      .Input("X", {3}, {2, 4, 6})
      .Expect("Out", {2, 2}, {1, -2, 0, 0.25}, 1e-9, 0)
      .Expect("Out", {3}, {0.5, 1, 1.5}, 1e-9, 1);
  for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) EXPECT_FALSE(Found(op, mode));
}

TEST(CheckFiniteAndUnscale, FindsEveryKindAnywhere) {
  for (double bad : {kInf, -kInf, std::nan("")}) {
    for (size_t at : {0, 70000, 199999}) {
      std::vector<double> values(200000, 1);
      values[at] = bad;
      OpTest op = Check(2);
      op.Input("X", {200000}, values);
      for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference})
        EXPECT_TRUE(Found(op, mode));
    }
  }
}

// After the first gradient that is not finite, the others become zeros.
TEST(CheckFiniteAndUnscale, OthersBecomeZero) {
  OpTest op = Check(2);
  op.Outputs("Out", 3)
      .Input("X", {2}, {2, 4})
      .Input("X", {2}, {2, kInf})
      .Input("X", {2}, {6, 8})
      .Expect("Out", {2}, {1, 2}, 1e-9, 0)
      .Expect("Out", {2}, {0, 0}, 1e-9, 2);
  EXPECT_TRUE(Found(op, KernelMode::kAuto));
}

// A scale below 1 can make a finite gradient infinite: that is found too.
TEST(CheckFiniteAndUnscale, OverflowOfTheDivisionIsFound) {
  for (DType dtype : {DType::kFloat16, DType::kFloat32}) {
    const float large = dtype == DType::kFloat16 ? 60000.f : 3e38f;
    OpTest op = Check(0.25);
    op.TensorInput("X", Tensor::Of<float>({1}, {large}).Cast(dtype));
    EXPECT_TRUE(Found(op, KernelMode::kAuto));
    EXPECT_TRUE(Found(op, KernelMode::kReference));
  }
  OpTest zero = Check(0);
  zero.Input("X", {1}, {0});
  EXPECT_TRUE(Found(zero, KernelMode::kAuto));
}

TEST(CheckFiniteAndUnscale, EveryDTypeBesideTheOthers) {
  OpTest op = Check(8);
  op.Outputs("Out", 4);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64})
    op.TensorInput("X", Tensor::Of<float>({1}, {12}).Cast(dtype));
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(op.Output("Out", KernelMode::kAuto, i).Cast(DType::kFloat64).Item<double>(), 1.5)
        << i;
}

TEST(CheckFiniteAndUnscale, InPlaceAndSparse) {
  Check(2).InPlace("X", "Out").Input("X", {2}, {2, 4}).Expect("Out", {2}, {1, 2});
  OpTest sparse = Check(4);
  sparse.RowsInput("X", {6, 2}, {5, 0}, {4, 8, 12, 16});
  sparse.ExpectRows("Out", 6, {5, 0}, {1, 2, 3, 4});
  OpTest bad = Check(4);
  bad.RowsInput("X", {6, 2}, {5}, {4, kInf});
  EXPECT_TRUE(Found(bad, KernelMode::kAuto));
  OpTest empty = Check(4);
  empty.Input("X", {0}, {});
  EXPECT_FALSE(Found(empty, KernelMode::kAuto));
}

TEST(CheckFiniteAndUnscale, C1_AsManyOutputs) {
  Check(1).Outputs("Out", 2).Input("X", {1}, {1}).ExpectError("check_finite_and_unscale.C1");
}
TEST(CheckFiniteAndUnscale, C2_Integers) {
  Check(1).IntInput("X", {1}, {1}).ExpectError("check_finite_and_unscale.C2");
}
TEST(CheckFiniteAndUnscale, C3_Scale) {
  OpTest("check_finite_and_unscale")
      .Input("X", {1}, {1})
      .TensorInput("Scale", Tensor::Of<float>({2}, {1, 1}))
      .ExpectError("check_finite_and_unscale.C3");
  OpTest("check_finite_and_unscale")
      .Input("X", {1}, {1})
      .TensorInput("Scale", Tensor::Of<double>({1}, {1}))
      .ExpectError("check_finite_and_unscale.C3");
}

}  // namespace coracle::check_finite_and_unscale_test
