#include "../../op_test.h"

namespace coracle {
namespace {

using Ints = std::vector<int64_t>;
constexpr int64_t kTags = 3;

// The tagging with the highest score among all, of equal ones that whose last tags are lowest.
std::vector<double> Best(const std::vector<double>& x, int64_t begin, int64_t n,
                         const std::vector<double>& w) {
  const auto weight = [&](int64_t row, int64_t j) {
    return w[static_cast<size_t>(row * kTags + j)];
  };
  double best = -1e30;
  std::vector<double> found;
  Ints tags(static_cast<size_t>(n), 0);
  for (bool more = n > 0; more;) {
    double score = weight(0, tags.front()) + weight(1, tags.back());
    for (size_t t = 0; t < tags.size(); ++t) {
      score += x[static_cast<size_t>((begin + static_cast<int64_t>(t)) * kTags + tags[t])];
      if (t > 0) score += weight(2 + tags[t - 1], tags[t]);
    }
    if (score > best) {
      best = score;
      found.assign(tags.begin(), tags.end());
    }
    more = false;
    for (size_t t = 0; t < tags.size() && !more; ++t) {
      more = ++tags[t] < kTags;
      if (!more) tags[t] = 0;
    }
  }
  return found;
}

TEST(CrfDecoding, AgreesWithTryingAllTaggings) {
  std::mt19937 random(4);
  // Whole numbers, so that many taggings score the same.
  for (int round = 0; round < 20; ++round) {
    const auto draw = [&](size_t count) {
      std::vector<double> values(count);
      for (double& v : values) v = static_cast<double>(random() % 3);
      return values;
    };
    const std::vector<double> x = draw(8 * kTags), w = draw((kTags + 2) * kTags);
    std::vector<double> path;
    for (const auto& [begin, n] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 0}, {4, 1}, {5, 3}}) {
      const std::vector<double> best = Best(x, begin, n, w);
      path.insert(path.end(), best.begin(), best.end());
    }
    OpTest("crf_decoding")
        .Input("Emission", {8, kTags}, x)
        .Lod({{0, 4, 4, 5, 8}})
        .Input("Transition", {kTags + 2, kTags}, w)
        .Expect("ViterbiPath", {8, 1}, path)
        .ExpectLod("ViterbiPath", {{0, 4, 4, 5, 8}});
    std::vector<double> padded = Best(x, 0, 2, w), second = Best(x, 4, 4, w);
    padded.insert(padded.end(), {0, 0});
    padded.insert(padded.end(), second.begin(), second.end());
    OpTest("crf_decoding")
        .Input("Emission", {2, 4, kTags}, x)
        .Input("Transition", {kTags + 2, kTags}, w)
        .IntInput("Length", {2}, {2, 4})
        .Expect("ViterbiPath", {2, 4}, padded);
  }
}

TEST(CrfDecoding, AgainstLabels) {
  OpTest("crf_decoding")
      .Input("Emission", {1, 3, 2}, {1, 0, 0, 1, 0, 1})
      .Input("Transition", {4, 2}, {0, 0, 0, 0, 0, 0, 0, 0})
      .IntInput("Label", {1, 3}, {0, 0, 0})
      .IntInput("Length", {1}, {2})
      .Expect("ViterbiPath", {1, 3}, {1, 0, 0})
      .ExpectDType("ViterbiPath", DType::kInt64);
}

TEST(CrfDecoding, Constraints) {
  const auto with = [](const Shape& x, LoD lod, const Shape& w) {
    return std::move(OpTest("crf_decoding")
                         .RandomInput("Emission", x)
                         .Lod(std::move(lod))
                         .RandomInput("Transition", w));
  };
  with({1}, {{0, 1}}, {3, 1}).ExpectError("crf_decoding.C1");
  with({1, 2}, {{0, 1}}, {2, 2}).ExpectError("crf_decoding.C2");
  with({1, 2}, {}, {4, 2}).ExpectError("crf_decoding.C3");
  with({1, 2, 2}, {}, {4, 2}).IntInput("Length", {1}, {3}).ExpectError("crf_decoding.C3");
  with({1, 2}, {{0, 1}}, {4, 2}).IntInput("Label", {2}, {0, 0}).ExpectError("crf_decoding.C4");
}

}  // namespace
}  // namespace coracle
