// How the ranks' values of a batch combine: several ranks show and learn what one rank does, or the
// job is refused with the op that is the reason, unless it declares loss_weight.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/train/rank_jobs.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

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

// Why it is unknown how the ranks' values of the loss or a metric combine; "" if it is known.
std::string ReasonOf(const JobConfig& job) {
  const std::string error = RunOn(2, job)[0].error;
  const std::string begin = " combine is unknown: ";
  const size_t at = error.find(begin), end = error.find("; say it with distribute { loss_weight");
  if (at == error.npos || end == error.npos) return error;
  return error.substr(at + begin.size(), end - at - begin.size());
}

// The loss that is shown is the mean over the ranks, weighted by rows: the mean of what a job
// without updates shows for batches that are the parts.
void ExpectMeanOfParts(JobConfig job) {
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

// A metric that is not a linear formula of a number through which the loss's gradient flows.
TEST(PartWeights, AMetricOfWhatTheLossReads) {
  ExpectWhatOneRankDoes(RowsJob(R"(
layer { reduce_sum { input: "ce" output: "s" } }
layer { scale { input: "s" scale: 0.05 output: "loss" } }
layer { op { sqrt { X: "s" Out: "root" } } }
)",
                                {"root"}));
}

// A declared weight applies to the loss of the rank's rows with the rank's own count. The count of
// the whole batch would halve that term.
TEST(PartWeights, ALossWithADeclaredWeight) {
  JobConfig job = RowsJob(R"(
layer { reduce_sum { input: "cem" output: "s" } }
layer { reduce_sum { input: "m" output: "c" } }
layer { elementwise_div { x: "s" y: "c" output: "masked" } }
layer { op { slice { Input: "ce" Out: "first" axes: 0 starts: 0 ends: 2 } } }
layer { mean { input: "first" output: "of_first" } }
layer { elementwise_add { x: "masked" y: "of_first" output: "loss" } }
)",
                          {"masked"});
  EXPECT_EQ(ReasonOf(job), "slice mixes the rows of the batch");
  job.distribute.loss_weight = "ROWS";
  ExpectMeanOfParts(job);
}

// Terms that weigh differently, in a loss that backward computes again.
TEST(PartWeights, TermsOfOneLoss) {
  JobConfig job = RowsJob(R"(
layer { tanh { input: "logits" output: "h" } }
layer { softmax_with_cross_entropy { logits: "h" label: "y" output: "ce2" } }
layer { elementwise_mul { x: "ce2" y: "m" output: "cem2" } }
layer { reduce_sum { input: "cem2" output: "s" } }
layer { reduce_sum { input: "m" output: "c" } }
layer { elementwise_div { x: "s" y: "c" output: "masked" } }
layer { mean { input: "ce" output: "plain" } }
layer { op { square { X: "w" Out: "w2" } } }
layer { mean { input: "w2" output: "l2" } }
layer { sum { input: "masked" input: "plain" input: "l2" output: "terms" } }
layer { op { sqrt { X: "terms" Out: "root" } } }
layer { elementwise_mul { x: "root" y: "terms" output: "product" } }
layer { elementwise_add { x: "product" y: "masked" output: "loss" } }
)",
                          {"masked", "plain", "l2", "root"});
  ExpectWhatOneRankDoes(job);
  job.recompute.checkpoints = {"h"};
  ExpectWhatOneRankDoes(job);
  job.recompute.checkpoints = {"h", "terms"};
  ExpectWhatOneRankDoes(job);
  // Copies have other names where the model has those that they usually get.
  for (const char* name : {"masked", "plain", "l2", "terms", "root", "product", "s", "c"})
    job.model_text +=
        fmt::format("layer {{ op {{ square {{ X: \"m\" Out: \"{}@RECOMPUTED\" }} }} }}\n", name);
  ExpectWhatOneRankDoes(job);
  job.recompute.checkpoints = {"h"};
  ExpectWhatOneRankDoes(job);
}

