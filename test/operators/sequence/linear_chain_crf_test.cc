#include <coracle/test/op_test.h>
#include <coracle/test/operators/stopped.h>
#include <coracle/test/threads.h>

#include <cmath>
#include <limits>

namespace coracle::linear_chain_crf_test {

constexpr int64_t kTags = 3;
using Ints = std::vector<int64_t>;

struct Tagging {
  std::vector<double> x, w;  // emissions of all steps, weights [kTags + 2, kTags]
  Ints label, lengths;

  explicit Tagging(Ints lengths_) : lengths(std::move(lengths_)) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(-2, 2);
    w.resize((kTags + 2) * kTags);
    for (double& v : w) v = uniform(random);
    for (int64_t n : lengths) {
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t j = 0; j < kTags; ++j) x.push_back(uniform(random));
        label.push_back(static_cast<int64_t>(random() % kTags));
      }
    }
  }

  double Score(int64_t begin, const Ints& tags) const {
    const auto weight = [&](int64_t row, int64_t j) {
      return w[static_cast<size_t>(row * kTags + j)];
    };
    double score = weight(0, tags.front()) + weight(1, tags.back());
    for (size_t t = 0; t < tags.size(); ++t) {
      score += x[static_cast<size_t>((begin + static_cast<int64_t>(t)) * kTags + tags[t])];
      if (t > 0) score += weight(2 + tags[t - 1], tags[t]);
    }
    return score;
  }
  // log Z - score, where Z is summed over all kTags^n taggings.
  std::vector<double> Costs() const {
    std::vector<double> costs;
    int64_t begin = 0;
    for (int64_t n : lengths) {
      costs.push_back(0);
      if (n == 0) continue;
      double z = 0;
      Ints tags(static_cast<size_t>(n), 0);
      for (bool more = true; more;) {
        z += std::exp(Score(begin, tags));
        more = false;
        for (size_t t = 0; t < tags.size() && !more; ++t) {
          more = ++tags[t] < kTags;
          if (!more) tags[t] = 0;
        }
      }
      costs.back() =
          std::log(z) - Score(begin, Ints(label.begin() + begin, label.begin() + begin + n));
      begin += n;
    }
    return costs;
  }
  OpTest Rows() const {
    LoD lod{{0}};
    for (int64_t n : lengths) lod[0].push_back(lod[0].back() + static_cast<uint64_t>(n));
    const auto rows = static_cast<int64_t>(label.size());
    return std::move(OpTest("linear_chain_crf")
                         .Input("Emission", {rows, kTags}, x)
                         .Lod(lod)
                         .Input("Transition", {kTags + 2, kTags}, w)
                         .IntInput("Label", {rows, 1}, label)
                         .Lod(lod));
  }
  OpTest Padded(int64_t time, bool column) const {
    const auto count = static_cast<int64_t>(lengths.size());
    std::vector<double> padded(static_cast<size_t>(count * time * kTags), 5);
    Ints tags(static_cast<size_t>(count * time), 0);
    int64_t begin = 0;
    for (int64_t i = 0; i < count; begin += lengths[static_cast<size_t>(i++)]) {
      for (int64_t t = 0; t < lengths[static_cast<size_t>(i)]; ++t) {
        tags[static_cast<size_t>(i * time + t)] = label[static_cast<size_t>(begin + t)];
        for (int64_t j = 0; j < kTags; ++j)
          padded[static_cast<size_t>((i * time + t) * kTags + j)] =
              x[static_cast<size_t>((begin + t) * kTags + j)];
      }
    }
    return std::move(
        OpTest("linear_chain_crf")
            .Input("Emission", {count, time, kTags}, padded)
            .Input("Transition", {kTags + 2, kTags}, w)
            .IntInput("Label", column ? Shape{count, time, 1} : Shape{count, time}, tags)
            .IntInput("Length", column ? Shape{count, 1} : Shape{count}, lengths));
  }
};

TEST(LinearChainCrf, AgreesWithTryingAllTaggings) {
  for (const Ints& lengths : {Ints{3, 1, 5}, Ints{0, 2, 0}, Ints{1, 1}}) {
    const Tagging tagging(lengths);
    const auto count = static_cast<int64_t>(lengths.size());
    tagging.Rows()
        .Expect("LogLikelihood", {count, 1}, tagging.Costs())
        .ExpectLod("LogLikelihood", {})
        .CheckGradient({"Emission", "Transition"});
    for (bool column : {false, true}) {
      tagging.Padded(5, column)
          .Expect("LogLikelihood", {count, 1}, tagging.Costs())
          .CheckGradient({"Emission", "Transition"});
    }
  }
}

