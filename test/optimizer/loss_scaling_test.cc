// LossScaling in programs that the executor runs: equal to training without, skipped steps that
// leave no trace, error clips, and the published traces.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

namespace coracle::loss_scaling_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

// loss = mean((x w1 relu) w2 * gain): a fed infinite gain makes every gradient infinite.
struct Net {
  explicit Net(const Setting* clip = nullptr,
               const std::shared_ptr<BaseErrorClipAttr>& error_clip = {}, int outputs = 2) {
    Variable x = net.Data("x", {4, 3});
    Variable gain = net.Data("gain", {1});
    ParamAttr first{.name = "w1"}, second{.name = "w2"};
    if (clip) first.gradient_clip = second.gradient_clip = *clip;
    first.regularizer = Setting{"l2_decay", {{"coeff", 0.01}}};
    Variable h = net.Fc(
        x,
        {.size = 5, .param_attr = first, .bias_attr = std::nullopt, .act = "relu", .output = "h"});
    if (error_clip) h.desc().SetErrorClip(ErrorClipPtr(error_clip));
    Variable y = net.Fc(h, {.size = outputs, .param_attr = second, .bias_attr = std::nullopt});
    loss = net.Mean(net.Mul(net.Mul(y, y), gain), {.output = "loss"});
  }
  void Compile(const std::vector<std::string>& fetches = {"loss"}) {
    VerifyOrThrow(main, DefaultOps());
    VerifyOrThrow(startup, DefaultOps());
    main.random_seed = startup.random_seed = 5;
    Executor exe;
    exe.Run(startup, scope);
    step.emplace(exe.Prepare(main, {"x", "gain"}, fetches));
  }
  std::vector<Tensor> Run(float gain = 1) {
    Tensor x(DType::kFloat32, {4, 3});
    for (int i = 0; i < 12; ++i) x.data<float>()[i] = 0.25f * static_cast<float>((i * 7) % 11 - 5);
    return step->Run(scope, {x, Tensor::Of<float>({1}, {gain})});
  }
  // Every persistable of the scope except the loss scaling's.
  std::map<std::string, std::vector<uint8_t>> State() const {
    std::map<std::string, std::vector<uint8_t>> state;
    for (const std::string& name : scope.LocalNames()) {
      if (name.rfind("loss_scaling", 0) == 0 || name.rfind("num_", 0) == 0) continue;
      const Tensor& tensor = scope.Get(name);
      const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
      state[name].assign(bytes, bytes + tensor.nbytes());
    }
    return state;
  }
  float Scale() const { return scope.Get(scaling->scale_var()).Item<float>(); }

  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable loss;
  std::optional<LossScaling> scaling;
  Scope scope;
  std::optional<PreparedProgram> step;
};

void Scaled(Net& t, Optimizer& optimizer, const GradScalerOptions& options = {}) {
  t.scaling.emplace(t.main, t.startup, options);
  t.scaling->Minimize(optimizer, t.loss, t.startup);
}

// All of them. (Draws of dpsgd's noise would differ in a block of its own.)
std::vector<Setting> Optimizers() {
  std::vector<Setting> all;
  for (const char* kind : {"sgd", "momentum", "lars_momentum", "adagrad", "decayed_adagrad",
                           "adadelta", "adam", "adamw", "adamax", "rmsprop", "ftrl", "lamb", "lion",
                           "dpsgd", "proximal_gd", "proximal_adagrad"}) {
    all.push_back({kind, {{"learning_rate", 0.1}}});
    if (all.back().kind == "rmsprop") all.back().attrs.push_back({"centered", true});
    if (all.back().kind == "dpsgd") all.back().attrs.push_back({"sigma", 0.0});
  }
  return all;
}

// A scale that is a power of two loses nothing: the same bits with and without.
TEST(LossScaling, TrainsAsWithout) {
  for (const Setting& setting : Optimizers()) {
    SCOPED_TRACE(setting.kind);
    Net plain, t;
    auto a = MakeOptimizer(setting), b = MakeOptimizer(setting);
    a->SetSchedule(StepRate({0.1, 0.5, 2}));
    b->SetSchedule(StepRate({0.1, 0.5, 2}));
    a->Minimize(plain.loss, plain.startup);
    Scaled(t, *b, {.init_scale = 1024, .growth_interval = 2});
    plain.Compile();
    t.Compile();
    for (int i = 0; i < 5; ++i) {
      const float expected = plain.Run()[0].Item<float>();
      EXPECT_EQ(t.Run()[0].Item<float>(), expected) << i;
    }
    for (const char* w : {"w1", "w2"}) {
      for (int i = 0; i < 10; ++i)
        ASSERT_EQ(t.scope.Get(w).data<float>()[i], plain.scope.Get(w).data<float>()[i]) << w;
    }
    EXPECT_EQ(t.Scale(), 4096);
  }
}

