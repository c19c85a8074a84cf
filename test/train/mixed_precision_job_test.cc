// Jobs in mixed precision: their text, resume, and gradients that float16 loses without scaling.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

namespace coracle::mixed_precision_job_test {

std::string TextError(const std::string& text) {
  return ErrorOf([&] { ParseJobText(text, "j.pbtxt"); });
}

TEST(MixedPrecisionJob, Text) {
  EXPECT_FALSE(ParseJobText("model: \"m\"").mixed_precision.has_value());
  const PrecisionConfig plain = *ParseJobText("mixed_precision { }").mixed_precision;
  EXPECT_EQ(plain.options.dtype, DType::kBFloat16);
  EXPECT_EQ(plain.options.level, PrecisionLevel::kO1);
  EXPECT_FALSE(plain.scaling.has_value());
  const PrecisionConfig half = *ParseJobText("mixed_precision { dtype: FLOAT16 }").mixed_precision;
  ASSERT_TRUE(half.scaling.has_value());
  EXPECT_EQ(half.scaling->init_scale, 65536);
  EXPECT_FALSE(ParseJobText("mixed_precision { dtype: FLOAT16 level: O3 }")
                   .mixed_precision->scaling.has_value());
  const PrecisionConfig all =
      *ParseJobText(
           "mixed_precision { dtype: FLOAT16 level: O2 custom_white: \"tanh\" custom_black: "
           "\"relu\" "
           "black_var: \"a\" float32_var: \"b\" master_weights: true float32_norms: false "
           "loss_scaling { enabled: true dynamic: true init_scale: 8 growth_factor: 4 "
           "backoff_factor: 0.25 growth_interval: 7 hysteresis: 2 min_scale: 0.5 max_scale: 64 "
           "max_skipped: 9 } }")
           .mixed_precision;
  EXPECT_EQ(all.options.level, PrecisionLevel::kO2);
  EXPECT_EQ(all.options.custom_white, std::vector<std::string>{"tanh"});
  EXPECT_EQ(all.options.custom_black, std::vector<std::string>{"relu"});
  EXPECT_EQ(all.options.black_vars, std::vector<std::string>{"a"});
  EXPECT_EQ(all.options.float32_vars, std::vector<std::string>{"b"});
  EXPECT_EQ(all.options.master_weights, true);
  EXPECT_EQ(all.options.float32_norms, false);
  EXPECT_EQ(all.scaling->init_scale, 8);
  EXPECT_EQ(all.scaling->growth_factor, 4);
  EXPECT_EQ(all.scaling->backoff_factor, 0.25);
  EXPECT_EQ(all.scaling->growth_interval, 7);
  EXPECT_EQ(all.scaling->hysteresis, 2);
  EXPECT_EQ(all.scaling->min_scale, 0.5);
  EXPECT_EQ(all.scaling->max_scale, 64);
  EXPECT_EQ(all.scaling->max_skipped, 9);
}

// apex's table: whether the loss is scaled, if the job does not say.
TEST(MixedPrecisionJob, LossScalesOfTheLevels) {
  for (const std::string level : {"O0", "O1", "O2", "O3"}) {
    const bool scaled = level == "O1" || level == "O2";
    const auto scaling = [&](const std::string& dtype) {
      return ParseJobText(fmt::format("mixed_precision {{ dtype: {} level: {} }}", dtype, level))
          .mixed_precision->scaling;
    };
    const auto half = scaling("FLOAT16");
    EXPECT_EQ(half.has_value(), scaled) << level;
    if (half) {
      EXPECT_TRUE(half->dynamic && half->enabled);
      EXPECT_EQ(half->init_scale, 65536);
      EXPECT_EQ(half->growth_factor, 2);
      EXPECT_EQ(half->backoff_factor, 0.5);
      EXPECT_EQ(half->growth_interval, 2000);
    }
    EXPECT_FALSE(scaling("BFLOAT16").has_value()) << level;
  }
}

TEST(MixedPrecisionJob, WrongTextSaysWhere) {
  const auto scaling = [](const std::string& text) {
    return TextError("mixed_precision {\n loss_scaling { " + text + " } }");
  };
  EXPECT_EQ(scaling("growth_factor: 1").substr(0, 14), "j.pbtxt:2:17: ");
  ExpectContains(scaling("growth_factor: 1"),
                 "growth_factor must be above 1 and at most 3.40282e+38, got 1");
  ExpectContains(scaling("backoff_factor: 1"), "backoff_factor must lie between 0 and 1");
  ExpectContains(scaling("growth_interval: 0"), "growth_interval");
  ExpectContains(scaling("init_scale: 4 max_scale: 2"), "max_scale 2 is below init_scale 4");
  ExpectContains(scaling("init_scale: 4 min_scale: 8"), "min_scale 8 is above init_scale 4");
  ExpectContains(scaling("max_skipped: -1"), "max_skipped");
  ExpectContains(TextError("mixed_precision { level: O4 }"), "O4");
  ExpectContains(TextError("mixed_precision {\n level: O1 master_weights: true }"),
                 "j.pbtxt:2:12: master_weights applies to the levels O2 and O3");
}

// `small` multiplies the loss, and the rate makes up for it: the same training in exact arithmetic.
JobConfig Job(const std::string& precision, double small = 1) {
  JobConfig job = ParseJobText(precision.empty() ? "" : "mixed_precision { " + precision + " }");
  char factor[32];
  std::snprintf(factor, sizeof factor, "%.9g", small);
  job.model_text = std::string(R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 32 act: "relu" output: "h" } }
layer { dropout { input: "h" dropout_prob: 0.2 output: "d" } }
layer { fc { input: "d" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "mean_ce" } }
layer { scale { input: "mean_ce" scale: )") +
                   factor + R"( output: "loss" } }
layer { accuracy { input: "logits" label: "label" output: "acc" } }
)";
  job.train.source = DigitsOptions{.count = 1000};
  job.test.source = DigitsOptions{.count = 300};
  job.metrics = {{"acc", "accuracy"}};
  job.training.optimizers = {MomentumOptions{.learning_rate = 0.05 / small}};
  job.batch_size = 20;
  job.epochs = 4;
  job.output_dir = "";
  job.text = "# mixed\n";
  return job;
}

