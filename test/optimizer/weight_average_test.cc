// Averages of parameters against loops in double written out here; what a skipped step, a restored
// parameter and a resumed run leave.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace coracle::weight_average_test {

// `w` is moved by -0.1 g where `go` holds; `extra` appends to the block of the update.
class Net {
 public:
  using Extra = std::function<void(BlockDesc& block, ProgramDesc& startup)>;
  explicit Net(DType dtype, const Extra& extra) : dtype_(dtype) {
    for (const char* name : {"w", "g"}) {
      VarDesc& var = main_.Root().Var(name);
      var.SetDType(dtype);
      var.SetShape({2});
      var.SetPersistable(true);
    }
    main_.Root().FindVar("w")->SetIsParameter(true);
    startup_.Root().AppendOp("fill_constant", {}, {{"Out", {"w"}}},
                             {{"shape", std::vector<int64_t>{2}},
                              {"dtype", static_cast<int32_t>(dtype)},
                              {"value", 1.0f}});
    VarDesc& w = startup_.Root().Var("w");
    w.SetMeta(main_.Root().FindVar("w")->meta());
    w.SetPersistable(true);
    VarDesc& go = main_.Root().Var("go");
    go.SetDType(DType::kBool);
    go.SetShape({1});
    Sgd sgd({.learning_rate = 0.1});
    AppendGuarded(main_.Root(), {"go"}, [&](BlockDesc& block) {
      sgd.ApplyGradients(block, startup_, {{"w", "g"}});
      extra(block, startup_);
    });
    VerifyOrThrow(main_, DefaultOps());
    exe_.Run(startup_, scope_);
    step_.emplace(exe_.Prepare(main_, {"go"}, {}));
  }

  void Run(double g, bool go = true) {
    scope_.Set("g", Tensor::Of<double>({2}, {g, -2 * g}).Cast(dtype_));
    step_->Run(scope_, {Tensor::Of<bool>({1}, {go})});
  }
  void RunProgram(const ProgramDesc& program) {
    VerifyOrThrow(program, DefaultOps());
    exe_.Run(program, scope_);
  }
  Tensor Bits(const char* name = "w") const { return scope_.Get(name).Clone(); }
  double W() const { return scope_.Get("w").Cast(DType::kFloat64).span<double>()[0]; }

  // All persistable variables, for a run that goes on.
  void CopyTo(Net& other) const {
    for (size_t i = 0; i < main_.Root().NumVars(); ++i) {
      const VarDesc& var = main_.Root().var(i);
      if (var.persistable()) other.scope_.Set(var.name(), scope_.Get(var.name()).Clone());
    }
  }
  void ExpectSameBits(const Net& other) const {
    for (size_t i = 0; i < main_.Root().NumVars(); ++i) {
      const VarDesc& var = main_.Root().var(i);
      if (!var.persistable()) continue;
      const Tensor &a = scope_.Get(var.name()), &b = other.scope_.Get(var.name());
      ASSERT_EQ(a.nbytes(), b.nbytes());
      EXPECT_EQ(0, std::memcmp(a.raw(), b.raw(), a.nbytes())) << var.name();
    }
  }

 private:
  DType dtype_;
  ProgramDesc main_, startup_;
  Scope scope_;
  Executor exe_;
  std::optional<PreparedProgram> step_;
};

double GradientAt(int step) { return std::cos(step) + 0.2; }

// `average(w)` is called with each new parameter and gives the average.
void CheckAverage(const std::function<std::unique_ptr<WeightAverage>()>& make,
                  const std::function<std::function<double(double)>()>& average, int steps) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const auto object = make(), second = make();
    const auto append_to = [](WeightAverage& to) {
      return [&to](BlockDesc& block, ProgramDesc& startup) { to.Append(block, startup, {"w"}); };
    };
    Net net(dtype, append_to(*object)), resumed(dtype, append_to(*second));
    const auto reference = average();
    net.RunProgram(object->apply());  // before any update: the parameter itself
    EXPECT_EQ(net.W(), 1);
    net.RunProgram(object->restore());
    double w = 1;
    for (int step = 0; step < steps; ++step) {
      net.Run(100, false);  // a skipped step
      net.Run(GradientAt(step));
      if (step == steps / 2) net.CopyTo(resumed);
      if (step > steps / 2) resumed.Run(GradientAt(step));
      w -= 0.1 * GradientAt(step);
      const double expected = reference(w);
      const Tensor before = net.Bits();
      net.RunProgram(object->apply());
      const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 2e-5;
      EXPECT_NEAR(net.W(), expected, tolerance) << ToString(dtype) << " step " << step;
      net.RunProgram(object->restore());
      EXPECT_EQ(0, std::memcmp(before.raw(), net.Bits().raw(), before.nbytes()));
    }
    net.ExpectSameBits(resumed);
  }
}

TEST(WeightAverage, ExponentialMovingAverage) {
  CheckAverage(
      [] {
        return std::make_unique<ExponentialMovingAverage>(
            ExponentialMovingAverageOptions{.decay = 0.9});
      },
      [] {
        return [ema = 0.0, t = 0](double w) mutable {
          ema = 0.9 * ema + 0.1 * w;
          return ema / (1 - std::pow(0.9, ++t));
        };
      },
      12);
}

TEST(WeightAverage, ExponentialMovingAverageWithWarmUp) {
  CheckAverage(
      [] {
        return std::make_unique<ExponentialMovingAverage>(
            ExponentialMovingAverageOptions{.decay = 0.3, .warm_up = true});
      },
      [] {
        return [ema = 0.0, product = 1.0, t = 0](double w) mutable {
          const double d = std::min(0.3, (1.0 + t) / (10.0 + t));
          ++t;
          ema = d * ema + (1 - d) * w;
          product *= d;
          return ema / (1 - product);
        };
      },
      12);
}