// 31 sequences of 1 to 6 elements, the longest ones one after the other.
JobConfig SequencesJob(const std::string& layers) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<int64_t> offsets = {0};
  std::vector<double> elements;
  for (int i = 0; i < 31; ++i) {
    for (int k = 0; k < 1 + i * 6 / 31; ++k) elements.push_back(normal(random));
    offsets.push_back(static_cast<int64_t>(elements.size()));
  }
  const auto count = static_cast<int64_t>(elements.size());
  const std::string file = testing::TempDir() + "/part_weights_sequences.npz";
  WriteNpz({{"x", Tensor::Of<double>({count, 1}, elements)},
            {"x@LOD@0", Tensor::Of<int64_t>({32}, offsets)}},
           file);
  JobConfig job = RowsJob("", {});
  job.model_text = R"(
data { name: "x" shape: [-1, 1] lod_level: 1 dtype: FP64 }
layer { parameter { shape: [1, 3] dtype: FP64 output: "w" } }
layer { op { mul { X: "x" Y: "w" Out: "xw" } } }
)" + layers;
  job.train.source = NpzOptions{.file = file};
  job.shuffle = false;
  return job;
}

// Rows are as long as the longest sequence of the whole batch.
TEST(PartWeights, SequencesThatArePadded) {
  const std::string padded = R"(
layer { fill_constant { shape: [1] value: 0.7 dtype: FP64 output: "pad" } }
layer { op { sequence_pad { X: "xw" PadValue: "pad" Out: "rows" Length: "lengths" } } }
)";
  // Over all places, with a term of which each sequence has one.
  JobConfig places = SequencesJob(padded + R"(
layer { op { square { X: "rows" Out: "squares" } } }
layer { mean { input: "squares" output: "a" } }
layer { op { sequence_pool { X: "xw" Out: "pooled" pooltype: "MAX" } } }
layer { mean { input: "pooled" output: "b" } }
layer { elementwise_add { x: "a" y: "b" output: "loss" } }
)");
  ExpectWhatOneRankDoes(places);
  places.recompute.checkpoints = {"squares"};
  ExpectWhatOneRankDoes(places);
  // A softmax over the places, padding too.
  ExpectWhatOneRankDoes(SequencesJob(padded + R"(
layer { op { softmax { X: "rows" Out: "p" axis: 1 } } }
layer { op { square { X: "p" Out: "squares" } } }
layer { reduce_sum { input: "squares" dim: 1 dim: 2 output: "of_sequences" } }
layer { mean { input: "of_sequences" output: "loss" } }
)"));
}

// A mask as long as the largest length of the whole batch, in a net that backward computes again:
// the lengths are computed again, too.
TEST(PartWeights, MasksOfComputedLengths) {
  JobConfig job = RowsJob(R"(
layer { tanh { input: "logits" output: "h" } }
layer { reduce_sum { input: "x" dim: 1 output: "length" } }
layer { scale { input: "length" scale: 3.0 output: "longer" } }
layer { op { sequence_mask { X: "longer" out_dtype: 6 Y: "mask" } } }
layer { op { sequence_mask { X: "longer" out_dtype: 6 Y: "same_mask" } } }
layer { elementwise_add { x: "mask" y: "same_mask" output: "masks" } }
layer { reduce_mean { input: "masks" dim: 1 keep_dim: true output: "filled" } }
layer { elementwise_mul { x: "h" y: "filled" output: "hf" } }
layer { tanh { input: "hf" output: "p" } }
layer { softmax_with_cross_entropy { logits: "p" label: "y" output: "ce2" } }
layer { mean { input: "ce2" output: "loss" } }
)",
                          {});
  job.shuffle = false;
  ExpectWhatOneRankDoes(job);
  job.recompute.checkpoints = {"p"};
  ExpectWhatOneRankDoes(job);
}

// The ranks show the mean of a metric for which no rule is known, and warn of it. The loss needs no
// declaration for that.
TEST(PartWeights, AMetricWithoutARule) {
  const std::string layers = R"(
layer { mean { input: "ce" output: "loss" } }
layer { reduce_max { input: "ce" output: "worst" } }
layer { mean { input: "cem" output: "known" } }
)";
  JobConfig job = RowsJob(layers, {"worst", "known"});
  const auto one = RunOn(1, job), two = RunOn(2, job);
  ASSERT_EQ(two[0].messages.size(), 1u);
  EXPECT_EQ(two[0].messages[0],
            "warning: metric 'worst': how the ranks' values combine is unknown; their mean by rows "
            "is shown, which may not be what one rank has");
  ASSERT_EQ(two[0].error, "");
  for (size_t i = 0; i < one[0].losses.size(); ++i) {
    EXPECT_NEAR(two[0].losses[i], one[0].losses[i], 1e-9);
    EXPECT_NEAR(two[0].metrics.at(i)[1], one[0].metrics.at(i)[1], 1e-9);
    EXPECT_LE(two[0].metrics.at(i)[0], one[0].metrics.at(i)[0] + 1e-9);
  }
}

