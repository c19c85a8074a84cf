// Optimizers, schedules and averages in job text: that each field arrives, the places of errors,
// and that a run which is cut in two ends with the same bits.

#include <coracle/clip/clip.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/trainer.h>

#include <cmath>

namespace coracle::optimizer_text_test {

TrainingConfig Parse(const std::string& text) { return ParseJobText(text, "j").training; }
std::string TextError(const std::string& text) {
  return ErrorOf([&] { ParseJobText(text, "j"); });
}
LrSchedulePtr ParseSchedule(const std::string& schedule) {
  return Parse("optimizer { sgd { learning_rate: 0.5 } schedule { " + schedule + " } }")
      .optimizers.at(0)
      .schedule;
}

const char* const kKinds[] = {"sgd",
                              "momentum",
                              "lars_momentum",
                              "adagrad",
                              "decayed_adagrad",
                              "adadelta",
                              "adam",
                              "adamw",
                              "adamax",
                              "rmsprop",
                              "ftrl",
                              "lamb",
                              "lion",
                              "dpsgd",
                              "proximal_gd",
                              "proximal_adagrad"};

// The text's defaults equal the options' defaults: a text without fields and one with the
// documented defaults make the same program.
TEST(OptimizerText, EveryKind) {
  for (const auto& [kind, fields] : OptimizerFields()) {
    const bool known = std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
    EXPECT_TRUE(known || kind == "text_sgd" || kind == "factor_sgd")
        << kind << " is not in this test, or not in job text";
  }
  for (const std::string kind : kKinds) {
    SCOPED_TRACE(kind);
    const TrainingConfig config = Parse("optimizer { " + kind + " { learning_rate: 0.125 } }");
    ASSERT_EQ(config.optimizers.size(), 1u);
    EXPECT_EQ(config.optimizers[0].make()->learning_rate(), 0.125);
    EXPECT_EQ(config.optimizers[0].place, "j:1:1");
  }
}

TEST(OptimizerText, FieldsArrive) {
  const TrainingConfig config = Parse(R"(
optimizer {
  adam { beta1: 0.5 use_epsilon_hat: true }
  params: "conv*" params: "fc?.w"
  no_decay: "*.b"
  schedule { step { step_size: 10 } }
  regularizer { decoupled_decay { coeff: 0.25 } }
  gradient_clip { by_norm { clip_norm: 2 } }
}
optimizer { sgd {} params: "other" }
iter_size: 4
clip_before_average: true
average { ema { decay: 0.5 warm_up: true } }
lookahead { k: 7 alpha: 0.25 }
)");
  ASSERT_EQ(config.optimizers.size(), 2u);
  const OptimizerConfig& first = config.optimizers[0];
  EXPECT_EQ(first.setting, (Setting{"adam", {{"beta1", 0.5}, {"use_epsilon_hat", true}}}));
  EXPECT_EQ(first.params, (std::vector<std::string>{"conv*", "fc?.w"}));
  EXPECT_EQ(first.no_decay, (std::vector<std::string>{"*.b"}));
  EXPECT_EQ(first.regularizer, (Setting{"decoupled_decay", {{"coeff", 0.25}}}));
  EXPECT_EQ(first.gradient_clip, (Setting{"by_norm", {{"clip_norm", 2.0}}}));
  EXPECT_NEAR(first.schedule->At(10), 0.0001, 1e-15);  // adam's 0.001, to a tenth
  EXPECT_EQ(config.iter_size, 4);
  EXPECT_TRUE(config.clip_before_average);
  EXPECT_FALSE(config.sum_gradients);
  const auto& ema = std::get<ExponentialMovingAverageOptions>(config.average);
  EXPECT_EQ(ema.decay, 0.5);
  EXPECT_TRUE(ema.warm_up);
  EXPECT_EQ(config.lookahead->k, 7);
  EXPECT_EQ(config.lookahead->alpha, 0.25);
  const auto mean = Parse("average { model_average { rate: 0.5 min_window: 2 max_window: 9 } }");
  EXPECT_EQ(std::get<ModelAverageOptions>(mean.average).max_window, 9);
}

// Every schedule, against the functions of lr_schedule.h; the rate is the optimizer's unless given.
TEST(OptimizerText, Schedules) {
  const std::vector<std::pair<const char*, LrSchedulePtr>> cases = {
      {"exponential { gamma: 0.9 }", ExponentialRate({0.5, 0.9})},
      {"exponential { rate: 2 gamma: 0.9 steps: 3 staircase: true }",
       ExponentialRate({2, 0.9, 3, true})},
      {"natural_exp { gamma: 0.1 steps: 2 }", NaturalExpRate({0.5, 0.1, 2})},
      {"inverse_time { gamma: 0.1 steps: 2 }", InverseTimeRate({0.5, 0.1, 2})},
      {"step { step_size: 4 gamma: 0.5 }", StepRate({0.5, 0.5, 4})},
      {"inv { gamma: 0.01 power: 0.75 }", InvRate({0.5, 0.01, 0.75})},
      {"multistep { milestone: 2 milestone: 5 }", MultiStepRate({0.5, 0.1, {2, 5}})},
      {"polynomial { steps: 9 power: 2 }", PolynomialRate({0.5, 9, 1e-4, 2})},
      {"sigmoid { gamma: -0.5 middle: 6 }", SigmoidRate({0.5, -0.5, 6})},
      {"noam { d_model: 64 warmup_steps: 5 }", NoamRate({64, 5})},
      {"piecewise { boundary: 3 value: 0.1 value: 0.2 }", PiecewiseRate({{3}, {0.1, 0.2}})},
      {"cosine { steps_per_epoch: 2 epochs: 6 }", CosineRate({0.5, 2, 6})},
      {"cosine_annealing { steps: 8 end: 0.1 }", CosineAnnealingRate({0.5, 8, 0.1})},
      {"cosine_restarts { steps: 3 factor: 2 }", CosineRestartsRate({0.5, 3, 2})},
      {"cyclic { peak: 1 step_up: 3 }", CyclicRate({.base = 0.5, .peak = 1, .step_up = 3})},
      {"one_cycle { steps: 12 }", OneCycleRate({0.5, 12})},
      {"warmup { steps: 4 }", WarmupRate(FixedRate(0.5), 4, 0, 0.5)},
      {"warmup { steps: 4 start: 0.1 end: 0.3 } step { step_size: 5 }",
       WarmupRate(StepRate({0.5, 0.1, 5}), 4, 0.1, 0.3)},
      {"warmup { steps: 4 } plateau { }", WarmupRate(FixedRate(0.5), 4, 0, 0.5)},
      {"sequence { part { schedule { warmup { steps: 3 } } } "
       "part { first: 5 schedule { polynomial { steps: 6 end: 0 } } } }",
       SequenceRate(
           {{0, WarmupRate(FixedRate(0.5), 3, 0, 0.5)}, {5, PolynomialRate({0.5, 6, 0})}})}};
  for (const auto& [text, expected] : cases) {
    const LrSchedulePtr schedule = ParseSchedule(text);
    for (int64_t t = 0; t < 20; ++t) EXPECT_EQ(schedule->At(t), expected->At(t)) << text << t;
  }
}

TEST(OptimizerText, ErrorsHavePlaces) {
  const auto with = [](const std::string& inside) { return "optimizer {\n " + inside + " }"; };
  const std::pair<std::string, std::string> cases[] = {
      {with("momentum { momentum: 1 }"), "j:2:13: momentum: momentum must lie in [0, 1), got 1"},
      {with("adam { learning_rate: 1 beta2: -1 }"),
       "j:2:26: adam: beta2 must lie in [0, 1), got -1"},
      {with("sgd { learning_rate: -1 }"),
       "j:2:8: sgd: learning_rate must be finite and not negative, got -1"},
      {with("sgd {} schedule { multistep { milestone: [5, 3] } }"),
       "j:2:32: learning-rate schedule multistep: milestone must ascend from 0 on, got 3"},
      {with("sgd {} gradient_clip { custom { type: \"by_norm\" attr { name: \"clip_norm\" f: 1 } "
            "attr { name: \"norm_tpye\" f: 1 } } }"),
       "j:2:25: gradient clip by_norm: there is no 'norm_tpye'; did you mean norm_type?"},
      {with("sgd {} schedule { custom { type: \"step\"\n attr { name: \"step_size\" i: 3 }\n"
            " attr { name: \"step_size\" i: 4 } } }"),
       "j:4:2: step_size is given twice"},
      {with("sgd {} params: \"\""), "j:2:9: params must not be empty"},
      {with("sgd {} schedule { }"), "j:2:9: schedule has no kind; give it one of exponential, "},
      {with("sgd {} schedule { step { gamma: 0.5 } }"), "j:2:20: step needs step_size"},
      {with("sgd {} schedule { step { step_size: 0 } }"), "step_size must be positive, got 0"},
      {with("sgd {} schedule { warmup { } step { step_size: 1 } }"), "j:2:20: warmup needs steps"},
      {with("sgd {} schedule { plateau { factor: 2 } }"),
       "j:2:30: learning-rate schedule plateau: factor must lie in (0, 1), got 2"},
      {with("sgd {} schedule { piecewise { boundary: [2,\n 3]\n value: [1, 2, -1] } }"),
       "j:4:2: learning-rate schedule piecewise: value must be finite and not negative, got -1"},
      {with("sgd {} schedule { custom { type: \"cyclic\" } }"), "peak is required"},
      {with("sgd {} gradient_clip { none { } }"), "none: no such field in gradient_clip"},
      {with("sgd {} schedule { warmup { steps: 2 } plateau { factor: 2 } }"), "j:2:50: "},
      {with("sgd {} schedule { plateau { } step { step_size: 1 } }"),
       "j:2:32: give either step or plateau, not both"},
      {with("sgd {} schedule { sequence { part { first: 3 schedule { warmup { steps: 2 } } } } }"),
       "the first part must begin at step 0"},
      {with("sgd {} schedule { sequence { part { schedule { plateau { } } } part { first: 9 "
            "schedule { plateau { } } } } }"),
       "j:2:92: plateau: the schedule already has one, and can have only one"},
      {with("sgd {} regularizer { }"), "j:2:9: regularizer has no kind; give it one of l2_decay, "},
      {with("sgd {} regularizer { l2_decay { } }"), "j:2:23: l2_decay needs coeff"},
      {with("sgd {} regularizer { l1_decay { coeff: -1 } }"),
       "j:2:34: l1_decay: coeff must be finite and not negative, got -1"},
      {with("sgd {} regularizer { custom { type: \"l3\" } }"),
       "'l3' is not a regularizer; known: "},
      {with("sgd {} regularizer { custom { type: \"l2_decay\" attr { name: \"coeff\" f: -1 } } }"),
       "j:2:23: l2_decay: coeff must be finite and not negative, got -1"},
      {with("sgd {} regularizer { custom { type: \"l2_decay\" } }"), "coeff is required"},
      {with("custom { }"), "j:2:2: custom needs type"},
      {with("custom { type: \"adma\" }"), "no optimizer is called 'adma'; known: "},
      {with("custom { type: \"adam\" attr { name: \"beta3\" f: 1 } }"),
       "adam: there is no 'beta3'; did you mean beta"},
      {with("custom { type: \"adam\" attr { name: \"beta1\" } }"), "attr has no value"},
      {with("custom { type: \"adam\" attr { f: 1 } }"), "attr needs name"},
      {with("sgd {} schedule { custom { type: \"mine\" } }"),
       "no registered learning-rate schedule is called 'mine'"},
      {"optimizer { sgd {} params: \"a\" }\noptimizer { sgd {} }",
       "j:2:1: optimizer needs params where there are several"},
      {"iter_size: 0", "j:1:1: iter_size must be at least 1, got 0"},
      {"clip_before_average: true sum_gradients: true",
       "j:1:1: clip_before_average does not apply to sum_gradients"},
      {"average { }", "j:1:1: average has no kind; give it one of ema, model_average"},
      {"average { ema { decay: 1 } }", "j:1:17: exponential moving average: decay must lie in"},
      {"average { model_average { max_window: 0 } }",
       "j:1:27: model average: max_window must be at least 1, got 0"},
      {"average { model_average { min_window: 9 max_window: 8 } }", "min_window <= max_window"},
      {"lookahead { k: 0 }", "j:1:13: lookahead: k must be at least 1, got 0"},
      {"lookahead { alpha: 2 }", "j:1:13: lookahead: alpha must be in (0, 1], got 2"},
      {with("sdg {}"), "sdg: no such field in optimizer; did you mean sgd?"}};
  for (const auto& [text, part] : cases) ExpectContains(TextError(text), part);
}

// Kinds that users register are named in job text.
class TextSgd : public Optimizer {
 public:
  explicit TextSgd(double rate) : Optimizer(rate) {}

