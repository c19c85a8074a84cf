// Files that released versions wrote (test/archive) are read, and compute what they computed.
#include <coracle/convert.h>
#include <coracle/coracle.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace coracle::archive_test {

namespace fs = std::filesystem;

class Archive : public testing::Test {
 protected:
  void SetUp() override {
    const char* sources = std::getenv("CORACLE_SOURCE_DIR");
    if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
    for (const auto& entry : fs::directory_iterator(fs::path(sources) / "test/archive")) {
      if (entry.is_directory()) versions_.push_back(entry.path());
    }
    ASSERT_FALSE(versions_.empty());
  }

  std::vector<fs::path> versions_;
};

void ExpectNear(const Tensor& result, const Tensor& expected, float tolerance) {
  ASSERT_TRUE(result.shape() == expected.shape());
  for (int64_t i = 0; i < expected.numel(); ++i)
    EXPECT_NEAR(result.data<float>()[i], expected.data<float>()[i], tolerance) << i;
}

Tensor OnlyTensor(const fs::path& file) {
  const NamedTensors tensors = ReadNpz(file);
  EXPECT_EQ(tensors.size(), 1u) << file;
  return tensors.begin()->second;
}

Tensor Predict(const InferenceModel& model, Scope& scope, const Tensor& input) {
  return Executor().Run(model.program, scope, {{model.feed_names.at(0), input}},
                        {model.fetch_names.at(0)})[0];
}

TEST_F(Archive, ModelsComputeTheSame) {
  for (const fs::path& version : versions_) {
    SCOPED_TRACE(version);
    const Tensor input = OnlyTensor(version / "input.npz");
    Scope scope, quantized_scope, onnx_scope;
    const InferenceModel model = LoadInferenceModel(version / "model.pdmodel", scope);
    const InferenceModel onnx = ImportOnnx(version / "model.onnx", onnx_scope);
    const InferenceModel quantized =
        LoadInferenceModel(version / "quantized.pdmodel", quantized_scope);
    const Tensor expected = OnlyTensor(version / "prob.npz");
    ExpectNear(Predict(model, scope, input), expected, 1e-5f);
    ExpectNear(Predict(onnx, onnx_scope, input), expected, 1e-5f);
    ExpectNear(Predict(quantized, quantized_scope, input),
               OnlyTensor(version / "quantized_prob.npz"), 1e-5f);
  }
}

TEST_F(Archive, ProgramsAreReadAndWrittenWithoutLoss) {
  for (const fs::path& version : versions_) {
    for (const char* file : {"main.pb", "startup.pb", "model.pdmodel", "eval.pdmodel"}) {
      SCOPED_TRACE(version / file);
      const ProgramDesc program = ReadProgram(version / file);
      const std::string bytes = SerializeProgram(program);
      EXPECT_EQ(SerializeProgram(ParseProgram(bytes)), bytes);
    }
  }
}

// The model text still builds the program whose training the version saved.
TEST_F(Archive, JobsTrainFromTheirSnapshot) {
  for (const fs::path& version : versions_) {
    SCOPED_TRACE(version);
    const TempDir scratch;
    JobConfig job = ReadJob(version / "job.pbtxt");
    job.output_dir = scratch / "output";
    TrainOptions options;
    options.resume = true;
    options.resume_from = version / "snapshots";
    const TrainResult result = RunJob(job, options);
    double loss = 0, accuracy = 0;
    ASSERT_TRUE(std::ifstream(version / "final.txt") >> loss >> accuracy);
    EXPECT_EQ(result.steps, 40);
    EXPECT_NEAR(result.loss, loss, 1e-4);
    ASSERT_EQ(result.metrics.size(), 1u);
    EXPECT_NEAR(result.metrics[0].value, accuracy, 1e-6);
  }
}

}  // namespace coracle::archive_test
