#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::adam_test {

struct State {
  double p = 1, m = 0.5, v = 0.25, pow1 = 0.81, pow2 = 0.998;
};

OpTest Adam(const State& s, double g, double lr) {
  OpTest test("adam");
  test.NoOutput("MasterParamOut")
      .Input("Param", {1}, {s.p})
      .Input("Grad", {1}, {g})
      .Input("LearningRate", {1}, {lr})
      .Input("Moment1", {1}, {s.m})
      .Input("Moment2", {1}, {s.v})
      .Input("Beta1Pow", {1}, {s.pow1})
      .Input("Beta2Pow", {1}, {s.pow2});
  return test;
}

TEST(Adam, Values) {
  const State s;
  const float beta1 = 0.8f, beta2 = 0.75f, epsilon = 0.125f;
  const double g = 2, lr = 0.1;
  const double m = beta1 * s.m + (1 - double{beta1}) * g;
  const double v = beta2 * s.v + (1 - double{beta2}) * g * g;
  const double root = std::sqrt(1 - s.pow2);
  const double p = s.p - lr * root / (1 - s.pow1) * m / (std::sqrt(v) + epsilon * root);
  Adam(s, g, lr)
      .Attr("beta1", beta1)
      .Attr("beta2", beta2)
      .Attr("epsilon", epsilon)
      .Expect("Moment1Out", {1}, {m})
      .Expect("Moment2Out", {1}, {v})
      .Expect("ParamOut", {1}, {p})
      .Expect("Beta1PowOut", {1}, {s.pow1 * beta1})
      .Expect("Beta2PowOut", {1}, {s.pow2 * beta2});
}

TEST(Adam, FirstStepMovesByTheLearningRate) {
  // At the first step m / (1 - beta1) = g and v / (1 - beta2) = g^2.
  for (double g : {1e-3, 5.0, -1e4}) {
    Adam({.p = 0, .m = 0, .v = 0, .pow1 = 0.9f, .pow2 = 0.999f}, g, 0.01)
        .Expect("ParamOut", {1}, {g > 0 ? -0.01 : 0.01}, 1e-4);
  }
}

// Paddle before 2.0, and Caffe: epsilon as it is.
TEST(Adam, EpsilonHat) {
  const State s;
  const double g = 2, lr = 0.1, m = 0.75 * s.m + 0.25 * g, v = 0.5 * s.v + 0.5 * g * g;
  const double rate = lr * std::sqrt(1 - s.pow2) / (1 - s.pow1);
  Adam(s, g, lr)
      .Attr("beta1", 0.75f)
      .Attr("beta2", 0.5f)
      .Attr("epsilon", 0.125f)
      .Attr("use_epsilon_hat", true)
      .Expect("ParamOut", {1}, {s.p - rate * m / (std::sqrt(v) + 0.125)});
}

TEST(Adam, TensorsReplaceAttrs) {
  OpTest by_tensor = Adam({}, 2, 0.1), by_attr = Adam({}, 2, 0.1);
  by_tensor.Input("Beta1Tensor", {1}, {0.5})
      .Input("Beta2Tensor", {1}, {0.25})
      .Input("EpsilonTensor", {1}, {0.5});
  by_attr.Attr("beta1", 0.5f).Attr("beta2", 0.25f).Attr("epsilon", 0.5f);
  for (const char* slot : {"ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"})
    EXPECT_TRUE(BitEqual(by_tensor.Output(slot), by_attr.Output(slot))) << slot;
}

TEST(Adam, SkipUpdate) {
  Adam({}, 2, 0.1)
      .TensorInput("SkipUpdate", Tensor::Of<bool>({1}, {true}))
      .Expect("ParamOut", {1}, {1})
      .Expect("Moment1Out", {1}, {0.5})
      .Expect("Moment2Out", {1}, {0.25})
      .Expect("Beta1PowOut", {1}, {0.81});
}

TEST(Adam, GlobalPowersStay) {
  Adam({}, 2, 0.1)
      .Attr("use_global_beta_pow", true)
      .Expect("Beta1PowOut", {1}, {0.81})
      .Expect("Beta2PowOut", {1}, {0.998});
}