 protected:
  void AppendUpdate(const UpdateContext& update) override {
    update.block.AppendOp("sgd",
                          {{"Param", {update.param}},
                           {"Grad", {update.grad}},
                           {"LearningRate", {update.learning_rate}}},
                          {{"ParamOut", {update.param}}});
  }
};

class HalfRate : public LrSchedule {
 public:
  explicit HalfRate(double rate) : rate_(rate) {}
  double At(int64_t t) const override { return rate_ / (1 + static_cast<double>(t)); }
  Variable Append(const Variable& t) const override { return rate_ / (1.0 + t); }

 private:
  double rate_;
};

TEST(OptimizerText, WhatUsersRegister) {
  RegisterOptimizer("text_sgd", [](const Setting& s) {
    return std::make_unique<TextSgd>(s.Get<double>("learning_rate", 1));
  });
  RegisterLrSchedule("half", [](const Setting& s) {
    return std::make_shared<HalfRate>(s.Get<double>("rate", 1));
  });
  RegisterRegularizer("no_change",
                      [](const UpdateContext& update, const Setting&) { return update.grad; });
  JobConfig custom = SmallJob(), plain = SmallJob();
  custom.training = Parse(R"(optimizer {
    custom { type: "text_sgd" }
    schedule { custom { type: "half" attr { name: "rate" f: 0.25 } } }
    regularizer { custom { type: "no_change" } } })");
  plain.training = Parse("optimizer { sgd {} schedule { inv { rate: 0.25 gamma: 1 power: 1 } } }");
  custom.epochs = plain.epochs = 1;
  EXPECT_NEAR(RunJob(custom).loss, RunJob(plain).loss, 1e-5);
}

