// How the parts of a batch weigh: what several ranks show and learn is what one rank does, or a
// warning says which op is the reason that it may not be.

#include <coracle/framework/io/tensor_io.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "rank_jobs.h"

namespace coracle::part_weights_test {

// 31 rows of 6 numbers, labels, and a weight, which is small in 12 successive rows.
std::string RowsFile() {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Tensor x(DType::kFloat64, {31, 6}), y(DType::kInt64, {31, 1}), m(DType::kFloat64, {31, 1});
  for (double& element : x.span<double>()) element = normal(random);
  for (int64_t& label : y.span<int64_t>()) label = static_cast<int64_t>(random() % 4);
  for (int64_t i = 0; i < 31; ++i)
    m.data<double>()[i] = i >= 8 && i < 20 ? 0.1 : 0.9 - 0.01 * static_cast<double>(i);
  const std::string file = testing::TempDir() + "/part_weights.npz";
  WriteNpz({{"x", x}, {"y", y}, {"m", m}}, file);
  return file;
}

// Costs `ce` of rows, and those times their weight.
constexpr const char* kCosts = R"(
data { name: "x" shape: [-1, 6] dtype: FP64 }
data { name: "y" shape: [-1, 1] dtype: INT64 }
data { name: "m" shape: [-1, 1] dtype: FP64 }
layer { parameter { shape: [6, 4] dtype: FP64 output: "w" } }
layer { op { mul { X: "x" Y: "w" Out: "logits" } } }
layer { softmax_with_cross_entropy { logits: "logits" label: "y" output: "ce" } }
layer { elementwise_mul { x: "ce" y: "m" output: "cem" } }
)";

JobConfig RowsJob(const std::string& layers, const std::vector<std::string>& metrics) {
  static const std::string file = RowsFile();
  JobConfig job;
  job.model_text = kCosts + layers;
  job.train.source = NpzOptions{.file = file};
  for (const std::string& name : metrics) job.metrics.push_back({name, name});
  job.training.optimizers = {SgdOptions{.learning_rate = 0.3}};
  job.batch_size = 8;
  job.epochs = 2;
  job.display = 1;
  return job;
}

// Losses and metrics of all steps.
void ExpectSame(const RankResult& ranks, const RankResult& one) {
  ASSERT_EQ(ranks.error, "");
  ASSERT_EQ(one.error, "");
  ASSERT_EQ(ranks.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(ranks.losses[i], one.losses[i], 1e-9) << "step " << i + 1;
    for (size_t k = 0; k < one.metrics.at(i).size(); ++k)
      EXPECT_NEAR(ranks.metrics.at(i)[k], one.metrics[i][k], 1e-9) << "metric " << k;
  }
}

void ExpectWhatOneRankDoes(const JobConfig& job) {
  const auto one = RunOn(1, job);
  for (const int size : {2, 3}) {
    SCOPED_TRACE(size);
    const auto ranks = RunOn(size, job);
    ExpectSame(ranks[0], one[0]);
    EXPECT_TRUE(ranks[0].messages.empty()) << ranks[0].messages[0];
  }
}

// Where no rule tells, the loss that is shown is the mean of those of the parts by their rows: of
// the job without updates, whose batches are the parts.
void ExpectMeanOfParts(JobConfig job, const std::string& reason) {
  job.training.optimizers = {SgdOptions{.learning_rate = 0}};
  job.shuffle = false;
  job.drop_last = true;
  const auto two = RunOn(2, job);
  job.batch_size /= 2;
  const auto halves = RunOn(1, job);
  ASSERT_EQ(two[0].error, "");
  ASSERT_EQ(halves[0].error, "");
  for (size_t i = 0; i < 3; ++i) {
    const double mean = (halves[0].losses[2 * i] + halves[0].losses[2 * i + 1]) / 2;
    EXPECT_NEAR(two[0].losses[i], mean, 1e-9) << "step " << i + 1;
  }
  ASSERT_FALSE(two[0].messages.empty());
  EXPECT_NE(two[0].messages[0].find(reason), std::string::npos) << two[0].messages[0];
}

// The mean of costs by their weights: with metrics that read the mean weight in another way.
TEST(PartWeights, AMeanDividedByAMean) {
  const std::string loss = R"(
layer { mean { input: "cem" output: "a" } }
layer { mean { input: "m" output: "b" } }
layer { elementwise_div { x: "a" y: "b" output: "loss" } }
layer { op { exp { X: "loss" Out: "perplexity" } } }
)";
  ExpectWhatOneRankDoes(RowsJob(loss, {"perplexity"}));
  ExpectWhatOneRankDoes(RowsJob(loss + R"(
layer { scale { input: "b" scale: 2.0 bias: 1.0 output: "b2" } }
layer { op { square { X: "b2" Out: "b4" } } }
)",
                                {"perplexity", "b4"}));
}

// A metric that is no linear formula of a number through which the loss's gradient flows.
TEST(PartWeights, AMetricOfWhatTheLossReads) {
  ExpectWhatOneRankDoes(RowsJob(R"(
layer { reduce_sum { input: "ce" output: "s" } }
layer { scale { input: "s" scale: 0.05 output: "loss" } }
layer { op { sqrt { X: "s" Out: "root" } } }
)",
                                {"root"}));
}

// The part's own count, where the loss weighs by rows: not the count of the whole batch, which
// would make a half of that term.
TEST(PartWeights, ALossOfWhichNoRuleTells) {
  const JobConfig job = RowsJob(R"(
layer { reduce_sum { input: "cem" output: "s" } }
layer { reduce_sum { input: "m" output: "c" } }
layer { elementwise_div { x: "s" y: "c" output: "masked" } }
layer { op { sqrt { X: "masked" Out: "root" } } }
layer { elementwise_add { x: "masked" y: "root" output: "loss" } }
)",
                                {"masked"});
  ExpectMeanOfParts(job, "sqrt reads 'masked' of the rank's part");
}

}  // namespace coracle::part_weights_test