double LogAdd(double a, double b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// Numbers of tags around the sizes of vectors, against a sum over tags in logarithms.
TEST(LinearChainCrf, ManyTags) {
  std::mt19937 random(8);
  std::uniform_real_distribution<double> uniform(-3, 3);
  for (const int64_t tags : {7, 8, 9, 33, 70}) {
    const std::vector<int64_t> offsets{0, 5, 5, 6, 20};
    std::vector<double> x(static_cast<size_t>(20 * tags)), costs;
    std::vector<double> w(static_cast<size_t>((tags + 2) * tags));
    Ints label;
    for (double& v : x) v = uniform(random);
    for (double& v : w) v = uniform(random);
    // Forbidden transitions where the number is odd: the pass with logarithms.
    for (size_t i = static_cast<size_t>(2 * tags); tags % 2 == 1 && i < w.size(); i += 5)
      w[i] = -1000;
    for (int i = 0; i < 20; ++i)
      label.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(tags)));
    const auto at = [&](const std::vector<double>& m, int64_t i, int64_t j) {
      return m[static_cast<size_t>(i * tags + j)];
    };
    for (size_t s = 0; s + 1 < offsets.size(); ++s) {
      std::vector<double> paths;
      double score = 0;
      for (int64_t t = offsets[s]; t < offsets[s + 1]; ++t) {
        const bool first = t == offsets[s];
        const int64_t tag = label[static_cast<size_t>(t)];
        score += at(x, t, tag);
        score += first ? at(w, 0, tag) : at(w, 2 + label[static_cast<size_t>(t - 1)], tag);
        std::vector<double> next;
        for (int64_t j = 0; j < tags; ++j) {
          double sum = first ? at(w, 0, j) : paths[0] + at(w, 2, j);
          for (int64_t i = 1; i < tags && !first; ++i)
            sum = LogAdd(sum, paths[static_cast<size_t>(i)] + at(w, 2 + i, j));
          next.push_back(sum + at(x, t, j));
        }
        paths = next;
      }
      costs.push_back(0);
      if (paths.empty()) continue;
      double z = paths[0] + at(w, 1, 0);
      for (int64_t j = 1; j < tags; ++j) z = LogAdd(z, paths[static_cast<size_t>(j)] + at(w, 1, j));
      costs.back() = z - score - at(w, 1, label[static_cast<size_t>(offsets[s + 1] - 1)]);
    }
    const LoD lod{{0, 5, 5, 6, 20}};
    const Threads threads(1 + static_cast<int>(tags % 3));
    OpTest("linear_chain_crf")
        .Input("Emission", {20, tags}, x)
        .Lod(lod)
        .Input("Transition", {tags + 2, tags}, w)
        .IntInput("Label", {20, 1}, label)
        .Lod(lod)
        .Expect("LogLikelihood", {4, 1}, costs)
        .CheckGradient({"Emission", "Transition"});
  }
}

// One tag, two steps: alpha is 1 everywhere and the cost 0. Two tags, one step: by hand.
TEST(LinearChainCrf, ByHand) {
  OpTest("linear_chain_crf")
      .Input("Emission", {2, 1}, {4, 5})
      .Lod({{0, 2}})
      .Input("Transition", {3, 1}, {1, 2, 3})
      .IntInput("Label", {2, 1}, {0, 0})
      .Lod({{0, 2}})
      .Expect("Alpha", {2, 1}, {1, 1})
      .Expect("EmissionExps", {2, 1}, {1, 1})
      .Expect("TransitionExps", {3, 1}, {std::exp(1.), std::exp(2.), std::exp(3.)})
      .Expect("LogLikelihood", {1, 1}, {0});
  const double a = std::exp(1 + 0.5), b = std::exp(2 + 0.25);
  OpTest("linear_chain_crf")
      .Input("Emission", {1, 2, 2}, {1, 2, 9, 9})
      .Input("Transition", {4, 2}, {0.5, 0.25, -1, 1, 7, 7, 7, 7})
      .IntInput("Label", {1, 2}, {0, 1})
      .IntInput("Length", {1}, {1})
      .Expect("Alpha", {1, 2, 2}, {a / (a + b), b / (a + b), 0, 0})
      .Expect("LogLikelihood", {1, 1},
              {std::log(a * std::exp(-1.) + b * std::exp(1.)) - (1.5 - 1)});
}

