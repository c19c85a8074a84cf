// Optimizers: several steps of whole programs against loops in double written out here.

#include <coracle/framework/base/error.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::optimizer_test {

constexpr int kSteps = 5;

std::vector<double> Values(const VarValues& env, const std::string& name) {
  Tensor wide = std::get<Tensor>(env.at(name)).Cast(DType::kFloat64);
  auto span = wide.span<double>();
  return {span.begin(), span.end()};
}

// loss = mean((x - w)^2): d loss / d w = 2 (w - x) / n.
class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() {
    for (const char* name : {"w", "x"}) {
      VarDesc& var = main.Root().Var(name);
      var.SetShape({4});
      var.SetPersistable(true);
    }
    main.Root().FindVar("w")->SetIsParameter(true);
    main.Root().FindVar("x")->SetStopGradient(true);
    Append("square_error_cost", {{"X", {"w"}}, {"Y", {"x"}}}, "cost");
    Append("mean", {{"X", {"cost"}}}, "loss");
  }

  void Append(const std::string& type, SlotList inputs, const std::string& out) {
    const OpDesc& op = main.Root().AppendOp(type, std::move(inputs), {{"Out", {out}}});
    InferOp(main.Root(), op, DefaultOps());
  }
  Variable Loss() { return Variable::Of(main.Root(), "loss"); }
  VarDesc& W() { return *main.Root().FindVar("w"); }

  std::vector<double> w0 = {0.5, -1.25, 2, 0.125}, x0 = {1, 1, -1, 0.25};

  // The parameter after each step.
  std::vector<std::vector<double>> Train(Optimizer& optimizer) {
    pairs = optimizer.Minimize(Loss(), startup);
    VerifyOrThrow(main, DefaultOps());
    VerifyOrThrow(startup, DefaultOps());
    VarValues env;
    Interpret(startup.Root(), DefaultOps(), env);
    env["w"] = Tensor::Of<double>({4}, w0).Cast(DType::kFloat32);
    env["x"] = Tensor::Of<double>({4}, x0).Cast(DType::kFloat32);
    std::vector<std::vector<double>> trace;
    for (int step = 0; step < kSteps; ++step) {
      Interpret(main.Root(), DefaultOps(), env);
      trace.push_back(Values(env, "w"));
    }
    return trace;
  }

  // update(i, gradient, w) moves one element.
  template <class F>
  void ExpectTrace(const std::vector<std::vector<double>>& trace, F update,
                   const std::function<double(double, double)>& decay = {}) {
    std::vector<double> w = w0;
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < w.size(); ++i) {
        double gradient = 2 * (w[i] - x0[i]) / static_cast<double>(w.size());
        if (decay) gradient = decay(gradient, w[i]);
        update(i, gradient, w[i]);
      }
      for (size_t i = 0; i < w.size(); ++i)
        EXPECT_NEAR(trace[static_cast<size_t>(step)][i], w[i], 2e-6 * std::max(1.0, std::abs(w[i])))
            << "step " << step << " element " << i;
    }
  }

  const OpDesc& LastOp() { return main.Root().op(main.Root().NumOps() - 1); }

  ProgramDesc main, startup;
  std::vector<ParamAndGrad> pairs;
};

TEST_F(OptimizerTest, Sgd) {
  Sgd sgd({.learning_rate = 0.3});
  auto trace = Train(sgd);
  ExpectTrace(trace, [](size_t, double g, double& w) { w -= 0.3 * g; });
  EXPECT_EQ(pairs, (std::vector<ParamAndGrad>{{"w", "w@GRAD"}}));
  EXPECT_EQ(sgd.learning_rate_var(), "learning_rate_0");
  const OpDesc& op = LastOp();
  EXPECT_EQ(op.type(), "sgd");
  EXPECT_EQ(op.Output("ParamOut"), op.Input("Param"));
  EXPECT_EQ(op.role(), kOptimize);
  EXPECT_EQ(op.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {}),
            (std::vector<std::string>{"w", "w@GRAD"}));
  const VarDesc& rate = *main.Root().FindVar("learning_rate_0");
  EXPECT_TRUE(rate.persistable());
  EXPECT_EQ(rate.shape(), Shape{1});
  EXPECT_EQ(rate.dtype(), DType::kFloat32);
}

TEST_F(OptimizerTest, Momentum) {
  Momentum momentum({.learning_rate = 0.1, .momentum = 0.8});
  std::vector<double> v(4);
  ExpectTrace(Train(momentum), [&](size_t i, double g, double& w) {
    v[i] = 0.8 * v[i] + g;
    w -= 0.1 * v[i];
  });
  EXPECT_NE(main.Root().FindVar("w_velocity_0"), nullptr);
  EXPECT_TRUE(startup.Root().FindVar("w_velocity_0")->persistable());
}

