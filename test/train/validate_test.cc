// Errors of a job before its first step, and the directories of other runs.

#include <coracle/framework/base/file.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/run.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <coracle/train/run/validate.h>

#include <sstream>

namespace coracle::validate_test {

// The error of a job that must not come to its first step.
std::string Refused(const JobConfig& job, const TrainOptions& options = {}) {
  TrainCallbacks callbacks;
  callbacks.on_step = [](const StepReport&) { ADD_FAILURE() << "a step was made"; };
  return ErrorOf([&] { RunJob(job, options, callbacks); });
}

std::string Messages(const JobConfig& job) {
  std::string messages;
  TrainCallbacks callbacks;
  callbacks.on_message = [&](const std::string& line) { messages += line + "\n"; };
  RunJob(job, {}, callbacks);
  return messages;
}

// A job text with the small model, six steps long.
JobConfig TextJob(const std::string& rest) {
  JobConfig job = ParseJobText("model: \"m\"\ntrain { digits { count: 60 } }\nmax_iter: 6\n" +
                                   std::string("batch_size: 20\n") + rest,
                               "job.pbtxt");
  job.output_dir.clear();
  job.model.clear();
  job.model_text = kSmallModel;
  return job;
}

TEST(Validate, DeployedOutputsGetWhatTheyNeed) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.output_dir = dir.path();
  job.deploy_outputs = {"prob", "loss"};
  EXPECT_EQ(Refused(job),
            "job: the deployed output 'loss' needs 'label', which is not a deployed input; add "
            "input: 'label', or leave the output out");
  EXPECT_FALSE(FileExists(dir / "main.pb"));
  EXPECT_FALSE(FileExists(dir / "log.jsonl"));
  job.deploy_inputs = {"image", "label"};
  EXPECT_NE(RunJob(job).model_path, "");
}

TEST(Validate, DeployedInputsThatNothingNeedsAreTold) {
  JobConfig job = SmallJob();
  job.deploy_inputs = {"image", "label"};
  EXPECT_EQ(Messages(job), "warning: job: no deployed output needs the input 'label'\n");
}

// Warnings about a program's ops together, with the line of the model text.
TEST(Validate, ALossOfProbabilitiesIsTold) {
  JobConfig job = TextJob("loss: \"loss\" optimizer { sgd {} }");
  job.model_text =
      "data { name: 'image' shape: [-1, 1, 28, 28] }\n"
      "data { name: 'label' shape: [-1, 1] dtype: INT64 }\n"
      "layer { fc { input: 'image' size: 10 act: 'softmax' output: 'p' } }\n"
      "layer { softmax_with_cross_entropy { logits: 'p' label: 'label' output: 'ce' } }\n"
      "layer { mean { input: 'ce' output: 'loss' } }";
  const std::string messages = Messages(job);
  EXPECT_NE(messages.find(":4:9: softmax_with_cross_entropy: its input 'p' is the result of "
                          "softmax, and it applies softmax itself"),
            std::string::npos)
      << messages;
}

TEST(Validate, ACropOfWholeImagesIsTold) {
  std::vector<std::string> lines;
  const LogSink before =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  for (const char* size : {"28", "24"}) {
    OpenTrainData(ParseJobText(std::string("model: \"m\"\ntrain { digits { count: 9 }\n  transform "
                                           "{ crop_size: ") +
                                   size + " } }\nloss: \"l\"",
                               "job.pbtxt"));
  }
  SetLogSink(before);
  EXPECT_EQ(lines, std::vector<std::string>{
                       "job.pbtxt:3:15: crop_size 28 is the size of the images: nothing is "
                       "cropped"});
}

TEST(Validate, BindsAreOfInputs) {
  JobConfig job = SmallJob();
  job.bind = {{"label", "h"}};
  EXPECT_EQ(Refused(job),
            "job: bind: 'h' is not an input of the model; its inputs are image, label");
  job.bind = {{"label", "label"}, {"label", "label"}};
  EXPECT_EQ(Refused(job), "job: bind: 'label' is bound twice");
}

