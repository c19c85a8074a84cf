#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace coracle::sample_logits_test {

const std::vector<double> kLogits = {1, 2, 3, 4, 5, 6, 7, 8};
const std::vector<double> kProbabilities = {0.5, 0.25, 1, 0.5, 0.125, 1};

OpTest Customized(const std::vector<int64_t>& samples) {
  OpTest test("sample_logits");
  test.Attr("num_samples", 2).Attr("use_customized_samples", true);
  test.Input("Logits", {2, 4}, kLogits).IntInput("Labels", {2, 1}, {1, 2});
  test.IntInput("CustomizedSamples", {2, 3}, samples);
  test.Input("CustomizedProbabilities", {2, 3}, kProbabilities);
  return test;
}

TEST(SampleLogits, Customized) {
  const double log2 = std::log(2);
  OpTest test = Customized({1, 0, 2, 2, 2, 3});
  test.Expect("SampledLogits", {2, 3}, {2 + log2, 1 + 2 * log2, 3, 7 + log2, -1e20, 8});
  test.Expect("SampledLabels", {2, 1}, {0, 0}).Expect("Samples", {2, 3}, {1, 0, 2, 2, 2, 3});
  test.Expect("Probabilities", {2, 3}, kProbabilities).Expect("LogitsDim", {2, 4, 0}, {});
  test.Expect("LabelsDim", {2, 1, 0}, {});
  OpTest hits = Customized({1, 0, 2, 2, 2, 3});
  hits.Attr("remove_accidental_hits", false);
  hits.Expect("SampledLogits", {2, 3}, {2 + log2, 1 + 2 * log2, 3, 7 + log2, 7 + 3 * log2, 8});
}

TEST(SampleLogits, Draws) {
  constexpr int kClasses = 50, kCount = 10;
  OpTest test("sample_logits");
  test.Attr("num_samples", kCount).Attr("remove_accidental_hits", false);
  test.Input("Logits", {2, kClasses}, std::vector<double>(2 * kClasses, 0.0));
  test.IntInput("Labels", {2, 2}, {7, 3, 0, 49});
  const Tensor samples = test.Output("Samples"), sampled = test.Output("SampledLogits");
  const Tensor probabilities = test.Output("Probabilities");
  const auto* k = samples.data<int64_t>();
  const std::vector<int64_t> first(k, k + 12), second(k + 12, k + 24);
  EXPECT_EQ(std::vector<int64_t>(first.begin(), first.begin() + 2), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(std::vector<int64_t>(second.begin(), second.begin() + 2),
            (std::vector<int64_t>{0, 49}));
  EXPECT_TRUE(std::equal(first.begin() + 2, first.end(), second.begin() + 2));
  EXPECT_EQ(std::set<int64_t>(first.begin() + 2, first.end()).size(), size_t{kCount});
  // One number of draws explains all probabilities, unless none was in vain.
  double draws = 0;
  for (int64_t i = 0; i < 24; ++i) {
    const auto at = static_cast<double>(k[i]), chance = double{probabilities.data<float>()[i]};
    const double p = std::log((at + 2) / (at + 1)) / std::log(kClasses + 1);
    EXPECT_NEAR(sampled.data<float>()[i], -std::log(chance), 1e-5);
    if (std::abs(chance - kCount * p) < 1e-6) continue;
    const double tries = std::log(1 - chance) / std::log(1 - p);
    if (draws == 0) draws = std::round(tries);
    EXPECT_NEAR(tries, draws, 0.01);
    EXPECT_GT(draws, kCount);
  }
}

TEST(SampleLogits, AllClasses) {
  OpTest test("sample_logits");
  test.Attr("num_samples", 3).RandomInput("Logits", {1, 3}).IntInput("Labels", {1, 1}, {2});
  const Tensor samples = test.Output("Samples");
  const auto* k = samples.data<int64_t>();
  EXPECT_EQ(std::set<int64_t>(k + 1, k + 4), (std::set<int64_t>{0, 1, 2}));
  OpTest("sample_logits")
      .Attr("num_samples", 1)
      .Input("Logits", {0, 3}, {})
      .IntInput("Labels", {0, 1}, {})
      .Expect("SampledLogits", {0, 2}, {});
}

TEST(SampleLogits, Gradients) {
  Customized({1, 0, 2, 2, 0, 3}).CheckGradient({"Logits"}).CheckHigherGradients();
}

TEST(SampleLogits, Constraints) {
  const auto refused = [](const Shape& logits, const Shape& labels, int32_t count, const char* id) {
    OpTest test("sample_logits");
    test.Attr("num_samples", count).RandomInput("Logits", logits);
    test.IntInput("Labels", labels, std::vector<int64_t>(static_cast<size_t>(labels.numel()), 0));
    test.ExpectError(std::string("sample_logits.") + id);
  };
  refused({2, 3}, {3, 1}, 1, "C1");
  refused({2, 3}, {2}, 1, "C1");
  refused({2, 3}, {2, 1}, 4, "C2");
  refused({2, 3}, {2, 1}, -1, "C2");
  OpTest("sample_logits")
      .Attr("num_samples", 1)
      .Attr("use_customized_samples", true)
      .RandomInput("Logits", {2, 3})
      .IntInput("Labels", {2, 1}, {0, 0})
      .ExpectError("sample_logits.C3");
  Customized({1, 0, 2, 2, 4, 3}).ExpectError("CustomizedSamples holds 4");
  OpTest("sample_logits")
      .Attr("num_samples", 1)
      .RandomInput("Logits", {1, 3})
      .IntInput("Labels", {1, 1}, {-1})
      .ExpectError("Labels holds -1");
}
}  // namespace coracle::sample_logits_test
