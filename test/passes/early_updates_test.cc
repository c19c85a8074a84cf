// Updates right after their gradients: where they go, what holds them back, and the same bits.

#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

namespace coracle::early_updates_test {

constexpr int64_t kDepth = 4, kBatch = 3;

// Layers h = sigmoid(h w<i>), loss = mean(h^2).
class Net {
 public:
  explicit Net(int32_t width = 8, bool shared = false) : width_(width) {
    Variable h = net_.Data("x", {-1, width});
    for (int64_t i = 0; i < kDepth; ++i) {
      FcOptions fc = {.size = width_, .output = fmt::format("y{}", i)};
      fc.param_attr.name = shared ? "w" : fmt::format("w{}", i);
      fc.bias_attr = std::nullopt;
      h = net_.Unary("sigmoid", net_.Fc(h, fc), {}, {.output = fmt::format("h{}", i)});
    }
    loss = net_.Mean(net_.Unary("square", h), {.output = "loss"});
  }

  // The ops after the pass, by their types, with the parameters of updates; no forward ops.
  std::string After(const std::vector<std::string>& passes = {"early_updates"},
                    const std::vector<std::string>& fetches = {"loss"}) const {
    ProgramDesc copy = main;
    RunPasses(copy, PassContext{DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}}, passes);
    std::string text;
    std::as_const(copy).Root().ForEachOp([&](const OpDesc& op) {
      if ((op.role() & (kBackward | kOptimize)) == 0) return;
      text += (text.empty() ? "" : " ") + op.type();
      if (op.HasInput("Param")) text += fmt::format("({})", fmt::join(op.Input("Param"), " "));
    });
    return text;
  }
  std::string Before() const { return After({"merge_updates"}); }

  struct Outcome {
    std::map<std::string, Tensor> persistables;
    std::vector<Tensor> fetched;
    uint64_t workspace = 0;
  };
  Outcome Train(std::vector<std::string> disabled, const std::vector<std::string>& fetches,
                CompileOptions options = {}) const {
    options.disabled_passes = std::move(disabled);
    Scope scope;
    Executor().Run(startup, scope);
    PreparedProgram program = Executor(options).Prepare(main, {"x"}, fetches);
    Outcome outcome;
    for (int step = 0; step < 5; ++step) {
      Tensor x(DType::kFloat32, {kBatch, width_});
      for (int64_t i = 0; i < x.numel(); ++i)
        x.data<float>()[i] = std::sin(static_cast<float>(1 + i + 7 * step));
      for (const Tensor& value : program.Run(scope, {x})) outcome.fetched.push_back(value.Clone());
    }
    outcome.workspace = program.WorkspaceBytes();
    for (size_t i = 0; i < main.Root().NumVars(); ++i) {
      const VarDesc& var = main.Root().var(i);
      if (const auto* found = var.persistable() ? scope.Find(var.name()) : nullptr)
        outcome.persistables[var.name()] = std::get<Tensor>(*found);
    }
    return outcome;
  }
  void ExpectSameBits(const std::vector<std::string>& fetches = {"loss"}) const {
    const Outcome early = Train({}, fetches), late = Train({"early_updates"}, fetches);
    ASSERT_EQ(early.fetched.size(), late.fetched.size());
    for (size_t i = 0; i < early.fetched.size(); ++i)
      EXPECT_TRUE(BitEqual(early.fetched[i], late.fetched[i])) << fetches[i % fetches.size()];
    ASSERT_EQ(early.persistables.size(), late.persistables.size());
    for (const auto& [name, value] : late.persistables)
      EXPECT_TRUE(BitEqual(early.persistables.at(name), value)) << name;
  }

  ProgramDesc main, startup;
  Variable loss;

 private:
  int32_t width_;
  Builder net_{main, startup};
};

// Whether all updates come after the last other op.
bool AllAtTheEnd(const std::string& ops) {
  return ops.rfind("_grad") == ops.npos || ops.rfind("_grad") < ops.find("(w");
}

TEST(EarlyUpdates, BehindTheGradientThatReadsTheParameter) {
  Net net;
  Sgd({}).Minimize(net.loss, net.startup);
  EXPECT_EQ(net.Before(),
            "fill_constant mean_grad square_grad sigmoid_grad mul_grad sigmoid_grad mul_grad "
            "sigmoid_grad mul_grad sigmoid_grad mul_grad sgd(w0 w1 w2 w3)");
  EXPECT_EQ(net.After(),
            "fill_constant mean_grad square_grad sigmoid_grad mul_grad sgd(w3) sigmoid_grad "
            "mul_grad sgd(w2) sigmoid_grad mul_grad sgd(w1) sigmoid_grad mul_grad sgd(w0)");
  net.ExpectSameBits();
}