// Integers round, and a flag is not a sum of flags: ops on a sum or mean must read the whole
// batch's value.
TEST(PartWeights, IntegersAndFlags) {
  const std::string flags = R"(
layer { fill_constant { shape: [1] value: 0.5 dtype: FP64 output: "half" } }
layer { greater_than { x: "m" y: "half" output: "b" } }
layer { cast { input: "b" dtype: FP64 output: "bf" } }
layer { reduce_sum { input: "bf" output: "bs" } }
layer { cast { input: "bs" dtype: BOOL output: "any" } }
layer { cast { input: "any" dtype: FP64 output: "anyf" } }
layer { mean { input: "cem" output: "cm" } }
layer { elementwise_mul { x: "cm" y: "anyf" output: "loss" } }
layer { op { masked_select { X: "ce" Mask: "b" Y: "sel" } } }
layer { mean { input: "sel" output: "msel" } }
layer { scale { input: "msel" scale: 100.0 output: "m100" } }
layer { cast { input: "m100" dtype: INT64 output: "hundreds" } }
layer { fill_any_like { input: "y" value: 1 output: "ones" } }
layer { reduce_sum { input: "ones" output: "n" } }
layer { fill_constant { shape: [1] value: 5 dtype: INT64 output: "five" } }
layer { elementwise_div { x: "n" y: "five" output: "fifth" } }
)";
  ExpectWhatOneRankDoes(RowsJob(flags, {"anyf", "hundreds", "fifth", "n"}));
}

// Error clips of a variable without rows, whose gradient is a sum over the ranks.
TEST(PartWeights, ErrorClipsOfWhatHasNoRows) {
  for (const char* clip : {"by_value { max: 0.02 }", "by_norm { max_norm: 0.05 }"}) {
    SCOPED_TRACE(clip);
    JobConfig job = RowsJob(fmt::format(R"(
layer {{ parameter {{ shape: [6, 4] dtype: FP64 output: "v" }} }}
layer {{ tanh {{ input: "v" output: "u" error_clip {{ {} }} }} }}
layer {{ op {{ mul {{ X: "x" Y: "u" Out: "clipped" }} }} }}
layer {{ softmax_with_cross_entropy {{ logits: "clipped" label: "y" output: "ce2" }} }}
layer {{ mean {{ input: "ce2" output: "loss" }} }}
)",
                                        clip),
                            {});
    ExpectWhatOneRankDoes(job);
  }
}

// The gradient of a sum over rows is whole on each rank, unless the weight of the loss is declared.
TEST(PartWeights, ErrorClipsOfNumbers) {
  const std::string sum =
      R"(layer { reduce_sum { input: "ce" output: "s" error_clip { by_value { max: 0.01 } } } })";
  ExpectWhatOneRankDoes(RowsJob(sum + R"(
layer { scale { input: "s" scale: 0.05 output: "loss" } }
)",
                                {}));
  JobConfig declared = RowsJob(sum + R"(
layer { op { slice { Input: "ce" Out: "first" axes: 0 starts: 0 ends: 2 } } }
layer { mean { input: "first" output: "of_first" } }
layer { elementwise_add { x: "s" y: "of_first" output: "loss" } }
)",
                               {});
  declared.distribute.loss_weight = "ROWS";
  const std::string error = RunOn(2, declared)[0].error;
  EXPECT_NE(error.find("the error clip of 's@GRAD' is for a value whose weight is unknown, so it "
                       "would clip a part of what one rank clips; leave out that error clip"),
            std::string::npos)
      << error;
}

