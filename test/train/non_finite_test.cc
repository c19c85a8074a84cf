// Losses, scores and parameters that are not numbers: nothing of them passes for a result.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/evaluation/evaluator.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/watch.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace coracle::non_finite_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// y = 3 x + 1 in batches of 4; the rows in `bad` have a nan for x.
JobConfig Line(int64_t rows, const std::vector<int64_t>& bad = {}) {
  std::vector<float> x, y;
  for (int64_t i = 0; i < rows; ++i) {
    x.push_back(static_cast<float>(i % 8) / 8);
    y.push_back(3 * x.back() + 1);
  }
  for (const int64_t row : bad) x[static_cast<size_t>(row)] = kNan;
  JobConfig job;
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "y" shape: [-1, 1] }
layer { fc { input: "x" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
  job.train.custom = MakeMemorySource(
      {{"x", Tensor::Of<float>({rows, 1}, x), {1}}, {"y", Tensor::Of<float>({rows, 1}, y), {1}}},
      "a line");
  job.training.optimizers = {MomentumOptions{.learning_rate = 0.1}};
  job.batch_size = 4;
  job.epochs = 1;
  job.shuffle = false;
  return job;
}

std::string Messages(const JobConfig& job, TrainResult* result) {
  std::string messages;
  TrainCallbacks callbacks;
  callbacks.on_message = [&](const std::string& line) { messages += line + "\n"; };
  *result = RunJob(job, {}, callbacks);
  return messages;
}

bool SameParameters(const TrainResult& a, const TrainResult& b) {
  for (const std::string& name : a.main.Parameters())
    if (!BitEqual(a.scope.Get(name), b.scope.Get(name))) return false;
  return !a.main.Parameters().empty();
}

TEST(NonFinite, NumbersAreReadable) {
  EXPECT_EQ(FormatNumber(4.095e31), "4.095e31");
  EXPECT_EQ(FormatNumber(1e-6), "1e-06");
  EXPECT_EQ(FormatNumber(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(FormatNumber(-kInf), "-inf");
  EXPECT_EQ(FormatShort(0.69314), "0.6931");
  EXPECT_EQ(FormatShort(0), "0.0000");
  EXPECT_EQ(FormatShort(4.095e31), "4.095e31");
  EXPECT_EQ(FormatShort(1.234567e-5), "1.235e-05");
  EXPECT_EQ(FormatShort(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(NonFinite, StopSaysSoAndSavesNothing) {
  TempDir dir;
  JobConfig job = Line(24, {9});
  job.output_dir = dir.path();
  job.deploy_inputs = {"x"};
  job.deploy_outputs = {"p"};
  ExpectContains(ErrorOf([&] { RunJob(job); }), "job: the loss is nan at step 3; lower the");
  EXPECT_FALSE(FileExists(dir / "model.pdmodel"));
  EXPECT_FALSE(FileExists(dir / "snapshots/step_00000003"));
  ExpectContains(ReadFile(dir / "log.jsonl", 1 << 20), "the loss is nan at step 3");
}

TEST(NonFinite, SkipLeavesTheUpdateOut) {
  JobConfig job = Line(24, {9});  // the third batch of six
  job.training.non_finite_loss = NonFiniteLoss::kSkip;
  TrainResult skipped;
  EXPECT_EQ(Messages(job, &skipped), "the loss is nan at step 3: the step is skipped\n");
  EXPECT_EQ(skipped.non_finite_steps, 1);
  EXPECT_EQ(skipped.first_non_finite_step, 3);
  EXPECT_TRUE(std::isfinite(skipped.loss));
  // The same without that batch: the rows of a line repeat after two batches.
  JobConfig without = Line(24);
  without.max_iter = 2;
  TrainResult two = RunJob(without);
  EXPECT_FALSE(SameParameters(skipped, two));
  std::vector<float> x, y;
  for (int64_t i = 0; i < 24; ++i) {
    if (i / 4 == 2) continue;
    x.push_back(static_cast<float>(i % 8) / 8);
    y.push_back(3 * x.back() + 1);
  }
  without = Line(20);
  without.train.custom = MakeMemorySource(
      {{"x", Tensor::Of<float>({20, 1}, x), {1}}, {"y", Tensor::Of<float>({20, 1}, y), {1}}},
      "a line");
  EXPECT_TRUE(SameParameters(skipped, RunJob(without)));
}

// One bad batch of two leaves their common update out, and the next begins with empty sums.
TEST(NonFinite, SkipWithAccumulation) {
  JobConfig job = Line(24, {9}), whole = Line(24);
  for (JobConfig* each : {&job, &whole}) {
    each->training.iter_size = 2;
    each->training.non_finite_loss = NonFiniteLoss::kSkip;
  }
  const TrainResult skipped = RunJob(job);
  EXPECT_EQ(skipped.non_finite_steps, 1);
  EXPECT_EQ(skipped.first_non_finite_step, 2);
  whole.max_iter = 2;  // rows repeat: its two updates see what the two of `job` see
  EXPECT_TRUE(SameParameters(skipped, RunJob(whole)));
}

TEST(NonFinite, SkipEndsWhenNothingElseComes) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < 100; ++i) all.push_back(i);
  JobConfig job = Line(100, all);
  job.training.non_finite_loss = NonFiniteLoss::kSkip;
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "the loss is nan at step 20, and was not finite in the 19 steps before");
}

TEST(NonFinite, WarnGoesOnAndTheExitCodeTells) {
  TempDir dir;
  JobConfig job = Line(24, {9});
  job.training.non_finite_loss = NonFiniteLoss::kWarn;
  job.output_dir = dir.path();
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunNotFinite);
  ExpectContains(out.str(), "the loss is nan at step 3: its update is made all the same");
  EXPECT_EQ(out.str().find("the loss is nan at step 4"), std::string::npos);
  ExpectContains(out.str(), "the parameter 'fc_0.w_0' is not finite after step 6");
  ExpectContains(out.str(),
                 "\nfinal: loss=nan (the loss was not finite in 4 of 6 steps, first at "
                 "step 3)\n");
}

// No loss that would show it follows the last update.
TEST(NonFinite, ParametersAreLookedAtBeforeTheyAreSaved) {
  TempDir dir;
  JobConfig job = Line(24);
  job.output_dir = dir.path();
  job.max_iter = 1;
  job.training.optimizers = {SgdOptions{.learning_rate = 3e38}};
  ExpectContains(ErrorOf([&] { RunJob(job); }), "' is not finite after step 1; nothing of it is");
  EXPECT_FALSE(FileExists(dir / "snapshots/step_00000001"));
  EXPECT_FALSE(FileExists(dir / "eval.pdmodel"));
}

// An evaluation that is nan is reported, is never the best, and shows in the exit code.
TEST(NonFinite, EvaluationsThatAreNoNumbersAreTold) {
  JobConfig job = Line(24), bad = Line(8, {1});
  job.test.custom = bad.train.custom;
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunNotFinite);
  ExpectContains(out.str(), "the loss on test is nan at step 6");
  ExpectContains(out.str(), "final: loss=nan\n");
}

TEST(NonFinite, OnlyNumbersAreWatched) {
  JobConfig job;
  job.best = BestConfig{{"loss", WatchGoal::kMinimize, 0}, false};
  job.early_stop = EarlyStopConfig{{}, 3};
  Watch watch(job, {"test"}, {{"loss"}});
  EXPECT_FALSE(watch.Add(1, {{"loss", std::numeric_limits<double>::quiet_NaN()}}));
  EXPECT_FALSE(watch.Add(2, {{"loss", -kInf}}));
  EXPECT_FALSE(watch.Add(3, {{"loss", kInf}}));
  EXPECT_TRUE(watch.should_stop());
  ExpectContains(watch.StopMessage(), "(none was a finite number)");
  EXPECT_TRUE(watch.Add(4, {{"loss", 2}}));
  EXPECT_FALSE(watch.Add(5, {{"loss", -kInf}}));
  EXPECT_FALSE(watch.Add(6, {{"loss", std::numeric_limits<double>::quiet_NaN()}}));
  EXPECT_EQ(watch.best().value, 2);
}

// A saved model whose scores are nans gets nothing right, however low the labels.
TEST(NonFinite, SavedModelsWithoutNumbersAreNotAccurate) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.max_iter = 1;
  job.output_dir = dir.path();
  TrainResult result = RunJob(job);
  Scope scope;
  const InferenceModel model = LoadInferenceModel(result.model_path, scope);
  const std::string weights = model.program.Parameters().back();
  Tensor nans = scope.Get(weights);
  for (float& value : nans.span<float>()) value = kNan;
  scope.Set(weights, nans);
  SaveInferenceModel(dir / "nan", model.feed_names, model.fetch_names, model.program, scope);
  const std::vector<NamedValue> values = EvaluateSavedModel(dir / "nan.pdmodel", job);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].name, "accuracy");
  EXPECT_EQ(values[0].value, 0);
}
}  // namespace coracle::non_finite_test
