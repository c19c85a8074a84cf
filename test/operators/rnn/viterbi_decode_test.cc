#include <coracle/test/op_test.h>
#include <coracle/test/operators/sequence/naive_viterbi.h>
#include <coracle/test/operators/stopped.h>
#include <coracle/test/threads.h>

#include <algorithm>

namespace coracle::viterbi_decode_test {

// Two tags, two steps, by hand: paths 00: 1+0+1 = 2, 01: 1+3+0 = 4, 10: 2+1+1 = 4, 11: 2+0+0 = 2.
// Among equal best paths the one with the lower last tag wins.
TEST(ViterbiDecode, ByHand) {
  OpTest("viterbi_decode")
      .Attr("include_bos_eos_tag", false)
      .Input("Input", {2, 2, 2}, {1, 2, 1, 0, 1, 2, 5, 0})
      .Input("Transition", {2, 2}, {0, 3, 1, 0})
      .IntInput("Length", {2}, {2, 1})
      .Expect("Scores", {2}, {4, 2})
      .Expect("Path", {2, 2}, {1, 0, 1, 0})
      .ExpectDType("Path", DType::kInt64);
}

// The best score and path over all paths, one by one.
struct Best {
  double score = -1e30;
  std::vector<int64_t> path;
};
Best TryAll(const double* x, const std::vector<double>& table, int64_t steps, int64_t tags,
            bool bordered) {
  Best best;
  std::vector<int64_t> path(static_cast<size_t>(steps), 0);
  for (bool more = true; more;) {
    double score = 0;
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t tag = path[static_cast<size_t>(t)];
      score += x[t * tags + tag];
      if (t > 0) {
        score += table[static_cast<size_t>(path[static_cast<size_t>(t) - 1] * tags + tag)];
      }
    }
    if (bordered) {
      score += table[static_cast<size_t>((tags - 1) * tags + path.front())];
      score += table[static_cast<size_t>((tags - 2) * tags + path.back())];
    }
    if (score > best.score) best = {score, path};
    more = false;
    for (size_t t = 0; t < path.size() && !more; ++t) {
      more = ++path[t] < tags;
      if (!more) path[t] = 0;
    }
  }
  return best;
}

TEST(ViterbiDecode, AgreesWithTryingAllPaths) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-2, 2);
  constexpr int64_t kBatch = 3, kTime = 5, kTags = 4;
  const std::vector<int64_t> lengths = {4, 1, 2};
  for (bool bordered : {false, true, false, true}) {
    std::vector<double> x(kBatch * kTime * kTags), table(kTags * kTags), scores;
    for (double& v : x) v = uniform(random);
    for (double& v : table) v = uniform(random);
    std::vector<double> paths(kBatch * 4, 0);  // 4: the largest length
    for (size_t b = 0; b < lengths.size(); ++b) {
      const Best best = TryAll(x.data() + b * kTime * kTags, table, lengths[b], kTags, bordered);
      scores.push_back(best.score);
      std::copy(best.path.begin(), best.path.end(), paths.begin() + static_cast<ptrdiff_t>(b * 4));
    }
    OpTest("viterbi_decode")
        .Attr("include_bos_eos_tag", bordered)
        .Input("Input", {kBatch, kTime, kTags}, x)
        .Input("Transition", {kTags, kTags}, table)
        .IntInput("Length", {kBatch}, lengths)
        .Expect("Scores", {kBatch}, scores)
        .Expect("Path", {kBatch, 4}, paths);
  }
}

