#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::momentum_test {

OpTest Momentum(const std::vector<double>& p, const std::vector<double>& g,
                const std::vector<double>& v, double lr, float mu) {
  const Shape shape{static_cast<int64_t>(p.size())};
  OpTest test("momentum");
  test.Attr("mu", mu)
      .NoOutput("MasterParamOut")
      .Input("Param", shape, p)
      .Input("Grad", shape, g)
      .Input("Velocity", shape, v)
      .Input("LearningRate", {1}, {lr});
  return test;
}

TEST(Momentum, Values) {
  // v' = 0.5 * {2, 4} + {1, -1} = {2, 1}; p' = p - 0.1 v'.
  Momentum({1, 1}, {1, -1}, {2, 4}, 0.1, 0.5f)
      .Expect("VelocityOut", {2}, {2, 1})
      .Expect("ParamOut", {2}, {0.8, 0.9});
}

TEST(Momentum, Nesterov) {
  // p' = p - 0.1 (g + 0.5 v') = {1 - 0.1 * 2, 1 - 0.1 * -0.5}.
  Momentum({1, 1}, {1, -1}, {2, 4}, 0.1, 0.5f)
      .Attr("use_nesterov", true)
      .Expect("VelocityOut", {2}, {2, 1})
      .Expect("ParamOut", {2}, {0.8, 1.05});
}

// Caffe: v' = 0.5 * {2, 4} + 0.1 * {1, -1}; p' = p - v'; with Nesterov's p - (1.5 v' - 0.5 v).
TEST(Momentum, VelocityHoldsTheRate) {
  Momentum({1, 1}, {1, -1}, {2, 4}, 0.1, 0.5f)
      .Attr("velocity_holds_rate", true)
      .Expect("VelocityOut", {2}, {1.1, 1.9})
      .Expect("ParamOut", {2}, {-0.1, -0.9});
  Momentum({1, 1}, {1, -1}, {2, 4}, 0.1, 0.5f)
      .Attr("velocity_holds_rate", true)
      .Attr("use_nesterov", true)
      .Expect("VelocityOut", {2}, {1.1, 1.9})
      .Expect("ParamOut", {2}, {1 - (1.65 - 1), 1 - (2.85 - 2)});
  // g' = 0.1 (0.5 * 4 + 0.25 * 8); v' = 0.4 + 0.5 * 2; p' = 8 - 1.4.
  Momentum({8}, {4}, {2}, 0.1, 0.5f)
      .Attr("velocity_holds_rate", true)
      .Attr("rescale_grad", 0.5f)
      .Attr("regularization_method", "l2_decay")
      .Attr("regularization_coeff", 0.25f)
      .Expect("VelocityOut", {1}, {1.4})
      .Expect("ParamOut", {1}, {6.6});
}

// Without decay, 0 times infinity gives no nan, in the vectors of the fast kernel and after them.
TEST(Momentum, InfiniteParameter) {
  const size_t n = 19;
  const std::vector<double> p(n, HUGE_VAL), g(n, 1), v(n, 0);
  for (const bool nesterov : {false, true}) {
    OpTest test = Momentum(p, g, v, 0.1, 0.5f);
    test.Attr("use_nesterov", nesterov).Expect("VelocityOut", {19}, g).Expect("ParamOut", {19}, p);
  }
}

TEST(Momentum, WeightDecayAndRescale) {
  // g' = 0.5 * 4 + 0.25 * 8 = 4; v' = 4 + 0.5 * 2 = 5; p' = 8 - 0.1 * 5.
  Momentum({8}, {4}, {2}, 0.1, 0.5f)
      .Attr("rescale_grad", 0.5f)
      .Attr("regularization_method", "l2_decay")
      .Attr("regularization_coeff", 0.25f)
      .Expect("VelocityOut", {1}, {5})
      .Expect("ParamOut", {1}, {7.5});
  // The coefficient alone does nothing.
  Momentum({8}, {4}, {2}, 0.1, 0.5f)
      .Attr("regularization_coeff", 0.25f)
      .Expect("VelocityOut", {1}, {5})
      .Expect("ParamOut", {1}, {7.5});
}

