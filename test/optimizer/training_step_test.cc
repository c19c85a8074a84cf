// The order of a training step: the list of its stages, dumps of programs, and docs/optimizers.md.

#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/internal/training_step.h>
#include <coracle/optimizer/optimizer.h>
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
  // The dump shows a stage for every op.
  for (int b = 0; b < t.main.NumBlocks(); ++b) {
    t.main.Block(b).ForEachOp(
        [](const OpDesc& op) { EXPECT_NE(StageOf(op), TrainingStage::kOptimize) << PrintOp(op); });
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

// As in programs of Paddle. Names of variables have no meaning.
TEST(TrainingStep, WithoutMarksTheRoleIsTheStage) {
  ProgramDesc program;
  const auto stage = [&](const char* out, int role, const AttrList& attrs = {},
                         const SlotList& inputs = {}) {
    OpDesc& op = program.Root().AppendOp("any", inputs, {{"Out", {out}}}, attrs);
    op.SetAttr(kOpRoleAttr, int32_t{role});
    return StageOf(op);
  };
  using S = TrainingStage;
  EXPECT_EQ(stage("y", kForward), S::kForward);
  EXPECT_EQ(stage("loss.scaled", kForward | kLoss), S::kForward);
  EXPECT_EQ(stage("y@GRAD", kBackward, {}, {{"X", {"y@GRAD"}}}), S::kBackward);
  EXPECT_EQ(stage("received", kRpc), S::kCommunicate);
  EXPECT_EQ(stage("sum", kBackward, {{"ring_id", int32_t{0}}}), S::kCommunicate);
  EXPECT_EQ(stage("rate", kLRSched), S::kSchedule);
  EXPECT_EQ(stage("rate", kOptimize | kLRSched), S::kSchedule);
  EXPECT_EQ(stage("w@GRAD@CLIPPED", kOptimize), S::kOptimize);
  EXPECT_EQ(stage("w", kOptimize, {}, {{"Param", {"w"}}}), S::kUpdate);
  EXPECT_EQ(stage("beta", kOptimize, {{kOpRoleVarAttr, std::vector<std::string>{"w", "g"}}}),
            S::kUpdate);
  // A stage of a later version and an attr of another type are not a stage.
  EXPECT_EQ(stage("y", kBackward, {{kTrainingStageAttr, std::string("clip of 2030")}}),
            S::kBackward);
  EXPECT_EQ(stage("y", kBackward, {{kTrainingStageAttr, int32_t{3}}}), S::kBackward);
  EXPECT_EQ(stage("y", kBackward, {{kTrainingStageAttr, std::string("gradient clip")}}), S::kClip);
}

TEST(TrainingStep, PartsAreReadBack) {
  Net t;
  t.main.Root().FindVar("y")->SetErrorClip(ErrorClipByValue(1));
  LossScaling scaling(t.main, t.startup);
  OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{})};
  group.optimizer->SetGradientClip(ClipGradByGlobalNorm(0.5, "all"));
  group.optimizer->SetSchedule(StepRate({0.1, 0.5, 2}));
  const AppendedStep step = AppendTrainingStep(
      {.groups = {group}, .scaling = &scaling, .count_error_clips = true}, t.loss, t.startup);
  ASSERT_EQ(step.updated.size(), 1u);
  EXPECT_EQ(step.updated[0].param, "w");
  const ProgramDesc read = ParseProgram(SerializeProgram(t.main));
  for (const TrainingParts& parts : {step.parts, PartsOf(t.main), PartsOf(read)}) {
    const std::string& rate = group.optimizer->learning_rate_var();
    EXPECT_EQ(parts.rates, std::vector<std::string>{rate});
    ASSERT_EQ(parts.schedules.size(), 1u);
    EXPECT_EQ(parts.schedules[0].rate, rate);
    EXPECT_EQ(parts.schedules[0].counter, kStepCounter);
    ASSERT_EQ(parts.norm_clips.size(), 1u);
    EXPECT_EQ(parts.norm_clips[0].of, "all");
    EXPECT_EQ(parts.norm_clips[0].limit, 0.5);
    EXPECT_EQ(t.main.Root().FindVar(parts.norm_clips[0].counter)->dtype(), DType::kInt64);
    EXPECT_TRUE(t.main.Root().FindVar(parts.norm_clips[0].norm)->persistable());
    ASSERT_EQ(parts.counted_clips.size(), 1u);
    EXPECT_EQ(parts.counted_clips[0].stage, TrainingStage::kErrorClip);
    EXPECT_EQ(parts.counted_clips[0].of, "y");
    EXPECT_EQ(parts.finite_flags.size(), 1u);
  }
}

// All ops of an error clip name the variable; ops of other stages name none.
TEST(TrainingStep, AnErrorClipNamesItsVariable) {
  Net t;
  t.main.Root().FindVar("y")->SetErrorClip(ErrorClipByNorm(1));
  LossScaling scaling(t.main, t.startup);
  Sgd sgd({});
  scaling.Minimize(sgd, t.loss, t.startup);
  size_t ops = 0;
  t.main.ForEachOp([&](const OpDesc& op) {
    const bool of_clip = StageOf(op) == TrainingStage::kErrorClip;
    EXPECT_EQ(MarkOf(op).of, of_clip ? "y" : "") << PrintOp(op);
    ops += of_clip ? 1 : 0;
  });
  EXPECT_GE(ops, 4u);
}

