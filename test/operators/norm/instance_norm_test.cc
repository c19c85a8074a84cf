#include <coracle/backward/backward.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <cmath>

namespace coracle::instance_norm_test {

OpTest Norm(const Shape& x, bool scale = true, bool bias = true) {
  OpTest test("instance_norm");
  test.RandomInput("X", x);
  if (scale) test.RandomInput("Scale", {x[1]}, 0.5, 2);
  if (bias) test.RandomInput("Bias", {x[1]});
  return test;
}

TEST(InstanceNorm, Values) {
  // Rows {1, 3}, {0, 8}, {5, 5.5}, {-1, -3}: means 2, 4, 5.25, -2, biased variances 1, 16, 1/16, 1.
  OpTest("instance_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 2, 2}, {1, 3, 0, 8, 5, 5.5, -1, -3})
      .Input("Scale", {2}, {10, 100})
      .Input("Bias", {2}, {1, 2})
      .Expect("Y", {2, 2, 2}, {-9, 11, -98, 102, -9, 11, 102, -98})
      .Expect("SavedMean", {4}, {2, 4, 5.25, -2})
      .Expect("SavedVariance", {4}, {1, 0.25, 4, 1});
}

TEST(InstanceNorm, WithoutScaleAndBias) {
  OpTest("instance_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {1, 2, 1, 2, 1}, {1, 3, 0, 8})
      .Expect("Y", {1, 2, 1, 2, 1}, {-1, 1, -1, 1});
  OpTest("instance_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {1, 2, 2}, {1, 3, 0, 8})
      .Input("Bias", {2}, {0, 5})
      .Expect("Y", {1, 2, 2}, {-1, 1, 4, 6});
}

TEST(InstanceNorm, GradientValues) {
  // Row {1, 3} with gradients {1, 0}: xh = {-1, 1}, and no gradient of X, as two numbers normalised
  // are always -1 and 1.
  OpTest("instance_norm_grad")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 1, 2}, {1, 3, 0, 8})
      .Input("Scale", {1}, {10})
      .Input("Y@GRAD", {2, 1, 2}, {1, 0, 2, 5})
      .Expect("X@GRAD", {2, 1, 2}, {0, 0, 0, 0})
      .Expect("Scale@GRAD", {1}, {-1 + 3})
      .Expect("Bias@GRAD", {1}, {8});
  // xh = {-1, -1, 1, 1}, inv = 1/2, mean of g = 1, of g xh = 0: inv (g - 1).
  OpTest("instance_norm_grad")
      .Attr("epsilon", 0.0f)
      .Input("X", {1, 1, 4}, {-2, -2, 2, 2})
      .Input("SavedMean", {1}, {0})
      .Input("SavedVariance", {1}, {0.5})
      .Input("Y@GRAD", {1, 1, 4}, {2, 0, 0, 2})
      .Expect("X@GRAD", {1, 1, 4}, {0.5, -0.5, -0.5, 0.5});
}

// A row of one element, and every other constant row, is its mean.
TEST(InstanceNorm, ConstantRowsAreTheBias) {
  for (const Shape& shape : {Shape{2, 2}, Shape{2, 2, 1, 1}}) {
    OpTest("instance_norm")
        .Input("X", shape, {3, -4, 1000.7, 0.1})
        .Input("Scale", {2}, {5, 5})
        .Input("Bias", {2}, {1, 2})
        .Expect("Y", shape, {1, 2, 1, 2});
    OpTest("instance_norm_grad")
        .Input("X", shape, {3, -4, 1000.7, 0.1})
        .Input("Y@GRAD", shape, {1, 2, 3, 4})
        .Expect("X@GRAD", shape, {0, 0, 0, 0}, 2e-4)  // differences of 4 / sqrt(1e-5)
        .Expect("Bias@GRAD", {2}, {4, 6});
  }
  OpTest("instance_norm")
      .Input("X", {1, 1, 3}, {7.3, 7.3, 7.3})
      .Input("Bias", {1}, {3})
      .Expect("Y", {1, 1, 3}, {3, 3, 3});
}

TEST(InstanceNorm, NanStaysInItsRow) {
  const double nan = std::nan("");
  OpTest("instance_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 1, 2}, {nan, 3, 0, 8})
      .Input("Scale", {1}, {2})
      .Expect("Y", {2, 1, 2}, {nan, nan, -2, 2})
      .Expect("SavedVariance", {2}, {nan, 0.25});
  OpTest("instance_norm_grad")
      .Attr("epsilon", 0.0f)
      .Input("X", {2, 1, 2}, {nan, 3, 0, 8})
      .Input("Y@GRAD", {2, 1, 2}, {1, 2, 2, 2})
      .Expect("X@GRAD", {2, 1, 2}, {nan, nan, 0, 0})
      .Expect("Scale@GRAD", {1}, {nan})
      .Expect("Bias@GRAD", {1}, {7});
}

TEST(InstanceNorm, LargeMeanKeepsTheVariance) {
  std::vector<double> x, y;
  for (int i = 0; i < 100; ++i) {
    x.push_back(4096 + (i % 2 ? 1 : -1));
    y.push_back(i % 2 ? 1 : -1);
  }
  OpTest("instance_norm")
      .Attr("epsilon", 0.0f)
      .Input("X", {1, 1, 10, 10}, x)
      .Expect("Y", {1, 1, 10, 10}, y)
      .Expect("SavedVariance", {1}, {1});
}

// The squares, or the sums too, are more than floats hold.
TEST(InstanceNorm, LargeNumbers) {
  for (double size : {1e18, 1e19, 1e30, 1e37}) {
    SCOPED_TRACE(size);
    std::vector<double> x, y;
    for (int i = 0; i < 400; ++i) {
      x.push_back(size * (i % 4 == 0 ? 3 : 1));
      y.push_back((i % 4 == 0 ? 1.5 : -0.5) / std::sqrt(0.75));
    }
    OpTest("instance_norm").Input("X", {1, 1, 400}, x).Expect("Y", {1, 1, 400}, y);
  }
}

TEST(InstanceNorm, NoElements) {
  for (const Shape& shape : {Shape{0, 2, 3}, Shape{0, 2, 0, 3}}) {
    OpTest("instance_norm")
        .Input("X", shape, {})
        .Input("Scale", {2}, {1, 1})
        .Expect("Y", shape, {})
        .Expect("SavedMean", {0}, {});
    OpTest("instance_norm_grad")
        .Input("X", shape, {})
        .Input("Scale", {2}, {1, 1})
        .Input("Y@GRAD", shape, {})
        .Expect("X@GRAD", shape, {})
        .Expect("Scale@GRAD", {2}, {0, 0})
        .Expect("Bias@GRAD", {2}, {0, 0});
  }
  OpTest("instance_norm").Input("X", {2, 0, 3}, {}).Expect("Y", {2, 0, 3}, {});
  OpTest("instance_norm").Input("X", {2, 3, 0}, {}).Expect("Y", {2, 3, 0}, {});
  OpTest("instance_norm_grad")
      .Input("X", {2, 3, 0}, {})
      .Input("Y@GRAD", {2, 3, 0}, {})
      .Expect("Scale@GRAD", {3}, {0, 0, 0})
      .Expect("Bias@GRAD", {3}, {0, 0, 0});
}

TEST(InstanceNorm, Gradients) {
  Norm({3, 2, 5}).CheckGradient({"X", "Scale", "Bias"});
  Norm({2, 3, 2, 3}).CheckGradient({"X", "Scale", "Bias"});
  Norm({2, 2, 2, 1, 3}, true, false).CheckGradient({"X", "Scale"});
  Norm({2, 3, 4}, false, true).CheckGradient({"X", "Bias"});
  Norm({2, 3, 4}, false, false).CheckGradient({"X"});
  Norm({3, 2}).CheckGradient({"X", "Scale", "Bias"});
}

// Without statistics: as inputs of the gradient op they would be held fixed.
TEST(InstanceNorm, SecondGradients) {
  const auto check = [](OpTest test, const std::vector<std::string>& slots) {
    test.NoOutput("SavedMean").NoOutput("SavedVariance").CheckSecondGradient(slots);
  };
  check(Norm({2, 2, 2, 3}), {"X", "Scale", "Bias"});
  check(Norm({2, 3, 4}, false, false), {"X"});
  check(Norm({2, 3, 4}, false, true), {"X", "Bias"});
  check(Norm({2, 3, 4}, true, false), {"X", "Scale"});
}

TEST(InstanceNorm, GradientsOfHigherOrders) {
  Norm({2, 2, 2, 3}).CheckHigherGradients();
  Norm({2, 2, 5}, false, false).CheckHigherGradients();
  Norm({2, 2, 4}, false, true).CheckHigherGradients();
}

TEST(InstanceNorm, FastAgainstReference) {
  std::mt19937 random(21);
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 40; ++trial) {
    Shape shape{pick(1, 4), pick(1, 20)};
    // Rows of a few elements have tiny variances now and then.
    if (pick(0, 4) > 0) shape.Append(pick(8, 40));
    while (shape.rank() > 2 && shape.rank() < pick(2, 5)) shape.Append(pick(1, 5));
    SCOPED_TRACE(::testing::Message() << "trial " << trial << " " << shape.ToString());
    Norm(shape, pick(0, 2) > 0, pick(0, 2) > 0).Attr("epsilon", 1e-3f).CheckFast();
  }
  Norm({2, 3, 300, 257}).CheckFast(1e-3);
  Norm({1, 64, 128, 128}).CheckFast(1e-3);
  Norm({200, 70, 9}).CheckFast(1e-3);
}

// A row far from zero, whose mean is not a float, and a row that begins far from its
// other elements.
TEST(InstanceNorm, FastKeepsDigits) {
  constexpr int64_t kSize = 100'000;
  Tensor x(DType::kFloat32, {1, 2, kSize});
  std::mt19937 random(5);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (int64_t i = 0; i < kSize; ++i) {
    x.data<float>()[i] = 100'003 + std::round(draw(random) * 64) / 64;
    x.data<float>()[kSize + i] = i == 0 ? 1e4f : draw(random);
  }
  OpTest forward("instance_norm");
  forward.TensorInput("X", x);
  for (const char* slot : {"SavedMean", "SavedVariance"}) {
    const Tensor fast = forward.Output(slot), slow = forward.Output(slot, KernelMode::kReference);
    for (int64_t r = 0; r < 2; ++r)
      EXPECT_NEAR(fast.data<float>()[r], slow.data<float>()[r], 1e-5f * slow.data<float>()[r]);
  }
  OpTest gradient("instance_norm_grad");
  gradient.TensorInput("X", x).TensorInput("Scale", Tensor::Full<float>({2}, 1));
  gradient.TensorInput("Y@GRAD", Tensor::Full<float>(x.shape(), 1));
  const Tensor fast = gradient.Output("Scale@GRAD");
  const Tensor slow = gradient.Output("Scale@GRAD", KernelMode::kReference);
  for (int64_t r = 0; r < 2; ++r) EXPECT_NEAR(fast.data<float>()[r], slow.data<float>()[r], 1e-2);
}

// No gradient flows back through the saved statistics; one that arrives is not taken for zero.
TEST(InstanceNorm, GradientOfStatisticsIsRefused) {
  for (const char* type : {"instance_norm", "layer_norm"}) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {2, 3, 4}, DType::kFloat32, {.stop_gradient = false});
    if (type == std::string("layer_norm"))
      net.LayerNorm(x);
    else
      net.InstanceNorm(x);
    const OpDesc& norm = main.Root().op(main.Root().NumOps() - 1);
    ASSERT_EQ(norm.type(), type);
    const std::string slot = type == std::string("layer_norm") ? "Mean" : "SavedMean";
    const Variable statistic = net.Var(norm.Output(slot).at(0));
    statistic.desc().SetStopGradient(false);
    const Variable loss = net.Mean(statistic);
    const std::string error = ErrorOf([&] { AppendBackward(loss); });
    EXPECT_NE(error.find("no gradient flows back through its output " + slot), std::string::npos)
        << error;
  }
}

