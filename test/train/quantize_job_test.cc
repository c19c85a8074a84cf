// Jobs that train for inference in integers.

#include <coracle/communication/rank_threads.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/rank_jobs.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace coracle::quantize_job_test {

constexpr const char* kNet = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { reshape { input: "image" shape: [-1, 1, 28, 28] output: "i" } }
layer { conv2d { input: "i" num_filters: 4 filter_size: 5 stride: 3 output: "c" } }
layer { batch_norm { input: "c" act: "relu" output: "a" } }
layer { fc { input: "a" size: 10 output: "logits" error_clip { by_value { max: 5 } } } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { accuracy { input: "logits" label: "label" output: "acc" } }
layer { softmax { input: "logits" output: "prob" } }
)";

JobConfig Job(int64_t start = 3, int64_t freeze = 12) {
  JobConfig job = SmallJob();
  job.model_text = kNet;
  job.quantize = QuantizeConfig{{}, start, freeze};
  return job;
}

std::string TextError(const std::string& fields) {
  return ErrorOf([&] { ParseJobText("quantize { " + fields + " }", "j"); });
}

TEST(QuantizeJob, Text) {
  EXPECT_FALSE(ParseJobText("model: \"m\"").quantize.has_value());
  const QuantizeConfig plain = *ParseJobText("quantize { }").quantize;
  EXPECT_EQ(plain.options.weight_bits, 8);
  EXPECT_EQ(plain.start_step, 0);
  EXPECT_EQ(plain.freeze_step, 0);
  const QuantizeConfig all =
      *ParseJobText(
           "quantize { weights: 4 activations: 6 start_step: 5 freeze_step: 9 learned_step: true "
           "moving_rate: 0.5 exclude: \"fc\" }")
           .quantize;
  EXPECT_EQ(all.options.weight_bits, 4);
  EXPECT_EQ(all.options.activation_bits, 6);
  EXPECT_EQ(all.start_step, 5);
  EXPECT_EQ(all.freeze_step, 9);
  EXPECT_TRUE(all.options.learned_step);
  EXPECT_EQ(all.options.moving_rate, 0.5);
  EXPECT_EQ(all.options.exclude, "fc");
  ExpectContains(TextError("weights: 9"), "must be in [2, 8]");
  ExpectContains(TextError("learned_step: true"), "needs start_step");
  ExpectContains(TextError("start_step: 5 freeze_step: 5"), "must be larger than start_step");
  ExpectContains(TextError("moving_rate: 1"), "at most 0.999999");
}

TEST(QuantizeJob, Phases) {
  const QuantizeConfig config{{}, 3, 12};
  EXPECT_EQ(config.PhaseAfter(2), QuantizePhase::kObserve);
  EXPECT_EQ(config.PhaseAfter(3), QuantizePhase::kQuantize);
  EXPECT_EQ(config.PhaseAfter(11), QuantizePhase::kQuantize);
  EXPECT_EQ(config.PhaseAfter(12), QuantizePhase::kFreeze);
  EXPECT_EQ((QuantizeConfig{{}, 0, 0}.PhaseAfter(100)), QuantizePhase::kQuantize);
}

// What the job measures at its end is what the model of integers computes.
TEST(QuantizeJob, IntegersHaveTheMetricsOfTraining) {
  for (const bool learned : {false, true}) {
    TempDir dir;
    JobConfig job = Job();
    job.quantize->options.learned_step = learned;
    job.output_dir = dir / "run";
    if (learned) job.training.average = ExponentialMovingAverageOptions{.decay = 0.5};
    const TrainResult result = RunJob(job);
    ASSERT_EQ(result.int8_values.size(), 2u);
    EXPECT_EQ(result.int8_values[0].name, "loss");
    EXPECT_NEAR(result.int8_values[0].value, result.loss, 0.01 * result.loss);
    EXPECT_NEAR(result.int8_values[1].value, result.metrics[0].value, 1.5 / 70);
    // The model in floating point has no rounding, the other one has integers.
    Scope in_float, integers;
    const InferenceModel model = LoadInferenceModel(result.model_path, in_float);
    const InferenceModel int8 = LoadInferenceModel(result.int8_model_path, integers);
    EXPECT_EQ(model.fetch_names, int8.fetch_names);
    EXPECT_EQ(model.feed_names, int8.feed_names);
    model.program.ForEachOp(
        [](const OpDesc& op) { EXPECT_EQ(op.type().find("quantize"), std::string::npos); });
    EXPECT_TRUE(integers.Has("conv2d_0.w_0@INT8"));
    EXPECT_FALSE(integers.Has("conv2d_0.w_0"));
  }
}

