// How often clips act, and by how much: against gradients that the data alone decides.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/log/clip_report.h>
#include <coracle/train/run/trainer.h>

#include <algorithm>

namespace coracle::clip_count_test {

// One row a batch: the gradient of h is x, whatever the parameter. h's error clip is by value 1.
constexpr const char* kModel = R"(
data { name: "x" shape: [-1, 1] }
data { name: "one" shape: [-1, 1] }
layer { fc { input: "one" size: 1 bias_term: false output: "h" error_clip { CLIP } } }
layer { elementwise_mul { x: "h" y: "x" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";

JobConfig Job(const std::vector<float>& x, const std::string& clip = "by_value { max: 1 }",
              const std::string& text = "optimizer { sgd { learning_rate: 0 } }") {
  const auto rows = static_cast<int64_t>(x.size());
  JobConfig job = ParseJobText("batch_size: 1 epochs: 1 shuffle: false display: 3 " + text, "j");
  job.output_dir.clear();
  job.model_text = kModel;
  job.model_text.replace(job.model_text.find("CLIP"), 4, clip);
  job.train.custom = MakeMemorySource({{"x", Tensor::Of<float>({rows, 1}, x), {1}},
                                       {"one", Tensor::Full<float>({rows, 1}, 1), {1}}},
                                      "gradients");
  return job;
}

// The counts of each display.
std::vector<std::string> Told(const JobConfig& job) {
  std::vector<std::string> told;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    if (report.show) told.push_back(FormatClips(report.clips));
  };
  RunJob(job, {}, callbacks);
  return told;
}

using Lines = std::vector<std::string>;
const std::vector<float> kGradients = {0.5f, 2, -4, 1, 1.00001f, 0.1f, 0, -1, 1};

TEST(ClipCount, ErrorClipsByValue) {
  EXPECT_EQ(Told(Job(kGradients)),
            (Lines{" error_clip(h) 2/3 x0.25", " error_clip(h) 1/3 x1", ""}));
}

TEST(ClipCount, ErrorClipsByNorm) {
  EXPECT_EQ(Told(Job(kGradients, "by_norm { max_norm: 2 }")),
            (Lines{" error_clip(h) 1/3 x0.5", "", ""}));
}

// The ops of a saved model may have any marks of a training step.
TEST(ClipCount, MarksOfASavedModelAreNone) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable y = net.Relu(net.Fc(net.Data("in", {-1, 1}), {.size = 1}));
  Scope scope;
  Executor().Run(startup, scope);
  using P = TrainingPart;
  for (const P part : {P::kCounter, P::kRate, P::kNorm, P::kLimit, P::kStatistics, P::kFinite}) {
    for (const TrainingStage stage : {TrainingStage::kClip, TrainingStage::kSchedule}) {
      ProgramDesc marked = main;
      SetMarks(marked.Root(), 0, {stage, part, "w"});
      TempDir dir;
      SaveInferenceModel(dir / "model", {"in"}, {y.name()}, marked, scope);
      JobConfig job =
          Job(kGradients, "by_value { max: 1 }",
              "optimizer { sgd { learning_rate: 0 } schedule { step { step_size: 3 } } }");
      const std::string file = dir / "model";
      job.model_text.insert(
          job.model_text.find("layer {"),
          "layer { program { input: \"x\" file: \"" + file + "\" output: \"z\" } }\n");
      EXPECT_EQ(Told(job), (Lines{" error_clip(h) 2/3 x0.25", " error_clip(h) 1/3 x1", ""}));
    }
  }
}

// Every run of backward is one gradient, also where several make one update.
TEST(ClipCount, ErrorClipsOfAccumulatedGradients) {
  JobConfig job = Job({0.5f, 2, -4, 1, 3, 0.1f});
  job.training.iter_size = 2;
  EXPECT_EQ(Told(job), (Lines{" error_clip(h) 3/6 x0.25"}));
}

// A scale that is not a power of two rounds every gradient; a gradient that overflows is left out.
TEST(ClipCount, ErrorClipsUnderLossScaling) {
  for (const char* clip : {"by_value { max: 1 }", "by_norm { max_norm: 1 }"}) {
    JobConfig job =
        Job({0.5f, 2, -4, 1e30f, 0.3f, 0.1f}, clip,
            "optimizer { sgd { learning_rate: 0 } } mixed_precision { level: O0 loss_scaling { "
            "init_scale: 1.1e9 growth_interval: 1000 } }");
    EXPECT_EQ(Told(job), (Lines{" error_clip(h) 2/3 x0.25", ""})) << clip;
  }
}

// A block that runs three times has three gradients: 1, then x times what was left of it.
TEST(ClipCount, ErrorClipsInLoops) {
  JobConfig job = Job({0.1f, 2, 0.1f});
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "one" shape: [-1, 1] }
layer { fc { input: "one" size: 1 bias_term: false output: "h" } }
layer { op { fill_constant { Out: "i" shape: 1 dtype: 3 value: 0 } } }
layer { op { fill_constant { Out: "n" shape: 1 dtype: 3 value: 3 } } }
layer { less_than { x: "i" y: "n" output: "more" } }
layer { while { condition: "more"
  layer { elementwise_mul { x: "h" y: "x" output: "next" error_clip { by_value { max: 0.5 } } } }
  layer { assign_to { x: "next" var: "h" } }
  layer { increment_by { var: "i" } }
  layer { less_than { x: "i" y: "n" output: "again" } }
  layer { assign_to { x: "again" var: "more" } } } }
layer { mean { input: "h" output: "loss" } }
)";
  EXPECT_EQ(Told(job), (Lines{" error_clip(next) 5/9 x0.5"}));
}