TEST(Validate, MetricsFitTheirVariables) {
  const auto refused = [](const MetricConfig& metric) {
    JobConfig job = SmallJob();
    job.metrics = {metric};
    return Refused(job);
  };
  EXPECT_EQ(refused({"prob", "top11", MetricKind::kAccuracy, "label", 11}),
            "job: metric 'top11': k is 11, but 'prob' has 10 classes");
  EXPECT_EQ(refused({"prob", "auc", MetricKind::kAuc, "label"}),
            "job: metric 'auc': auc is of two classes; 'prob' has 10");
  ExpectContains(refused({"prob", "top", MetricKind::kAccuracy, "image"}), "must be integers");
  ExpectContains(refused({"label", "top", MetricKind::kAccuracy, "label"}), "the scores 'label'");
}

// A mistake that only a test set shows is found before the first step.
TEST(Validate, TestSetsAreTried) {
  JobConfig job = SmallJob();
  job.test.source = std::monostate();
  job.test.custom = MakeMemorySource({{"image", Tensor(DType::kFloat32, {4, 784}), {784}},
                                      {"label", Tensor::Of<int64_t>({4, 1}, {1, 2, 30, 4}), {1}}},
                                     "four images");
  const std::string error = Refused(job);
  ExpectContains(error, "softmax_with_cross_entropy: label 30 at index 2 lies outside [0, 10)");
  ExpectContains(error, "row 2 of four images, column 'label', holds 30");
}

TEST(Validate, PatternsMatchSomething) {
  const JobConfig job = TextJob(
      "optimizer { sgd { learning_rate: 0.1 } regularizer { l2_decay { coeff: 0.1 } }\n"
      "  no_decay: \"*.b_0\" no_decay: \"bn*\" }\n");
  EXPECT_EQ(Refused(job),
            "job.pbtxt:5:1: no_decay 'bn*' matches none of the parameters: fc_0.w_0, fc_0.b_0, "
            "fc_1.w_0, fc_1.b_0");
}

TEST(Validate, NoDecayThatDoesNothingIsTold) {
  const auto told = [](const std::string& optimizer) {
    return Messages(TextJob("optimizer { " + optimizer + " no_decay: \"*.b_0\" }\n"));
  };
  EXPECT_EQ(told("adam { learning_rate: 0.1 }"),
            "warning: job.pbtxt:5:1: no_decay does nothing: adam has no weight decay here, and no "
            "regularizer\n");
  ExpectContains(told("lion { learning_rate: 0.1 weight_decay: 0 }"), "lion has no weight decay");
  for (const char* decays :
       {"lion { learning_rate: 0.1 weight_decay: 0.1 }", "lamb { learning_rate: 0.1 }",
        "sgd { learning_rate: 0.1 } regularizer { l2_decay { coeff: 0.1 } }",
        "lars_momentum { learning_rate: 0.1 }", "adamw { learning_rate: 0.1 }"})
    EXPECT_EQ(told(decays), "") << decays;
}

TEST(Validate, SchedulesBeyondTheRunAreTold) {
  const auto told = [](const std::string& schedule) {
    return Messages(
        TextJob("optimizer { sgd { learning_rate: 0.1 }\nschedule { " + schedule + " } }\n"));
  };
  EXPECT_EQ(told("warmup { steps: 5 }"), "");
  EXPECT_EQ(told("warmup { steps: 100 }"),
            "warning: job.pbtxt:6:21: the warm-up ends at step 100, but the run ends at step 6\n");
  EXPECT_EQ(told("multistep { gamma: 0.1 milestone: 3 milestone: 6 }"),
            "warning: job.pbtxt:6:48: the rate changes at step 6, but the run ends at step 6\n");
  EXPECT_EQ(told("one_cycle { steps: 6 }"), "");
  EXPECT_EQ(told("one_cycle { steps: 4 }"),
            "warning: job.pbtxt:6:24: the schedule ends at step 4; then the rate stays, until the "
            "run ends at step 6\n");
  EXPECT_EQ(told("polynomial { steps: 60 }"),
            "warning: job.pbtxt:6:25: the schedule ends at step 60, but the run ends at step 6\n");
  // A part of a sequence counts from its beginning.
  EXPECT_EQ(told("sequence { part { first: 0 schedule { one_cycle { steps: 9 } } }\n"
                 "part { first: 3 schedule { polynomial { steps: 3 } } } }"),
            "");
  EXPECT_EQ(told("sequence { part { first: 0 schedule { step { step_size: 2 } } }\n"
                 "part { first: 3 schedule { polynomial { steps: 4 } } } }"),
            "warning: job.pbtxt:7:41: the schedule ends at step 7, but the run ends at step 6\n");
}