TEST(QuantizeJob, ItsEndIsPrinted) {
  TempDir dir;
  JobConfig job = Job();
  job.output_dir = dir / "run";
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false, 80), kRunDone);
  ExpectContains(out.str(), "inference model in integers " + (dir / "run/model_int8.pdmodel"));
  ExpectContains(out.str(), "\nfinal in integers: loss=");
}

void ExpectSameState(const TrainResult& a, const TrainResult& b) {
  int states = 0;
  for (size_t i = 0; i < a.main.Root().NumVars(); ++i) {
    const VarDesc& var = a.main.Root().var(i);
    if (!var.persistable()) continue;
    ++states;
    EXPECT_TRUE(BitEqual(a.scope.Get(var.name()), b.scope.Get(var.name()))) << var.name();
  }
  EXPECT_GT(states, 10);
}

// A run that stops and goes on, in each phase and at each border, ends with the same bits.
TEST(QuantizeJob, ResumesBitForBit) {
  for (const bool learned : {false, true}) {
    JobConfig job = Job(3, 12);
    job.quantize->options.learned_step = learned;
    job.epochs = 2;
    TempDir whole_dir;
    job.output_dir = whole_dir / "run";
    const TrainResult whole = RunJob(job);
    TempDir dir;
    job.output_dir = dir / "run";
    int64_t step = 0;
    for (const int64_t stop : {2, 3, 7, 12, 14}) {
      TrainCallbacks callbacks;
      callbacks.on_step = [&](const StepReport& report) { step = report.step; };
      callbacks.stop = [&] { return step == stop; };
      TrainOptions options;
      options.resume = true;
      EXPECT_TRUE(RunJob(job, options, callbacks).stopped) << stop;
    }
    TrainOptions options;
    options.resume = true;
    const TrainResult resumed = RunJob(job, options);
    ExpectSameState(whole, resumed);
    EXPECT_EQ(whole.loss, resumed.loss);
    EXPECT_EQ(whole.int8_values[0].value, resumed.int8_values[0].value);
  }
}

// Before start_step the job trains and evaluates like one in floating point.
TEST(QuantizeJob, BeginsInFloatingPoint) {
  for (const int64_t iter_size : {1, 2}) {
    JobConfig job = Job(4, 0);
    job.training.iter_size = iter_size;
    job.test_interval = 4;
    job.epochs = 0;
    job.max_iter = 5;
    std::vector<double> losses, evaluations;
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    callbacks.on_eval = [&](const EvalReport& r) { evaluations.push_back(r.values[0].value); };
    RunJob(job, {}, callbacks);
    const std::vector<double> rounding = losses, evaluated = evaluations;
    losses.clear(), evaluations.clear();
    job.quantize.reset();
    RunJob(job, {}, callbacks);
    ASSERT_EQ(rounding.size(), 5u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rounding[i], losses[i]) << i;
    EXPECT_NE(rounding[4], losses[4]);
    EXPECT_EQ(evaluated.at(0), evaluations.at(0));
    EXPECT_NE(evaluated.at(1), evaluations.at(1));
  }
}