struct FactorSgdOptions {
  using Makes = class FactorSgd;
  double learning_rate = 0.25;
  double factor = 1;
};
class FactorSgd : public TextSgd {
 public:
  explicit FactorSgd(const FactorSgdOptions& options)
      : TextSgd(options.learning_rate * options.factor) {}
};
struct ThirdRateOptions {
  double rate = kNotGiven;
  int64_t steps = 0;
};
LrSchedulePtr ThirdRate(const ThirdRateOptions& options) {
  return options.steps > 0 ? FixedRate(options.rate / 3) : nullptr;
}

// A kind that is registered with a table is in schema and help, and is read as a built-in kind is.
TEST(OptimizerText, WhatUsersRegisterWithFields) {
  EXPECT_EQ(DescribeJobKind("factor_sgd"), "");
  ExpectContains(TextError("optimizer { factor_sgd { } }"), "no such field in optimizer");
  using O = FactorSgdOptions;
  RegisterOptimizer("factor_sgd", Fields<O>("A test's.")
                                      .Add("learning_rate", &O::learning_rate, "as ever")
                                      .Add("factor", &O::factor, "multiplies it", PositiveRange()));
  EXPECT_NO_THROW(MakeOptimizer({"factor_sgd", {{"factor", 0.5}}}));
  EXPECT_THROW(MakeOptimizer({"factor_sgd", {{"factor", -0.5}}}), Error);
  using R = ThirdRateOptions;
  RegisterLrSchedule("third",
                     Fields<R>("rate / 3")
                         .Add("rate", &R::rate, "", StandIn{"learning_rate"})
                         .Add("steps", &R::steps, "at most 9", kRequired, RangeFrom(0, 10)),
                     ThirdRate);
  // A maker of one's own does not see what the table refuses.
  RegisterOptimizer("made_sgd",
                    Fields<O>("A test's.").Add("factor", &O::factor, "", PositiveRange()),
                    [](const Setting&) { return std::make_unique<TextSgd>(1); });
  EXPECT_NO_THROW(MakeOptimizer({"made_sgd", {{"factor", 2.0}}}));
  EXPECT_THROW(MakeOptimizer({"made_sgd", {{"factor", 0.0}}}), Error);
  EXPECT_THROW(MakeOptimizer({"made_sgd", {{"facto", 2.0}}}), Error);
  RegisterGradientClip("halve",
                       Fields<O>("A clip.").Add("factor", &O::factor, "by that", PositiveRange()),
                       [](BlockDesc&, ProgramDesc&, const std::vector<ClipMember>& members) {
                         ClippedGradients same;
                         for (const ClipMember& member : members)
                           same.grads.push_back(member.pair.grad);
                         return same;
                       });
  const std::string schema = JobSchema();
  for (const char* part :
       {"message factor_sgd_optimizer {", "// multiplies it", "factor_sgd_optimizer factor_sgd",
        "[default = 0.25]", "message third_schedule {", "message halve_clip {",
        "message momentum_optimizer {", "// share of the velocity that a step keeps"})
    ExpectContains(schema, part);
  ExpectContains(DescribeJobKind("factor_sgd"), "optimizer factor_sgd: A test's.\n");
  ExpectContains(DescribeJobKind("third"), "learning-rate schedule third: rate / 3\n");
  ExpectContains(DescribeJobKind("halve"), "gradient clip halve: A clip.\n");

  const auto config = Parse(R"(optimizer {
    factor_sgd { factor: 2 }
    gradient_clip { halve { factor: 3 } }
    schedule { third { steps: 1 } } })");
  const OptimizerConfig& made = config.optimizers.at(0);
  EXPECT_EQ(made.make()->learning_rate(), 0.5);
  EXPECT_DOUBLE_EQ(made.schedule->At(0), 0.5 / 3);
  EXPECT_EQ(made.gradient_clip, (Setting{"halve", {{"factor", 3.0}}}));
  EXPECT_EQ(TextError("optimizer {\n factor_sgd { facto: 2 } }"),
            "j:2:15: facto: no such field in factor_sgd; did you mean factor?");
  ExpectContains(TextError("optimizer { sgd {} gradient_clip { halve { factor: -1 } } }"),
                 "gradient clip halve: factor must be positive, got -1");
  EXPECT_EQ(TextError("optimizer {\n factor_sgd { factor: -2 } }"),
            "j:2:15: factor_sgd: factor must be positive, got -2");
  EXPECT_EQ(TextError("optimizer { sgd { }\n schedule { third { steps: 11 } } }"),
            "j:2:21: learning-rate schedule third: steps must lie in [0, 10), got 11");
  EXPECT_EQ(TextError("optimizer { sgd { }\n schedule { third { } } }"),
            "j:2:13: third needs steps");
  // Those without a table take named values.
  EXPECT_EQ(Parse("optimizer { text_sgd { attr { name: \"learning_rate\" f: 0.75 } } }")
                .optimizers.at(0)
                .make()
                ->learning_rate(),
            0.75);
}

