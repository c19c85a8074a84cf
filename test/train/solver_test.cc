// The training loop apart from its steps: test sets, phases, watched values, weights,
// freezing, messages.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/trainer.h>
#include <signal.h>

#include <cmath>
#include <sstream>

namespace coracle::solver_test {

struct Log {
  std::vector<EvalReport> evals;
  std::string messages;
  std::vector<ClipReport> clips;  // of the last display
  TrainResult result;
};

Log Train(const JobConfig& job, const TrainOptions& options = {}) {
  Log log;
  TrainCallbacks callbacks;
  callbacks.on_eval = [&](const EvalReport& report) { log.evals.push_back(report); };
  callbacks.on_message = [&](const std::string& line) { log.messages += line + "\n"; };
  callbacks.on_step = [&](const StepReport& report) {
    if (report.show) log.clips = report.clips;
  };
  log.result = RunJob(job, options, callbacks);
  return log;
}

TEST(Solver, SeveralTestSets) {
  JobConfig job = SmallJob();
  job.max_iter = 8;
  job.test_interval = 4;
  job.initial_test = true;
  job.test_sets.push_back({"few", {}, 10, 2, {}, ""});
  job.test_sets[0].data.source = DigitsOptions{.count = 70};
  const Log log = Train(job);
  ASSERT_EQ(log.evals.size(), 6u);  // both sets at steps 0, 4 and 8
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(log.evals[i].set, i % 2 ? "few" : "test");
    EXPECT_EQ(log.evals[i].step, static_cast<int64_t>(i / 2 * 4));
    EXPECT_EQ(log.evals[i].rows, i % 2 ? 20 : 70);
    EXPECT_EQ(log.evals[i].values[1].name, "accuracy");
  }
  EXPECT_EQ(log.result.loss, log.evals[4].values[0].value);  // of the first
  ASSERT_EQ(log.result.evaluations.size(), 2u);
  EXPECT_EQ(log.result.evaluations[1].values[0].value, log.evals[5].values[0].value);
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunDone);
  ExpectContains(out.str(), " step 4/8 few loss=");
  ExpectContains(out.str(), "\nfinal few: loss=");
  job.test_sets[0].name = "test";
  ExpectContains(ErrorOf([&] { RunJob(job); }), "two test sets are called 'test'");
}

// Metrics computed from scores agree with the layers that compute them in the program.
TEST(Solver, MetricsFromScoresAgreeWithLayers) {
  JobConfig job = SmallJob();
  job.max_iter = 30;
  job.metrics.push_back({"prob", "acc1", MetricKind::kAccuracy, "label", 1});
  job.metrics.push_back({"prob", "acc10", MetricKind::kAccuracy, "label", 10});
  job.metrics.push_back({"loss", "ppl", MetricKind::kPerplexity});
  const Log log = Train(job);
  const auto& values = log.evals.back().values;
  ASSERT_EQ(values.size(), 5u);
  EXPECT_NEAR(values[2].value, values[1].value, 1e-6);
  EXPECT_EQ(values[3].value, 1);
  EXPECT_DOUBLE_EQ(values[4].value, std::exp(values[0].value));
}

// Caffe's "init" test of its solver: train has the loss, one test set both, the other accuracy.
TEST(Solver, PhasesAndStagesGiveEachSetItsProgram) {
  JobConfig job = SmallJob();
  std::string& text = job.model_text;
  const std::string acc = "label: \"label\" output: \"acc\" } }";
  text.replace(text.find(acc), acc.size(),
               "label: \"label\" output: \"acc\" } include_if { phase: TEST } }");
  const std::string mean = "layer { mean { input: \"ce\" output: \"loss\" } }";
  text.replace(text.find(mean), mean.size(),
               "layer { mean { input: \"ce\" output: \"loss\" } exclude_if { stage: \"acc\" } }");
  job.max_iter = 2;
  job.test_sets.push_back({"only", job.test, 0, 0, {"acc"}, ""});
  const Log log = Train(job);
  EXPECT_EQ(log.result.main.Root().FindVar("acc"), nullptr);
  ASSERT_EQ(log.evals.size(), 2u);
  ASSERT_EQ(log.evals[0].values.size(), 2u);
  ASSERT_EQ(log.evals[1].values.size(), 1u);
  EXPECT_EQ(log.evals[1].values[0].name, "accuracy");
  EXPECT_EQ(log.evals[1].values[0].value, log.evals[0].values[1].value);
}

