// The jobs that users see first.

#include <coracle/executor/compiled_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/origins.h>
#include <coracle/test/test_data.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/trainer.h>

#include <cstdlib>

namespace coracle::examples_test {

std::string Example(const std::string& name) {
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return (source ? std::string(source) : ".") + "/examples/" + name;
}

JobConfig QuietJob(const std::string& name) {
  JobConfig job = ReadJob(Example(name));
  job.output_dir.clear();
  return job;
}

TEST(Examples, JobsRead) {
  for (const char* name :
       {"digits/lenet_job.pbtxt", "digits/mlp_job.pbtxt", "digits/softmax_job.pbtxt",
        "digit_strings/job.pbtxt", "fine_tuning/base_job.pbtxt", "mnist/lenet.pbtxt",
        "mnist/lenet_caffe.pbtxt", "tagger/job.pbtxt", "shakespeare/lstm.pbtxt", "iris/iris.pbtxt",
        "housing/housing.pbtxt"})
    CheckJob(ReadJob(Example(name)));
}

// Every op of their compiled training steps knows its place in the program.
TEST(Examples, CompiledOpsHaveOrigins) {
  for (const char* name :
       {"digits/lenet_job.pbtxt", "digits/mlp_job.pbtxt", "digit_strings/job.pbtxt",
        "mnist/lenet.pbtxt", "tagger/job.pbtxt", "shakespeare/lstm.pbtxt", "transformer/sort.pbtxt",
        "iris/iris.pbtxt", "housing/housing.pbtxt"}) {
    const JobConfig job = QuietJob(name);
    const Programs programs = BuildPrograms(job, {});
    const ProgramDesc& main = programs.train.program;
    const std::shared_ptr<const CompiledProgram> prepared =
        Executor().Prepare(main, programs.train.Feeds(job), {job.loss}).compiled();
    const ProgramDesc& compiled = prepared->program();
    EXPECT_EQ(OriginDefect(main, compiled), "") << name;
    EXPECT_LT(compiled.Root().NumOps(), main.Root().NumOps()) << name;
  }
}

// A linear model cannot solve the digits...
TEST(Examples, SoftmaxRegressionStaysBetween80And93Percent) {
  TrainResult result = RunJob(QuietJob("digits/softmax_job.pbtxt"));
  EXPECT_GT(result.metrics.at(0).value, 0.80);
  EXPECT_LT(result.metrics.at(0).value, 0.93);
}

// ... and LeNet is far better after a fraction of its job.
TEST(Examples, LeNetLearnsDigits) {
  JobConfig job = QuietJob("digits/lenet_job.pbtxt");
  job.max_iter = 150;
  std::get<DigitsOptions>(job.train.source).count = 150 * job.batch_size;
  std::get<DigitsOptions>(job.test.source).count = 1000;
  TrainResult result = RunJob(job);
  EXPECT_GT(result.metrics.at(0).value, 0.94);
  bool clipped = false;
  for (size_t i = 0; i < result.main.Root().NumOps(); ++i)
    clipped = clipped || result.main.Root().op(i).type() == "clip";
  EXPECT_TRUE(clipped) << "the model's error clip is not in the program";
}

// After an eighth of its first epoch the character model knows more than how often each letter
// comes: 3.3 nats. It sees every character of the last tenth in evaluation.
TEST(Examples, CharacterModelLearnsShakespeare) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the text is not there";
  JobConfig job = QuietJob("shakespeare/lstm.pbtxt");
  job.data_dir = TestDataDirectory() + "/text";
  job.max_iter = 60;
  int64_t tested = 0;
  TrainCallbacks callbacks;
  callbacks.on_eval = [&](const EvalReport& report) { tested = report.rows; };
  TrainResult result = RunJob(job, {}, callbacks);
  EXPECT_LT(result.loss, 3.1);
  EXPECT_EQ(111540, tested * std::get<TextOptions>(job.test.source).sequence_length);
}

// The second job continues the model that the first one saved; what it froze stays as it was.
TEST(Examples, FineTuning) {
  const TemporaryDirectory directory;
  JobConfig base = ReadJob(Example("fine_tuning/base_job.pbtxt"));
  base.output_dir = directory.File("base");
  base.epochs = 1;
  EXPECT_GT(RunJob(base).metrics.at(0).value, 0.95);

  JobConfig tuned = ReadJob(Example("fine_tuning/fine_tuning_job.pbtxt"));
  tuned.output_dir = directory.File("tuned");
  std::string text = ReadFile(Example("fine_tuning/fine_tuning.pbtxt"));
  const std::string saved = "../../output/fine_tuning_base/model.pdmodel";
  ASSERT_NE(text.find(saved), std::string::npos);
  text.replace(text.find(saved), saved.size(), directory.File("base/model.pdmodel"));
  tuned.model.clear();
  tuned.model_text = text;
  EXPECT_GT(RunJob(tuned).metrics.at(0).value, 0.985);

  Scope before, after;
  LoadInferenceModel(directory.File("base/model.pdmodel"), before);
  LoadInferenceModel(directory.File("tuned/model.pdmodel"), after);
  const auto values = [](const Scope& scope, const std::string& name) {
    const Tensor& t = scope.Get(name);
    return std::vector<float>(t.data<float>(), t.data<float>() + t.numel());
  };
  for (const std::string& name : after.LocalNames()) {
    const bool frozen = name.starts_with("conv") || name.starts_with("norm");
    if (before.Has(name)) {
      EXPECT_EQ(values(before, name) == values(after, name), frozen) << name;
    }
  }
  EXPECT_FALSE(after.Has("head.w_0"));
}

TEST(Examples, IrisIsLearnt) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the data is not there";
  JobConfig job = QuietJob("iris/iris.pbtxt");
  job.data_dir = TestDataDirectory() + "/uci";
  const TrainResult result = RunJob(job);
  EXPECT_GE(result.metrics.at(0).value, 0.96);
}

// Better than the mean of all houses, which misses by 0.91, after a few epochs.
TEST(Examples, HousingIsLearnt) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the data is not there";
  JobConfig job = QuietJob("housing/housing.pbtxt");
  job.data_dir = TestDataDirectory() + "/uci";
  job.epochs = 3;
  const TrainResult result = RunJob(job);
  EXPECT_LT(result.metrics.at(0).value, 0.7);
}
}  // namespace coracle::examples_test