// A kind may be named like kinds without a field of their own: it is read in the same way.
TEST(OptimizerText, BuiltInSchedulesByCustom) {
  const auto config = Parse(R"(optimizer {
    sgd { learning_rate: 0.5 }
    schedule { custom { type: "step" attr { name: "step_size" i: 3 } } } })");
  const OptimizerConfig& optimizer = config.optimizers.at(0);
  for (int64_t t = 0; t < 8; ++t)
    EXPECT_EQ(optimizer.schedule->At(t), StepRate({0.5, 0.1, 3})->At(t));
  ASSERT_EQ(optimizer.schedule_marks.size(), 1u);
  EXPECT_EQ(optimizer.schedule_marks[0].what, "the rate changes");
  EXPECT_EQ(optimizer.schedule_marks[0].step, 3);
}

// Values in brackets have the place of the whole where protobuf knows no other.
TEST(OptimizerText, PlacesInBrackets) {
  const auto config = Parse("optimizer { sgd { } schedule { multistep {\n milestone: [2, 5] } } }");
  const auto& marks = config.optimizers.at(0).schedule_marks;
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[1].place, marks[0].place);
  EXPECT_EQ(marks[1].step, 5);
  // A mix of brackets and single values has fewer places than values, so all get the first place.
  const auto mixed = Parse(
      "optimizer { sgd { } schedule { multistep {\n milestone: [2, 5]\n milestone: 7\n"
      " milestone: 9 } } }");
  const auto& all = mixed.optimizers.at(0).schedule_marks;
  ASSERT_EQ(all.size(), 4u);
  for (const ScheduleMark& mark : all) EXPECT_EQ(mark.place, "j:2:2");
}