TEST(TrainingStep, PartsOfAProgramWithoutMarksAreRates) {
  Net t;
  AppendAllStages(t);
  t.main.ForEachOp([](OpDesc& op) {
    for (const char* attr : {kTrainingStageAttr, kTrainingPartAttr, kTrainingOfAttr})
      op.RemoveAttr(attr);
  });
  const TrainingParts parts = PartsOf(t.main);
  EXPECT_EQ(parts.rates.size(), 1u);
  EXPECT_TRUE(parts.schedules.empty() && parts.norm_clips.empty() && parts.counted_clips.empty() &&
              parts.finite_flags.empty());
}

// A program of marked ops, as a file may have them.
struct MarkedOps {
  void State(const std::string& name, DType dtype, const Shape& shape, bool persistable = true) {
    VarDesc& var = main.Root().Var(name);
    var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    var.SetPersistable(persistable);
  }
  void Op(const TrainingMark& mark, const std::string& type, const SlotList& inputs,
          const SlotList& outputs, const AttrList& attrs = {}) {
    SetMark(main.Root().AppendOp(type, inputs, outputs, attrs), mark);
  }
  void Clip(const std::string& of, const std::string& norm, const std::string& count, float limit) {
    using P = TrainingPart;
    constexpr auto kClip = TrainingStage::kClip;
    Op({kClip, P::kNorm, of}, "assign", {{"X", {"norm"}}}, {{"Out", {norm}}});
    Op({kClip, P::kCounter, of}, "increment", {{"X", {count}}}, {{"Out", {count}}},
       {{"step", 1.0f}});
    Op({kClip, P::kLimit, of}, "fill_constant", {}, {{"Out", {"limit"}}}, {{"value", limit}});
  }
  ProgramDesc main;
};

TEST(TrainingStep, OpsThatCannotBeThePartOfTheirMarkAreNone) {
  using P = TrainingPart;
  using S = TrainingStage;
  for (const S stage : {S::kClip, S::kErrorClip, S::kSchedule, S::kForward}) {
    for (const P part : {P::kCounter, P::kRate, P::kNorm, P::kLimit, P::kStatistics, P::kFinite}) {
      MarkedOps t;
      t.State("h", DType::kFloat32, {-1, 4}, false);
      t.State("double", DType::kFloat64, {1});
      t.State("flag", DType::kBool, {1}, false);
      t.State("count", DType::kInt64, {1}, false);
      const TrainingMark mark = {stage, part, "h"};
      t.Op(mark, "relu", {{"X", {"h"}}}, {{"Out", {"h"}}});
      t.Op(mark, "layer_norm", {{"X", {"h"}}}, {{"Y", {"h"}}, {"Mean", {"m"}}});
      t.Op(mark, "print", {{"In", {"h"}}}, {});
      t.Op(mark, "increment", {{"X", {"count"}}}, {{"Out", {"count"}}});
      t.Op(mark, "increment", {{"X", {"double"}}}, {{"Out", {"double"}}});
      t.Op(mark, "logical_not", {{"X", {"flag"}}}, {{"Out", {"flag"}}});
      t.Op(mark, "clip_statistics", {{"Statistics", {"double"}}}, {{"StatisticsOut", {"double"}}});
      t.Op(mark, "fill_constant", {}, {{"Out", {"h"}}}, {{"value", std::string("high")}});
      const TrainingParts parts = PartsOf(t.main);
      EXPECT_TRUE(parts.schedules.empty() && parts.norm_clips.empty() &&
                  parts.counted_clips.empty() && parts.finite_flags.empty())
          << ToString(stage);
      EXPECT_EQ(FindPart(t.main.Root(), stage, part), nullptr) << ToString(stage);
    }
  }
}

TEST(TrainingStep, IncompleteClipsByNormAreNone) {
  MarkedOps t;
  t.State("a.norm", DType::kFloat32, {1});
  t.State("a.count", DType::kInt64, {1});
  t.Clip("a", "a.norm", "missing", 1);
  t.Clip("b", "missing", "a.count", 1);
  t.Op({TrainingStage::kClip, TrainingPart::kLimit, "c"}, "fill_constant", {}, {{"Out", {"limit"}}},
       {{"value", 1.0f}});
  EXPECT_TRUE(PartsOf(t.main).norm_clips.empty());
}

// As in a merge of two training programs.
TEST(TrainingStep, ClipsOfOneNameStaySeparate) {
  MarkedOps t;
  for (const char* norm : {"a.norm", "b.norm"}) t.State(norm, DType::kFloat32, {1});
  for (const char* count : {"a.count", "b.count"}) t.State(count, DType::kInt64, {1});
  t.Clip("all", "a.norm", "a.count", 1);
  t.Clip("all", "b.norm", "b.count", 2);
  const TrainingParts parts = PartsOf(t.main);
  ASSERT_EQ(parts.norm_clips.size(), 2u);
  EXPECT_EQ(parts.norm_clips[0].norm, "a.norm");
  EXPECT_EQ(parts.norm_clips[0].counter, "a.count");
  EXPECT_EQ(parts.norm_clips[0].limit, 1);
  EXPECT_EQ(parts.norm_clips[1].norm, "b.norm");
  EXPECT_EQ(parts.norm_clips[1].counter, "b.count");
  EXPECT_EQ(parts.norm_clips[1].limit, 2);
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