TEST(InstanceNorm, HalvesKeepFloatStatistics) {
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor x = Tensor::Of<float>({1, 2, 2}, {1, 3, 0, 8});
    const auto make = [&](DType dtype) {
      OpTest op("instance_norm");
      op.TensorInput("X", x.Cast(dtype)).TensorInput("Scale", Tensor::Full<float>({2}, 0.3f));
      return op;
    };
    for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
      const Tensor inv = make(half).Output("SavedVariance", mode);
      ASSERT_EQ(inv.dtype(), DType::kFloat32);
      EXPECT_TRUE(BitEqual(inv, make(DType::kFloat32).Output("SavedVariance", mode)));
      const Tensor y = make(half).Output("Y", mode);
      ASSERT_EQ(y.dtype(), half);
      EXPECT_TRUE(BitEqual(y, make(DType::kFloat32).Output("Y", mode).Cast(half)));
    }
  }
}

// Second gradients of 16-bit values are computed in float32, with float32 parameters.
TEST(InstanceNorm, HalvesHaveSecondGradients) {
  const Tensor x = Tensor::Of<float>({1, 2, 4}, {1, 3, 4, -2, 0, 8, 1, 2});
  const auto second_gradient = [&](DType dtype) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable in = net.Data("x", x.shape(), dtype, {.stop_gradient = false});
    const Variable y = net.InstanceNorm(in);
    const Variable cube = net.Mul(net.Mul(y, y), y);
    const Variable g = Variable::Of(main.Root(), Gradients({cube}, {in})[0]);
    const Variable scale = Variable::Of(main.Root(), main.Parameters()[0]);
    const std::string of_scale = Gradients({net.Mul(g, g)}, {scale, in})[0];
    VarValues env = {{"x", x.Cast(dtype)},
                     {main.Parameters()[0], Tensor::Of<float>({2}, {1.5f, -0.5f})},
                     {main.Parameters()[1], Tensor::Of<float>({2}, {0.25f, 1})}};
    VerifyOrThrow(main, DefaultOps());
    Interpret(main.Root(), DefaultOps(), env);
    return std::get<Tensor>(env.at(of_scale));
  };
  const Tensor expected = second_gradient(DType::kFloat32);
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    const Tensor got = second_gradient(half);
    ASSERT_EQ(got.dtype(), DType::kFloat32);
    for (int64_t c = 0; c < 2; ++c) {
      const float value = expected.data<float>()[c];
      EXPECT_NEAR(got.data<float>()[c], value, 0.1f * std::abs(value)) << ToString(half);
      EXPECT_GT(std::abs(value), 1e-3f);
    }
  }
}