TEST(OptimizerText, NamesThatNoSchemaTakes) {
  const std::string why =
      "the name 'kind' is reserved: the schemas of texts use it for the choice ";
  ExpectContains(ErrorOf([] { RegisterOptimizer("kind", [](const Setting&) { return nullptr; }); }),
                 "optimizer: " + why);
  ExpectContains(ErrorOf([] {
                   RegisterRegularizer(
                       "kind", [](const UpdateContext& u, const Setting&) { return u.grad; });
                 }),
                 "regularizer: " + why);
  ExpectContains(ErrorOf([] {
                   RegisterGradientClip(
                       "kind",
                       [](BlockDesc&, ProgramDesc&,
                          const std::vector<ClipMember>&) -> ClippedGradients { return {}; });
                 }),
                 "gradient clip: " + why);
  EXPECT_NO_THROW(JobSchema());
}

// The help of what is built in: defaults, ranges and docs of the table.
TEST(OptimizerText, Help) {
  const std::string momentum = DescribeJobKind("momentum");
  for (const char* part : {"optimizer momentum: ", "learning_rate", "double [0.01]", "bool [false]",
                           "must lie in [0, 1)", "use_nesterov"})
    ExpectContains(momentum, part);
  ExpectContains(DescribeJobKind("noam"), "warmup_steps  int64  ");
  ExpectContains(DescribeJobKind("noam"), "(required)");
  ExpectContains(DescribeJobKind("by_norm"), "string [propagate]");
  ExpectContains(DescribeJobKind("ema"), "average of parameters ema: ");
  EXPECT_EQ(DescribeJobKind("conv2d"), "");
  ExpectContains(DescribeJobKind("l2_decay"), "coeff  double  see above (required)");
  ExpectContains(DescribeJobKind("loss_scaling"), "growth_factor");
  ExpectContains(DescribeJobKind("lookahead"), "must be in (0, 1]");
  ExpectContains(DescribeJobKind("sgd"), "must be finite and not negative");
  ExpectContains(DescribeJobKind("model_average"), "must be at least 1");
  ExpectContains(DescribeJobKind("warmup"), "updates of the rise");
}