// The gradient of a table of which rows are looked up is selected rows: clipped, but not counted.
TEST(ClipCount, NoErrorClipsOfSelectedRows) {
  JobConfig job = Job({2, 2, 2});
  job.model_text = R"(
data { name: "x" shape: [-1, 1] }
data { name: "one" shape: [-1, 1] }
layer { fc { input: "one" size: 1 bias_term: false output: "table"
             error_clip { by_value { max: 0.25 } } } }
layer { cast { input: "one" dtype: INT64 output: "row" } }
layer { elementwise_sub { x: "row" y: "row" output: "id" } }
layer { op { lookup_table { W: "table" Ids: "id" Out: "h" is_sparse: true } } }
layer { elementwise_mul { x: "h" y: "x" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
  for (const char* scaling : {"", "mixed_precision { level: O0 loss_scaling { init_scale: 8 } }"}) {
    const JobConfig settings =
        ParseJobText(std::string("optimizer { sgd { learning_rate: 1 } }") + scaling, "j");
    job.training = settings.training;
    EXPECT_EQ(Told(job), Lines{""});
  }
}

TEST(ClipCount, GradientClipsOfEveryKind) {
  const auto told = [](const std::string& clip) {
    const JobConfig job =
        Job(kGradients, "by_value { max: 1000 }",
            "optimizer { sgd { learning_rate: 0 } gradient_clip { " + clip + " } }");
    return Told(job);
  };
  EXPECT_EQ(told("by_value { max: 1 }"), (Lines{" clip 2/3 x0.25", " clip 1/3 x1", ""}));
  EXPECT_EQ(told("by_norm { clip_norm: 2 }"), (Lines{" clip 1/3 norm 4>2 x0.5", "", ""}));
  // The parameter's norm is the limit's measure.
  JobConfig job = Job(kGradients, "by_value { max: 1000 }",
                      "optimizer { sgd { learning_rate: 0 } gradient_clip { adaptive { "
                      "clip_factor: 1 } } }");
  const std::string initial = "param { initializer { constant { value: 2 } } } bias_term";
  job.model_text.replace(job.model_text.find("bias_term"), 9, initial);
  EXPECT_EQ(Told(job), (Lines{" clip 1/3 x0.5", "", ""}));
}

// An update that accumulates is one gradient: here the mean of two.
TEST(ClipCount, GradientClipsOfAccumulatedGradients) {
  JobConfig job = Job({0.5f, 2, -4, 1, 3, 5}, "by_value { max: 1000 }",
                      "optimizer { sgd { learning_rate: 0 } gradient_clip { by_value { max: 1.3 } "
                      "} }");
  job.training.iter_size = 2;
  EXPECT_EQ(Told(job), (Lines{" clip 2/3 x0.325"}));
}

TEST(ClipCount, ManyErrorClipsAreTold) {
  std::vector<ClipReport> clips = {{ClipReport::Kind::kError, "a", 10, 1, 0.5},
                                   {ClipReport::Kind::kError, "b", 10, 2, 0.25},
                                   {ClipReport::Kind::kError, "c", 10, 0, 1}};
  EXPECT_EQ(FormatClips(clips), " error_clip(a) 1/10 x0.5 error_clip(b) 2/10 x0.25");
  clips[2].acted = 3;
  EXPECT_EQ(FormatClips(clips), " error_clips(3) 6/30 x0.25(b)");
}

TEST(ClipCount, TheLogHasTheCounts) {
  TempDir dir;
  JobConfig job = Job(kGradients);
  job.output_dir = dir.path();
  RunJob(job);
  ExpectContains(ReadFile(dir / "log.jsonl", 1 << 20),
                 "\"clips\":[{\"kind\":\"error\",\"name\":\"h\",\"times\":3,\"acted\":2,"
                 "\"factor\":0.25}]");
}

TEST(ClipCount, WithoutItNoOpIsAdded) {
  JobConfig job = Job(kGradients, "by_value { max: 1 }",
                      "clip_statistics: false optimizer { sgd { learning_rate: 0 } gradient_clip { "
                      "by_value { max: 1 } } }");
  const TrainResult result = RunJob(job);
  const BlockDesc& root = result.main.Root();
  int clips = 0;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    EXPECT_NE(root.op(i).type(), "clip_statistics");
    clips += root.op(i).type() == "clip";
  }
  EXPECT_EQ(clips, 2);
  EXPECT_EQ(Told(job), (Lines{"", "", ""}));
}
}  // namespace coracle::clip_count_test
