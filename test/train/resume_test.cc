// Runs that go on from a snapshot: what was best, where they write, what they have counted.

#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/log/run_log.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/snapshot/manifest.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/trainer.h>
#include <coracle/train/run/watch.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace coracle::resume_test {

namespace fs = std::filesystem;

struct Told {
  std::vector<EvalReport> evals;
  std::string messages;
  TrainResult result;
};

Told Train(const JobConfig& job, const TrainOptions& options = {}, int64_t stop_at = -1) {
  Told told;
  int64_t step = 0;
  TrainCallbacks callbacks;
  callbacks.on_eval = [&](const EvalReport& report) { told.evals.push_back(report); };
  callbacks.on_message = [&](const std::string& line) { told.messages += line + "\n"; };
  callbacks.on_step = [&](const StepReport& report) { step = report.step; };
  callbacks.stop = [&] { return step == stop_at; };
  told.result = RunJob(job, options, callbacks);
  return told;
}

TrainOptions Resume(const std::string& from = "") {
  TrainOptions options;
  options.resume = true;
  options.resume_from = from;
  return options;
}

void ExpectParametersOf(const std::string& snapshot, const TrainResult& result) {
  const SavedSnapshot saved = ReadSnapshot(snapshot);
  for (const std::string& name : result.main.Parameters())
    EXPECT_TRUE(BitEqual(result.scope.Get(name), saved.variables.Get(name))) << name;
}

class BestAfterResume : public ::testing::Test {
 protected:
  void SetUp() override {
    job_ = SmallJob();
    job_.output_dir = dir_ / "run";
    job_.test_interval = 1;
    job_.max_iter = 6;
    job_.best = BestConfig{{"loss", WatchGoal::kMinimize, 0}, true};
  }
  // The best evaluation is the first, and the run goes on for long after it.
  void WatchForTheWorst() { job_.best->watch.goal = WatchGoal::kMaximize; }

  TempDir dir_;
  JobConfig job_;
};

// The run was stopped before the evaluation that was due, which the next run makes first.
TEST_F(BestAfterResume, AnEvaluationThatWasOverdueHasItsSnapshot) {
  EXPECT_TRUE(Train(job_, {}, 3).result.stopped);
  EXPECT_NE(BestSnapshot(dir_ / "run/snapshots"), dir_ / "run/snapshots/step_00000003");
  job_.max_iter = 3;
  const Told told = Train(job_, Resume());
  ASSERT_EQ(told.evals.size(), 1u);
  EXPECT_TRUE(told.evals[0].best);
  EXPECT_EQ(told.result.best.step, 3);
  EXPECT_EQ(BestSnapshot(dir_ / "run/snapshots"), dir_ / "run/snapshots/step_00000003");
  EXPECT_EQ(told.messages.find("restored"), std::string::npos) << told.messages;
  ExpectParametersOf(dir_ / "run/snapshots/step_00000003", told.result);
}

TEST_F(BestAfterResume, TheInitialEvaluationHasItsSnapshot) {
  WatchForTheWorst();
  job_.initial_test = true;
  const Told told = Train(job_);
  EXPECT_EQ(told.result.best.step, 0);
  const std::string best = dir_ / "run/snapshots/step_00000000";
  ExpectContains(told.messages, "restored " + best);
  ExpectParametersOf(best, told.result);
  EXPECT_EQ(told.result.loss, told.evals[0].values[0].value);
}

// The file that names the best snapshot may be lost, or may lag after a run was killed.
TEST_F(BestAfterResume, NoOtherSnapshotPassesForTheBest) {
  WatchForTheWorst();
  job_.keep_snapshots = 0;
  job_.snapshot_interval = 1;
  Train(job_, {}, 4);  // the best is step 1
  WriteFileAtomic(dir_ / "run/snapshots/BEST", "step_00000003\n");
  const Told told = Train(job_, Resume());
  ExpectContains(told.messages, "restored " + dir_ / "run/snapshots/step_00000001");
  // Nor after it is gone.
  fs::remove_all(dir_ / "run/snapshots/step_00000001");
  const Told gone = Train(job_, Resume());
  ExpectContains(gone.messages, "at step 1, is dropped: it has no snapshot");
  EXPECT_EQ(gone.messages.find("restored"), std::string::npos) << gone.messages;
  ExpectParametersOf(dir_ / "run/snapshots/step_00000006", gone.result);
}

