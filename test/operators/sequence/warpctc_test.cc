#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>
#include <limits>

namespace coracle::warpctc_test {

using Symbols = std::vector<int64_t>;

// The label that a path spells.
Symbols Spelled(const Symbols& path, int64_t blank) {
  Symbols out;
  for (size_t t = 0; t < path.size(); ++t) {
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) out.push_back(path[t]);
  }
  return out;
}

// -log of the sum of the probabilities of all classes^frames paths that spell the label, one by
// one; 0 where there is none. `x` has a row of scores for each frame.
double LossByPaths(const std::vector<std::vector<double>>& x, const Symbols& label, int64_t classes,
                   int64_t blank) {
  double total = 0;
  Symbols path(x.size(), 0);
  for (bool more = true; more;) {
    if (Spelled(path, blank) == label) {
      double p = 1;
      for (size_t t = 0; t < x.size(); ++t) {
        double sum = 0;
        for (double v : x[t]) sum += std::exp(v);
        p *= std::exp(x[t][static_cast<size_t>(path[t])]) / sum;
      }
      total += p;
    }
    more = false;
    for (size_t t = 0; t < path.size() && !more; ++t) {
      more = ++path[t] < classes;
      if (!more) path[t] = 0;
    }
  }
  return total > 0 ? -std::log(total) : 0;
}

struct Batch {
  std::vector<std::vector<std::vector<double>>> frames;  // of each sequence
  std::vector<Symbols> labels;
  int64_t classes = 3, blank = 0;

  Batch(const std::vector<int64_t>& lengths, std::vector<Symbols> spelled, int64_t classes_,
        int64_t blank_)
      : labels(std::move(spelled)), classes(classes_), blank(blank_) {
    std::mt19937 random(11);
    std::uniform_real_distribution<double> uniform(-2, 2);
    for (int64_t length : lengths) {
      frames.emplace_back(static_cast<size_t>(length));
      for (auto& row : frames.back()) {
        row.resize(static_cast<size_t>(classes));
        for (double& v : row) v = uniform(random);
      }
    }
  }

  int64_t count() const { return static_cast<int64_t>(frames.size()); }
  std::vector<double> Losses() const {
    std::vector<double> losses;
    for (size_t i = 0; i < frames.size(); ++i)
      losses.push_back(LossByPaths(frames[i], labels[i], classes, blank));
    return losses;
  }
  OpTest Rows() const {
    std::vector<double> x;
    Symbols y;
    LoD x_lod{{0}}, y_lod{{0}};
    for (size_t i = 0; i < frames.size(); ++i) {
      for (const auto& row : frames[i]) x.insert(x.end(), row.begin(), row.end());
      y.insert(y.end(), labels[i].begin(), labels[i].end());
      x_lod[0].push_back(x_lod[0].back() + frames[i].size());
      y_lod[0].push_back(y.size());
    }
    return std::move(OpTest("warpctc")
                         .Attr("blank", static_cast<int32_t>(blank))
                         .Input("Logits", {static_cast<int64_t>(x_lod[0].back()), classes}, x)
                         .Lod(x_lod)
                         .IntInput("Label", {static_cast<int64_t>(y.size()), 1}, y, DType::kInt32)
                         .Lod(y_lod));
  }
  OpTest Padded(int64_t time, int64_t most) const {
    std::vector<double> x(static_cast<size_t>(time * count() * classes), 7);
    Symbols y(static_cast<size_t>(count() * most), 0), x_lengths, y_lengths;
    for (size_t i = 0; i < frames.size(); ++i) {
      for (size_t t = 0; t < frames[i].size(); ++t) {
        std::copy(frames[i][t].begin(), frames[i][t].end(),
                  x.begin() + static_cast<ptrdiff_t>((t * frames.size() + i) *
                                                     static_cast<size_t>(classes)));
      }
      std::copy(labels[i].begin(), labels[i].end(),
                y.begin() + static_cast<ptrdiff_t>(i * static_cast<size_t>(most)));
      x_lengths.push_back(static_cast<int64_t>(frames[i].size()));
      y_lengths.push_back(static_cast<int64_t>(labels[i].size()));
    }
    return std::move(OpTest("warpctc")
                         .Attr("blank", static_cast<int32_t>(blank))
                         .Input("Logits", {time, count(), classes}, x)
                         .IntInput("Label", {count(), most}, y, DType::kInt32)
                         .IntInput("LogitsLength", {count()}, x_lengths)
                         .IntInput("LabelLength", {count()}, y_lengths));
  }
};