TEST(EarlyUpdates, DecaysAndClipsOfOneGradientGoWithTheUpdate) {
  Net net;
  Momentum momentum({.momentum = 0.5});
  momentum.SetGradientClip(ClipGradByNorm(0.01));
  momentum.SetRegularizer(L1DecayRegularizer(0.1));
  momentum.SetSchedule(StepRate({0.1, 0.5, 2}));
  momentum.Minimize(net.loss, net.startup);
  const std::string after = net.After();
  EXPECT_LT(after.find("(w3)"), after.find("mul_grad", after.find("mul_grad") + 1)) << after;
  EXPECT_TRUE(AllAtTheEnd(net.Before()));
  net.ExpectSameBits();
  net.ExpectSameBits({"loss", "w3", "w0@GRAD"});

  Net by_value;
  Adam adam({});
  adam.SetGradientClip(ClipGradByValue(0.01));
  adam.SetRegularizer(L2DecayRegularizer(0.1));
  adam.Minimize(by_value.loss, by_value.startup);
  EXPECT_FALSE(AllAtTheEnd(by_value.After()));
  by_value.ExpectSameBits();
}

TEST(EarlyUpdates, GlobalNormNeedsAllGradients) {
  Net net;
  Sgd sgd({});
  sgd.SetGradientClip(ClipGradByGlobalNorm(0.01));
  sgd.Minimize(net.loss, net.startup);
  EXPECT_EQ(net.After(), net.After({"remove_identities"}));
  EXPECT_TRUE(AllAtTheEnd(net.After()));
  net.ExpectSameBits();
}

TEST(EarlyUpdates, LossScalingNeedsAllGradients) {
  Net net;
  Sgd sgd({});
  LossScaling scaling(net.main, net.startup);
  scaling.Minimize(sgd, net.loss, net.startup);
  EXPECT_EQ(net.After(), net.After({"remove_identities"}));
  net.ExpectSameBits();
}

TEST(EarlyUpdates, TheGradientOfASharedParameterIsASum) {
  Net net(8, true);
  Sgd({}).Minimize(net.loss, net.startup);
  EXPECT_TRUE(AllAtTheEnd(net.After()));
  net.ExpectSameBits();
}

TEST(EarlyUpdates, FetchedGradients) {
  Net net;
  Momentum({}).Minimize(net.loss, net.startup);
  net.ExpectSameBits({"w2@GRAD", "w0@GRAD", "loss", "w1"});
}

TEST(EarlyUpdates, SumsOfSeveralRunsAreTakenEarlyToo) {
  Net net;
  OptimizerGroup group{.optimizer = std::make_shared<Momentum>(MomentumOptions{}),
                       .average = std::make_shared<ExponentialMovingAverage>()};
  AppendTrainingStep({.groups = {group}, .accumulate = 2}, net.loss, net.startup);
  const std::string after = net.After();
  EXPECT_LT(after.find(" sum "), after.rfind("mul_grad")) << after;
  net.ExpectSameBits();
}

TEST(EarlyUpdates, AveragesFollowTheParameters) {
  for (bool lookahead : {false, true}) {
    Net net;
    OptimizerGroup group{.optimizer = std::make_shared<Adam>(AdamOptions{}),
                         .average = std::make_shared<ExponentialMovingAverage>()};
    TrainingStep step{.groups = {group}};
    if (lookahead) step.lookahead = LookaheadOptions{};
    AppendTrainingStep(step, net.loss, net.startup);
    EXPECT_FALSE(AllAtTheEnd(net.After()));
    net.ExpectSameBits();
  }
}

TEST(EarlyUpdates, RecomputedOpsReadTheOldParameter) {
  Net net;
  MinimizeOptions options;
  options.recompute.checkpoints = {"h1"};
  Sgd({}).Minimize(net.loss, net.startup, options);
  EXPECT_FALSE(AllAtTheEnd(net.After()));
  net.ExpectSameBits();
}