TEST(QuantizeJob, FreezesRangesAndStatistics) {
  JobConfig job = Job(2, 8);
  job.epochs = 0;
  std::vector<Tensor> ranges, means, weights;
  for (const int64_t steps : {7, 8, 12}) {
    job.max_iter = steps;
    const TrainResult result = RunJob(job);
    ranges.push_back(result.scope.Get("a@RANGE").Clone());
    weights.push_back(result.scope.Get("conv2d_0.w_0").Clone());
    result.main.ForEachOp([&](const OpDesc& op) {
      if (op.HasOutput("MeanOut"))
        means.push_back(result.scope.Get(op.Output("MeanOut")[0]).Clone());
    });
  }
  EXPECT_FALSE(BitEqual(ranges[0], ranges[1]));
  EXPECT_TRUE(BitEqual(ranges[1], ranges[2]));
  EXPECT_FALSE(BitEqual(means[0], means[1]));
  EXPECT_TRUE(BitEqual(means[1], means[2]));
  EXPECT_FALSE(BitEqual(weights[1], weights[2]));
}

// A batch with a nan is skipped, and the ranges with it.
TEST(QuantizeJob, RangesSkipWhatIsNotFinite) {
  const auto with = [](float bad) {
    std::vector<float> x, y;
    for (int64_t i = 0; i < 32; ++i) {
      x.push_back(static_cast<float>(i % 8) / 8);
      y.push_back(3 * x.back() + 1);
    }
    x[9] = bad;
    JobConfig job;
    job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "y" shape: [-1, 1] }
layer { fc { input: "x" size: 4 act: "relu" output: "h" } }
layer { fc { input: "h" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
    job.train.custom = MakeMemorySource(
        {{"x", Tensor::Of<float>({32, 1}, x), {1}}, {"y", Tensor::Of<float>({32, 1}, y), {1}}},
        "a line");
    job.training.optimizers = {MomentumOptions{.learning_rate = 0.05}};
    job.training.non_finite_loss = NonFiniteLoss::kSkip;
    job.batch_size = 1;  // batches of one row
    job.epochs = 1;
    job.shuffle = false;
    job.quantize = QuantizeConfig{{}, 2, 0};
    return job;
  };
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    JobConfig job = with(bad);
    const TrainResult result = RunJob(job);
    // Rounding clips an infinity to the range, as it clips any large number.
    EXPECT_EQ(result.non_finite_steps, std::isnan(bad) ? 1 : 0);
    for (const char* name : {"x@RANGE", "x@RANGE_SUM", "x@RANGE_COUNT", "h@RANGE"})
      EXPECT_TRUE(std::isfinite(result.scope.Get(name).Item<float>())) << name << bad;
    // One batch fewer counts.
    double count = 0;
    for (int i = 0; i < 31; ++i) count = 0.9 * count + 1;
    EXPECT_NEAR(result.scope.Get("x@RANGE_COUNT").Item<float>(), count, 1e-4);
  }
}

TEST(QuantizeJob, WithMixedPrecisionAndLossScaling) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    TempDir dir;
    JobConfig job = Job(2, 16);
    job.output_dir = dir / "run";
    job.mixed_precision = PrecisionConfig{{.dtype = dtype}, {}};
    if (dtype == DType::kFloat16) job.mixed_precision->scaling = GradScalerOptions();
    const TrainResult result = RunJob(job);
    // Integers multiply exactly, 16-bit floats do not.
    EXPECT_NEAR(result.int8_values[0].value, result.loss, 0.05 * result.loss);
    Scope integers;
    const InferenceModel int8 = LoadInferenceModel(result.int8_model_path, integers);
    int8.program.ForEachOp([](const OpDesc& op) { EXPECT_NE(op.type(), "cast"); });
  }
}

// Frozen weights keep their learned steps, and named groups of parameters need not name steps.
TEST(QuantizeJob, LearnedStepsAndGroups) {
  JobConfig job = Job(2, 0);
  job.quantize->options.learned_step = true;
  job.freeze = {"conv2d_0.w_0"};
  job.training.optimizers = {MomentumOptions{.learning_rate = 0.05}, AdamWOptions{}};
  job.training.optimizers[0].params = {"batch_norm*", "conv2d*"};
  job.training.optimizers[1].params = {"fc*"};
  job.epochs = 0;
  std::vector<Tensor> frozen, learned, activation;
  for (const int64_t steps : {3, 6}) {
    job.max_iter = steps;
    const TrainResult result = RunJob(job);
    frozen.push_back(result.scope.Get("conv2d_0.w_0@STEP").Clone());
    learned.push_back(result.scope.Get("fc_0.w_0@STEP").Clone());
    activation.push_back(result.scope.Get("a@STEP").Clone());
  }
  EXPECT_TRUE(BitEqual(frozen[0], frozen[1]));
  EXPECT_FALSE(BitEqual(learned[0], learned[1]));
  EXPECT_FALSE(BitEqual(activation[0], activation[1]));
}