TEST(Solver, ParametersThatNothingTrainsAreRefused) {
  JobConfig job = SmallJob();
  job.source = "j";
  job.model_text +=
      "layer { fc { input: \"h\" size: 3 output: \"more\" } include_if { phase: TEST } }\n";
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "'fc_2.w_0' of the phase TEST is float32[16, 3], but nothing trains it");
}

// The loss of an untrained network rises and falls with the learning rate set by hand; the test
// checks how evaluations 1 .. n are compared.
TEST(Solver, EarlyStopCountsEvaluationsWithoutImprovement) {
  JobConfig job = SmallJob();
  job.test_interval = 1;
  job.early_stop = {{"loss", WatchGoal::kMinimize, 1e9}, 3};  // nothing improves by so much
  const Log log = Train(job);
  EXPECT_EQ(log.result.steps, 4);  // the first evaluation and three more
  EXPECT_FALSE(log.result.stopped);
  EXPECT_EQ(log.result.best.step, 1);
  EXPECT_EQ(log.result.best.worse, 3);
  ExpectContains(log.messages, "early stop: 3 evaluations without an improvement of loss (best ");
  job.early_stop->watch.metric = "test/lost";
  ExpectContains(ErrorOf([&] { RunJob(job); }), "no test set gives 'test/lost'; there are loss");
}

TEST(Solver, EarlyStopGoesOnAfterResume) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.test_interval = 2;
  job.early_stop = {{"loss", WatchGoal::kMinimize, 1e9}, 4};
  const int64_t end = Train(job).result.steps;
  EXPECT_EQ(end, 10);
  job.snapshot_dir = dir / "s";
  job.max_iter = 6;
  Train(job);
  job.max_iter = 0;
  TrainOptions resume;
  resume.resume = true;
  EXPECT_EQ(Train(job, resume).result.steps, end);
  EXPECT_EQ(Train(job, resume).result.steps, end);  // it stays where it ended
}

TEST(Solver, TheBestSnapshotIsKeptAndRestored) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.snapshot_dir = dir / "s";
  job.test_interval = 1;
  job.keep_snapshots = 1;
  job.max_iter = 12;
  job.best = BestConfig{{"loss", WatchGoal::kMaximize, 0}, true};  // the worst loss: an early one
  const Log log = Train(job);
  double worst = 0;
  int64_t at = 0;
  for (const EvalReport& report : log.evals) {
    if (report.values[0].value <= worst || report.step > 12) continue;
    worst = report.values[0].value;
    at = report.step;
  }
  EXPECT_EQ(log.result.best.step, at);
  EXPECT_EQ(log.result.best.value, worst);
  ASSERT_LT(at, 12);
  const SavedSnapshot best = ReadSnapshot(BestSnapshot(job.snapshot_dir));
  EXPECT_EQ(best.state.step, at);
  EXPECT_TRUE(FileExists(dir / "s/step_00000012"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(job.snapshot_dir), {}), 4);
  for (const std::string& name : log.result.main.Parameters())
    EXPECT_TRUE(BitEqual(log.result.scope.Get(name), best.variables.Get(name))) << name;
  EXPECT_EQ(log.result.loss, worst);
  ExpectContains(log.messages, "restored " + BestSnapshot(job.snapshot_dir));
}

TEST(Solver, MaxSecondsSavesAndStops) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.snapshot_dir = dir / "s";
  job.max_seconds = 1e-9;
  const Log log = Train(job);
  EXPECT_TRUE(log.result.stopped);
  EXPECT_EQ(log.result.steps, 1);
  EXPECT_EQ(FindSnapshot(job.snapshot_dir), dir / "s/step_00000001");
  ExpectContains(log.messages, "max_seconds: 1e-09 seconds have passed");
}