TEST_F(OptimizerTest, NesterovMomentum) {
  Momentum momentum({.learning_rate = 0.1, .momentum = 0.8, .use_nesterov = true});
  std::vector<double> v(4);
  ExpectTrace(Train(momentum), [&](size_t i, double g, double& w) {
    v[i] = 0.8 * v[i] + g;
    w -= 0.1 * (g + 0.8 * v[i]);
  });
}

TEST_F(OptimizerTest, Adam) {
  Adam adam({.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6});
  std::vector<double> m(4), v(4), b1(4, 1), b2(4, 1);
  ExpectTrace(Train(adam), [&](size_t i, double g, double& w) {
    m[i] = 0.8 * m[i] + 0.2 * g;
    v[i] = 0.95 * v[i] + 0.05 * g * g;
    b1[i] *= 0.8;
    b2[i] *= 0.95;
    const double r = std::sqrt(1 - b2[i]);
    w -= 0.05 * r / (1 - b1[i]) * m[i] / (std::sqrt(v[i]) + 1e-6 * r);
  });
  for (const char* name :
       {"w_moment1_0", "w_moment2_0", "w_beta1_pow_acc_0", "w_beta2_pow_acc_0"}) {
    ASSERT_NE(main.Root().FindVar(name), nullptr) << name;
    EXPECT_TRUE(main.Root().FindVar(name)->persistable());
  }
  EXPECT_EQ(main.Root().FindVar("w_beta1_pow_acc_0")->shape(), Shape{1});
}

TEST_F(OptimizerTest, LearningRateMultiplier) {
  W().MutableTraining().learning_rate = 2.5;
  Sgd sgd({.learning_rate = 0.1});
  ExpectTrace(Train(sgd), [](size_t, double g, double& w) { w -= 0.25 * g; });
}

TEST_F(OptimizerTest, L2Decay) {
  W().MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.4}}};
  Sgd sgd({.learning_rate = 0.1});
  ExpectTrace(
      Train(sgd), [](size_t, double g, double& w) { w -= 0.1 * g; },
      [](double g, double w) { return g + 0.4 * w; });
}

TEST_F(OptimizerTest, L1Decay) {
  W().MutableTraining().regularizer = Setting{"l1_decay", {{"coeff", 0.4}}};
  Sgd sgd({.learning_rate = 0.1});
  ExpectTrace(
      Train(sgd), [](size_t, double g, double& w) { w -= 0.1 * g; },
      [](double g, double w) {
        return g + 0.4 * (w > 0 ? 1 : w < 0 ? -1 : 0);
      });
}

TEST_F(OptimizerTest, GradientClipComesBeforeDecay) {
  W().MutableTraining().gradient_clip = Setting{"by_value", {{"max", 0.2}}};
  W().MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.4}}};
  Sgd sgd({.learning_rate = 0.1});
  ExpectTrace(
      Train(sgd), [](size_t, double g, double& w) { w -= 0.1 * g; },
      [](double g, double w) { return std::clamp(g, -0.2, 0.2) + 0.4 * w; });
}

TEST_F(OptimizerTest, ErrorClipActsInMinimize) {
  main.Root().FindVar("cost")->SetErrorClip(ErrorClipByValue(0.1));
  Sgd sgd({.learning_rate = 0.3});
  // d loss / d cost = 1/4 is clipped to 0.1
  ExpectTrace(Train(sgd), [](size_t, double g, double& w) { w -= 0.3 * (g * 4 * 0.1); });
}

TEST_F(OptimizerTest, MinimizeWarnsOfIdleErrorClips) {
  main.Root().FindVar("x")->SetErrorClip(ErrorClipByValue(0.1));
  std::vector<std::string> lines;
  LogSink previous =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  Sgd({.learning_rate = 0.3}).Minimize(Loss(), startup);
  SetLogSink(previous);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("'x'"), std::string::npos);
}

TEST_F(OptimizerTest, CloneForTestDropsTheTraining) {
  const size_t forward = main.Root().NumOps();
  W().MutableTraining().learning_rate = 2;
  W().MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.4}}};
  Momentum({.learning_rate = 0.3}).Minimize(Loss(), startup);
  ProgramDesc test = main.CloneForTest();
  EXPECT_EQ(test.Root().NumOps(), forward);
  EXPECT_EQ(test.Root().FindVar("w_velocity_0"), nullptr);
}

