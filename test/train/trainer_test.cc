#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/trainer.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <sstream>

namespace coracle::trainer_test {

struct Recorded {
  std::vector<double> losses;
  std::vector<double> shown;
  std::vector<double> tests;
  TrainResult result;
};

Recorded Record(const JobConfig& job, const TrainOptions& options = {}, int64_t stop_at = -1) {
  Recorded recorded;
  int64_t step = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    step = report.step;
    recorded.losses.push_back(report.loss);
    if (report.show) recorded.shown.push_back(report.MeanLoss());
  };
  callbacks.on_eval = [&](const EvalReport& report) {
    recorded.tests.push_back(report.values[0].value);
  };
  callbacks.stop = [&] { return step == stop_at; };
  recorded.result = RunJob(job, options, callbacks);
  return recorded;
}

void ExpectSameState(const TrainResult& a, const TrainResult& b) {
  std::vector<std::string> names = PersistableNames(a.main);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names)
    EXPECT_TRUE(BitEqual(a.scope.Get(name), b.scope.Get(name))) << name;
}

TEST(Trainer, LearnsAndCountsSteps) {
  JobConfig job = SmallJob();
  job.train.source = DigitsOptions{.count = 2000};
  job.epochs = 3;
  Recorded run = Record(job);
  EXPECT_EQ(run.result.steps, 300);
  EXPECT_EQ(run.losses.size(), 300u);
  EXPECT_EQ(run.tests.size(), 3u);
  EXPECT_FALSE(run.result.stopped);
  ASSERT_EQ(run.result.metrics.size(), 1u);
  EXPECT_EQ(run.result.metrics[0].name, "accuracy");
  EXPECT_GT(run.result.metrics[0].value, 0.5);
  EXPECT_EQ(run.result.loss, run.tests.back());
  EXPECT_LT(run.tests.back(), 0.7 * run.losses.front());
  EXPECT_TRUE(run.result.main_path.empty());
  EXPECT_TRUE(run.result.snapshot_path.empty());
}

TEST(Trainer, SameSeedSameBits) {
  Recorded a = Record(SmallJob()), b = Record(SmallJob());
  EXPECT_EQ(a.losses, b.losses);
  ExpectSameState(a.result, b.result);
  JobConfig other = SmallJob();
  other.random_seed = 2;
  EXPECT_NE(Record(other).losses, a.losses);
}

// Activations that are computed again are the same bits.
TEST(Trainer, RecomputeTrainsToTheSameBits) {
  const Recorded plain = Record(SmallJob());
  for (bool named : {true, false}) {
    SCOPED_TRACE(named ? "named" : "chosen");
    JobConfig job = SmallJob();
    if (named)
      job.recompute.checkpoints = {"d"};
    else
      job.recompute.memory_budget = 1;
    const Recorded run = Record(job);
    EXPECT_EQ(run.losses, plain.losses);
    ExpectSameState(run.result, plain.result);
    int copies = 0;
    const BlockDesc& block = run.result.main.Root();
    for (size_t i = 0; i < block.NumOps(); ++i) copies += block.op(i).HasAttr("recomputed_from");
    EXPECT_GT(copies, 0);
  }
  JobConfig job = SmallJob();
  job.recompute.checkpoints = {"hh"};
  ExpectContains(ErrorOf([&] { Record(job); }), "recompute checkpoint 'hh'");
}

TEST(Trainer, EvaluationIsTheExactMean) {
  JobConfig job = SmallJob();
  job.epochs = 1;
  job.test_batch_size = 70;
  double whole = Record(job).result.loss;
  job.test_batch_size = 32;  // 32 + 32 + 6
  EXPECT_NEAR(Record(job).result.loss, whole, 1e-6);
  job.test_interval = 3;
  EXPECT_EQ(Record(job).tests.size(), 3u);  // steps 3, 6 and the last, 8
}