void ExpectSameState(const TrainResult& a, const TrainResult& b) {
  const std::vector<std::string> names = PersistableNames(a.main);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names)
    EXPECT_TRUE(BitEqual(a.scope.Get(name), b.scope.Get(name))) << name;
}

// 2 n steps, and n steps, a new process's resume, and n steps.
void ExpectResumeGoesOn(const std::string& training,
                        const std::optional<PrecisionConfig>& precision = {}) {
  SCOPED_TRACE(training);
  const auto job = [&](const TempDir& dir, int64_t steps) {
    JobConfig config = SmallJob();
    config.training = Parse(training);
    config.mixed_precision = precision;
    config.max_iter = steps;
    config.test_interval = 3;
    config.snapshot_dir = dir.path();
    return config;
  };
  const TempDir whole, cut;
  const TrainResult all = RunJob(job(whole, 12)), half = RunJob(job(cut, 6));
  TrainOptions resume;
  resume.resume = true;
  const TrainResult rest = RunJob(job(cut, 12), resume);
  EXPECT_EQ(rest.steps, 12);
  EXPECT_TRUE(std::isfinite(all.loss));
  EXPECT_EQ(all.loss, rest.loss);
  ExpectSameState(all, rest);
  for (const std::string& param : all.main.Parameters())  // or equality would say nothing
    EXPECT_FALSE(BitEqual(half.scope.Get(param), rest.scope.Get(param))) << param;
}

// A scale that overflows at first and then grows.
PrecisionConfig Precision(DType dtype) {
  PrecisionConfig precision;
  precision.options.dtype = dtype;
  precision.scaling = GradScalerOptions{.init_scale = 0x1p22, .growth_interval = 3};
  return precision;
}