// Windows of 2, 2, ... up to 3 updates: the mean of this window and the one before.
TEST(WeightAverage, ModelAverage) {
  CheckAverage(
      [] {
        return std::make_unique<ModelAverage>(
            ModelAverageOptions{.rate = 0.5, .min_window = 2, .max_window = 3});
      },
      [] {
        return [now = std::vector<double>(), old = std::vector<double>(),
                updates = 0](double w) mutable {
          ++updates;
          now.push_back(w);
          const auto n = static_cast<int64_t>(now.size());
          if (n >= 2 && n >= std::min<int64_t>(3, static_cast<int64_t>(updates * 0.5))) {
            old = now;
            now.clear();
          }
          double sum = 0;
          for (double x : now) sum += x;
          for (double x : old) sum += x;
          return sum / static_cast<double>(now.size() + old.size());
        };
      },
      13);
}

TEST(WeightAverage, Lookahead) {
  const LookaheadOptions options = {.alpha = 0.25, .k = 3};
  const auto append = [&](BlockDesc& block, ProgramDesc& startup) {
    AppendLookahead(block, startup, {"w"}, options);
  };
  Net net(DType::kFloat64, append), resumed(DType::kFloat64, append);
  double fast = 1, slow = 1;
  for (int step = 1; step <= 10; ++step) {
    net.Run(50, false);
    net.Run(GradientAt(step));
    if (step == 4) net.CopyTo(resumed);
    if (step > 4) resumed.Run(GradientAt(step));
    fast -= 0.1 * GradientAt(step);
    if (step % 3 == 0) fast = slow += 0.25 * (fast - slow);
    EXPECT_NEAR(net.W(), fast, 1e-12) << step;
  }
  net.ExpectSameBits(resumed);
}

// Averages of parameters of 16 bits are float32: they move by less than such digits show.
TEST(WeightAverage, OfSixteenBits) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(ToString(dtype));
    const auto constant = [&](WeightAverage& average, int steps) {
      Net net(dtype, [&](BlockDesc& block, ProgramDesc& startup) {
        average.Append(block, startup, {"w"});
      });
      for (int step = 0; step < steps; ++step) net.Run(0);
      net.RunProgram(average.apply());
      EXPECT_EQ(net.W(), 1);
      net.RunProgram(average.restore());
      EXPECT_EQ(net.W(), 1);
    };
    ExponentialMovingAverage ema({.decay = 0.999});
    constant(ema, 1500);
    ModelAverage mean(ModelAverageOptions{});
    constant(mean, 1500);
    // Each five steps the parameter goes by 0.025 or, rounded, 0.0195, and the slow one by a tenth.
    Net net(dtype, [&](BlockDesc& block, ProgramDesc& startup) {
      AppendLookahead(block, startup, {"w"}, {.alpha = 0.1, .k = 5});
    });
    for (int step = 0; step < 200; ++step) net.Run(0.05);
    EXPECT_GT(net.W(), 0.85);
    EXPECT_LT(net.W(), 0.95);
  }
}

// 600 gradients of 1 are 600, of -2 -1200.
TEST(WeightAverage, SumsOfGradientsOfSixteenBits) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    ProgramDesc main, startup;
    for (const char* name : {"w", "g"}) {
      VarDesc& var = main.Root().Var(name);
      var.SetMeta({VarType::kLoDTensor, dtype, {2}, 0});
      var.SetPersistable(true);
    }
    main.Root().FindVar("w")->SetIsParameter(true);
    const OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 1})};
    AppendTrainingStep({.groups = {group}, .accumulate = 600}, main.Root(), startup, {{"w", "g"}});
    VerifyOrThrow(main, DefaultOps());
    Scope scope;
    Executor exe;
    exe.Run(startup, scope);
    scope.Set("w", Tensor::Zeros(dtype, {2}));
    scope.Set("g", Tensor::Of<float>({2}, {1, -2}).Cast(dtype));
    PreparedProgram step = exe.Prepare(main, {}, {});
    for (int i = 0; i < 600; ++i) step.Run(scope);
    const Tensor w = scope.Get("w").Cast(DType::kFloat32);
    EXPECT_EQ(w.data<float>()[0], -600);
    EXPECT_EQ(w.data<float>()[1], 1200);
  }
}

TEST(WeightAverage, Errors) {
  EXPECT_THROW(ExponentialMovingAverage({.decay = 1}), Error);
  EXPECT_THROW(ExponentialMovingAverage({.decay = std::nan("")}), Error);
  EXPECT_THROW(ModelAverage({.rate = -1}), Error);
  EXPECT_THROW(ModelAverage({.min_window = 5, .max_window = 4}), Error);
  EXPECT_EQ(ErrorOf([] { ModelAverage({.min_window = 0}); }),
            "model average: min_window must be at least 1, got 0");
  ProgramDesc main, startup;
  EXPECT_THROW(AppendLookahead(main.Root(), startup, {}, {.alpha = 0}), Error);
  EXPECT_THROW(AppendLookahead(main.Root(), startup, {}, {.k = 0}), Error);
  const OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
  EXPECT_THROW(AppendTrainingStep({.groups = {group}, .accumulate = 0}, main.Root(), startup, {}),
               Error);
  EXPECT_THROW(AppendTrainingStep({}, main.Root(), startup, {}), Error);
  EXPECT_THROW(Sgd({}).SetGradientDivisor(0), Error);
}
}  // namespace coracle::weight_average_test