TEST(Trainer, ResumedEqualsUninterrupted) {
  TempDir dir;
  JobConfig job = SmallJob();
  Recorded whole = Record(job);
  ASSERT_EQ(whole.losses.size(), 24u);
  job.snapshot_dir = dir / "snapshots";
  for (int64_t stop_at : {3, 8, 13}) {
    Recorded first = Record(job, {}, stop_at);
    EXPECT_TRUE(first.result.stopped);
    EXPECT_EQ(first.result.steps, stop_at);
    TrainOptions resume;
    resume.resume = true;
    Recorded second = Record(job, resume);
    EXPECT_EQ(second.result.steps, 24);
    first.losses.insert(first.losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(first.losses, whole.losses) << "stopped at " << stop_at;
    first.shown.insert(first.shown.end(), second.shown.begin(), second.shown.end());
    EXPECT_EQ(first.shown, whole.shown);
    ExpectSameState(second.result, whole.result);
    EXPECT_EQ(second.result.loss, whole.result.loss);
    std::filesystem::remove_all(job.snapshot_dir);
  }
}

TEST(Trainer, ResumeWithoutSnapshotStartsAfreshWithANote) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.snapshot_dir = dir / "none";
  TrainOptions resume;
  resume.resume = true;
  std::string note;
  TrainCallbacks callbacks;
  callbacks.on_start = [&](const TrainPlan& plan) { note = plan.note; };
  EXPECT_EQ(RunJob(job, resume, callbacks).steps, 24);
  ExpectContains(note, "starting afresh");
}

TEST(Trainer, NamesOfAnyBytesAreKept) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.name = "\xff\xfe";
  const std::string size = "size: 10 ";
  job.model_text.insert(job.model_text.find(size) + size.size(), "param { name: \"\\377w\" } ");
  job.snapshot_dir = dir / "s";
  EXPECT_TRUE(Record(job, {}, 3).result.stopped);
  TrainOptions resume;
  resume.resume = true;
  EXPECT_EQ(RunJob(job, resume).steps, 24);
}

TEST(Trainer, ASnapshotThatIsNamedMustBeThere) {
  TempDir dir;
  TrainOptions resume;
  resume.resume = true;
  resume.resume_from = dir / "none";
  EXPECT_EQ(ErrorOf([&] { RunJob(SmallJob(), resume); }),
            "no snapshot in '" + dir / "none" + "': nothing to resume");
}

TEST(Trainer, ResumedAtItsEndSaysSo) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  RunJob(job);
  TrainOptions resume;
  resume.resume = true;
  resume.compile.profile = true;  // of no step at all
  std::string note;
  TrainCallbacks callbacks;
  callbacks.on_start = [&](const TrainPlan& plan) { note = plan.note; };
  EXPECT_EQ(RunJob(job, resume, callbacks).steps, 24);
  ExpectContains(note, "is of step 24 and the job ends at 24");
}

TEST(Trainer, WhatCannotBeWrittenIsNoticedBeforeTheFirstStep) {
  TempDir dir;
  WriteFileAtomic(dir / "file", "x");
  JobConfig job = SmallJob();
  job.output_dir = dir / "file/out";
  int steps = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport&) { ++steps; };
  ExpectContains(ErrorOf([&] { RunJob(job, {}, callbacks); }), "cannot make directory");
  EXPECT_EQ(steps, 0);
}

TEST(Trainer, SnapshotsAtTheirIntervalNewestKept) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.snapshot_interval = 5;
  job.keep_snapshots = 2;
  std::vector<std::string> paths;
  TrainCallbacks callbacks;
  callbacks.on_snapshot = [&](const std::string& path) { paths.push_back(path); };
  TrainResult result = RunJob(job, {}, callbacks);
  ASSERT_EQ(paths.size(), 5u);  // 5, 10, 15, 20, and the end at 24
  EXPECT_EQ(paths.back(), dir / "snapshots/step_00000024");
  EXPECT_EQ(result.snapshot_path, paths.back());
  EXPECT_FALSE(FileExists(paths[2]));
  EXPECT_TRUE(FileExists(paths[3]));
  // A snapshot says itself what it is.
  EXPECT_EQ(ReadFile(paths[3] + "/job.pbtxt"), job.text);
  ProgramDesc main = ReadProgram(paths[3] + "/main.pb");
  EXPECT_EQ(main.Parameters(), result.main.Parameters());
  EXPECT_EQ(main.Root().FindVar("h")->error_clip() != nullptr, true);
  // An older one can be named.
  TrainOptions resume;
  resume.resume = true;
  resume.resume_from = paths[3];
  Recorded again = Record(job, resume);
  EXPECT_EQ(again.losses.size(), 4u);
  ExpectSameState(again.result, result);
}

class SnapshotErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    job_ = SmallJob();
    job_.snapshot_dir = dir_ / "s";
    path_ = Record(job_, {}, 4).result.snapshot_path;
  }
  std::string Resume() {
    TrainOptions resume;
    resume.resume = true;
    return ErrorOf([&] { RunJob(job_, resume); });
  }
  TempDir dir_;
  JobConfig job_;
  std::string path_;
};

TEST_F(SnapshotErrors, AnotherModelOrJobIsRefused) {
  JobConfig job = job_;
  size_t at = job_.model_text.find("size: 16");
  job_.model_text.replace(at, 8, "size: 17");
  const std::string other = Resume();
  ExpectContains(other, "of another model (its -> the job's): vars fc_0.w_0, ");
  ExpectContains(other, "shape: [784, 16] -> [784, 17]");
  job_ = job;
  job_.training.optimizers = {AdamOptions{}};
  ExpectContains(Resume(), "of another model");
  job_ = job;
  job_.training.optimizers = {MomentumOptions{.learning_rate = 0.06}};
  ExpectContains(Resume(), "attr value: 0.05 -> 0.06");
  job_ = job;
  job_.batch_size = 21;
  ExpectContains(Resume(), "its batch_size is 20, the job's is 21");
  job_ = job;
  job_.random_seed = 5;
  ExpectContains(Resume(), "random_seed");
  job_ = job;
  job_.train.source = DigitsOptions{.count = 150, .seed = 2};
  ExpectContains(Resume(), "training data");
  job_ = job;
  job_.shuffle = false;
  ExpectContains(Resume(), "shuffle");
  // The length of the job and the place of a layer in its file may change.
  job_ = job;
  job_.epochs = 1;
  job_.model_text = "\n\n" + job_.model_text;
  TrainOptions resume;
  resume.resume = true;
  EXPECT_EQ(RunJob(job_, resume).steps, 8);
}

TEST(Trainer, WritesProgramsDumpAndModels) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  TrainResult result = RunJob(job);
  for (const std::string& path : {result.main_path, result.startup_path, result.dump_path,
                                  result.model_path, result.eval_path})
    EXPECT_TRUE(FileExists(path)) << path;
  ExpectContains(ReadFile(result.dump_path), "momentum");

  Scope scope;
  InferenceModel model = LoadInferenceModel(result.model_path, scope);
  EXPECT_EQ(model.feed_names, std::vector<std::string>{"image"});
  EXPECT_EQ(model.fetch_names, std::vector<std::string>{"prob"});

  // The accuracy from the probabilities, and loss and accuracy as the training run saw them.
  std::vector<NamedValue> from_model = EvaluateSavedModel(result.model_path, job);
  ASSERT_EQ(from_model.size(), 1u);
  EXPECT_EQ(from_model[0].name, "accuracy");
  EXPECT_NEAR(from_model[0].value, result.metrics[0].value, 1e-6);
  std::vector<NamedValue> from_eval = EvaluateSavedModel(result.eval_path, job);
  ASSERT_EQ(from_eval.size(), 2u);
  EXPECT_NEAR(from_eval[0].value, result.loss, 1e-5);
  EXPECT_EQ(from_eval[1].name, "accuracy");  // the job's name for acc
  EXPECT_NEAR(from_eval[1].value, result.metrics[0].value, 1e-6);

  WriteFileAtomic(dir / "model.pbtxt", kSmallModel);
  ExpectContains(ErrorOf([&] { EvaluateSavedModel(dir / "model.pbtxt", job); }),
                 "is not a saved model");
}

TEST(Trainer, ProgramsAreThereWhileItTrains) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  bool there = false;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport&) { there = FileExists(dir / "main.txt"); };
  callbacks.stop = [] { return true; };
  EXPECT_TRUE(RunJob(job, {}, callbacks).stopped);
  EXPECT_TRUE(there);
  EXPECT_FALSE(FileExists(dir / "model.pdmodel"));
}

