#include <coracle/test/op_test.h>
#include <coracle/test/operators/sequence/naive_viterbi.h>
#include <coracle/test/operators/stopped.h>
#include <coracle/test/threads.h>

namespace coracle::crf_decoding_test {

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

// Numbers of tags around the sizes of vectors, with and without padding.
TEST(CrfDecoding, RandomShapes) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    const int64_t tags = 1 + static_cast<int64_t>(random() % 40), time = 25;
    const int64_t count = 1 + static_cast<int64_t>(random() % 6);
    const auto draw = [&](int64_t numel) {
      std::vector<double> values(static_cast<size_t>(numel));
      for (double& v : values) v = static_cast<double>(random() % 5);
      return values;
    };
    const std::vector<double> padded = draw(count * time * tags), w = draw((tags + 2) * tags);
    const auto weight = [&](int64_t i, int64_t j) { return w[static_cast<size_t>(i * tags + j)]; };
    std::vector<double> rows, path, padded_path;
    Ints lengths;
    LoD lod{{0}};
    for (int64_t b = 0; b < count; ++b) {
      const auto length = static_cast<int64_t>(random() % static_cast<uint64_t>(time + 1));
      const auto from = padded.begin() + b * time * tags;
      const naive::Path best = naive::Viterbi(
          length, tags, [&](int64_t t, int64_t j) { return from[t * tags + j]; },
          [&](int64_t j) { return weight(0, j); }, [&](int64_t j) { return weight(1, j); },
          [&](int64_t i, int64_t j) { return weight(2 + i, j); });
      lengths.push_back(length);
      lod[0].push_back(lod[0].back() + static_cast<uint64_t>(length));
      rows.insert(rows.end(), from, from + length * tags);
      path.insert(path.end(), best.tags.begin(), best.tags.end());
      padded_path.insert(padded_path.end(), best.tags.begin(), best.tags.end());
      padded_path.resize(static_cast<size_t>((b + 1) * time), 0);
    }
    const auto steps = static_cast<int64_t>(path.size());
    SCOPED_TRACE(round);
    const Threads threads(1 + round % 3);
    OpTest("crf_decoding")
        .Input("Emission", {steps, tags}, rows)
        .Lod(lod)
        .Input("Transition", {tags + 2, tags}, w)
        .Expect("ViterbiPath", {steps, 1}, path);
    for (const Shape& list : {Shape{count}, Shape{count, 1}, Shape{1, count}}) {
      OpTest("crf_decoding")
          .Input("Emission", {count, time, tags}, padded)
          .Input("Transition", {tags + 2, tags}, w)
          .IntInput("Length", list, lengths)
          .Expect("ViterbiPath", {count, time}, padded_path);
    }
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

// One long sequence: the time is checked at steps 0, 64 and 128.
TEST(CrfDecoding, StopsInTime) {
  for (const int passing : {1, 2, 3}) {
    const Stopped stopped(passing);
    OpTest("crf_decoding")
        .RandomInput("Emission", {1, 130, 128})
        .RandomInput("Transition", {130, 128})
        .IntInput("Length", {1}, {130})
        .ExpectError("decoding a CRF");
  }
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
}  // namespace coracle::crf_decoding_test