TEST(Momentum, InPlace) {
  for (bool nesterov : {false, true}) {
    Momentum({1, 1}, {1, -1}, {2, 4}, 0.1, 0.5f)
        .InPlace("Param", "ParamOut")
        .InPlace("Velocity", "VelocityOut")
        .Attr("use_nesterov", nesterov)
        .Expect("VelocityOut", {2}, {2, 1})
        .Expect("ParamOut", {2}, {0.8, nesterov ? 1.05 : 0.9});
  }
}

TEST(Momentum, SmallShapes) {
  Momentum({}, {}, {}, 1, 0.9f).Expect("ParamOut", {0}, {});
  OpTest("momentum")
      .Attr("mu", 0.5f)
      .NoOutput("MasterParamOut")
      .Input("Param", {}, {1})
      .Input("Grad", {}, {1})
      .Input("Velocity", {}, {0})
      .Input("LearningRate", {}, {1})
      .Expect("ParamOut", {}, {0});
}

TEST(Momentum, FastAgainstReference) {
  for (int64_t n : {1, 7, 8, 17, 33, 1000, 70001}) {
    OpTest("momentum")
        .Attr("mu", 0.9f)
        .Attr("use_nesterov", n % 2 == 0)
        .Attr("regularization_method", "l2_decay")
        .Attr("regularization_coeff", 0.01f)
        .NoOutput("MasterParamOut")
        .RandomInput("Param", {n})
        .RandomInput("Grad", {n})
        .RandomInput("Velocity", {n})
        .Input("LearningRate", {1}, {0.3})
        .CheckFast(1e-6);
  }
}

// A Param of 16 bits is MasterParam rounded; steps that it would not feel add up there.
TEST(Momentum, MasterParam) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor one = Tensor::Of<float>({2}, {1, -2}).Cast(dtype);
    OpTest test("momentum");
    test.Attr("mu", 0.5f)
        .Attr("multi_precision", true)
        .TensorInput("Param", one)
        .TensorInput("Grad", one)
        .TensorInput("Velocity", Tensor::Of<float>({2}, {2, 0}))
        .TensorInput("MasterParam", Tensor::Of<float>({2}, {1.0001f, -2}))
        .TensorInput("LearningRate", Tensor::Of<float>({1}, {1e-4f}));
    for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor master = test.Output("MasterParamOut", mode);
      ASSERT_EQ(master.dtype(), DType::kFloat32);
      EXPECT_NEAR(master.data<float>()[0], 1.0001 - 2e-4, 1e-7);
      EXPECT_NEAR(master.data<float>()[1], -2 + 2e-4, 1e-6);
      EXPECT_TRUE(BitEqual(test.Output("ParamOut", mode), master.Cast(dtype)));
      EXPECT_EQ(test.Output("VelocityOut", mode).data<float>()[0], 2);
    }
  }
  // Rows: all of them are copied.
  OpTest rows("momentum");
  rows.Attr("mu", 0.5f)
      .RandomInput("Param", {3, 1})
      .RowsInput("Grad", {3, 1}, {1}, {4})
      .Input("Velocity", {3, 1}, {2, 0, 0})
      .Input("MasterParam", {3, 1}, {1, 2, 3})
      .Input("LearningRate", {1}, {0.5})
      .Expect("MasterParamOut", {3, 1}, {0.5, 0, 3})
      .Expect("ParamOut", {3, 1}, {0.5, 0, 3});
}

TEST(Momentum, C3_MasterParamWithoutItsOutput) {
  Momentum({1}, {1}, {1}, 1, 0.5f).Input("MasterParam", {1}, {1}).ExpectError("momentum.C3");
  OpTest("momentum")
      .Attr("mu", 0.5f)
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("Velocity", {2})
      .RandomInput("MasterParam", {3})
      .RandomInput("LearningRate", {1})
      .ExpectError("momentum.C1");
}

TEST(Momentum, Constraints) {
  OpTest("momentum")
      .Attr("mu", 0.9f)
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("Velocity", {1})
      .RandomInput("LearningRate", {1})
      .ExpectError("momentum.C1");
  OpTest("momentum")
      .Attr("mu", 0.9f)
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("Velocity", {2})
      .RandomInput("LearningRate", {0})
      .ExpectError("momentum.C2");
}
}  // namespace coracle::momentum_test