std::string JobError(const JobConfig& job) {
  return ErrorOf([&] { RunJob(job); });
}

TEST(Trainer, WrongNamesAndShapesAreTold) {
  JobConfig job = SmallJob();
  job.source = "j.pbtxt";
  job.loss = "los";
  EXPECT_EQ(JobError(job),
            "j.pbtxt: loss 'los': the model has no such variable; did you mean loss?");
  job = SmallJob();
  job.metrics[0].var = "nothing_like_it";
  ExpectContains(JobError(job), "metric 'nothing_like_it'");
  job = SmallJob();
  job.deploy_outputs = {"probe"};
  ExpectContains(JobError(job), "did you mean prob?");
  job = SmallJob();
  job.metrics[0].var = "prob";
  ExpectContains(JobError(job), "metric 'prob' must hold one number, a mean over the batch; it is");
  job = SmallJob();
  job.bind = {{"imag", "image"}};
  ExpectContains(JobError(job), "has no column 'imag', but image, label; did you mean image?");
  job = SmallJob();
  job.model_text = "data { name: \"pixels\" shape: [-1, 784] }" + std::string(kSmallModel);
  job.model_text.replace(job.model_text.find("input: \"image\""), 14, "input: \"pixels\"");
  ExpectContains(JobError(job), "nothing feeds model input 'pixels'");
  job = SmallJob();
  job.source = "j.pbtxt";
  job.model = "nowhere.pbtxt";
  EXPECT_EQ(JobError(job), "j.pbtxt: model: file 'nowhere.pbtxt' does not exist");
  job = SmallJob();
  job.source = "j.pbtxt";
  job.test.first = 500;
  EXPECT_EQ(
      JobError(job),
      "j.pbtxt: test: digits test seed 1 (70 images) has 70 rows: there are none from row 500 "
      "on");
  job = SmallJob();
  job.bind = {{"label", "image"}};
  ExpectContains(JobError(job),
                 "model input 'image' is float32[-1, 784], but the rows of column "
                 "'label' are int64[1]");
  job = SmallJob();
  job.training.optimizers = {SgdOptions{.learning_rate = 1e30}};
  ExpectContains(JobError(job), "the loss is");
}

TEST(Trainer, CustomDataAndBinding) {
  std::vector<float> x;
  std::vector<float> y;
  for (int i = 0; i < 64; ++i) {
    x.push_back(static_cast<float>(i % 8) / 8);
    y.push_back(3 * x.back() + 1);
  }
  JobConfig job;
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "y" shape: [-1, 1] }
layer { fc { input: "x" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
  job.train.custom = MakeMemorySource(
      {{"data", Tensor::Of<float>({64, 1}, x), {1}}, {"label", Tensor::Of<float>({64, 1}, y), {1}}},
      "a line");
  job.bind = {{"data", "x"}, {"label", "y"}};
  job.training.optimizers = {SgdOptions{.learning_rate = 0.3}};
  job.batch_size = 16;
  job.max_iter = 600;
  TrainResult result = RunJob(job);
  EXPECT_EQ(result.steps, 600);
  EXPECT_LT(result.loss, 1e-4);
  std::vector<std::string> names = result.main.Parameters();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_NEAR(result.scope.Get(names[0]).Item<float>(), 3, 0.05);
  EXPECT_NEAR(result.scope.Get(names[1]).Item<float>(), 1, 0.05);
}

TEST(Run, PlainLinesEndWithFinal) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunDone);
  std::string text = out.str();
  EXPECT_EQ(text.find('\r'), std::string::npos);
  ExpectContains(text, "epoch 1/3 step 5/24 loss=");
  ExpectContains(text, "samples/s ETA ");
  ExpectContains(text, "snapshots " + (dir / "snapshots"));
  ExpectContains(text, "dump " + (dir / "main.txt"));
  size_t final_line = text.find("final: loss=");
  ASSERT_NE(final_line, std::string::npos);
  EXPECT_EQ(text.find("final:", final_line + 1), std::string::npos);
  EXPECT_EQ(text.find('\n', final_line), text.size() - 1);
  ExpectContains(text.substr(final_line), " accuracy=");

  std::ostringstream tested;
  TestAndReport(dir / "eval.pdmodel", job, {}, tested);
  EXPECT_EQ(tested.str().substr(0, 11), "test: loss=");
}