double Accuracy(const JobConfig& job) { return RunJob(job).metrics.at(0).value; }

TEST(MixedPrecisionJob, LearnsAsFloat32Does) {
  const double expected = Accuracy(Job(""));
  EXPECT_GT(expected, 0.7);
  EXPECT_NEAR(Accuracy(Job("dtype: BFLOAT16")), expected, 0.05);
  EXPECT_NEAR(Accuracy(Job("dtype: FLOAT16")), expected, 0.05);
  EXPECT_NEAR(Accuracy(Job("dtype: BFLOAT16 level: O2")), expected, 0.05);
}

// Gradients of the size 2^-20 / batch vanish in float16; scaled by 2^16 and more they do not.
TEST(MixedPrecisionJob, SmallGradientsNeedScaling) {
  const double small = 0x1p-20;
  const double expected = Accuracy(Job("", small));
  EXPECT_GT(expected, 0.7);
  EXPECT_NEAR(Accuracy(Job("dtype: FLOAT16", small)), expected, 0.05);
  EXPECT_LT(Accuracy(Job("dtype: FLOAT16 loss_scaling { enabled: false }", small)), expected - 0.2);
  EXPECT_NEAR(Accuracy(Job("dtype: BFLOAT16", small)), expected, 0.05);
}

// 2n steps are n steps, a snapshot and n more, the scale in the middle of an interval.
TEST(MixedPrecisionJob, ResumesBitForBit) {
  const std::string precision =
      "dtype: FLOAT16 loss_scaling { init_scale: 16777216 growth_interval: 7 }";
  const JobConfig whole = Job(precision);
  const TrainResult expected = RunJob(whole);
  TempDir directory;
  JobConfig job = Job(precision);
  job.snapshot_dir = directory.path();
  int64_t step = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { step = report.step; };
  callbacks.stop = [&] { return step == 37; };
  EXPECT_TRUE(RunJob(job, {}, callbacks).stopped);
  TrainOptions resume;
  resume.resume = true;
  const TrainResult resumed = RunJob(job, resume);
  bool has_scale = false;
  for (const std::string& name : PersistableNames(expected.main)) {
    has_scale |= name.rfind("loss_scaling", 0) == 0;
    EXPECT_TRUE(BitEqual(expected.scope.Get(name), resumed.scope.Get(name))) << name;
  }
  EXPECT_TRUE(has_scale);
}