// The restored model is evaluated once more: for what is printed last, and nothing else.
TEST_F(BestAfterResume, RestoredParametersAreNoNewEvaluation) {
  WatchForTheWorst();
  PlateauConfig plateau;
  plateau.options.factor = 0.5;
  plateau.options.patience = 0;
  plateau.options.minimize = false;
  job_.training.optimizers[0].plateau = plateau;
  const Told told = Train(job_);
  ASSERT_EQ(told.evals.size(), 7u);
  EXPECT_TRUE(told.evals.back().restored);
  EXPECT_FALSE(told.evals[5].restored);
  EXPECT_EQ(told.result.best.worse, 5);
  EXPECT_EQ(told.messages.find("plateau", told.messages.find("restored")), std::string::npos)
      << told.messages;
  ExpectContains(ReadFile(dir_ / "run/log.jsonl"), "\"restored\":true");
  for (const LogSeries& series : ReadRunLog(dir_ / "run/log.jsonl")) {
    if (!series.name.starts_with("test/")) continue;
    EXPECT_EQ(series.points.size(), 6u) << series.name;
  }
}

// A last evaluation off the interval is none that a longer run makes: the run that goes on has the
// rates of one that was never over, and stops where that stops.
TEST(Resume, TheLastEvaluationLowersNoRate) {
  const TempDir dir;
  const auto make = [&](const std::string& name, int64_t max_iter) {
    JobConfig job = SmallJob();
    job.output_dir = dir / name;
    job.test_interval = 2;
    job.max_iter = max_iter;
    job.epochs = 0;
    PlateauConfig plateau;
    plateau.options.factor = 0.5;
    plateau.options.patience = 0;
    plateau.options.threshold = 0.9;  // nothing is an improvement
    job.training.optimizers[0].plateau = plateau;
    job.early_stop = EarlyStopConfig{{"loss", WatchGoal::kMaximize, 0}, 5};  // it falls
    return job;
  };
  const TrainResult whole = Train(make("whole", 20)).result;
  Train(make("parts", 5));
  Train(make("parts", 9), Resume());
  const TrainResult parts = Train(make("parts", 20), Resume()).result;
  EXPECT_EQ(parts.steps, whole.steps);
  EXPECT_EQ(parts.loss, whole.loss);
  for (const std::string& name : PersistableNames(whole.main))
    EXPECT_TRUE(BitEqual(parts.scope.Get(name), whole.scope.Get(name))) << name;
}

// Where the last evaluation is the best so far, early_stop ends the run at the same step.
TEST(Resume, TheLastEvaluationPutsOffNoStop) {
  JobConfig job;
  job.best = BestConfig{{"loss", WatchGoal::kMinimize, 0}, false};
  job.early_stop = EarlyStopConfig{{"loss", WatchGoal::kMinimize, 0}, 2};
  const auto through_a_snapshot = [&](const Watch& watch) {
    TrainSnapshot snapshot;
    snapshot.best = watch.best();
    Watch resumed(job, {"test"}, {{"loss"}});
    resumed.Load(
        ParseManifest(WriteManifest({snapshot, {{"f", {}}}}, ProgramDesc()), "m").state.best);
    return resumed;
  };
  // The losses at steps 2, 4 and so on; before one of them a run ends, with a better loss.
  const auto stop_of = [&](const std::vector<double>& losses, size_t resumed_at) {
    Watch watch(job, {"test"}, {{"loss"}});
    for (size_t i = 0; i < losses.size(); ++i) {
      const auto step = static_cast<int64_t>(2 * i + 2);
      if (i == resumed_at) {
        EXPECT_TRUE(watch.Add(step - 1, {{"loss", 0.5}}, false));
        watch = through_a_snapshot(watch);
        EXPECT_EQ(watch.best().step, step - 1);
      }
      watch.Add(step, {{"loss", losses[i]}});
      if (watch.should_stop()) return step;
    }
    return int64_t{-1};
  };
  for (const std::vector<double>& losses : {std::vector<double>{5, 6, 7, 8},
                                            {5, 6, 4, 7, 3, 8, 9},
                                            {5, 4, 3, 2},
                                            {NAN, NAN, 1},
                                            {NAN, 3, 2, 4, 1}}) {
    const int64_t whole = stop_of(losses, losses.size());
    for (size_t at = 0; at < losses.size() && at < static_cast<size_t>(whole) / 2; ++at)
      EXPECT_EQ(stop_of(losses, at), whole) << losses[1] << " " << at;
  }
}