// Shares that would underflow: the best path by hand, far ahead of all others.
TEST(LinearChainCrf, LargeWeights) {
  OpTest("linear_chain_crf")
      .Input("Emission", {3, 2}, {1000, 0, 0, 1000, 1000, 0})
      .Lod({{0, 3}})
      .Input("Transition", {4, 2}, {900, 0, 0, 900, 0, 2000, 2000, 0})
      .IntInput("Label", {3, 1}, {0, 1, 1})
      .Lod({{0, 3}})
      .Expect("LogLikelihood", {1, 1}, {7900 - (900 + 1000 + 2000 + 1000 + 0 + 0 + 900)})
      .Expect("Alpha", {3, 2}, {1, 0, 0, 1, 1, 0});
}

// Transitions that a weight of -1000 forbids, also where the given tags take one: the gradient of
// the pass with logarithms, and its agreement with the scaled one where both are exact.
TEST(LinearChainCrf, ForbiddenTransitions) {
  for (double forbidden : {-1000., -500.}) {
    Tagging tagging({4, 2});
    tagging.w[2 * kTags + 1] = forbidden;
    tagging.w[4 * kTags + 2] = forbidden;
    tagging.label = {0, 1, 2, 0, 1, 1};
    tagging.Rows()
        .Expect("LogLikelihood", {2, 1}, tagging.Costs())
        .CheckGradient({"Emission", "Transition"});
  }
  Tagging tagging({3});
  OpTest scaled = tagging.Rows();
  const Tensor shares = scaled.Output("Alpha");
  tagging.w[kTags + 1] = 700;  // a weight of the stop
  const Tensor logs = tagging.Rows().Output("Alpha");
  for (int64_t i = 0; i < shares.numel(); ++i)
    EXPECT_NEAR(logs.data<float>()[i], shares.data<float>()[i], 1e-6);
}

// Two steps whose tags are `label`; all weights are 0, except w[0][1] if it is given.
OpTest TwoSteps(const std::string& type, const std::vector<double>& x, int64_t label,
                double weight) {
  const auto tags = static_cast<int64_t>(x.size() / 2);
  std::vector<double> w(static_cast<size_t>((tags + 2) * tags), 0);
  w[static_cast<size_t>(2 * tags + 1)] = weight;
  return std::move(OpTest(type)
                       .Input("Emission", {1, 2, tags}, x)
                       .Input("Transition", {tags + 2, tags}, w)
                       .IntInput("Label", {1, 2}, {label, label})
                       .IntInput("Length", {1}, {2}));
}

// A nan anywhere makes all of its sequence unknown, in the scaled pass and in that with logarithms
// (which a weight of -10000 needs).
TEST(LinearChainCrf, NanInEmission) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double weight : {0., -10000.}) {
    for (const size_t tags : std::vector<size_t>{2, 3, 8, 11}) {
      for (const size_t at : {size_t{0}, tags - 1, tags, 2 * tags - 1}) {
        SCOPED_TRACE(testing::Message() << weight << ", " << tags << " tags, nan at " << at);
        std::vector<double> x(2 * tags, 0);
        x[at] = kNan;
        const auto count = static_cast<int64_t>(tags);
        TwoSteps("linear_chain_crf", x, 1, weight).Expect("LogLikelihood", {1, 1}, {kNan});
        TwoSteps("linear_chain_crf_grad", x, 1, weight)
            .Input("LogLikelihood@GRAD", {1, 1}, {1})
            .Expect("Emission@GRAD", {1, 2, count}, std::vector<double>(2 * tags, kNan))
            .Expect("Transition@GRAD", {count + 2, count},
                    std::vector<double>((tags + 2) * tags, kNan));
      }
    }
  }
}

// Z is infinite, and so is the cost of tags that score less. The share of the infinite tag is inf /
// inf; the other shares are 0.
TEST(LinearChainCrf, InfinityInEmission) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double weight : {0., -10000.}) {
    TwoSteps("linear_chain_crf", {0, 0, kInf, 0}, 1, weight)
        .Expect("LogLikelihood", {1, 1}, {kInf});
    TwoSteps("linear_chain_crf", {kInf, 0, 0, 0}, 1, weight)
        .Expect("LogLikelihood", {1, 1}, {kInf});
    TwoSteps("linear_chain_crf", {kInf, 0, 0, 0}, 0, weight)
        .Expect("LogLikelihood", {1, 1}, {kNan});
    TwoSteps("linear_chain_crf_grad", {0, 0, kInf, 0}, 1, weight)
        .Input("LogLikelihood@GRAD", {1, 1}, {1})
        .Expect("Emission@GRAD", {1, 2, 2}, {kNan, kNan, kNan, -1});
    // With an additional nan nothing is known, whichever of the two comes first.
    TwoSteps("linear_chain_crf", {0, 0, 0, kInf, kNan, 0}, 2, weight)
        .Expect("LogLikelihood", {1, 1}, {kNan});
    TwoSteps("linear_chain_crf", {kInf, kNan, 0, 0, 0, 0}, 2, weight)
        .Expect("LogLikelihood", {1, 1}, {kNan});
    TwoSteps("linear_chain_crf", {kNan, 0, kInf, 0, 0, 0}, 1, weight)
        .Expect("LogLikelihood", {1, 1}, {kNan});
  }
}