TEST_F(OptimizerTest, Errors) {
  EXPECT_THROW(Sgd({.learning_rate = -1}), Error);
  EXPECT_THROW(Sgd({.learning_rate = std::nan("")}), Error);
  EXPECT_THROW(Momentum({.momentum = 1.5}), Error);
  EXPECT_THROW(Adam({.beta1 = 1}), Error);
  EXPECT_THROW(Adam({.epsilon = -1}), Error);
  Sgd sgd({});
  W().MutableTraining().regularizer = Setting{"l3_decay", {}};
  try {
    sgd.Minimize(Loss(), startup);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("'l3_decay'"), std::string::npos) << e.message();
  }
  W().MutableTraining() = {};
  sgd.Minimize(Loss(), startup);
  ProgramDesc other, other_startup;
  try {
    sgd.ApplyGradients(other.Root(), other_startup, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("one object serves one program"), std::string::npos) << e.message();
  }
  W().MutableTraining().trainable = false;
  try {
    Sgd({}).Minimize(Loss(), startup);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("no trainable parameter"), std::string::npos) << e.message();
  }
}

// An optimizer of a user: w -= rate * sign(g), with a count of its steps.
class SignSgd : public Optimizer {
 public:
  SignSgd() : Optimizer(0.25) {}

 protected:
  void AppendUpdate(const UpdateContext& update) override {
    const Shape one = {1};
    const std::string count = Accumulator(update, "count", 10, &one);
    const std::string sign = MakeTemporary(update.block, "sign", DType::kFloat32, {4});
    update.block.AppendOp("sign", {{"X", {update.grad}}}, {{"Out", {sign}}});
    update.block.AppendOp("increment", {{"X", {count}}}, {{"Out", {count}}}, {{"step", 1.f}});
    update.block.AppendOp(
        "sgd",
        {{"Param", {update.param}}, {"Grad", {sign}}, {"LearningRate", {update.learning_rate}}},
        {{"ParamOut", {update.param}}});
  }
};

TEST_F(OptimizerTest, UserDerived) {
  SignSgd sign_sgd;
  ExpectTrace(Train(sign_sgd), [](size_t, double g, double& w) {
    w -= 0.25 * (g > 0 ? 1 : g < 0 ? -1 : 0);
  });
  EXPECT_EQ(LastOp().role(), kOptimize);
  EXPECT_NE(startup.Root().FindVar("w_count_0"), nullptr);
}

TEST_F(OptimizerTest, TwoParametersShareTheScaledRate) {
  VarDesc& v = main.Root().Var("v");
  v.SetShape({4});
  v.SetPersistable(true);
  v.SetIsParameter(true);
  v.MutableTraining().learning_rate = 3;
  W().MutableTraining().learning_rate = 3;
  Append("square_error_cost", {{"X", {"cost"}}, {"Y", {"v"}}}, "cost2");
  Append("mean", {{"X", {"cost2"}}}, "loss2");
  Sgd({.learning_rate = 0.1}).Minimize(Variable::Of(main.Root(), "loss2"), startup);
  int scales = 0;
  for (size_t i = 0; i < main.Root().NumOps(); ++i) {
    const OpDesc& op = main.Root().op(i);
    if (op.type() != "scale" || op.Input("X")[0] != "learning_rate_0") continue;
    ++scales;
    EXPECT_EQ(op.role(), kOptimize | kLRSched);
  }
  EXPECT_EQ(scales, 1);
}

// A program read from a file that says of no variable whether it is a parameter gets a new head:
// the old parameters are trained with it.
TEST(FineTuning, OldParametersAreTrainedWithNewOnes) {
  ProgramDesc old, startup;
  {
    Builder net(old, startup);
    net.Fc(net.Fc(net.Data("x", {-1, 3}), {.size = 4}), {.size = 4, .output = "features"});
    for (size_t i = 0; i < old.Root().NumVars(); ++i)
      FileFields::IsParameter(old.Root().var(i)) = {};
    old.InferParameters();
  }
  ProgramDesc main = ParseProgram(SerializeProgram(old));
  EXPECT_EQ(main.Parameters().size(), 4u);
  Builder net(main, startup);
  const Variable head = net.Fc(Variable::Of(main.Root(), "features"), {.size = 2});
  const auto pairs = Momentum({.learning_rate = 0.1}).Minimize(net.Mean(head), startup);
  EXPECT_EQ(pairs.size(), 6u);
  const ProgramDesc again = ParseProgram(SerializeProgram(main));
  EXPECT_EQ(again.Parameters(), main.Parameters());
  EXPECT_EQ(again.Parameters().size(), 6u);
  // Without the new head the file does not mention it either, and moments are not parameters.
  ProgramDesc whole = ParseProgram(SerializeProgram(old));
  Builder loss(whole, startup);
  Adam({}).Minimize(loss.Mean(Variable::Of(whole.Root(), "features")), startup);
  EXPECT_EQ(ParseProgram(SerializeProgram(whole)).Parameters().size(), 4u);
}
}  // namespace coracle::optimizer_test
