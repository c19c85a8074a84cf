// The jobs that users see first.

#include <coracle/framework/base/file.h>
#include <coracle/train/trainer.h>

#include <cstdlib>

#include "train_test_util.h"

namespace coracle {
namespace {

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
  for (const char* name : {"digits/lenet_job.pbtxt", "digits/mlp_job.pbtxt",
                           "digits/softmax_job.pbtxt", "mnist/lenet.pbtxt"})
    CheckJob(ReadJob(Example(name)));
}

// The digits are no toy for a linear model...
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

}  // namespace
}  // namespace coracle
