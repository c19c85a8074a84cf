#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>
#include <functional>

namespace coracle::nce_test {

using Probability = std::function<double(int64_t)>;

const std::vector<double> kInput = {1, -1}, kWeight = {0.5, 1, -1, 0}, kBias = {0, 0.1, 0, -0.2};
const std::vector<double> kSampleWeight = {2, 0.5};

// Two rows with the labels 1 and 2, and the noise 0 and 3.
OpTest Nce(int32_t sampler, const std::vector<int32_t>& noise = {0, 3}, int32_t draws = 2) {
  OpTest test("nce");
  test.Attr("num_total_classes", 4).Attr("num_neg_samples", draws).Attr("sampler", sampler);
  test.Attr("custom_neg_classes", noise).Input("Input", {2, 1}, kInput);
  test.IntInput("Label", {2, 1}, {1, 2}).Input("Weight", {4, 1}, kWeight);
  test.Input("Bias", {4, 1}, kBias).Input("SampleWeight", {2, 1}, kSampleWeight);
  if (sampler == 2) {
    test.TensorInput("CustomDistProbs", Tensor::Of<float>({4}, {0.5f, 0.25f, 0.125f, 0.125f}));
    test.TensorInput("CustomDistAlias", Tensor::Of<int32_t>({4}, {0, 0, 0, 1}));
    test.TensorInput("CustomDistAliasProbs", Tensor::Of<float>({4}, {1, 1, 0.5f, 0.5f}));
  }
  return test;
}

double Score(size_t row, size_t k) {
  return 1 / (1 + std::exp(-(kInput[row] * kWeight[k] + kBias[k])));
}
double Cost(size_t row, const Probability& p) {
  double cost = 0;
  const size_t label = row + 1;
  for (const size_t k : {label, size_t{0}, size_t{3}}) {
    const double o = Score(row, k), q = 2 * p(static_cast<int64_t>(k));
    cost -= std::log((k == label ? o : q) / (o + q));
  }
  return cost * kSampleWeight[row];
}

TEST(Nce, Values) {
  const Probability noises[] = {[](int64_t) { return 0.25; },
                                [](int64_t k) {
                                  const auto at = static_cast<double>(k);
                                  return std::log((at + 2) / (at + 1)) / std::log(4);
                                },
                                [](int64_t k) { return k == 0   ? 0.5
                                                       : k == 1 ? 0.25
                                                                : 0.125; }};
  for (int32_t sampler : {0, 1, 2}) {
    const Probability& p = noises[sampler];
    Nce(sampler)
        .Expect("Cost", {2, 1}, {Cost(0, p), Cost(1, p)})
        .Expect("SampleLabels", {2, 3}, {1, 0, 3, 2, 0, 3})
        .Expect("SampleLogits", {2, 3},
                {Score(0, 1), Score(0, 0), Score(0, 3), Score(1, 2), Score(1, 0), Score(1, 3)});
  }
}

TEST(Nce, ExtremeLogits) {
  OpTest("nce")
      .Attr("num_total_classes", 2)
      .Attr("num_neg_samples", 1)
      .Attr("custom_neg_classes", std::vector<int32_t>{0})
      .Input("Input", {1, 1}, {1})
      .IntInput("Label", {1, 1}, {1})
      .Input("Weight", {2, 1}, {-1000, -1000})
      .Expect("Cost", {1, 1}, {1000 + std::log(0.5)});
  OpTest("nce")
      .Attr("num_total_classes", 2)
      .Input("Input", {0, 1}, {})
      .IntInput("Label", {0, 1}, {})
      .Input("Weight", {2, 1}, {1, 2})
      .Expect("Cost", {0, 1}, {});
}

void ExpectFrequencies(int32_t sampler, const std::vector<double>& expected) {
  constexpr int kDraws = 20000;
  const Tensor labels = Nce(sampler, {}, kDraws).Output("SampleLabels");
  std::vector<double> counts(4);
  for (int64_t i = 1; i <= kDraws; ++i) ++counts[static_cast<size_t>(labels.data<int64_t>()[i])];
  // Four standard deviations.
  for (size_t k = 0; k < 4; ++k) {
    const double p = expected[k];
    EXPECT_NEAR(counts[k] / kDraws, p, 4 * std::sqrt(p * (1 - p) / kDraws) + 1e-12) << k;
  }
}

TEST(Nce, Frequencies) {
  ExpectFrequencies(0, {0.25, 0.25, 0.25, 0.25});
  ExpectFrequencies(1, {0.5, std::log(1.5) / std::log(4), std::log(4.0 / 3) / std::log(4), 0});
  ExpectFrequencies(2, {0.375, 0.375, 0.125, 0.125});
}

TEST(Nce, DrawsChangeWithTheStepAndNotWithTheRun) {
  const auto draw = [](uint64_t step) { return Nce(0, {}, 50).Step(step).Output("SampleLabels"); };
  EXPECT_TRUE(BitEqual(draw(1), draw(1)));
  EXPECT_FALSE(BitEqual(draw(1), draw(2)));
}

TEST(Nce, FastKernel) {
  for (const int64_t width : {1, 7, 16, 40}) {
    for (const int threads : {1, 3}) {
      const Threads scoped(threads);
      OpTest test("nce");
      std::vector<int64_t> labels;
      for (int64_t i = 0; i < 80; ++i) labels.push_back(i * 7 % 30);
      test.Attr("num_total_classes", 30).Attr("num_neg_samples", 11);
      test.RandomInput("Input", {40, width}).IntInput("Label", {40, 2}, labels);
      test.RandomInput("Weight", {30, width}).RandomInput("Bias", {30}).CheckFast(1e-5);
    }
  }
}

TEST(Nce, Gradients) {
  for (int32_t sampler : {0, 1, 2}) Nce(sampler).CheckGradient({"Input", "Weight", "Bias"});
  OpTest drawn("nce");
  drawn.Attr("num_total_classes", 5).Attr("num_neg_samples", 4).RandomInput("Input", {3, 2});
  drawn.IntInput("Label", {3, 2}, {0, 1, 4, 4, 2, 0}).RandomInput("Weight", {5, 2});
  drawn.CheckGradient({"Input", "Weight"});
}

// Slopes -0.2 and 0.3 of one class, times 10 and the input.
TEST(Nce, SparseGradient) {
  OpTest grad("nce_grad");
  grad.Attr("num_total_classes", 3).Attr("num_neg_samples", 1).Attr("is_sparse", true);
  grad.Input("Input", {1, 1}, {2}).IntInput("Label", {1, 1}, {2});
  grad.Input("Weight", {3, 1}, {0, 0, 0}).Input("SampleLogits", {1, 2}, {0.5, 0.5});
  grad.IntInput("SampleLabels", {1, 2}, {2, 2}).Input("Cost@GRAD", {1, 1}, {10});
  grad.NoOutput("Bias@GRAD").ExpectRows("Weight@GRAD", 3, {2}, {2});
}

TEST(Nce, Constraints) {
  const auto refused = [](const Shape& input, const Shape& weight, const Shape& label,
                          const Shape& bias, int32_t negatives, int32_t sampler, const char* id) {
    OpTest test("nce");
    test.Attr("num_total_classes", 3).Attr("num_neg_samples", negatives);
    test.Attr("sampler", sampler).RandomInput("Input", input).RandomInput("Weight", weight);
    test.IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), 0));
    test.RandomInput("Bias", bias).ExpectError(std::string("nce.") + id);
  };
  refused({2, 2}, {3, 3}, {2, 1}, {3}, 1, 0, "C1");
  refused({2, 2}, {4, 2}, {2, 1}, {3}, 1, 0, "C1");
  refused({2, 2}, {3, 2}, {3, 1}, {3}, 1, 0, "C2");
  refused({2, 2}, {3, 2}, {2, 1}, {2}, 1, 0, "C3");
  refused({2, 2}, {3, 2}, {2, 1}, {3}, 0, 0, "C4");
  refused({2, 2}, {3, 2}, {2, 1}, {3}, 1, 3, "C5");
  refused({2, 2}, {3, 2}, {2, 1}, {3}, 1, 2, "C6");
  Nce(0, {0, 4}).ExpectError("nce.C4");
  Nce(0, {0}).ExpectError("nce.C4");
  for (int64_t label : {int64_t{3}, int64_t{-1}, INT64_MAX}) {
    OpTest("nce")
        .Attr("num_total_classes", 3)
        .RandomInput("Input", {1, 2})
        .IntInput("Label", {1, 1}, {label})
        .RandomInput("Weight", {3, 2})
        .ExpectError("nce: Label holds " + std::to_string(label));
  }
  const auto grad = [](const Shape& logits, const Shape& cost, const char* id) {
    OpTest test("nce_grad");
    test.Attr("num_total_classes", 3).Attr("num_neg_samples", 1).RandomInput("Input", {1, 1});
    test.IntInput("Label", {1, 1}, {2}).RandomInput("Weight", {3, 1});
    test.RandomInput("SampleLogits", logits).IntInput("SampleLabels", {1, 2}, {2, 0});
    test.RandomInput("Cost@GRAD", cost).NoOutput("Bias@GRAD");
    test.ExpectError(std::string("nce_grad.") + id);
  };
  grad({1, 2}, {2, 1}, "C7");
  grad({1, 3}, {1, 1}, "C8");
}
}  // namespace coracle::nce_test