// Stopped in the middle of an evaluation: the step is saved, and evaluated when the run goes on.
TEST(Solver, AStopIsNoticedDuringEvaluation) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.test_batch_size = 1;  // 70 batches
  job.test_interval = 4;
  job.max_iter = 8;
  const Log whole = Train(job);
  job.snapshot_dir = dir / "s";
  int64_t asked = 0, step = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) { step = report.step; };
  callbacks.stop = [&] { return ++asked > 4 + 30; };  // four steps, thirty batches
  const TrainResult result = RunJob(job, {}, callbacks);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 4);
  EXPECT_LE(asked, 40);
  TrainOptions resume;
  resume.resume = true;
  const Log rest = Train(job, resume);
  ASSERT_EQ(rest.evals.size(), 2u);  // of step 4 and of step 8
  EXPECT_EQ(rest.evals[0].step, 4);
  EXPECT_EQ(rest.evals[0].values[0].value, whole.evals[0].values[0].value);
  EXPECT_EQ(rest.evals[1].values[0].value, whole.evals[1].values[0].value);
}

TEST(Solver, SnapshotsOnDemandGoOn) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.keep_snapshots = 0;
  struct HangUpAt10 : std::stringbuf {
    int sync() override {
      if (!sent && str().find("step 10/24") != std::string::npos) {
        sent = true;
        raise(SIGHUP);
      }
      return 0;
    }
    bool sent = false;
  } buffer;
  std::ostream out(&buffer);
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunDone);
  EXPECT_TRUE(FileExists(dir / "snapshots/step_00000010"));
  ExpectContains(buffer.str(), "final: loss=");
}

TEST(Solver, SignalsDoWhatTheJobSays) {
  JobConfig job = SmallJob();
  job.signals.interrupt = SignalEffect::kNone;
  struct InterruptAt10 : std::stringbuf {
    int sync() override {
      if (str().find("step 10/24") != std::string::npos) raise(SIGINT);
      return 0;
    }
  } buffer;
  std::ostream out(&buffer);
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunDone);
}

TEST(Solver, FrozenParametersStay) {
  JobConfig job = SmallJob();
  job.max_iter = 5;
  job.freeze = {"fc_0\\..*"};
  const Log log = Train(job);
  JobConfig untrained = SmallJob();
  untrained.max_iter = 1;
  untrained.freeze = {".*_0\\.[wb]_0"};
  const Log start = Train(untrained);
  for (const char* name : {"fc_0.w_0", "fc_0.b_0"})
    EXPECT_TRUE(BitEqual(log.result.scope.Get(name), start.result.scope.Get(name))) << name;
  EXPECT_FALSE(BitEqual(log.result.scope.Get("fc_1.w_0"), start.result.scope.Get("fc_1.w_0")));
  job.freeze = {"fc_0"};
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "freeze 'fc_0' matches none of the parameters: fc_");
  job.freeze = {"fc_["};
  ExpectContains(ErrorOf([&] { RunJob(job); }), "freeze 'fc_[' is not a regular expression");
  job.freeze = {".*"};
  ExpectContains(ErrorOf([&] { RunJob(job); }), "depends on no trainable parameter");
}