// Each optimizer with a schedule, accumulation over two batches, an average and float16,
// all at once.
TEST(OptimizerText, ResumeOfEveryKind) {
  for (const std::string kind : kKinds) {
    ExpectResumeGoesOn(
        "optimizer { " + kind + " { learning_rate: 0.01 " +
            (kind == "dpsgd" ? "sigma: 1 batch_size: 16" : "") +  // draws that are seen
            " } schedule { warmup { steps: 3 } cosine_annealing { steps: 20 "
            "} } gradient_clip { by_global_norm { clip_norm: 1 } } regularizer { l2_decay { coeff: "
            "0.001 } } } iter_size: 2 average { ema { decay: 0.8 } }",
        Precision(DType::kFloat16));
  }
}

TEST(OptimizerText, ResumeOfEveryAverage) {
  for (const std::string average : {"average { ema { warm_up: true } }", "lookahead { k: 4 }",
                                    "average { model_average { min_window: 2 max_window: 3 } }",
                                    "average { ema { decay: 0.8 } } lookahead { k: 3 }"}) {
    for (const auto& precision :
         {std::optional<PrecisionConfig>(), std::optional(Precision(DType::kBFloat16))}) {
      ExpectResumeGoesOn(
          "optimizer { adam { learning_rate: 0.01 } gradient_clip { by_norm { clip_norm: 1 } } } "
          "iter_size: 2 " +
              average,
          precision);
    }
  }
}

TEST(OptimizerText, ResumeOfGroupsAndPlateau) {
  ExpectResumeGoesOn(
      "optimizer { params: \"fc_0*\" adam {} schedule { plateau { patience: 0 threshold: 0.5 } } "
      "} optimizer { params: \"fc_1*\" momentum { learning_rate: 0.05 } "
      "schedule { step { step_size: 4 } } gradient_clip { by_norm { clip_norm: 0.5 } } } "
      "average { ema { warm_up: true } }");
}

// Two batches of half the size make the step of the whole batch, to rounding. (Without dropout,
// whose draws differ.)
TEST(OptimizerText, AccumulationIsTheLargerBatch) {
  const auto job = [](int64_t batch, int64_t runs, const std::string& more) {
    JobConfig config = SmallJob();
    const size_t at = config.model_text.find("dropout_prob: 0.2");
    config.model_text.replace(at, 17, "dropout_prob: 0.0");
    config.training = Parse(
        "optimizer { momentum { learning_rate: 0.05 } gradient_clip { by_global_norm { "
        "clip_norm: 0.5 } } } " +
        more);
    config.training.iter_size = runs;
    config.batch_size = batch;
    config.shuffle = false;
    config.train.source = DigitsOptions{.count = 160};
    config.epochs = 2;
    return config;
  };
  const TrainResult whole = RunJob(job(40, 1, "")), halves = RunJob(job(20, 2, ""));
  EXPECT_EQ(whole.steps, 8);
  EXPECT_EQ(halves.steps, 8);
  EXPECT_NEAR(whole.loss, halves.loss, 1e-5 * whole.loss);
  // The clip of the sum lets half as much through.
  const TrainResult caffe = RunJob(job(20, 2, "clip_before_average: true"));
  EXPECT_GT(std::abs(caffe.loss - whole.loss), 1e-4);
}

// An epoch of 8 batches is 3 updates of 3 batches; updates go over its end.
TEST(OptimizerText, EpochsOfAccumulation) {
  JobConfig config = SmallJob();
  config.training.iter_size = 3;
  std::vector<int64_t> evaluated;
  TrainCallbacks callbacks;
  callbacks.on_eval = [&](const EvalReport& report) { evaluated.push_back(report.step); };
  const TrainResult result = RunJob(config, {}, callbacks);
  EXPECT_EQ(result.steps, 8);  // 24 batches
  EXPECT_EQ(evaluated, (std::vector<int64_t>{3, 6, 8}));
}

// Evaluations see the averages, and training goes on from the parameters.
TEST(OptimizerText, AveragesAreEvaluatedAndSaved) {
  JobConfig plain = SmallJob(), averaged = SmallJob();
  averaged.training.average = ExponentialMovingAverageOptions{.decay = 0.9};
  const TrainResult a = RunJob(plain), b = RunJob(averaged);
  for (const std::string& name : a.main.Parameters())
    EXPECT_TRUE(BitEqual(a.scope.Get(name), b.scope.Get(name))) << name;
  EXPECT_NE(a.loss, b.loss);
}