// A sum of the parameters that it has seen.
class SumOfW1 : public WeightAverage {
 public:
  void Append(BlockDesc& block, ProgramDesc& startup, const std::vector<std::string>&) override {
    MakeState(block.program(), startup, "average", DType::kFloat32, {3, 5}, 0);
    block.AppendOp("elementwise_add", {{"X", {"average"}}, {"Y", {"w1"}}}, {{"Out", {"average"}}});
  }
};

// Parameters, moments, decay, schedule and its counter, averages: nothing moves. (Paddle zeroes the
// gradients, and all but Adam step on: momentum, decay and counters go on.)
TEST(LossScaling, ASkippedStepLeavesNoTrace) {
  for (const Setting& setting : Optimizers()) {
    SCOPED_TRACE(setting.kind);
    const Setting clip{"by_global_norm", {{"clip_norm", 1.0}}};
    Net t(&clip);
    const std::shared_ptr<Optimizer> optimizer = MakeOptimizer(setting);
    optimizer->SetSchedule(ExponentialRate({0.1, 0.5}));
    t.scaling.emplace(t.main, t.startup, GradScalerOptions{.init_scale = 64});
    AppendTrainingStep(
        {.groups = {{.optimizer = optimizer, .average = std::make_shared<SumOfW1>()}},
         .scaling = &*t.scaling},
        t.loss, t.startup);
    t.Compile();
    t.Run();
    const auto before = t.State();
    t.Run(kInf);
    t.Run(std::nanf(""));
    EXPECT_EQ(t.State(), before);
    EXPECT_EQ(t.Scale(), 16);
    EXPECT_EQ(t.scope.Get(t.scaling->skipped_var()).Item<int32_t>(), 2);
    t.Run();
    const auto after = t.State();
    std::set<std::string> of_clips;
    t.main.ForEachOp([&](const OpDesc& op) {
      if (StageOf(op) == TrainingStage::kClip)
        op.ForEachOutput([&](const std::string& name) { of_clips.insert(name); });
    });
    for (const auto& [var, bytes] : before) {
      if (!of_clips.count(var)) {
        EXPECT_NE(after.at(var), bytes) << var;
      }
    }
    EXPECT_EQ(t.scope.Get(t.scaling->skipped_var()).Item<int32_t>(), 0);
  }
}

TEST(LossScaling, PublishedTraces) {
  Net torch;
  Sgd sgd({.learning_rate = 0});
  Scaled(torch, sgd, {.init_scale = 8, .growth_interval = 3});
  torch.Compile();
  std::vector<float> scales;
  for (bool overflow : {false, false, false, false, false, true, false, false, false, true, true}) {
    torch.Run(overflow ? kInf : 1);
    scales.push_back(torch.Scale());
  }
  EXPECT_EQ(scales, (std::vector<float>{8, 8, 16, 16, 16, 8, 8, 8, 16, 8, 4}));

  Net capped;
  Sgd other({.learning_rate = 0});
  Scaled(capped, other, {.init_scale = 3, .growth_interval = 2, .max_scale = 20});
  capped.Compile();
  std::vector<float> used;
  for (int step = 1; step <= 14; ++step) {
    used.push_back(capped.Scale());
    capped.Run(step == 11 ? kInf : 1);
  }
  EXPECT_EQ(used, (std::vector<float>{3, 3, 6, 6, 12, 12, 20, 20, 20, 20, 20, 10, 10, 20}));
}

TEST(LossScaling, StopsWithoutUsableScale) {
  Net t;
  Sgd sgd({.learning_rate = 0.1});
  Scaled(t, sgd, {.init_scale = 4, .max_skipped = 5});
  t.Compile();
  for (int i = 0; i < 4; ++i) t.Run(kInf);
  EXPECT_EQ(t.Scale(), 1);
  try {
    t.Run(kInf);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the last 5 steps in a row were skipped"), std::string::npos)
        << error.message();
  }
}

TEST(LossScaling, DisabledIsWithout) {
  Net plain, t;
  Sgd a({.learning_rate = 0.1}), b({.learning_rate = 0.1});
  a.Minimize(plain.loss, plain.startup);
  Scaled(t, b, {.enabled = false});
  EXPECT_TRUE(t.main == plain.main);
  EXPECT_TRUE(t.startup == plain.startup);
}