// Numbers of tags around the sizes of vectors. Whole numbers, so that many paths score the same.
TEST(ViterbiDecode, RandomShapes) {
  std::mt19937 random(8);
  for (int round = 0; round < 24; ++round) {
    const bool bordered = round % 2 == 1;
    const int64_t batch = 1 + static_cast<int64_t>(random() % 6);
    const int64_t time = 1 + static_cast<int64_t>(random() % 30);
    const int64_t tags = 2 + static_cast<int64_t>(random() % 40);
    const auto draw = [&](int64_t count) {
      std::vector<double> values(static_cast<size_t>(count));
      for (double& v : values) v = static_cast<double>(random() % 5);
      return values;
    };
    const std::vector<double> x = draw(batch * time * tags), table = draw(tags * tags);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; b < batch; ++b)
      lengths.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(time + 1)));
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    std::vector<double> scores, paths;
    for (int64_t b = 0; b < batch; ++b) {
      const auto at = [&](int64_t i, int64_t j) {
        return table[static_cast<size_t>(i * tags + j)];
      };
      const naive::Path best = naive::Viterbi(
          lengths[static_cast<size_t>(b)], tags,
          [&](int64_t t, int64_t j) { return x[static_cast<size_t>((b * time + t) * tags + j)]; },
          [&](int64_t j) { return bordered ? at(tags - 1, j) : 0; },
          [&](int64_t j) { return bordered ? at(tags - 2, j) : 0; }, at);
      scores.push_back(best.score);
      paths.insert(paths.end(), best.tags.begin(), best.tags.end());
      paths.resize(static_cast<size_t>((b + 1) * longest), 0);
    }
    SCOPED_TRACE(round);
    const Threads threads(1 + round % 3);
    OpTest("viterbi_decode")
        .Attr("include_bos_eos_tag", bordered)
        .Input("Input", {batch, time, tags}, x)
        .Input("Transition", {tags, tags}, table)
        .IntInput("Length", {batch}, lengths)
        .Expect("Scores", {batch}, scores)
        .Expect("Path", {batch, longest}, paths);
  }
}

TEST(ViterbiDecode, EmptySequences) {
  OpTest("viterbi_decode")
      .Attr("include_bos_eos_tag", false)
      .Input("Input", {2, 1, 2}, {1, 2, 3, 4})
      .Input("Transition", {2, 2}, {0, 0, 0, 0})
      .IntInput("Length", {2}, {0, 1}, DType::kInt32)
      .Expect("Scores", {2}, {0, 4})
      .Expect("Path", {2, 1}, {0, 1});
  OpTest("viterbi_decode")
      .Input("Input", {0, 3, 2}, {})
      .Input("Transition", {2, 2}, {0, 0, 0, 0})
      .IntInput("Length", {0}, {})
      .Expect("Scores", {0}, {})
      .Expect("Path", {0, 0}, {});
}

// One long sequence: the time is checked at steps 0, 64 and 128.
TEST(ViterbiDecode, StopsInTime) {
  for (const int passing : {1, 2, 3}) {
    const Stopped stopped(passing);
    OpTest("viterbi_decode")
        .RandomInput("Input", {1, 130, 128})
        .RandomInput("Transition", {128, 128})
        .IntInput("Length", {1}, {130})
        .ExpectError("decoding a path");
  }
}

TEST(ViterbiDecode, ALengthPastTheEnd) {
  OpTest("viterbi_decode")
      .Input("Input", {1, 1, 2}, {1, 2})
      .Input("Transition", {2, 2}, {0, 0, 0, 0})
      .IntInput("Length", {1}, {2})
      .ExpectError("Length holds 2 at 0, outside [0, 2)");
}

void Refused(const Shape& x, const Shape& table, const Shape& length, const std::string& id) {
  auto zeros = [](const Shape& s) {
    return std::vector<double>(static_cast<size_t>(s.numel()), 0);
  };
  OpTest("viterbi_decode")
      .Input("Input", x, zeros(x))
      .Input("Transition", table, zeros(table))
      .IntInput("Length", length, std::vector<int64_t>(static_cast<size_t>(length.numel()), 0))
      .ExpectError(id);
}

TEST(ViterbiDecode, C1_Rank) { Refused({2, 2}, {2, 2}, {2}, "viterbi_decode.C1"); }
TEST(ViterbiDecode, C2_Transition) { Refused({1, 2, 2}, {2, 3}, {1}, "viterbi_decode.C2"); }
TEST(ViterbiDecode, C3_Length) { Refused({1, 2, 2}, {2, 2}, {2}, "viterbi_decode.C3"); }
TEST(ViterbiDecode, C4_TooFewTags) { Refused({1, 2, 1}, {1, 1}, {1}, "viterbi_decode.C4"); }
}  // namespace coracle::viterbi_decode_test