TEST(Validate, ClipsThatNeverActAreTold) {
  JobConfig job = TextJob("optimizer { sgd { } gradient_clip { by_norm { clip_norm: 1 } } }\n");
  std::string& model = job.model_text;
  for (const std::string size : {"size: 16", "size: 10"}) {
    model.replace(model.find(size), size.size(),
                  size + " param { gradient_clip { by_value { max: 1 } } }" +
                      " bias { gradient_clip { by_value { max: inf } } }");
  }
  job.freeze = {"fc_0.w_0"};
  EXPECT_EQ(Messages(job),
            "warning: the gradient_clip of 'fc_0.w_0' can never act: the parameter is frozen\n"
            "warning: the gradient_clip of 'fc_0.b_0' can never act: its limits are infinite\n"
            "warning: the gradient_clip of 'fc_1.b_0' can never act: its limits are infinite\n"
            "warning: job.pbtxt:5:1: the gradient_clip can never act: each of the parameters has "
            "one of its own\n");
}

TEST(Validate, ErrorClipsThatNeverActAreTold) {
  JobConfig job = TextJob("optimizer { sgd { } }\n");
  EXPECT_EQ(Messages(job), "");
  const size_t at = job.model_text.find("max: 5");
  job.model_text.replace(at, 6, "max: inf");
  EXPECT_EQ(Messages(job),
            "warning: the error_clip of 'h' can never act: its limits are infinite\n");
  job.model_text.replace(at, 8, "max: inf min: -5");
  EXPECT_EQ(Messages(job), "");
}

TEST(Validate, AnEarlyStopThatCannotComeIsTold) {
  JobConfig job =
      TextJob("test { digits { count: 20 } } test_interval: 2 early_stop { patience: 3 }");
  EXPECT_EQ(Messages(job),
            "warning: job.pbtxt:5:61: the run has 3 evaluations: a patience of 3 can never end "
            "it\n");
  job.early_stop->patience = 2;
  EXPECT_EQ(Messages(job), "");
}

TEST(Validate, DiskSpace) {
  JobConfig job = SmallJob();
  job.snapshot_dir = "s";
  job.snapshot_interval = 10;
  job.keep_snapshots = 2;
  EXPECT_EQ(ErrorOf([&] { CheckDiskSpace(job, 2048, 1024, 100); }),
            "job: a snapshot takes 2.0 KiB, and the disk of 's' has 1.0 KiB free");
  EXPECT_EQ(CheckDiskSpace(job, 1024, 2048, 100),
            "warning: job: a snapshot takes 1.0 KiB, and the disk of 's' has 2.0 KiB free: not "
            "enough for the 3 that the run keeps");
  EXPECT_EQ(CheckDiskSpace(job, 1024, 3072, 100), "");
  EXPECT_EQ(CheckDiskSpace(job, 1024, 2048, 15), "");
  job.keep_snapshots = INT64_MAX;
  EXPECT_EQ(CheckDiskSpace(job, 1024, 2048, 15), "");
  ExpectContains(CheckDiskSpace(job, 1024, 2048, 100), "not enough for the 11 that the run keeps");
  TempDir dir;
  ASSERT_TRUE(FreeBytes(dir.path()).has_value());
  EXPECT_GT(*FreeBytes(dir.path()), 0u);
  EXPECT_FALSE(FreeBytes(dir / "nowhere").has_value());
}

// 6 PB of parameters: the run must not get as far as making them.
TEST(Validate, DiskSpaceIsLookedAtBeforeTheFirstStep) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.model_text.replace(job.model_text.find("size: 16"), 8, "size: 2000000000");
  job.output_dir = dir.path();
  const std::string error = Refused(job);
  ExpectContains(error, "job: a snapshot takes ");
  ExpectContains(error, ", and the disk of '" + dir / "snapshots" + "' has ");
  EXPECT_FALSE(FileExists(dir / "main.pb"));
}