// Two optimizers in this order, the one of `a` with an infinite gradient: the other steps, and the
// scale backs off once.
void ExpectOneSkipped(const std::string& first, const std::string& second) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable gain = net.Data("gain", {2});
  Variable a = net.Parameter("a", {2}, DType::kFloat32, {.name = "a"}, ConstantInitializer(1));
  Variable b = net.Parameter("b", {2}, DType::kFloat32, {.name = "b"}, ConstantInitializer(1));
  Variable loss = net.Mean(net.Add(net.Mul(a, gain), b), {.output = "loss"});
  LossScaling scaling(main, startup, {.init_scale = 16});
  const auto sgd = [] { return std::make_shared<Sgd>(SgdOptions{.learning_rate = 1}); };
  const AppendedStep step = AppendTrainingStep(
      {.groups = {{{first}, sgd()}, {{second}, sgd()}}, .scaling = &scaling}, loss, startup);
  ASSERT_EQ(step.updated.size(), 2u);
  VerifyOrThrow(main, DefaultOps());
  Scope scope;
  Executor().Run(startup, scope);
  Executor().Run(main, scope, {{"gain", Tensor::Of<float>({2}, {kInf, 1})}});
  EXPECT_EQ(scope.Get("a").data<float>()[0], 1);
  EXPECT_EQ(scope.Get("b").data<float>()[0], 0.5f);
  EXPECT_EQ(scope.Get(scaling.scale_var()).Item<float>(), 8);
}

TEST(LossScaling, OptimizersAreSkippedOneByOne) { ExpectOneSkipped("a", "b"); }

TEST(LossScaling, TheOverflowOfALaterOptimizerCounts) { ExpectOneSkipped("b", "a"); }

// A group whose parameters are all frozen has nothing to unscale and does not stop the others.
TEST(LossScaling, AGroupOfFrozenParameters) {
  Net t;
  const auto sgd = [] { return std::make_shared<Sgd>(SgdOptions{.learning_rate = 1}); };
  t.scaling.emplace(t.main, t.startup, GradScalerOptions{.init_scale = 16});
  const auto pairs = Optimizer::Backward(t.scaling->Scale(t.loss));
  t.main.Root().FindVar("w2")->MutableTraining().trainable = false;
  const auto updated =
      AppendTrainingStep({.groups = {{{"w2"}, sgd()}, {{"w1"}, sgd()}}, .scaling = &*t.scaling},
                         t.main.Root(), t.startup, pairs)
          .updated;
  ASSERT_EQ(updated.size(), 1u);
  EXPECT_EQ(updated[0].param, "w1");
  t.Compile();
  const auto before = t.State();
  t.Run(kInf);
  EXPECT_EQ(t.State(), before);
  EXPECT_EQ(t.Scale(), 8);
  t.Run();
  EXPECT_NE(t.State(), before);

  Net frozen;  // no group has anything to update
  frozen.scaling.emplace(frozen.main, frozen.startup);
  const auto none = Optimizer::Backward(frozen.scaling->Scale(frozen.loss));
  for (const char* name : {"w1", "w2"})
    frozen.main.Root().FindVar(name)->MutableTraining().trainable = false;
  EXPECT_TRUE(AppendTrainingStep({.groups = {{{}, sgd()}}, .scaling = &*frozen.scaling},
                                 frozen.main.Root(), frozen.startup, none)
                  .updated.empty());
}

TEST(LossScaling, CallsOutOfOrder) {
  Net t;
  BlockDesc& root = t.main.Root();
  const auto pairs = Optimizer::Backward(t.loss);
  LossScaling scaling(t.main, t.startup), disabled(t.main, t.startup, {.enabled = false});
  EXPECT_EQ(ErrorOf([&] { scaling.CheckAgain(root, pairs); }),
            "loss scaling: CheckAgain() before any Unscale(): no gradient was looked at");
  EXPECT_EQ(ErrorOf([&] { disabled.Unscale(root, pairs); }),
            "loss scaling: Unscale() is called while disabled");
  EXPECT_NE(ErrorOf([&] { disabled.CheckAgain(root, pairs); }), "no error");
}

// A clip class of a user's that makes a finite gradient infinite.
TEST(LossScaling, WhatAClipMakesInfiniteIsSeen) {
  for (bool breaks : {false, true}) {
    Net t;
    Momentum optimizer({.learning_rate = 0.1});
    optimizer.SetSchedule(ExponentialRate({0.1, 0.5}));
    optimizer.SetGradientClip(Setting{
        "by_value", {{"max", breaks ? double{kInf} : 1.0}, {"min", breaks ? double{kInf} : -1.0}}});
    Scaled(t, optimizer, {.init_scale = 64});
    t.Compile();
    const auto before = t.State();
    t.Run();
    EXPECT_EQ(t.State() == before, breaks);  // max(x, inf): every element becomes infinite
    EXPECT_EQ(t.Scale(), breaks ? 32 : 64);
  }
}

