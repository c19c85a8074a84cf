// Jobs on sequences of different length: with their LoD, or padded.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/small_job.h>
#include <coracle/train/run/trainer.h>

#include <string>
#include <vector>

namespace coracle::sequences_test {

// The same sequences with their LoD and padded: the sum of each, times a weight.
constexpr const char* kWithLod = R"(
data { name: "x" shape: [-1, 1] lod_level: 1 }
data { name: "y" shape: [-1, 1] }
layer { op { sequence_pool { X: ["x"] Out: ["sum"] pooltype: "SUM" } } }
layer { fc { input: "sum" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
)";
constexpr const char* kPadded = R"(
data { name: "x" shape: [-1, LENGTH] }
data { name: "y" shape: [-1, 1] }
data { name: "n" shape: [-1, 1] dtype: INT64 }
layer { op { reduce_sum { X: ["x"] Out: ["sum"] dim: [1] keep_dim: true } } }
layer { fc { input: "sum" size: 1 output: "p" } }
layer { square_error_cost { input: "p" label: "y" output: "e" } }
layer { mean { input: "e" output: "loss" } }
layer { cast { input: "n" dtype: float32 output: "lengths" } }
layer { mean { input: "lengths" output: "length" } }
)";

TEST(JobsOnSequences, LodAndPadded) {
  std::vector<uint64_t> offsets{0};
  std::vector<float> x, y;
  for (int i = 0; i < 30; ++i) {
    float sum = 0;
    for (int k = 0; k < i % 4; ++k) {
      x.push_back(static_cast<float>(k + 1) / 8);
      sum += x.back();
    }
    offsets.push_back(x.size());
    y.push_back(3 * sum);
  }
  TempDir dir;
  Tensor sequences = Tensor::Of<float>({static_cast<int64_t>(x.size()), 1}, x);
  Tensor at = Tensor::Of<int64_t>({31}, {offsets.begin(), offsets.end()});
  WriteNpz({{"x", sequences}, {"x@LOD@0", at}, {"y", Tensor::Of<float>({30, 1}, y)}},
           dir / "d.npz");
  JobConfig job;
  job.train.source = NpzOptions{.file = dir / "d.npz"};
  job.training.optimizers = {SgdOptions{.learning_rate = 0.5}};
  job.batch_size = 8;
  job.max_iter = 600;
  const auto weight = [&](std::string model, const std::string& length) {
    if (const size_t place = model.find("LENGTH"); place != std::string::npos)
      model.replace(place, 6, length);
    job.model_text = model;
    const TrainResult result = RunJob(job);
    EXPECT_LT(result.loss, 1e-3);
    return result.scope.Get(result.main.Parameters().at(0)).Item<float>();
  };
  EXPECT_NEAR(weight(kWithLod, ""), 3, 0.05);
  job.bind = {{"x@LENGTH", "n"}};
  job.metrics = {{"length", "length"}};
  EXPECT_NEAR(weight(kPadded, "-1"), 3, 0.05);
  EXPECT_NEAR(weight(kPadded, "5"), 3, 0.05);
  job.model_text = kPadded;
  job.model_text.replace(job.model_text.find("LENGTH"), 6, "2");
  ExpectContains(ErrorOf([&] { RunJob(job); }),
                 "model input 'x' has room for sequences of length 2, one has 3");
}
}  // namespace coracle::sequences_test
