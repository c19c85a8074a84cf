// Kernels chosen by timing them.

#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::tune_test {

Tensor Drawn(const Shape& shape) {
  Tensor value(DType::kFloat32, shape);
  const Philox random(7, 0, 0);
  for (int64_t i = 0; i < value.numel(); ++i)
    value.data<float>()[i] = random.UniformFloat(static_cast<uint64_t>(i)) - 0.5f;
  return value;
}

// Two convolutions and a loss; the second one is for Winograd's method, oneDNN and others.
struct Net {
  ProgramDesc main, startup;
  Scope scope;
  std::string out, loss;

  Net() {
    Builder net(main, startup);
    Variable h = net.Data("x", {-1, 3, 12, 12});
    h = net.Conv2d(h, {.num_filters = 16, .filter_size = 3, .padding = 1, .act = "relu"});
    h = net.Conv2d(h, {.num_filters = 24, .filter_size = 3, .padding = 1});
    out = h.name();
    const Variable mean = net.Mean(Square(h));
    loss = mean.name();
    Sgd({.learning_rate = 0.1}).Minimize(mean, startup);
    Executor().Run(startup, scope);
  }
};

double LargestDifference(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    most = std::fmax(most, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
  return most;
}

TEST(Tune, ResultsAreThoseOfTheRules) {
  Net tuned, plain;
  const Tensor x = Drawn({2, 3, 12, 12});
  PreparedProgram step = Executor({.tune = true}).Prepare(tuned.main, {"x"}, {tuned.out});
  PreparedProgram other = Executor().Prepare(plain.main, {"x"}, {plain.out});
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const Tensor a = step.Run(tuned.scope, {x})[0].Clone(),
                 b = other.Run(plain.scope, {x})[0].Clone();
    EXPECT_LT(LargestDifference(a, b), 1e-5);
  }
}

TEST(Tune, FrozenParameters) {
  ProgramDesc forward, startup;
  Builder b(forward, startup);
  Variable h = b.Data("x", {-1, 3, 12, 12});
  h = b.Conv2d(h, {.num_filters = 16, .filter_size = 3, .padding = 1, .act = "relu"});
  Scope scope;
  Executor().Run(startup, scope);
  const std::string out = h.name();
  const Tensor x = Drawn({1, 3, 12, 12});
  const Tensor expected =
      Executor({.kernels = KernelMode::kReference}).Run(forward, scope, {{"x", x}}, {out})[0];
  PreparedProgram tuned = Executor({.tune = true}).PrepareFrozen(forward, scope, {"x"}, {out});
  EXPECT_LT(LargestDifference(tuned.Run(scope, {x})[0], expected), 1e-5);
}

// The profile shows the chosen kernel and the time of each kernel.
TEST(Tune, ProfileTellsWhy) {
  Net net;
  const Tensor x = Drawn({2, 3, 12, 12});
  const auto kernels = [&](bool tune) {
    CompileOptions options;
    options.tune = tune;
    options.profile = true;
    PreparedProgram step = Executor(options).Prepare(net.main, {"x"}, {net.loss});
    step.Run(net.scope, {x});
    std::map<std::string, std::string> by_type;
    for (const OpTime& time : step.Profile()) by_type[time.op_type] = time.kernel;
    return by_type;
  };
  std::map<std::string, std::string> by_rule = kernels(false), tuned = kernels(true);
  for (const char* type : {"conv2d", "conv2d_grad"}) {
    SCOPED_TRACE(type);
    ASSERT_TRUE(by_rule.count(type) && tuned.count(type));
    EXPECT_NE(by_rule[type], "");
    EXPECT_EQ(by_rule[type].find(" ms"), std::string::npos) << by_rule[type];
    EXPECT_NE(tuned[type].find(" ms"), std::string::npos) << tuned[type];
    EXPECT_NE(tuned[type].find("winograd "), std::string::npos) << tuned[type];
  }
}
}  // namespace coracle::tune_test