// All sets as training evaluated them at its end, each with its own count; the first one last.
TEST(Run, TestTellsOfEverySet) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.source = "job";
  job.output_dir = dir.path();
  job.max_iter = 6;
  job.test_iterations = 2;  // 40 of its 70 rows
  job.test_sets.push_back({"few", {}, 10, 3, {}, ""});
  job.test_sets.push_back({"more", {}, 0, 0, {}, ""});
  job.test_sets[0].data.source = DigitsOptions{.count = 70, .seed = 2};
  job.test_sets[1].data.source = DigitsOptions{.count = 33, .seed = 3};
  std::ostringstream trained, tested;
  EXPECT_EQ(TrainAndReport(job, {}, trained, false), kRunDone);
  TestAndReport(dir / "eval.pdmodel", job, {}, tested);
  const std::string all = trained.str();
  std::string ends = all.substr(all.find("\nfinal few:") + 1);
  for (size_t at; (at = ends.find("final")) != std::string::npos;) ends.replace(at, 5, "test");
  EXPECT_EQ(tested.str(), ends);
  EXPECT_EQ(tested.str().find("test few: loss="), 0u);
  ExpectContains(tested.str(), "\ntest more: loss=");
  ExpectContains(tested.str(), "\ntest: loss=");

  std::ostringstream one;
  EvaluateOptions options;
  options.test_set = "more";
  TestAndReport(dir / "eval.pdmodel", job, options, one);
  const size_t more = tested.str().find("test more: ");
  EXPECT_EQ(one.str().substr(5), tested.str().substr(more + 10, one.str().size() - 5));
  options.test_set = "mor";
  EXPECT_EQ(ErrorOf([&] { TestAndReport(dir / "eval.pdmodel", job, options, one); }),
            "job: the job has no test set 'mor'; it has test, few, more; did you mean more?");
}

// A line of each display stays, the bar is below the last one and goes at the end.
TEST(Run, TerminalGetsLinesAndABar) {
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(SmallJob(), {}, out, true, 200), kRunDone);
  const std::string text = out.str();
  for (const char* step : {"5/24", "10/24", "15/24", "20/24", "24/24"}) {
    const size_t at = text.find(fmt::format(" step {} loss=", step));
    ASSERT_NE(at, std::string::npos) << step;
    const std::string line = text.substr(at, text.find('\n', at) - at);
    ExpectContains(line, " accuracy=");
    ExpectContains(line, " lr=0.05 ");
    EXPECT_TRUE(line.ends_with(" samples/s")) << line;
  }
  ExpectContains(text, "samples/s\n\r\033[Kepoch 1/3 [====>               ]  21% loss=");
  EXPECT_EQ(text.find('\r', text.find("\nfinal: loss=")), std::string::npos);
}

// The bar makes room for what it is about.
TEST(Run, NarrowTerminalsSeeTheTimeLeft) {
  for (int width : {80, 72}) {
    std::ostringstream out;
    EXPECT_EQ(TrainAndReport(SmallJob(), {}, out, true, width), kRunDone);
    const std::string text = out.str(), clear = "\r\033[K";
    const size_t begin = text.find(clear + "epoch 1/3 ") + clear.size();
    const std::string line = text.substr(begin, text.find('\r', begin) - begin);
    ExpectContains(line, " samples/s ETA 0:");
    EXPECT_LT(line.size(), static_cast<size_t>(width));
    EXPECT_EQ(line.find('[') != std::string::npos, width == 80) << line;
  }
}