TEST(InstanceNorm, UnknownDimsWhileBuilding) {
  const std::vector<std::pair<std::string, Shape>> ins = {{"X", {-1, -1, -1}}, {"Scale", {6}}};
  EXPECT_EQ("[-1, -1, -1]", InferredShape("instance_norm", ins, "Y", {}));
  EXPECT_EQ("[-1]", InferredShape("instance_norm", ins, "SavedMean", {}));
  EXPECT_EQ("[12]",
            InferredShape("instance_norm", {{"X", {2, -1, -1}}, {"Bias", {6}}}, "SavedMean", {}));
}

TEST(InstanceNorm, C1_Rank) {
  OpTest("instance_norm").RandomInput("X", {2}).ExpectError("instance_norm.C1");
  OpTest("instance_norm").RandomInput("X", {1, 2, 1, 1, 1, 1}).ExpectError("instance_norm.C1");
}
TEST(InstanceNorm, C2_Channels) {
  for (const char* slot : {"Scale", "Bias"}) {
    OpTest("instance_norm")
        .RandomInput("X", {2, 3, 2})
        .RandomInput(slot, {2})
        .ExpectError("instance_norm.C2");
  }
}
TEST(InstanceNorm, C3_DTypes) {
  OpTest("instance_norm")
      .RandomInput("X", {2, 3})
      .TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {3}))
      .ExpectError("instance_norm.C3");
}
TEST(InstanceNorm, C4_OutputGradShape) {
  OpTest("instance_norm_grad")
      .RandomInput("X", {2, 3, 2})
      .RandomInput("Y@GRAD", {2, 3, 3})
      .ExpectError("instance_norm_grad.C4");
}
TEST(InstanceNorm, C5_Statistics) {
  for (const char* slot : {"SavedMean", "SavedVariance"}) {
    OpTest("instance_norm_grad")
        .RandomInput("X", {2, 3, 2})
        .RandomInput(slot, {3})
        .RandomInput("Y@GRAD", {2, 3, 2})
        .ExpectError("instance_norm_grad.C5");
  }
}