// w3 is read again when its gradient is complete, by the loss's neighbour, by a block, or by an op
// that must not see a changed step.
TEST(EarlyUpdates, ReadersOfTheOldValue) {
  const auto insert = [](Net& net, size_t place, OpDesc op) {
    BlockDesc& root = net.main.Root();
    std::vector<std::unique_ptr<OpDesc>> ops = root.ReleaseOps();
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(place),
               std::make_unique<OpDesc>(std::move(op)));
    root.SetOps(std::move(ops));
  };
  const auto first_update = [](const Net& net) {
    size_t i = 0;
    while (net.main.Root().op(i).type() != "sgd") ++i;
    return i;
  };
  {
    Net net;
    Sgd({}).Minimize(net.loss, net.startup);
    net.main.Root().Var("later").SetShape({8, 8});
    insert(net, first_update(net), OpDesc("relu", {{"X", {"w3"}}}, {{"Out", {"later"}}}));
    const std::string after = net.After();
    EXPECT_LT(after.rfind("mul_grad"), after.find("sgd(w3)")) << after;
    EXPECT_GT(after.rfind("mul_grad"), after.find("sgd(w2)")) << after;
    net.ExpectSameBits({"later", "loss"});
  }
  {
    Net net;
    Sgd({}).Minimize(net.loss, net.startup);
    BlockDesc& inner = net.main.AppendBlock(net.main.Root());
    inner.Var("inside").SetShape({8, 8});
    inner.AppendOp("assign", {{"X", {"w3"}}}, {{"Out", {"kept"}}});
    for (const char* name : {"kept", "condition"}) {
      VarDesc& var = net.main.Root().Var(name);
      var.SetShape(name == std::string("kept") ? Shape({8, 8}) : Shape({1}));
      if (name != std::string("kept")) var.SetDType(DType::kBool);
    }
    const size_t place = first_update(net);
    insert(
        net, place,
        OpDesc("conditional_block", {{"Cond", {"condition"}}}, {{"Out", {"kept"}}, {"Scope", {}}},
               {{"sub_block", BlockRef{inner.idx()}}, {"is_scalar_condition", true}}));
    insert(net, place,
           OpDesc("fill_constant", {}, {{"Out", {"condition"}}},
                  {{"shape", std::vector<int64_t>{1}},
                   {"dtype", static_cast<int32_t>(DType::kBool)},
                   {"value", 1.0f}}));
    const std::string after = net.After();
    EXPECT_LT(after.rfind("mul_grad"), after.find("sgd(w3)")) << after;
    EXPECT_GT(after.rfind("mul_grad"), after.find("sgd(w2)")) << after;
    net.ExpectSameBits({"kept", "loss"});
  }
  {
    Net net;
    Sgd({}).Minimize(net.loss, net.startup);
    net.main.Root().Var("printed").SetShape({1});
    insert(net, first_update(net), OpDesc("print", {{"In", {"loss"}}}, {{"Out", {"printed"}}}));
    EXPECT_TRUE(AllAtTheEnd(net.After())) << net.After();
  }
}

TEST(EarlyUpdates, SmallGradientsWaitForOneAnotherLargeOnesDoNot) {
  Net small;
  Sgd({}).Minimize(small.loss, small.startup);
  const std::string merged = small.After({"early_updates", "merge_updates"});
  EXPECT_TRUE(merged.ends_with("mul_grad sgd(w3 w2 w1 w0)")) << merged;

  Net large(600);  // 1.4 MB for a gradient
  Momentum({}).Minimize(large.loss, large.startup);
  EXPECT_EQ(large.After({"early_updates", "merge_updates"}), large.After());
  const Net::Outcome early = large.Train({}, {"loss"});
  const Net::Outcome late = large.Train({"early_updates"}, {"loss"});
  EXPECT_GT(late.workspace, kDepth * 600 * 600 * 4);
  EXPECT_LT(early.workspace, 2 * 600 * 600 * 4);
  large.ExpectSameBits();
}

// Adjacent updates become one op, however large.
TEST(EarlyUpdates, LargeGradientsThatAllWaitStayInOneOp) {
  Net large(600);
  Sgd sgd({});
  sgd.SetGradientClip(ClipGradByGlobalNorm(1));
  sgd.Minimize(large.loss, large.startup);
  const std::string after = large.After({"early_updates", "merge_updates"});
  EXPECT_NE(after.find("sgd(w0 w1 w2 w3)"), after.npos) << after;
}

TEST(EarlyUpdates, AStepThatFailsOnNonFiniteResultsChangesNoParameter) {
  Net net;
  Sgd({}).Minimize(net.loss, net.startup);
  const PreparedProgram program =
      Executor({.check_nan_inf = true}).Prepare(net.main, {"x"}, {"loss"});
  const BlockDesc& root = program.program().Root();
  EXPECT_EQ(root.op(root.NumOps() - 1).type(), "sgd");
  EXPECT_NE(root.op(root.NumOps() - 2).type(), "sgd");
  EXPECT_EQ(root.op(root.NumOps() - 1).Input("Param").size(), size_t{kDepth});
}
}  // namespace coracle::early_updates_test