TEST(Solver, WeightsByNameFromAllKindsOfFiles) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.epochs = 1;
  const TrainResult source = RunJob(job);
  const Tensor& w = source.scope.Get("fc_0.w_0");
  WriteNpz({{"fc_0.w_0", w}, {"other", Tensor::Of<float>({1}, {1})}}, dir / "some.npz");

  JobConfig next = SmallJob();
  next.freeze = {"fc_0.*"};
  next.max_iter = 1;
  for (const std::string& file : {dir / "snapshots", source.snapshot_path, dir / "model.pdmodel",
                                  dir / "model.pdiparams", dir / "some.npz"}) {
    next.weights = {{file, false}};
    const Log log = Train(next);
    EXPECT_TRUE(BitEqual(log.result.scope.Get("fc_0.w_0"), w)) << file;
    if (file.ends_with(".npz"))
      EXPECT_EQ(log.messages, "weights " + file +
                                  ": 1 of 4 variables loaded; not in the file: fc_0.b_0, fc_1.b_0, "
                                  "fc_1.w_0; not in the model: other\n");
    else
      EXPECT_EQ(log.messages, "weights " + file + ": 4 of 4 variables loaded\n");
  }
  std::filesystem::rename(dir / "model.pdmodel", dir / "elsewhere");
  next.weights = {{dir / "model.pdiparams", false}};
  ExpectContains(ErrorOf([&] { RunJob(next); }), "holds no names: its program ");
  next.weights = {{dir / "nowhere.npz", false}};
  ExpectContains(ErrorOf([&] { RunJob(next); }), "nowhere.npz");
  WriteNpz({{"fc_0.w_0", Tensor::Of<float>({1}, {1})}, {"fc_0.b_0", source.scope.Get("fc_0.b_0")}},
           dir / "bad.npz");
  next.weights = {{dir / "bad.npz", false}};
  ExpectContains(ErrorOf([&] { RunJob(next); }),
                 "'fc_0.w_0' must have the shape [784, 16], got [1]; skip_mismatched");
  next.weights[0].skip_mismatched = true;
  ExpectContains(Train(next).messages, "1 of 4 variables loaded; of another type: fc_0.w_0; not");
  WriteNpz({{"x", w}}, dir / "none.npz");
  next.weights = {{dir / "none.npz", false}};
  ExpectContains(ErrorOf([&] { RunJob(next); }), "0 of 4 variables loaded");
}

TEST(Solver, ClipsAreToldWithNormThresholdAndFactor) {
  JobConfig job = SmallJob();
  job.training.optimizers[0].gradient_clip = Setting{"by_global_norm", {{"clip_norm", 0.25}}};
  job.max_iter = 5;  // one display
  const ClipReport clip = Train(job).clips.at(0);
  EXPECT_EQ(clip.name, "default_group");
  EXPECT_EQ(clip.times, 5);
  EXPECT_EQ(clip.acted, 5);
  EXPECT_GT(clip.norm, 0.25);
  EXPECT_EQ(clip.limit, 0.25);
  EXPECT_NEAR(clip.factor, 0.25 / clip.norm, 1e-9);
  job.training.optimizers[0].gradient_clip = Setting{"by_global_norm", {{"clip_norm", 1e6}}};
  EXPECT_EQ(Train(job).clips.at(0).acted, 0);
}

TEST(Solver, ClipsOfSingleGradientsAreTold) {
  JobConfig job = SmallJob();
  job.training.optimizers[0].gradient_clip = Setting{"by_norm", {{"clip_norm", 1e-3}}};
  job.max_iter = 5;
  EXPECT_EQ(Train(job).clips.at(0).acted, 5);
  job.training.optimizers[0].gradient_clip = Setting{"by_norm", {{"clip_norm", 1e6}}};
  EXPECT_EQ(Train(job).clips.at(0).acted, 0);
}

// The clip then lies in the block of the last micro-batch: one norm a step, also after a resume.
TEST(Solver, ClipsAreToldOncePerUpdate) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.training.iter_size = 3;
  job.training.optimizers[0].gradient_clip = Setting{"by_global_norm", {{"clip_norm", 1e-3}}};
  job.snapshot_dir = dir / "s";
  job.max_iter = 5;
  EXPECT_EQ(Train(job).clips.at(0).acted, 5);
  job.max_iter = 8;
  TrainOptions resume;
  resume.resume = true;
  const Log log = Train(job, resume);
  EXPECT_EQ(log.clips.at(0).times, 3);
  EXPECT_EQ(log.clips.at(0).acted, 3);
  const TrainingParts parts = PartsOf(log.result.main);
  EXPECT_EQ(log.result.scope.Get(parts.norm_clips.at(0).counter).Item<int64_t>(), 8);
}