// Repeated symbols, an empty label, sequences that are empty or too short, one path alone.
std::vector<Batch> Batches() {
  return {Batch({4, 5, 3}, {{1, 2}, {1, 1}, {}}, 3, 0),
          Batch({5, 2, 0, 3, 0}, {{0, 0, 1}, {1, 1}, {}, {0, 0}, {1}}, 3, 2),
          Batch({4}, {{3, 2, 0}}, 4, 1)};
}

TEST(Warpctc, AgreesWithTryingAllPaths) {
  for (const Batch& batch : Batches()) {
    const std::vector<double> losses = batch.Losses();
    batch.Rows().Expect("Loss", {batch.count(), 1}, losses).ExpectLod("Loss", {});
    batch.Padded(6, 3).Expect("Loss", {batch.count(), 1}, losses);
  }
}

TEST(Warpctc, Gradient) {
  for (const Batch& batch : Batches()) {
    batch.Rows().CheckGradient({"Logits"});
    batch.Padded(6, 3).CheckGradient({"Logits"});
  }
}

// One frame and the label "1": the loss is -log softmax[1], its derivative softmax - [0 1 0].
TEST(Warpctc, ByHand) {
  const double e = std::exp(1.0), sum = 2 + e;
  OpTest("warpctc")
      .Input("Logits", {1, 3}, {0, 1, 0})
      .Lod({{0, 1}})
      .IntInput("Label", {1, 1}, {1})
      .Lod({{0, 1}})
      .Expect("Loss", {1, 1}, {-std::log(e / sum)})
      .Expect("WarpCTCGrad", {1, 1, 3}, {1 / sum, e / sum - 1, 1 / sum});
}

TEST(Warpctc, NoSequences) {
  OpTest("warpctc")
      .Input("Logits", {0, 3}, {})
      .Lod({{0}})
      .IntInput("Label", {0, 1}, {})
      .Lod({{0}})
      .Expect("Loss", {0, 1}, {})
      .Expect("WarpCTCGrad", {0, 0, 3}, {});
}

// Scores far apart, as in a network that is certain and wrong, do not underflow.
TEST(Warpctc, ImprobableLabels) {
  std::vector<double> x;
  for (int t = 0; t < 20; ++t) x.insert(x.end(), {100, 0});
  OpTest("warpctc")
      .Input("Logits", {20, 2}, x)
      .Lod({{0, 20}})
      .IntInput("Label", {10, 1}, Symbols(10, 1))
      .Lod({{0, 10}})
      .Expect("Loss", {1, 1}, {1000 - std::log(11.0)}, 1e-4);
}

// The derivative of the loss divided by the frames, but not the loss itself.
TEST(Warpctc, NormByTimes) {
  const auto grad = [](bool norm) {
    return OpTest("warpctc_grad")
        .Attr("norm_by_times", norm)
        .Input("WarpCTCGrad", {3, 2, 1}, {1, 2, 3, 4, 5, 6})
        .Input("Logits", {4, 1}, {0, 0, 0, 0})
        .Lod({{0, 3, 4}})
        .Input("Loss@GRAD", {2, 1}, {6, 10});
  };
  grad(false).Expect("Logits@GRAD", {4, 1}, {6, 18, 30, 20});
  grad(true).Expect("Logits@GRAD", {4, 1}, {2, 6, 10, 20});
}