// An early stop goes by one metric.
TEST(Resume, AnotherMetricBeginsAnew) {
  const auto make = [](const std::string& metric) {
    JobConfig job;
    job.best = BestConfig{{metric, WatchGoal::kMinimize, 0}, false};
    job.early_stop = EarlyStopConfig{{metric, WatchGoal::kMinimize, 0}, 2};
    return Watch(job, {"test"}, {{"loss", "accuracy"}});
  };
  const auto evaluate = [](Watch* watch, double value) {
    watch->Add(2, {{"loss", value}, {"accuracy", value}});
  };
  for (const bool forgets : {false, true}) {
    SCOPED_TRACE(forgets);
    Watch watch = make("loss");
    evaluate(&watch, 0.1);
    evaluate(&watch, 0.2);
    if (forgets) watch.Forget();
    TrainSnapshot snapshot;
    snapshot.best = watch.best();
    const BestRecord best =
        ParseManifest(WriteManifest({snapshot, {{"f", {}}}}, ProgramDesc()), "m").state.best;
    Watch same = make("loss"), other = make("accuracy");
    same.Load(best);
    other.Load(best);
    EXPECT_EQ(same.best().worse, 1);
    EXPECT_EQ(same.best().counted, 0.1);
    EXPECT_EQ(same.best().metric, forgets ? "" : "loss");
    EXPECT_EQ(other.best().worse, 0);
    EXPECT_EQ(other.best().counted, std::nullopt);
    evaluate(&same, 0.3);
    EXPECT_TRUE(same.should_stop());
    evaluate(&other, 0.3);
    EXPECT_FALSE(other.should_stop());
    EXPECT_EQ(other.best().metric, "accuracy");
    EXPECT_EQ(other.best().counted, 0.3);
  }
}

// One of the snapshots may be the best; that does not end the run.
TEST_F(BestAfterResume, TheLastEvaluationMayBeTheBest) {
  job_.test_interval = 4;
  const TrainResult result = Train(job_).result;
  EXPECT_EQ(result.best.step, 6);
  EXPECT_EQ(BestSnapshot(dir_ / "run/snapshots"), dir_ / "run/snapshots/step_00000006");
  WatchForTheWorst();
  job_.output_dir = dir_ / "worst";
  EXPECT_EQ(Train(job_).result.best.worse, 0);
}

TEST_F(BestAfterResume, TheBestSnapshotComesAlongElsewhere) {
  WatchForTheWorst();
  Train(job_, {}, 4);
  const std::string there = dir_ / "run/snapshots";
  job_.output_dir = dir_ / "other";
  const Told told = Train(job_, Resume(there));
  EXPECT_EQ(told.result.best.step, 1);
  ExpectContains(told.messages, "restored " + dir_ / "other/snapshots/step_00000001");
  ExpectParametersOf(there + "/step_00000001", told.result);
  // Without it, the best starts over.
  fs::remove_all(there + "/step_00000001");
  job_.output_dir = dir_ / "third";
  const Told without = Train(job_, Resume(there));
  ExpectContains(without.messages, "at step 1, is dropped: it has no snapshot");
  EXPECT_EQ(without.result.best.step, 4);
}