// Recomputed activations do not count twice.
TEST(QuantizeJob, WithRecomputation) {
  JobConfig job = Job(2, 0);
  job.epochs = 1;
  const TrainResult plain = RunJob(job);
  job.recompute.checkpoints = {"c"};
  const TrainResult twice = RunJob(job);
  for (const char* name : {"a@RANGE", "a@RANGE_COUNT", "conv2d_0.w_0"})
    EXPECT_TRUE(BitEqual(plain.scope.Get(name), twice.scope.Get(name))) << name;
}

// Evaluations in floating point are not the best: the best model is one of integers.
TEST(QuantizeJob, TheBestIsQuantised) {
  TempDir dir;
  JobConfig job = Job(5, 0);
  job.output_dir = dir / "run";
  job.epochs = 0;
  job.max_iter = 8;
  job.test_interval = 1;
  job.best = BestConfig{{"loss", WatchGoal::kMaximize, 0}, true};
  const TrainResult result = RunJob(job);
  EXPECT_GT(result.best.step, 5);
}

// The largest values of all ranks are those of the whole batch, in each phase.
TEST(QuantizeJob, SeveralRanks) {
  JobConfig job = RankJob("quantize_one");
  job.quantize = QuantizeConfig{{}, 3, 18};
  const TrainResult one = RunJob(job);
  job.output_dir = RankJob("quantize_three").output_dir;
  const std::vector<RankResult> ranks = RunOn(3, job);
  for (const RankResult& rank : ranks) {
    ASSERT_EQ(rank.error, "");
    for (const std::string of : {"image", "h"}) {
      for (const char* part : {"@RANGE", "@RANGE_SUM", "@RANGE_COUNT"}) {
        const Tensor& state = rank.result.scope.Get(of + part);
        EXPECT_TRUE(BitEqual(state, ranks[0].result.scope.Get(of + part))) << of << part;
        EXPECT_NEAR(state.Item<float>(), one.scope.Get(of + part).Item<float>(), 1e-3);
      }
    }
    EXPECT_TRUE(BitEqual(rank.result.scope.Get("image@RANGE"), one.scope.Get("image@RANGE")));
    ExpectSameBits(rank.result.scope, ranks[0].result.scope, one.main);
  }
  EXPECT_NEAR(ranks[0].result.loss, one.loss, 0.02 * one.loss);
  ASSERT_FALSE(ranks[0].result.int8_values.empty());
  EXPECT_NEAR(ranks[0].result.int8_values[0].value, ranks[0].result.loss, 0.01 * one.loss);
}

TEST(QuantizeJob, LearnedStepsOfSeveralRanksAreRefused) {
  JobConfig job = RankJob("quantize_learned");
  job.quantize = QuantizeConfig{{}, 3, 0};
  job.quantize->options.learned_step = true;
  for (const RankResult& rank : RunOn(2, job))
    ExpectContains(rank.error, "learned steps are trained on one rank");
}

TEST(QuantizeJob, Refused) {
  JobConfig job = Job(3);
  job.quantize->options.exclude = ".";
  EXPECT_EQ(ErrorOf([&] { RunJob(job); }),
            "job: quantize: all 2 products of the model are excluded");
  job = Job(1000, 0);
  std::string messages;
  TrainCallbacks callbacks;
  callbacks.on_message = [&](const std::string& line) { messages += line + "\n"; };
  RunJob(job, {}, callbacks);
  ExpectContains(messages, "start_step 1000 is not before the end of the job, at step 24");
  job.quantize->options.learned_step = true;
  ExpectContains(ErrorOf([&] { RunJob(job); }), "no step of rounding would be learned");
}

}  // namespace coracle::quantize_job_test