// Labels around the sizes of vectors, with repeated symbols; sequences that are too short or empty.
// The scores of some are far apart.
TEST(Warpctc, FastKernel) {
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    const int64_t classes = 2 + static_cast<int64_t>(random() % 40), blank = round % classes;
    std::vector<int64_t> lengths;
    std::vector<Symbols> labels;
    for (const int64_t size : {0, 1, 2, 7, 8, 9, 17, 33}) {
      labels.emplace_back();
      for (int64_t k = 0; k < size; ++k)
        labels.back().push_back(
            (blank + 1 + static_cast<int64_t>(random() % 3 % static_cast<uint64_t>(classes - 1))) %
            classes);
      lengths.push_back(round % 4 == 3 ? size : 2 * size + static_cast<int64_t>(random() % 9));
    }
    Batch batch(lengths, labels, classes, blank);
    if (round % 3 == 2) {
      for (auto& frames : batch.frames) {
        for (auto& row : frames) {
          for (double& v : row) v *= 40;
        }
      }
    }
    SCOPED_TRACE(round);
    const Threads threads(1 + round % 3);
    batch.Rows().CheckFast(1e-5);
    batch.Padded(90, 35).CheckFast(1e-5);
  }
}

// Scores of -inf: symbols that cannot be.
TEST(Warpctc, InfiniteScores) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
    const auto loss = [&](const std::vector<double>& x, const Symbols& label) {
      return OpTest("warpctc")
          .Input("Logits", {2, 2}, x)
          .Lod({{0, 2}})
          .IntInput("Label", {static_cast<int64_t>(label.size()), 1}, label)
          .Lod({{0, label.size()}})
          .Output("Loss", mode)
          .data<float>()[0];
    };
    EXPECT_EQ(loss({0, -inf, 0, -inf}, {1}), inf);
    EXPECT_NEAR(loss({0, -inf, 0, 0}, {1}), std::log(2), 1e-6);
  }
}

// Scores without a softmax leave no probability, at any place; other sequences keep theirs.
TEST(Warpctc, ScoresWithoutASoftmax) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  constexpr size_t kFrames = 4;
  for (const int64_t classes : {3, 20}) {
    const auto columns = static_cast<size_t>(classes);
    for (const double bad : {nan, inf, -inf}) {
      for (size_t at = 0; at < kFrames * columns; ++at) {
        std::vector<double> x(2 * kFrames * columns, 0.25);
        if (bad == -inf) {  // a whole frame
          std::fill_n(x.begin() + static_cast<ptrdiff_t>(at / columns * columns), columns, bad);
        } else {
          x[at] = bad;
        }
        for (const KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
          OpTest test("warpctc");
          test.Input("Logits", {2 * kFrames, classes}, x)
              .Lod({{0, kFrames, 2 * kFrames}})
              .IntInput("Label", {4, 1}, {1, 2, 1, 2})
              .Lod({{0, 2, 4}});
          const Tensor loss = test.Output("Loss", mode), grad = test.Output("WarpCTCGrad", mode);
          EXPECT_TRUE(std::isnan(loss.data<float>()[0])) << bad << " at " << at;
          EXPECT_TRUE(std::isfinite(loss.data<float>()[1]));
          for (size_t t = 0; t < kFrames; ++t) {
            for (size_t v = 0; v < columns; ++v) {
              const float* row = grad.data<float>() + 2 * t * columns + v;
              EXPECT_TRUE(std::isnan(row[0]));
              EXPECT_TRUE(std::isfinite(row[columns]));
            }
          }
        }
      }
    }
  }
}