TEST_F(BestAfterResume, AnotherRunsOutputIsNotMixedIn) {
  Train(job_, {}, 4);
  JobConfig other = job_;
  other.output_dir = dir_ / "other";
  other.model_text.replace(other.model_text.find("size: 16"), 8, "size: 17");
  Train(other);
  const std::string log = ReadFile(dir_ / "other/log.jsonl");
  job_.output_dir = dir_ / "other";
  const TrainOptions resume = Resume(dir_ / "run");
  ExpectContains(ErrorOf([&] { RunJob(job_, resume); }), "holds another run's output");
  EXPECT_EQ(ReadFile(dir_ / "other/log.jsonl"), log);
  // In its own directory it goes on however that is named.
  job_.output_dir = dir_ / "run/../run";
  EXPECT_EQ(RunJob(job_, Resume(dir_ / "run/snapshots/")).steps, 6);
  job_.output_dir = dir_ / "other";
  TrainOptions overwrite = resume;
  overwrite.overwrite = true;
  EXPECT_EQ(RunJob(job_, overwrite).steps, 6);
  EXPECT_FALSE(BestSnapshot(dir_ / "other/snapshots").empty());
}

// Nothing can be restored from another model.
TEST_F(BestAfterResume, AnOverrideForgetsTheBestOfAnotherModel) {
  WatchForTheWorst();
  Train(job_, {}, 4);
  job_.model_text.replace(job_.model_text.find("size: 16"), 8, "size: 17");
  TrainOptions resume = Resume();
  resume.override_mismatch = true;
  const Told told = Train(job_, resume);
  ExpectContains(told.messages, "the best evaluation so far is of another model, and is dropped");
  EXPECT_EQ(told.result.best.step, 4);
  EXPECT_TRUE(FileExists(dir_ / "run/model.pdmodel"));
}

TEST(Resume, OverwriteLeavesNothingBehind) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.max_iter = 1;
  job.output_dir = dir.path();
  RunJob(job);
  fs::create_directories(dir / "snapshots/BEST");  // removed with all in it
  WriteFileAtomic(dir / "snapshots/BEST/x", "x");
  TrainOptions overwrite;
  overwrite.overwrite = true;
  RunJob(job, overwrite);
  EXPECT_FALSE(FileExists(dir / "snapshots/BEST"));
}

TEST(Resume, PipesAmongItsFilesAreRefused) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.max_iter = 1;
  job.output_dir = dir.path();
  ASSERT_EQ(::mkfifo((dir / "log.jsonl").c_str(), 0600), 0);
  TrainOptions overwrite;
  overwrite.overwrite = true;
  ExpectContains(ErrorOf([&] { RunJob(job, overwrite); }),
                 "log.jsonl' is neither a file nor a directory");
}

// One such step in each of the two parts.
TEST(Resume, StepsWithoutAFiniteLossAreCountedOn) {
  TempDir dir;
  JobConfig job = SmallJob();
  std::vector<float> x(32), y(32);
  for (const size_t row : {4, 5, 28}) x[row] = std::numeric_limits<float>::quiet_NaN();
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "y" shape: [-1, 1] }
layer { fc { input: "x" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
  job.train = job.test = {};
  job.train.custom = MakeMemorySource(
      {{"x", Tensor::Of<float>({32, 1}, x), {1}}, {"y", Tensor::Of<float>({32, 1}, y), {1}}},
      "a line");
  job.metrics = {};
  job.deploy_inputs = job.deploy_outputs = {};
  job.batch_size = 4;
  job.epochs = 1;
  job.shuffle = false;
  job.output_dir = dir.path();
  job.training.non_finite_loss = NonFiniteLoss::kSkip;
  EXPECT_TRUE(Train(job, {}, 4).result.stopped);
  const TrainResult result = Train(job, Resume()).result;
  EXPECT_EQ(result.non_finite_steps, 2);
  EXPECT_EQ(result.first_non_finite_step, 2);
  // At the end only the snapshot shows it.
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, Resume(), out, false), kRunNotFinite);
  ExpectContains(out.str(), "(the loss was not finite in 2 of 8 steps, first at step 2)");
}

// Only the last byte of a continued log is read.
TEST(Resume, LogsOfAnySizeGoOn) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  EXPECT_TRUE(Train(job, {}, 2).result.stopped);
  job.max_iter = 3;
  const std::string log = dir / "log.jsonl";
  fs::resize_file(log, uint64_t{5} << 30);
  EXPECT_EQ(Train(job, Resume()).result.steps, 3);
  EXPECT_GT(fs::file_size(log), uint64_t{5} << 30);
}
}  // namespace coracle::resume_test