TEST(Adam, InPlaceIsTheSame) {
  OpTest apart = Adam({}, 2, 0.1), in_place = Adam({}, 2, 0.1);
  in_place.InPlace("Param", "ParamOut")
      .InPlace("Moment1", "Moment1Out")
      .InPlace("Moment2", "Moment2Out")
      .InPlace("Beta1Pow", "Beta1PowOut")
      .InPlace("Beta2Pow", "Beta2PowOut");
  for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    for (const char* slot : {"ParamOut", "Moment1Out", "Moment2Out", "Beta1PowOut", "Beta2PowOut"})
      EXPECT_TRUE(BitEqual(apart.Output(slot, mode), in_place.Output(slot, mode))) << slot;
  }
}

OpTest Random(const Shape& param, const Shape& moment, const Shape& power) {
  OpTest test("adam");
  test.NoOutput("MasterParamOut")
      .RandomInput("Param", param)
      .RandomInput("Grad", param)
      .Input("LearningRate", {1}, {0.01})
      .RandomInput("Moment1", moment)
      .RandomInput("Moment2", moment, 0.01, 1)
      .RandomInput("Beta1Pow", power, 0.1, 0.9)
      .RandomInput("Beta2Pow", power, 0.1, 0.9);
  return test;
}

TEST(Adam, FastAgainstReference) {
  for (int64_t n : {0, 1, 7, 8, 17, 33, 1000, 70001}) Random({n}, {n}, {1}).CheckFast(1e-6);
  Random({}, {}, {}).CheckFast(1e-6);
}

// A Param of 16 bits is MasterParam rounded.
TEST(Adam, MasterParam) {
  const auto make = [](bool skip) {
    const Tensor one = Tensor::Of<float>({1}, {1}).Cast(DType::kFloat16);
    OpTest test("adam");
    test.Attr("multi_precision", true)
        .TensorInput("Param", one)
        .TensorInput("Grad", one)
        .TensorInput("MasterParam", Tensor::Of<float>({1}, {1.0001f}))
        .TensorInput("SkipUpdate", Tensor::Of<bool>({1}, {skip}));
    for (const char* slot : {"Moment1", "Moment2"})
      test.TensorInput(slot, Tensor::Of<float>({1}, {0}));
    test.TensorInput("Beta1Pow", Tensor::Of<float>({1}, {0.9f}))
        .TensorInput("Beta2Pow", Tensor::Of<float>({1}, {0.999f}))
        .TensorInput("LearningRate", Tensor::Of<float>({1}, {1e-4f}));
    return test;
  };
  for (bool skip : {false, true}) {
    OpTest test = make(skip);
    for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor master = test.Output("MasterParamOut", mode);
      ASSERT_EQ(master.dtype(), DType::kFloat32);
      EXPECT_NEAR(master.Item<float>(), skip ? 1.0001 : 1, 2e-7);  // a step of the rate's size
      EXPECT_TRUE(BitEqual(test.Output("ParamOut", mode), master.Cast(DType::kFloat16)));
    }
  }
  for (bool lazy : {false, true}) {
    OpTest rows("adam");
    rows.Attr("lazy_mode", lazy)
        .RandomInput("Param", {2, 1})
        .RowsInput("Grad", {2, 1}, {1}, {4})
        .Input("MasterParam", {2, 1}, {1, 2})
        .Input("Moment1", {2, 1}, {0, 0})
        .Input("Moment2", {2, 1}, {0, 0})
        .Input("Beta1Pow", {1}, {0.9})
        .Input("Beta2Pow", {1}, {0.999})
        .Input("LearningRate", {1}, {0.5})
        .Expect("MasterParamOut", {2, 1}, {1, 1.5}, 1e-5)
        .Expect("ParamOut", {2, 1}, {1, 1.5}, 1e-5);
  }
}

TEST(Adam, Constraints) {
  Adam({}, 2, 0.1).Input("MasterParam", {1}, {1}).ExpectError("adam.C4");
  Random({2}, {3}, {1}).ExpectError("adam.C1");
  Random({2}, {2}, {2}).ExpectError("adam.C2");
  Random({2}, {2}, {1}).IntInput("SkipUpdate", {1}, {1}).ExpectError("adam.C3");
}
}  // namespace coracle::adam_test