// A clip of the model that backward recomputes is not an error clip.
TEST(PartWeights, ARecomputedClip) {
  JobConfig job = RowsJob(R"(
layer { op { gaussian_random { Out: "g" shape: 4 shape: 4 seed: 3 dtype: FP64 } } }
layer { tanh { input: "logits" output: "h" } }
layer { op { clip_by_norm { X: "g" Out: "gc" max_norm: 0.5 } } }
layer { op { mul { X: "h" Y: "gc" Out: "l0" } } }
layer { tanh { input: "l0" output: "l1" } }
layer { softmax_with_cross_entropy { logits: "l1" label: "y" output: "ce2" } }
layer { mean { input: "ce2" output: "loss" } }
)",
                          {});
  job.recompute.checkpoints = {"h", "l1"};
  const auto one = RunOn(1, job), three = RunOn(3, job);
  ExpectSame(three[0], one[0]);
}

// Rows that are picked by their values: their number weighs. A part of the first batch has none.
TEST(PartWeights, RowsThatArePicked) {
  JobConfig job = RowsJob(R"(
layer { fill_constant { shape: [1] value: 0.5 dtype: FP64 output: "half" } }
layer { greater_than { x: "m" y: "half" output: "b" } }
layer { op { split_lod_tensor { X: "ce" Mask: "b" OutTrue: "t" OutFalse: "f" } } }
layer { mean { input: "t" output: "loss" } }
layer { op { masked_select { X: "ce" Mask: "b" Y: "picked" } } }
layer { mean { input: "picked" output: "mean_picked" } }
)",
                          {"mean_picked"});
  job.shuffle = false;
  job.batch_size = 16;
  job.epochs = 1;
  ExpectWhatOneRankDoes(job);
}

// Ops that mix rows.
TEST(PartWeights, RowsThatMeet) {
  const auto reason = [](const std::string& layers) {
    return ReasonOf(RowsJob(layers + R"(layer { mean { input: "z" output: "loss" } })", {}));
  };
  const std::string along = " mixes the rows of the batch";
  EXPECT_EQ(reason(R"(layer { op { slice { Input: "ce" Out: "z" axes: 0 starts: 0 ends: 2 } } })"),
            "slice" + along);
  EXPECT_EQ(reason(R"(
layer { parameter { shape: [5, 4] dtype: FP64 output: "p" } }
layer { concat { input: "logits" input: "p" axis: 0 output: "z" } })"),
            "concat" + along);
  EXPECT_EQ(reason(R"(layer { op { cumsum { X: "ce" Out: "z" axis: -2 } } })"), "cumsum" + along);
  EXPECT_EQ(reason(R"(layer { op { softmax { X: "logits" Out: "z" axis: 0 } } })"),
            "softmax" + along);
  EXPECT_EQ(reason(R"(
layer { op { transpose2 { X: "ce" Out: "columns" axis: 1 axis: 0 } } }
layer { elementwise_sub { x: "ce" y: "columns" output: "z" } })"),
            "elementwise_sub combines each row with each other row");
  EXPECT_EQ(reason(R"(
layer { op { reshape2 { X: "logits" Out: "two" shape: 2 shape: -1 } } }
layer { op { square { X: "two" Out: "z" } } })"),
            "reshape2 divides the rows among other dimensions");
  // Rows picked by numbers that count from the rank's first row.
  EXPECT_EQ(reason(R"(
layer { fill_constant { shape: [1] value: 0.5 dtype: FP64 output: "half" } }
layer { greater_than { x: "m" y: "half" output: "b" } }
layer { op { where_index { Condition: "b" Out: "at" } } }
layer { op { slice { Input: "at" Out: "row" axes: 1 starts: 0 ends: 1 } } }
layer { op { gather { X: "ce" Index: "row" Out: "z" } } })"),
            "where_index" + along);
  // Time first, and back.
  EXPECT_EQ(reason(R"(
layer { op { transpose2 { X: "logits" Out: "columns" axis: 1 axis: 0 } } }
layer { op { reshape2 { X: "columns" Out: "flat" shape: -1 shape: 1 } } }
layer { op { square { X: "flat" Out: "squares" } } }
layer { op { reshape2 { X: "squares" Out: "again" shape: 4 shape: -1 } } }
layer { op { softmax { X: "again" Out: "z" axis: 0 } } })"),
            "");
}

}  // namespace coracle::part_weights_test