// --- directories of other runs ---

TEST(RunDirectory, AnotherRunsOutputIsRefused) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.max_iter = 2;
  job.output_dir = dir.path();
  RunJob(job);
  const std::string before = ReadFile(dir / "log.jsonl", 1 << 20);
  job.max_iter = 1;
  EXPECT_EQ(Refused(job),
            "job: the directory '" + (dir / "snapshots") +
                "' holds another run's output (step_00000002): --resume continues it, --overwrite "
                "replaces it, --out=DIR writes elsewhere");
  EXPECT_EQ(ReadFile(dir / "log.jsonl", 1 << 20), before);
  RemoveSnapshots(dir / "snapshots");
  ExpectContains(Refused(job), "holds another run's output (log.jsonl)");
  TrainOptions overwrite;
  overwrite.overwrite = true;
  EXPECT_EQ(RunJob(job, overwrite).steps, 1);
}

TEST(RunDirectory, OverwriteLeavesNothingOfTheOtherRun) {
  TempDir dir;
  JobConfig job = SmallJob();
  job.max_iter = 4;
  job.snapshot_interval = 2;
  job.best = BestConfig{{"accuracy", WatchGoal::kMaximize, 0}, false};
  job.log.tensorboard = true;
  job.output_dir = dir.path();
  RunJob(job);
  TrainOptions overwrite;
  overwrite.overwrite = true;
  job.deploy_inputs = {"nothing"};
  Refused(job, overwrite);  // a job that is wrong removes nothing
  EXPECT_TRUE(FileExists(dir / "model.pdmodel"));
  EXPECT_EQ(ListSnapshots(dir / "snapshots").size(), 2u);
  job.deploy_inputs.clear();
  job.deploy_outputs.clear();
  job.best.reset();
  job.log.tensorboard = false;
  job.max_iter = 1;
  RunJob(job, overwrite);
  EXPECT_FALSE(FileExists(dir / "model.pdmodel"));
  EXPECT_EQ(ListSnapshots(dir / "snapshots").size(), 1u);
  EXPECT_EQ(BestSnapshot(dir / "snapshots"), "");
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with("events.")) << entry.path();
}

// However a file is named, rows to test on are not trained on.
TEST(Validate, SplitsOfOneFileAgree) {
  TempDir dir;
  WriteFileAtomic(dir / "t.csv", "1,0\n");
  std::filesystem::create_symlink("t.csv", dir / "link.csv");
  JobConfig job = SmallJob();
  job.directory = dir.path();
  const auto refused = [&](const auto& train, const auto& test) {
    job.train = job.test = {};
    job.train.source = train;
    job.train.split = SplitConfig{0.2, 1};
    job.test.source = test;
    job.test.split = SplitConfig{0.2, 2};
    ExpectContains(ErrorOf([&] { CheckJob(job); }), "with different splits");
    job.test.split = job.train.split;
    CheckJob(job);
  };
  for (const char* name : {"t.csv", "./t.csv", "x/../t.csv", "link.csv"})
    refused(CsvOptions{.file = "t.csv"}, CsvOptions{.file = name});
  refused(CsvOptions{.file = "t.csv"}, CsvOptions{.file = dir / "t.csv"});
  refused(NpzOptions{.file = "t.npz"}, NpzOptions{.file = "./t.npz"});
  refused(IdxOptions{.images = "t.gz", .labels = "l"}, IdxOptions{.images = "./t", .labels = "l"});
  // The end of a text is held out.
  job.train = job.test = {};
  job.train.source = TextOptions{.file = "t.txt", .holdout = 0.1};
  job.test.source = TextOptions{.file = "./t.txt", .holdout = 0.2};
  ExpectContains(ErrorOf([&] { CheckJob(job); }), "with different splits");
  std::swap(job.train, job.test);
  CheckJob(job);
}

TEST(Validate, AnyNumberOfSnapshotsIsCounted) {
  JobConfig job = SmallJob();
  job.output_dir = "out";
  job.snapshot_interval = 1;
  EXPECT_EQ(CheckDiskSpace(job, 1, 10, INT64_MAX), "");
}
}  // namespace coracle::validate_test