// h's gradient leaves the clip as it would without scaling, and the updates are the same.
TEST(LossScaling, ErrorClipActsAsWithout) {
  class Halve : public BaseErrorClipAttr {  // a user's: above 0.01 half of what exceeds it
   public:
    void AppendClipOp(BlockDesc& block, const std::string& grad) const override {
      const std::string kept = block.program().UniqueName("kept");
      block.Var(kept).SetMeta(block.FindVarRecursive(grad)->meta());
      block.AppendOp("clip", {{"X", {grad}}}, {{"Out", {kept}}}, {{"min", -0.01f}, {"max", 0.01f}});
      block.AppendOp("elementwise_add", {{"X", {grad}}, {"Y", {kept}}}, {{"Out", {grad}}});
      block.AppendOp("scale", {{"X", {grad}}}, {{"Out", {grad}}}, {{"scale", 0.5f}});
    }
  };
  const std::vector<std::shared_ptr<BaseErrorClipAttr>> clips = {
      std::make_shared<ErrorClipByValue>(0.01, -0.004), std::make_shared<ErrorClipByNorm>(0.02),
      std::make_shared<Halve>()};
  for (const auto& clip : clips) {
    Net open, plain(nullptr, clip), t(nullptr, clip);
    Sgd zero({.learning_rate = 0.1}), a({.learning_rate = 0.1}), b({.learning_rate = 0.1});
    zero.Minimize(open.loss, open.startup);
    a.Minimize(plain.loss, plain.startup);
    Scaled(t, b, {.init_scale = 1024});
    open.Compile({"h@GRAD"});
    plain.Compile({"h@GRAD"});
    t.Compile({"h@GRAD"});
    const std::vector<Tensor> unclipped = open.Run(), expected = plain.Run(), scaled = t.Run();
    int clipped = 0;
    for (int i = 0; i < 20; ++i) {
      const float value = expected[0].data<float>()[i];
      EXPECT_NEAR(scaled[0].data<float>()[i] / 1024, value, 1e-6f * std::fabs(value));
      clipped += value != unclipped[0].data<float>()[i];
    }
    EXPECT_GT(clipped, 3);
    for (int i = 0; i < 15; ++i) {
      const float value = plain.scope.Get("w1").data<float>()[i];
      EXPECT_NEAR(t.scope.Get("w1").data<float>()[i], value, 1e-6f * std::fabs(value));
    }
  }
}

// An overflow upstream of a clip becomes a finite number there; the step is skipped all the same,
// and the next one is not.
TEST(LossScaling, OverflowUpstreamOfAnErrorClipIsSeen) {
  for (bool by_value : {true, false}) {
    std::shared_ptr<BaseErrorClipAttr> clip;
    if (by_value)
      clip = std::make_shared<ErrorClipByValue>(0.01);
    else
      clip = std::make_shared<ErrorClipByNorm>(0.02);
    Net t(nullptr, clip, 1);
    Sgd sgd({.learning_rate = 0.1});
    t.scaling.emplace(t.main, t.startup, GradScalerOptions{.init_scale = 1024});
    // Only w1: its gradient comes through the clip.
    t.main.Root().FindVar("w2")->MutableTraining().trainable = false;
    t.scaling->Minimize(sgd, t.loss, t.startup);
    t.Compile({"w1@GRAD"});
    const auto before = t.State();
    const std::vector<Tensor> grad = t.Run(kInf);
    if (by_value) {  // the lie
      for (int i = 0; i < 15; ++i) EXPECT_TRUE(std::isfinite(grad[0].data<float>()[i]));
    }
    EXPECT_EQ(t.State(), before);
    EXPECT_EQ(t.Scale(), 512);
    t.Run();
    EXPECT_NE(t.State(), before);
    EXPECT_EQ(t.Scale(), 512);
  }
}

// Inside the block of every second micro-batch: the gradients of both are looked at.
TEST(LossScaling, InAGuardedBlock) {
  Net t;
  const OptimizerGroup sgd{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
  t.scaling.emplace(t.main, t.startup, GradScalerOptions{.init_scale = 64, .growth_interval = 1});
  const auto pairs = Optimizer::Backward(t.scaling->Scale(t.loss), {}, t.scaling->ErrorClip());
  BlockDesc& root = t.main.Root();
  const std::string guard = MakeTemporary(root, "guard", DType::kBool);
  root.AppendOp("isfinite", {{"X", {"gain"}}}, {{"Out", {guard}}});  // stands for "the k-th run"
  AppendGuarded(root, {guard}, [&](BlockDesc& block) {
    AppendTrainingStep({.groups = {sgd}, .scaling = &*t.scaling}, block, t.startup, pairs);
  });
  t.Compile();
  const auto before = t.State();
  t.Run(kInf);
  EXPECT_EQ(t.State(), before);
  EXPECT_EQ(t.Scale(), 64);  // no step at all: the scale does not move
  t.Run(1);
  EXPECT_NE(t.State(), before);
  EXPECT_EQ(t.Scale(), 128);
}
}  // namespace coracle::loss_scaling_test