TEST(InstanceNorm, LayerHasAScaleAndAShiftForEachChannel) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 3, -1, -1});
  const Variable y = net.InstanceNorm(x, {.epsilon = 1e-3f, .bias_attr = {.name = "shift"}});
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(main.Parameters(), (std::vector<std::string>{"instance_norm_0.w_0", "shift"}));
  for (const std::string& name : main.Parameters())
    EXPECT_EQ(main.Root().FindVar(name)->shape(), Shape({3}));
  EXPECT_EQ(startup.Root().op(0).GetAttr<float>("value", -1), 1);
  EXPECT_EQ(startup.Root().op(1).GetAttr<float>("value", -1), 0);
  const OpDesc& op = main.Root().op(0);
  EXPECT_TRUE(main.Root().FindVar(op.Output("SavedMean")[0])->stop_gradient());
  VerifyOrThrow(main, DefaultOps());
  const BuiltModel model = ParseModelText(R"(
      data { name: "x" shape: [-1, 3, -1, -1] }
      layer { instance_norm { input: "x" epsilon: 0.001 bias { name: "shift" } } })");
  EXPECT_EQ(PrintProgram(model.main), PrintProgram(main));
  EXPECT_EQ(PrintProgram(model.startup), PrintProgram(startup));
}

TEST(InstanceNorm, LayerRefuses) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 3, 4}), y = net.Data("y", {3});
  const Variable z = net.Data("z", {3, -1, 4});
  EXPECT_NE(ErrorOf([&] {
              net.InstanceNorm(x, {.epsilon = 0.01f});
            }).find("attr epsilon must lie in [0, 0.001], got 0.01"),
            std::string::npos);
  EXPECT_EQ(ErrorOf([&] { net.InstanceNorm(y); }),
            "instance_norm: its input must have 2 dims or more, got y of shape [3]");
  EXPECT_EQ(ErrorOf([&] { net.InstanceNorm(z); }),
            "instance_norm: dim 1 of its input must be known to size the parameters, got z of "
            "shape [3, -1, 4]");
}

}  // namespace coracle::instance_norm_test