// The signal comes in the middle of the run, from inside it: the step is finished, a snapshot
// saved, and the run goes on from there later.
TEST(Run, SignalsSaveAndStop) {
  for (int signal : {SIGINT, SIGTERM}) {
    TempDir dir;
    JobConfig job = SmallJob();
    job.output_dir = dir.path();
    struct SignalAt10 : std::stringbuf {
      explicit SignalAt10(int s) : signal(s) {}
      int sync() override {
        if (!sent && str().find("step 10/24") != std::string::npos) {
          sent = true;
          raise(signal);
        }
        return 0;
      }
      int signal;
      bool sent = false;
    } buffer(signal);
    std::ostream out(&buffer);
    EXPECT_EQ(TrainAndReport(job, {}, out, false), 128 + signal);
    std::string path = dir / "snapshots/step_00000010";
    EXPECT_TRUE(FileExists(path));
    ExpectContains(buffer.str(), fmt::format("interrupted by {}: step=10 snapshot={}",
                                             signal == SIGINT ? "SIGINT" : "SIGTERM", path));
    EXPECT_EQ(buffer.str().find("final:"), std::string::npos);
    TrainOptions resume;
    resume.resume = true;
    std::ostringstream rest;
    EXPECT_EQ(TrainAndReport(job, resume, rest, false), kRunDone);
    ExpectContains(rest.str(), "resumed " + path + " at step 10");
  }
}

// A second run is refused before it writes anything; the first one ends as if alone.
TEST(Trainer, OneRunAtATimeWritesIntoADirectory) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.source = "job";
  job.output_dir = dir / "out";
  job.max_iter = 4;
  job.display = 2;
  JobConfig other = job;  // elsewhere, but for its snapshots
  other.output_dir = dir / "other";
  other.snapshot_dir = job.SnapshotDirectory();
  std::vector<std::string> refused;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.step != 2) return;
    refused.push_back(ErrorOf([&] { RunJob(job); }));
    refused.push_back(ErrorOf([&] { RunJob(other); }));
  };
  const TrainResult result = RunJob(job, {}, callbacks);
  EXPECT_EQ(result.steps, 4);
  ASSERT_EQ(refused.size(), 2u);
  ExpectContains(refused[0], "job: the directory '" + (dir / "out") + "' is in use: process " +
                                 std::to_string(::getpid()) + " on ");
  ExpectContains(refused[1], "job: the directory '" + (dir / "out/snapshots") + "' is in use: ");
  EXPECT_FALSE(FileExists(dir / "out/.lock"));
  EXPECT_FALSE(FileExists(dir / "out/snapshots/.lock"));
  TrainOptions overwrite;
  overwrite.overwrite = true;
  const TrainResult again = RunJob(job, overwrite);
  EXPECT_EQ(again.loss, result.loss);
  job.snapshot_dir = job.output_dir;  // one directory for both is locked once
  EXPECT_EQ(RunJob(job, overwrite).steps, 4);
}

// A file left by a killed process is not a lock.
TEST(Trainer, ALockFileWithoutItsProcessHoldsNothing) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.max_iter = 2;
  WriteFileAtomic(dir / ".lock", "process 1 on elsewhere\n");
  const std::string half_written = dir / ".coracle-4194305-1.tmp";  // beyond the largest process id
  WriteFileAtomic(half_written, "half");
  EXPECT_EQ(RunJob(job).steps, 2);
  EXPECT_FALSE(FileExists(dir / ".lock"));
  EXPECT_FALSE(FileExists(half_written));
}

TEST(Run, NamesForgeNoLines) {
  JobConfig job = SmallJob();
  job.metrics = {{"acc", "x\nfinal: loss=0.0001"}};
  job.epochs = 1;
  std::ostringstream out;
  EXPECT_EQ(TrainAndReport(job, {}, out, false), kRunDone);
  EXPECT_EQ(out.str().find("\nfinal: loss=0.0001"), std::string::npos) << out.str();
  ExpectContains(out.str(), " x\\x0afinal: loss=0.0001=");
}

TEST(Run, BarsAreCutBetweenCharacters) {
  JobConfig job = SmallJob();
  job.max_iter = 2;
  job.display = 1;
  job.loss_name = "l\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc";
  for (int width = 30; width < 50; ++width) {
    std::ostringstream out;
    TrainAndReport(job, {}, out, true, width);
    const std::string text = out.str();
    size_t at = 0, bytes = 0;
    while (at < text.size() && (bytes = Utf8CharacterBytes(text.substr(at, 4))) > 0) at += bytes;
    EXPECT_EQ(at, text.size()) << "width " << width;
  }
}
}  // namespace coracle::trainer_test
