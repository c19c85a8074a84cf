// The order of a training step: the list of its stages, what a dump tells of programs, and
// what docs/optimizers.md says.

#include <coracle/framework/base/text.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/internal/training_step.h>
#include <coracle/optimizer/optimizers.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

namespace coracle::training_step_test {

// loss = mean((x w)^2), w is [3, 2] and has the name `param`.
struct Net {
  explicit Net(const std::string& param = "w") {
    Variable x = net.Data("x", {4, 3});
    FcOptions fc = {.size = 2, .output = "y"};
    fc.param_attr.name = param;
    fc.bias_attr = std::nullopt;
    loss = net.Mean(net.Unary("square", net.Fc(x, fc)), {.output = "loss"});
  }
  // The lines about the step of what `coracle dump` prints.
  std::string Told() const {
    const std::string text = PrintProgram(main);
    const size_t begin = text.find("training step:");
    return begin == text.npos ? "" : text.substr(begin, text.find("\n\n") + 1 - begin);
  }
  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable loss;
};

TEST(TrainingStep, DumpOfPlainSgd) {
  Net t;
  Sgd({}).Minimize(t.loss, t.startup);
  EXPECT_EQ(t.Told(), "training step: forward 3 ops -> backward 4 -> update 1 (sgd)\n");
}

TEST(TrainingStep, DumpOfClipsScheduleAndDecays) {
  Net t;
  t.main.Root().FindVar("y")->SetErrorClip(ErrorClipByValue(1));
  AdamW adam({.weight_decay = 0.1});
  adam.SetGradientClip(ClipGradByGlobalNorm(1));
  adam.SetRegularizer(L2DecayRegularizer(1e-4));
  adam.SetSchedule(StepRate({0.1, 0.5, 2}));
  adam.Minimize(t.loss, t.startup);
  EXPECT_EQ(t.Told(),
            "training step: forward 3 ops -> backward 4 -> error clip 1 -> gradient clip 11 -> "
            "learning-rate schedule 9 -> weight decay 5 -> update 1 (adam)\n");
}

void AppendAllStages(Net& t) {
  t.main.Root().FindVar("y")->SetErrorClip(ErrorClipByValue(1));
  LossScaling scaling(t.main, t.startup);
  OptimizerGroup group{.optimizer = std::make_shared<Momentum>(MomentumOptions{}),
                       .average = std::make_shared<ExponentialMovingAverage>()};
  group.optimizer->SetGradientClip(ClipGradByGlobalNorm(1));
  group.optimizer->SetRegularizer(L2DecayRegularizer(1e-4));
  group.optimizer->SetSchedule(StepRate({0.1, 0.5, 2}));
  group.optimizer->SetGradientDivisor(2);
  AppendTrainingStep({.groups = {group},
                      .scaling = &scaling,
                      .accumulate = 2,
                      .skip_non_finite_loss = true,
                      .count_error_clips = true,
                      .lookahead = LookaheadOptions{}},
                     t.loss, t.startup);
}

TEST(TrainingStep, DumpOfAllStages) {
  Net t;
  AppendAllStages(t);
  EXPECT_EQ(
      t.Told(),
      R"(training step: forward 3 ops -> scale loss 1 -> backward 5 -> error clip 7 -> check loss 2 -> accumulate 4 -> block 1 if last_micro_step_0
  block 1: unscale and check 5 ops -> block 2 if update_guard_0 -> update loss scale 2 -> check loss 1 -> accumulate 2
    block 2: average gradients 1 op -> gradient clip 11 -> unscale and check 4 -> block 3 if loss_scaling_not_2
      block 3: learning-rate schedule 9 ops -> weight decay 2 -> update 1 (momentum) -> averages of parameters 10 -> block 4 if greater_equal_1
        block 4: averages of parameters 5 ops
)");
  // Nothing is left over that the dump cannot tell.
  for (int b = 0; b < t.main.NumBlocks(); ++b) {
    const std::vector<TrainingStage> stages = StagesOf(t.main.Block(b));
    for (size_t i = 0; i < stages.size(); ++i)
      EXPECT_NE(stages[i], TrainingStage::kOptimize) << PrintOp(t.main.Block(b).op(i));
  }
}

// Names of parameters do not look like the names that stages give.
TEST(TrainingStep, DumpWhateverNamesParametersHave) {
  Net plain_w, all_w;
  Adamax({}).Minimize(plain_w.loss, plain_w.startup);
  AppendAllStages(all_w);
  for (const char* name :
       {"error_clip_w", "error_clip.w", "error_clip_finite_w", "a_slow_b", "_ema_w", "micro_step",
        "found_infinite_w", "loss_scaling_w", "w_decay_", "gradient_clip.w"}) {
    Net plain(name), all(name);
    Adamax({}).Minimize(plain.loss, plain.startup);
    EXPECT_EQ(plain.Told(), plain_w.Told()) << name;
    AppendAllStages(all);
    EXPECT_EQ(all.Told(), all_w.Told()) << name;
  }
}

TEST(TrainingStep, UnmarkedOpsAreOfTheStageOfTheUpdateBefore) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  const auto append = [&](const char* out, int role) {
    block.AppendOp("any", {}, {{"Out", {out}}}, {{kOpRoleAttr, int32_t{role}}});
  };
  append("received", kRpc);
  append("a", kOptimize);
  append("rate", kLRSched);
  append("b", kOptimize);
  append("w@GRAD@CLIPPED", kOptimize);
  append("c", kOptimize);
  using S = TrainingStage;
  EXPECT_EQ(StagesOf(block), (std::vector<S>{S::kCommunicate, S::kOptimize, S::kSchedule,
                                             S::kOptimize, S::kClip, S::kClip}));
}

TEST(TrainingStep, GroupsAreChecked) {
  const auto sgd = [] { return std::make_shared<Sgd>(SgdOptions{}); };
  const auto error = [](const std::vector<OptimizerGroup>& groups) {
    Net t;
    try {
      AppendTrainingStep({.groups = groups}, t.loss, t.startup);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error({{.optimizer = sgd()}, {.place = "j:2:1"}})
                .find("j:2:1: training step: a group has no optimizer"),
            std::string::npos);
  EXPECT_NE(error({{.optimizer = sgd(), .place = "j:1:1"},
                   {.params = {"v"}, .optimizer = sgd(), .place = "j:2:1"}})
                .find("j:2:1: optimizer: no parameter matches 'v'; there are w"),
            std::string::npos);
  EXPECT_NE(error({{.optimizer = sgd(), .place = "j:1:1"},
                   {.params = {"w"}, .optimizer = sgd(), .place = "j:2:1"}})
                .find("j:2:1: optimizer: two optimizers match the parameter 'w'"),
            std::string::npos);
}

TEST(TrainingStep, DocsHaveTheListInItsOrder) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  std::ifstream file(std::string(sources) + "/docs/optimizers.md");
  std::stringstream docs;
  docs << file.rdbuf();
  std::string expected;
  for (const StepStage& stage : TrainingStages())
    expected += std::string("| ") + ToString(stage.stage) + " | " + stage.doc + " |\n";
  EXPECT_NE(docs.str().find(expected), std::string::npos) << expected;
}
}  // namespace coracle::training_step_test
