// Attention whose queries see no key: the operator's result for them is 0.
#include <coracle/test/convert/one_node.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::onnx::onnx_attention_test {

constexpr double kHidden = -std::numeric_limits<double>::infinity();
constexpr int64_t kHeads = 2, kQueries = 3, kKeys = 4, kSize = 5;

Tensor Waves(const Shape& shape, float phase) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = std::sin(phase + 0.7f * static_cast<float>(i));
  return tensor;
}

const Tensor q = Waves({1, kHeads, kQueries, kSize}, 0.1f);
const Tensor k = Waves({1, kHeads, kKeys, kSize}, 0.9f), v = Waves({1, kHeads, kKeys, kSize}, 2.3f);

// bias[query * kKeys + key] is added to the scores of all heads.
Numbers Reference(const std::vector<double>& bias, double softcap, Numbers* weights = nullptr) {
  Numbers out;
  for (int64_t row = 0; row < kHeads * kQueries; ++row) {
    const int64_t head = row / kQueries, query = row % kQueries;
    std::vector<double> scores;
    for (int64_t key = 0; key < kKeys; ++key) {
      double sum = 0;
      for (int64_t d = 0; d < kSize; ++d)
        sum += double{q.data<float>()[row * kSize + d]} *
               double{k.data<float>()[(head * kKeys + key) * kSize + d]};
      sum /= std::sqrt(static_cast<double>(kSize));
      if (softcap > 0) sum = softcap * std::tanh(sum / softcap);
      scores.push_back(sum + bias[static_cast<size_t>(query * kKeys + key)]);
    }
    double total = 0;
    for (double& score : scores) total += score = std::exp(score);
    for (double& score : scores) score = total > 0 ? score / total : 0;
    for (double score : scores)
      if (weights) weights->push_back(static_cast<float>(score));
    for (int64_t d = 0; d < kSize; ++d) {
      double sum = 0;
      for (int64_t key = 0; key < kKeys; ++key)
        sum += scores[static_cast<size_t>(key)] *
               double{v.data<float>()[(head * kKeys + key) * kSize + d]};
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

// Query 1 sees no key.
const std::vector<bool> kSeen = {1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0};

std::vector<double> BiasOfSeen(const std::vector<bool>& seen) {
  std::vector<double> bias;
  for (bool sees : seen) bias.push_back(sees ? 0 : kHidden);
  return bias;
}

Tensor BoolMask() {
  Tensor mask(DType::kBool, {kQueries, kKeys});
  for (size_t i = 0; i < kSeen.size(); ++i) mask.data<bool>()[i] = kSeen[i];
  return mask;
}

Tensor FloatMask() {
  Tensor mask(DType::kFloat32, {kQueries, kKeys});
  for (size_t i = 0; i < kSeen.size(); ++i)
    mask.data<float>()[i] = kSeen[i] ? 0.0f : static_cast<float>(kHidden);
  return mask;
}

TEST(OnnxAttention, QueriesThatSeeNoKeyGiveZeros) {
  for (const Tensor& mask : {BoolMask(), FloatMask()}) {
    for (bool fed : {false, true}) {
      for (float softcap : {0.0f, 0.5f}) {
        OneNode node("Attention", 23, {q, k, v, mask});
        for (int i = 0; i < 3; ++i) node.Feed(i);
        if (fed) node.Feed(3);
        node.Set("softcap", softcap);
        const Numbers got = node.Run();
        ExpectNear(got, Reference(BiasOfSeen(kSeen), double{softcap}));
        for (int64_t d = 0; d < kSize; ++d) EXPECT_EQ(got[static_cast<size_t>(kSize + d)], 0);
      }
    }
  }
}

// Values that are not finite do not reach the row of a query that sees none.
TEST(OnnxAttention, ValuesAreNotReadByQueriesThatSeeNoKey) {
  Tensor infinite = v.Clone();
  for (float& value : infinite.span<float>()) value = std::numeric_limits<float>::infinity();
  OneNode node("Attention", 23, {q, k, infinite, BoolMask()});
  const Numbers got = node.Feed(2).Run();
  for (int64_t d = 0; d < kSize; ++d) EXPECT_EQ(got[static_cast<size_t>(kSize + d)], 0);
}

TEST(OnnxAttention, ACausalMaskHidesMore) {
  // Query 0 sees key 0 alone; then that is hidden, too.
  for (bool first : {true, false}) {
    Tensor mask = BoolMask();
    mask.data<bool>()[0] = first;
    std::vector<bool> both = kSeen;
    both[0] = first;
    for (int64_t i = 0; i < kQueries; ++i)
      for (int64_t j = i + 1; j < kKeys; ++j) both[static_cast<size_t>(i * kKeys + j)] = false;
    OneNode node("Attention", 23, {q, k, v, mask});
    node.Set("is_causal", int64_t{1});
    ExpectNear(node.Feed(0).Run(), Reference(BiasOfSeen(both), 0));
  }
}

// Keys beyond the length of a sample are padding.
TEST(OnnxAttention, ALengthOf0HidesAllKeys) {
  for (int64_t length : {0, 2}) {
    std::vector<bool> seen;
    for (int64_t i = 0; i < kQueries; ++i)
      for (int64_t j = 0; j < kKeys; ++j) seen.push_back(j < length);
    OneNode node("Attention", 24, {q, k, v, kAbsent, kAbsent, kAbsent, I({length})});
    ExpectNear(node.Feed(0).Run(), Reference(BiasOfSeen(seen), 0));
  }
}

TEST(OnnxAttention, TheWeightsAreZerosToo) {
  Numbers weights;
  Reference(BiasOfSeen(kSeen), 0, &weights);
  OneNode node("Attention", 23, {q, k, v, BoolMask()});
  node.Set("qk_matmul_output_mode", int64_t{3}).Outputs(4);
  const std::vector<Tensor> results = node.Feed(0).Results();
  const auto got = results.at(3).span<float>();
  ExpectNear({got.begin(), got.end()}, weights);
}

// Before the softmax the scores are as the mask leaves them.
TEST(OnnxAttention, TheMaskedScoresAreInfinite) {
  OneNode node("Attention", 23, {q, k, v, BoolMask()});
  node.Set("qk_matmul_output_mode", int64_t{2}).Outputs(4);
  const std::vector<Tensor> results = node.Feed(0).Results();
  const float* scores = results.at(3).data<float>();
  for (size_t i = 0; i < kSeen.size(); ++i)
    EXPECT_EQ(std::isinf(scores[i]), !kSeen[i]) << "element " << i;
}

TEST(OnnxAttention, Float16) {
  std::vector<std::optional<Tensor>> half;
  for (const Tensor& x : {q, k, v}) half.push_back(x.Cast(DType::kFloat16));
  half.push_back(BoolMask());
  OneNode node("Attention", 23, half);
  const Numbers got = node.Feed(0).Run(), wanted = Reference(BiasOfSeen(kSeen), 0);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-3) << "element " << i;
}

}  // namespace coracle::onnx::onnx_attention_test