TEST(OptimizerText, PlateauLowersTheRate) {
  JobConfig job = SmallJob();
  job.training = Parse(
      "optimizer { sgd { learning_rate: 0.5 } schedule { plateau { metric: \"accuracy\" "
      "maximize: true patience: 1 factor: 0.5 threshold: 10 relative: false } } }");
  job.epochs = 7;
  const TrainResult result = RunJob(job);
  // The first evaluation is the best; of six more every second is one too many.
  EXPECT_EQ(result.scope.Get("learning_rate_0").Item<float>(), 0.5f / 8);
  job.training.optimizers[0].plateau->metric = "acuracy";
  ExpectContains(ErrorOf([&] { RunJob(job); }), "evaluations have no 'acuracy'");
  job.training.optimizers[0].plateau->metric = "";
  job.test = {};
  ExpectContains(ErrorOf([&] { RunJob(job); }), "plateau needs test data");
}

// Rates of each step where no evaluation is an improvement, which halves the rate at each of those
// that the plateau counts.
std::vector<double> RatesOf(const std::string& schedule, int64_t steps, int64_t iter_size = 1) {
  JobConfig job = SmallJob();
  job.training = Parse("optimizer { sgd { learning_rate: 0.5 } schedule { " + schedule + " } }");
  job.training.iter_size = iter_size;
  job.max_iter = steps;
  job.test_interval = job.display = 1;
  std::vector<double> rates;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    rates.push_back(report.learning_rates.at(0).value);
  };
  RunJob(job, {}, callbacks);
  return rates;
}

TEST(OptimizerText, PlateauAfterOtherSchedules) {
  const std::string plateau = "plateau { patience: 0 factor: 0.5 threshold: 100 relative: false }";
  // The evaluation after the warm-up is the first that counts, and so the best.
  const std::vector<double> warm = {0, 0.125, 0.25, 0.375, 0.5, 0.25, 0.125};
  EXPECT_EQ(RatesOf("warmup { steps: 4 } " + plateau, 7), warm);
  EXPECT_EQ(RatesOf("warmup { steps: 4 } " + plateau, 7, 2), warm);
  // A plateau that ends leaves its place to a schedule that does not know of it.
  EXPECT_EQ(
      RatesOf("sequence { part { schedule { piecewise { value: 0.25 } } } "
              "part { first: 2 schedule { warmup { steps: 1 } " +
                  plateau + " } } part { first: 6 schedule { piecewise { value: 0.125 } } } }",
              8),
      (std::vector<double>{0.25, 0.25, 0, 0.5, 0.25, 0.125, 0.125, 0.125}));

  JobConfig job = SmallJob();
  job.training = Parse("optimizer { sgd {} schedule { warmup { steps: 2 } plateau {} } }");
  job.training.optimizers[0].plateau->held = "";
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "j:1:1: plateau together with another schedule must be a part of it");
  job.training.optimizers[0].plateau->held = "h";
  ExpectContains(ErrorOf([&] { RunJob(job); }), "the model already has a variable 'h'");
}

TEST(OptimizerText, ResumeOfWarmupAndPlateau) {
  for (const int warmup : {5, 8}) {  // before and after the snapshot of step 6
    for (const char* more : {"", " iter_size: 2"}) {
      ExpectResumeGoesOn(
          "optimizer { momentum { learning_rate: 0.05 } schedule { warmup { steps: " +
          std::to_string(warmup) + " } plateau { patience: 0 threshold: 100 } } }" + more);
    }
  }
}

TEST(OptimizerText, GroupsAreChecked) {
  JobConfig job = SmallJob();
  job.training = Parse("optimizer { sgd {} params: \"fc_0*\" }");
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "j:1:1: optimizer: no optimizer matches the parameter 'fc_1");
  job.training = Parse("optimizer { sgd {} params: \"*\" params: \"conv*\" }");
  ExpectContains(ErrorOf([&] { RunJob(job); }), "no parameter matches 'conv*'; there are fc_0");
}
}  // namespace coracle::optimizer_text_test