// loss = 1e10 a + b with the scale 2^100 at first: a's scaled gradient overflows for six steps (the
// sum of two for seven), b's never. Each optimizer has its own schedule (rates 1, 1/2, 1/4 ... of
// the steps that it does), clip and skips; the scale is halved once a step, whoever overflowed.
TEST(MixedPrecisionJob, EachOptimizerSkipsForItself) {
  for (const int64_t iter_size : {1, 2}) {
    JobConfig job = ParseJobText(R"(
      mixed_precision { level: O0 loss_scaling { init_scale: 1.2676506002282294e30 } }
      optimizer { params: "a" sgd { learning_rate: 1 } schedule { step { step_size: 1 gamma: 0.5 } }
                  gradient_clip { by_global_norm { clip_norm: 0.5 } } }
      optimizer { params: "b" sgd { learning_rate: 1 } schedule { step { step_size: 1 gamma: 0.5 } }
                  gradient_clip { by_global_norm { clip_norm: 0.25 } } }
      batch_size: 4 max_iter: 1 display: 20)");
    job.output_dir.clear();
    job.training.iter_size = iter_size;
    const int64_t skips = 5 + iter_size;
    job.max_iter = skips + 2;
    job.model_text = R"(
      data { name: "large" shape: [-1, 1] }
      data { name: "one" shape: [-1, 1] }
      layer { fc { input: "large" size: 1 output: "u" bias_term: false
                   param { name: "a" initializer { constant { value: 1 } } } } }
      layer { fc { input: "one" size: 1 output: "v" bias_term: false
                   param { name: "b" initializer { constant { value: 1 } } } } }
      layer { op { elementwise_add { X: "u" Y: "v" Out: "w" } } }
      layer { mean { input: "w" output: "loss" } })";
    job.train.custom = MakeMemorySource({{"large", Tensor::Full<float>({4, 1}, 1e10f), {1}},
                                         {"one", Tensor::Full<float>({4, 1}, 1.0f), {1}}},
                                        "large");
    std::vector<NamedValue> rates;
    std::vector<ClipReport> clips;
    TrainCallbacks callbacks;
    callbacks.on_step = [&](const StepReport& report) {
      rates = report.learning_rates;
      clips = report.clips;
    };
    const TrainResult result = RunJob(job, {}, callbacks);
    const double last_rate = std::ldexp(1.0, -static_cast<int>(skips) - 1);
    EXPECT_EQ(result.scope.Get("loss_scaling_0").Item<float>(),
              std::ldexp(1.0f, 100 - static_cast<int>(skips)));
    EXPECT_FLOAT_EQ(result.scope.Get("a").Item<float>(), 1 - 0.5f * (1 + 0.5f));
    EXPECT_FLOAT_EQ(result.scope.Get("b").Item<float>(),
                    1 - 0.25f * (2 - static_cast<float>(last_rate)));
    ASSERT_EQ(rates.size(), 2u);
    EXPECT_EQ(rates[0].value, 0x1p-1);
    EXPECT_EQ(rates[1].value, last_rate);
    EXPECT_EQ(FormatClips(clips),
              fmt::format(" clip(default_group) 2/2 norm 1e10>0.5 x5e-11 clip(default_group_1) "
                          "{0}/{0} norm 1>0.25 x0.25",
                          skips + 2));
  }
}
}  // namespace coracle::mixed_precision_job_test
