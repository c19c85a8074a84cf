#pragma once
// Small nets of float64 with drawn batches, to be trained by several ranks and by one.

#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/distribute/rank_run.h>

#include <random>

namespace coracle::rank_nets {

inline constexpr DType kF64 = DType::kFloat64;
inline constexpr double kTolerance = 1e-12;

// A feed: its dims after the rows, and the number of classes of labels (0: drawn numbers).
struct FeedSpec {
  std::string name;
  std::vector<int64_t> dims;
  int64_t classes = 0;
};

struct Case {
  std::string name;
  std::vector<FeedSpec> feeds;
  std::function<Variable(Builder&)> net;  // the loss
  std::function<void(const Variable& loss, ProgramDesc& startup)> train;
  std::vector<int64_t> rows = {12};  // of the batches, in turn
  int poisoned = -1;                 // the step in which one row holds a nan
  double bucket_mb = 25;
  bool sync_batch_norm = false;
  bool shard_state = false;
  std::string loss_weight = {};
};

inline std::vector<Batch> Draw(const Case& c, int steps) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<Batch> batches;
  for (int step = 0; step < steps; ++step) {
    Batch batch;
    for (const FeedSpec& feed : c.feeds) {
      std::vector<int64_t> dims = {c.rows[static_cast<size_t>(step) % c.rows.size()]};
      dims.insert(dims.end(), feed.dims.begin(), feed.dims.end());
      Tensor tensor = Tensor::Zeros(feed.classes ? DType::kInt64 : kF64, Shape(dims));
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        if (feed.classes)
          tensor.data<int64_t>()[i] =
              static_cast<int64_t>(random() % static_cast<uint64_t>(feed.classes));
        else
          tensor.data<double>()[i] = normal(random);
      }
      if (step == c.poisoned && !feed.classes) tensor.data<double>()[0] = NAN;
      batch[feed.name] = tensor;
    }
    batches.push_back(batch);
  }
  return batches;
}

inline StepPrograms Make(const Case& c) {
  StepPrograms programs;
  Builder net(programs.main, programs.startup);
  const Variable loss = c.net(net);
  c.train(loss, programs.startup);
  return programs;
}

inline Variable CrossEntropyLoss(Builder& net, const Variable& logits) {
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  return net.Mean(net.SoftmaxWithCrossEntropy(logits, label), {.output = "loss"});
}

inline Variable Mlp(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  FcOptions hidden{.size = 9, .act = "tanh"};
  hidden.error_clip = ErrorClipByValue(0.01);
  return CrossEntropyLoss(net, net.Fc(net.Fc(x, hidden), {.size = 4}));
}
inline const std::vector<FeedSpec> kMlpFeeds = {{"label", {1}, 4}, {"x", {6}}};

inline Variable NormNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 2, 4, 4}, kF64);
  Variable h = net.Conv2d(x, {.num_filters = 4, .filter_size = {3}, .bias_attr = std::nullopt});
  h = net.BatchNorm(h, {.act = "relu"});
  h = net.BatchNorm(net.Fc(h, {.size = 6, .bias_attr = std::nullopt}));
  return CrossEntropyLoss(net, net.Fc(h, {.size = 4}));
}

template <class Optimizer, class Options>
std::function<void(const Variable&, ProgramDesc&)> With(
    const Options& options, const std::function<void(coracle::Optimizer&)>& change = {}) {
  return [=](const Variable& loss, ProgramDesc& startup) {
    Optimizer optimizer(options);
    if (change) change(optimizer);
    optimizer.Minimize(loss, startup);
  };
}

// Compares the scopes of ranks that train with the scope of one rank.
inline void ExpectOneRank(const Case& c, const StepPrograms& whole, const StepPrograms& parts,
                          int ranks, const std::string& share) {
  if (FindLaunched().size > 1) GTEST_SKIP() << "of threads";
  const std::vector<Batch> batches = Draw(c, 8);
  Scope expected;
  TrainOn(whole, batches, "", {.seed = 3}, nullptr, &expected);
  std::vector<Scope> scopes(static_cast<size_t>(ranks));
  OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainOn(parts, batches, share, {.seed = 3}, communicator,
            &scopes[static_cast<size_t>(communicator->rank())]);
  });
  for (size_t i = 0; i < whole.main.Root().NumVars(); ++i) {
    const VarDesc& var = whole.main.Root().var(i);
    if (!var.persistable() || !expected.Has(var.name())) continue;
    for (const Scope& scope : scopes)
      EXPECT_LT(RelativeDifference(scope.Get(var.name()), expected.Get(var.name())), kTolerance)
          << var.name();
  }
}

}  // namespace coracle::rank_nets