// 2,000 frames and 100 symbols: memory for their states, of one sequence at a time, not for pairs
// of frames. The scores take 1.5 MB, their gradient as much.
TEST(Warpctc, MemoryOfLongSequences) {
  constexpr int64_t kFrames = 2000, kCount = 32, kSymbols = 100, kClasses = 6;
  Symbols label;
  for (int64_t k = 0; k < kCount * kSymbols; ++k) label.push_back(1 + k % (kClasses - 1));
  OpTest test("warpctc");
  test.RandomInput("Logits", {kFrames, kCount, kClasses})
      .IntInput("Label", {kCount, kSymbols}, label)
      .IntInput("LogitsLength", {kCount}, Symbols(kCount, kFrames))
      .IntInput("LabelLength", {kCount}, Symbols(kCount, kSymbols));
  const Threads threads(1);
  const ScopedLimits scoped(
      std::make_shared<ResourceLimits>(ResourceOptions{.memory = 10'000'000}));
  const Tensor loss = test.Output("Loss");
  for (int64_t i = 0; i < kCount; ++i) EXPECT_GT(loss.data<float>()[i], 100);
}

TEST(Warpctc, Constraints) {
  const auto with = [](const Shape& logits, LoD lod, const Shape& label, const Symbols& symbols,
                       LoD label_lod, int32_t blank) {
    return std::move(OpTest("warpctc")
                         .Attr("blank", blank)
                         .RandomInput("Logits", logits)
                         .Lod(std::move(lod))
                         .IntInput("Label", label, symbols)
                         .Lod(std::move(label_lod)));
  };
  with({2}, {{0, 2}}, {1, 1}, {1}, {{0, 1}}, 0).ExpectError("warpctc.C1");
  with({2, 2}, {}, {1, 1}, {1}, {{0, 1}}, 0).ExpectError("warpctc.C2");
  with({2, 2}, {{0, 2}}, {1, 1}, {1}, {}, 0).ExpectError("warpctc.C3");
  with({2, 2}, {{0, 2}}, {1, 1}, {1}, {{0, 1, 1}}, 0).ExpectError("warpctc.C3");
  with({2, 2}, {{0, 2}}, {1, 2}, {1, 1}, {{0, 1}}, 0).ExpectError("warpctc.C3");
  with({2, 2}, {{0, 2}}, {1, 1}, {1}, {{0, 1}}, 2).ExpectError("warpctc.C4");
  with({2, 2}, {{0, 2}}, {1, 1}, {1}, {{0, 1}}, -1).ExpectError("warpctc.C4");
  with({2, 2}, {{0, 2}}, {1, 1}, {2}, {{0, 1}}, 0).ExpectError("warpctc.C5");
  with({2, 2}, {{0, 2}}, {1, 1}, {0}, {{0, 1}}, 0).ExpectError("warpctc.C5");
  const auto padded = [](int64_t frames, int64_t symbols) {
    return std::move(OpTest("warpctc")
                         .RandomInput("Logits", {2, 1, 2})
                         .IntInput("Label", {1, 1}, {1})
                         .IntInput("LogitsLength", {1}, {frames})
                         .IntInput("LabelLength", {1}, {symbols}));
  };
  padded(3, 1).ExpectError("warpctc.C2");
  padded(-1, 1).ExpectError("warpctc.C2");
  padded(2, 2).ExpectError("warpctc.C3");
  OpTest("warpctc")
      .RandomInput("Logits", {2, 1, 2})
      .IntInput("Label", {1, 1}, {1})
      .IntInput("LogitsLength", {2}, {1, 1})
      .IntInput("LabelLength", {1}, {1})
      .ExpectError("warpctc.C2");
  for (const Shape& saved : {Shape{2, 1, 2}, Shape{1, 1, 3}, Shape{1, 1}}) {
    OpTest("warpctc_grad")
        .RandomInput("WarpCTCGrad", saved)
        .RandomInput("Logits", {2, 3})
        .Lod({{0, 2}})
        .RandomInput("Loss@GRAD", {1, 1})
        .ExpectError("warpctc_grad.C6");
  }
}
}  // namespace coracle::warpctc_test