// Nothing may go to tag 1: its paths weigh 0, the only tagging is the given one.
TEST(LinearChainCrf, WeightsOfMinusInfinity) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto with = [&](const std::string& type) {
    return std::move(OpTest(type)
                         .Input("Emission", {1, 2, 2}, {1, 2, 3, 4})
                         .Input("Transition", {4, 2}, {0.5, -kInf, 0.25, -0.25, 2, -kInf, 3, -kInf})
                         .IntInput("Label", {1, 2}, {0, 0})
                         .IntInput("Length", {1}, {2}));
  };
  with("linear_chain_crf")
      .Expect("LogLikelihood", {1, 1}, {0})
      .Expect("Alpha", {1, 2, 2}, {1, 0, 1, 0});
  with("linear_chain_crf_grad")
      .Input("LogLikelihood@GRAD", {1, 1}, {1})
      .Expect("Emission@GRAD", {1, 2, 2}, {0, 0, 0, 0})
      .Expect("Transition@GRAD", {4, 2}, {0, 0, 0, 0, 0, 0, 0, 0});
}

// One long sequence: the time is checked at steps 0, 64 and 128, backward at 128 first. The second
// range of weights needs the pass with logarithms.
TEST(LinearChainCrf, StopsInTime) {
  constexpr int64_t kSteps = 130, kMany = 128;
  for (const double range : {1., 1000.}) {
    const auto with = [&](const std::string& type) {
      return std::move(OpTest(type)
                           .RandomInput("Emission", {1, kSteps, kMany})
                           .RandomInput("Transition", {kMany + 2, kMany}, -range, range)
                           .IntInput("Label", {1, kSteps}, Ints(kSteps, 1))
                           .IntInput("Length", {1}, {kSteps}));
    };
    for (const int passing : {1, 2, 3}) {
      const Stopped stopped(passing);
      with("linear_chain_crf").ExpectError("computing the cost of a CRF");
    }
    for (const int passing : {4, 5, 6}) {
      const Stopped stopped(passing);
      with("linear_chain_crf_grad")
          .Input("LogLikelihood@GRAD", {1, 1}, {1})
          .ExpectError("computing the gradient of a CRF");
    }
  }
}

TEST(LinearChainCrf, Constraints) {
  const auto with = [](const Shape& x, LoD lod, const Shape& w, const Ints& label) {
    return std::move(OpTest("linear_chain_crf")
                         .RandomInput("Emission", x)
                         .Lod(lod)
                         .RandomInput("Transition", w)
                         .IntInput("Label", {static_cast<int64_t>(label.size()), 1}, label)
                         .Lod(lod));
  };
  with({1}, {{0, 1}}, {3, 1}, {0}).ExpectError("linear_chain_crf.C1");
  with({1, 0}, {{0, 1}}, {2, 0}, {0}).ExpectError("linear_chain_crf.C1");
  with({1, 2}, {{0, 1}}, {3, 2}, {0}).ExpectError("linear_chain_crf.C2");
  with({1, 2}, {{0, 1}}, {4, 2}, {0, 0}).ExpectError("linear_chain_crf.C3");
  with({1, 2}, {}, {4, 2}, {0}).ExpectError("linear_chain_crf.C4");
  with({1, 2}, {{0, 1}}, {4, 2}, {2}).ExpectError("linear_chain_crf.C5");
  with({1, 2}, {{0, 1}}, {4, 2}, {-1}).ExpectError("linear_chain_crf.C5");
  for (int64_t length : {3, -1}) {
    OpTest("linear_chain_crf")
        .RandomInput("Emission", {1, 2, 2})
        .RandomInput("Transition", {4, 2})
        .IntInput("Label", {1, 2}, {0, 1})
        .IntInput("Length", {1}, {length})
        .ExpectError("linear_chain_crf.C4");
  }
  OpTest("linear_chain_crf_grad")
      .RandomInput("Emission", {1, 2, 2})
      .RandomInput("Transition", {4, 2})
      .IntInput("Label", {1, 2}, {0, 1})
      .IntInput("Length", {1}, {1})
      .RandomInput("LogLikelihood@GRAD", {2, 1})
      .ExpectError("linear_chain_crf_grad.C6");
}
}  // namespace coracle::linear_chain_crf_test