TEST(Solver, ClipsOfSeveralOptimizersAreToldByGroup) {
  JobConfig job = SmallJob();
  job.max_iter = 5;
  job.training.optimizers = {SgdOptions{}, SgdOptions{}};
  for (size_t i = 0; i < 2; ++i) {
    job.training.optimizers[i].params = {"fc_" + std::to_string(i) + ".*"};
    job.training.optimizers[i].gradient_clip =
        Setting{"by_global_norm", {{"clip_norm", i == 0 ? 0.001 : 0.002}}};
  }
  const Log log = Train(job);
  ASSERT_GE(log.clips.size(), 2u);
  EXPECT_EQ(log.clips[0].name, "default_group");
  EXPECT_FLOAT_EQ(static_cast<float>(log.clips[0].limit), 0.001f);
  EXPECT_EQ(log.clips[1].name, "default_group_1");
  EXPECT_FLOAT_EQ(static_cast<float>(log.clips[1].limit), 0.002f);
}

// Sizes that debug_info shows, compared with a run that fetches the values itself.
TEST(Solver, DebugInfoTellsMeansOfAbsoluteValues) {
  JobConfig job = SmallJob();
  job.max_iter = 1;
  job.debug_info = true;
  const Log log = Train(job);
  for (const char* part :
       {"debug: activation h: mean |x| ", "debug: activation loss: mean |x| ",
        "debug: gradient   h@GRAD: mean |x| ", "debug: gradient   fc_1.w_0@GRAD: mean |x| ",
        "debug: parameter  fc_1.w_0: mean |x| ", "debug: all parameters: L1 "})
    ExpectContains(log.messages, part);
  const Tensor& w = log.result.scope.Get("fc_1.w_0");
  double sum = 0;
  for (float v : w.span<float>()) sum += std::abs(double{v});
  char text[80];
  std::snprintf(text, sizeof text, "fc_1.w_0: mean |x| %.6g\n", sum / double(w.numel()));
  ExpectContains(log.messages, text);
  // The loss of one row is its own mean.
  std::snprintf(text, sizeof text, "activation loss: mean |x| %.6g\n", log.result.loss);
  JobConfig plain = SmallJob();
  plain.max_iter = 1;
  plain.test = {};
  plain.deploy_inputs = plain.deploy_outputs = {};
  std::snprintf(text, sizeof text, "activation loss: mean |x| %.6g\n", Train(plain).result.loss);
  ExpectContains(log.messages, text);
}

// The squares of these overflow float64.
TEST(Solver, DebugInfoHasNormsOfLargeNumbers) {
  JobConfig job;
  job.model_text = R"(
data { name: "x" shape: [-1, 1] dtype: FP64 }
layer { fc { input: "x" size: 2 bias_term: false output: "y" } }
layer { mean { input: "y" output: "loss" } }
)";
  job.train.custom = MakeMemorySource({{"x", Tensor::Full<double>({4, 1}, 1e200), {1}}}, "large");
  job.training.optimizers = {SgdOptions{.learning_rate = 0}};
  job.batch_size = 4;
  job.max_iter = 1;
  job.debug_info = true;
  ExpectContains(Train(job).messages, "their gradients: L1 1e+200 L2 7.07107e+199");
}

// The optimizer's results are checked too, not only forward and backward: here the loss and all
// gradients are finite, but the updated parameter is not.
TEST(Solver, CheckNanInfSeesTheOptimizersOutputs) {
  JobConfig job;
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
layer { fc { input: "x" size: 1 param { initializer { constant { value: 1 } } } output: "y" } }
layer { op { square { X: ["y"] Out: ["e"] } } }
layer { mean { input: "e" output: "loss" } }
)";
  job.train.custom = MakeMemorySource({{"x", Tensor::Full<float>({4, 1}, 1e6f), {1}}}, "large");
  job.training.optimizers = {SgdOptions{.learning_rate = 1e30}};
  job.batch_size = 4;
  job.max_iter = 1;
  TrainOptions options;
  options.compile.check_nan_inf = true;
  ExpectContains(ErrorOf([&] { RunJob(job, options); }), "sgd: output var 'fc_0.");
  job.training.non_finite_loss = NonFiniteLoss::kWarn;
  const TrainResult result = RunJob(job);
  EXPECT_FLOAT_EQ(result.loss, 1e12);
  EXPECT_TRUE(std::isinf(result.scope.Get("fc_0.w_0").Item<float>()));
}
}  // namespace coracle::solver_test
