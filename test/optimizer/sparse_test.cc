// Optimizers on sparse gradients: whole training steps through Minimize and the executor, with
// is_sparse and without.

#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::sparse_test {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

constexpr int64_t kRows = 40, kWidth = 3;

// A table read twice (the second look-up pads row 2), so that two sparse gradients add up.
struct Model {
  ProgramDesc main, startup;
  Variable loss;

  Model(bool sparse, int64_t rows, const std::function<void(VarDesc&)>& change = {}) {
    Builder net(main, startup);
    Variable a = net.Data("a", {-1}, DType::kInt64), b = net.Data("b", {-1}, DType::kInt64);
    EmbeddingOptions options;
    options.num_embeddings = rows;
    options.embedding_dim = kWidth;
    options.is_sparse = sparse;
    options.param_attr = {.name = "table", .initializer = UniformInitializer(-1, 1)};
    Variable x = net.Embedding(a, options);
    options.padding_idx = 2;
    Variable y = net.Embedding(b, options);
    loss = net.Mean(net.SquareErrorCost(x, y));
    if (change) change(*main.Root().FindVar("table"));
  }
};

std::vector<Tensor> Feeds(int step) {
  std::vector<int64_t> a(8), b(8);
  for (size_t i = 0; i < 8; ++i) {
    a[i] = (static_cast<int64_t>(i) * 7 + step * 3) % 11;
    b[i] = (static_cast<int64_t>(i) * static_cast<int64_t>(i) + step) % 13;
  }
  return {Tensor::Of<int64_t>({8}, a), Tensor::Of<int64_t>({8}, b)};
}

// The table after five steps.
Tensor Train(Model& model, Optimizer& optimizer) {
  optimizer.Minimize(model.loss, model.startup);
  Scope scope;
  Executor exe({.seed = 5});
  exe.Run(model.startup, scope);
  PreparedProgram step = exe.Prepare(model.main, {"a", "b"}, {model.loss.name()});
  for (int i = 0; i < 5; ++i) step.Run(scope, Feeds(i));
  return scope.Get("table").Clone();
}

double LargestDifference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a.data<float>()[i]) -
                                         static_cast<double>(b.data<float>()[i])));
  }
  return largest;
}

void ExpectSparseAsDense(const MakeOptimizer& make,
                         const std::function<void(VarDesc&)>& change = {}) {
  Model sparse(true, kRows, change), dense(false, kRows, change);
  const Tensor a = Train(sparse, *make()), b = Train(dense, *make());
  EXPECT_LT(LargestDifference(a, b), 3e-6);
  Model untouched(true, kRows);
  Scope scope;
  Executor({.seed = 5}).Run(untouched.startup, scope);
  EXPECT_GT(LargestDifference(a, scope.Get("table")), 0.01) << "nothing was learnt";
}

TEST(SparseOptimizer, EachAsWithTheDenseGradient) {
  ExpectSparseAsDense([] { return std::make_unique<Sgd>(SgdOptions{.learning_rate = 0.5}); });
  ExpectSparseAsDense([] {
    return std::make_unique<Momentum>(MomentumOptions{.learning_rate = 0.5, .momentum = 0.9});
  });
  ExpectSparseAsDense(
      [] { return std::make_unique<Adagrad>(AdagradOptions{.learning_rate = 0.1}); });
  ExpectSparseAsDense([] { return std::make_unique<Adam>(AdamOptions{.learning_rate = 0.1}); });
}

// Those without an update of rows get a dense gradient. The rates let each learn in five steps.
TEST(SparseOptimizer, EveryKindTakesThem) {
  const std::vector<std::pair<std::string, double>> kinds = {
      {"sgd", 0.5},     {"momentum", 0.5}, {"lars_momentum", 100},   {"lion", 0.1},
      {"dpsgd", 0.5},   {"adam", 0.1},     {"adamw", 0.1},           {"adamax", 0.1},
      {"lamb", 0.1},    {"adagrad", 0.1},  {"decayed_adagrad", 0.1}, {"adadelta", 50},
      {"rmsprop", 0.1}, {"ftrl", 0.1},     {"proximal_gd", 0.5}};
  for (const auto& [kind, rate] : kinds) {
    SCOPED_TRACE(kind);
    ExpectSparseAsDense([kind = kind, rate = rate] {
      return coracle::MakeOptimizer({kind, {{"learning_rate", rate}}});
    });
  }
}

TEST(SparseOptimizer, ClipAndDecay) {
  const auto sgd = [] { return std::make_unique<Sgd>(SgdOptions{.learning_rate = 0.5}); };
  ExpectSparseAsDense(sgd, [](VarDesc& table) {
    table.MutableTraining().gradient_clip = Setting{"by_value", {{"max", 0.05}}};
  });
  ExpectSparseAsDense(sgd, [](VarDesc& table) {
    table.MutableTraining().gradient_clip = Setting{"by_norm", {{"clip_norm", 0.1}}};
  });
  ExpectSparseAsDense(sgd, [](VarDesc& table) {
    table.MutableTraining().gradient_clip = Setting{"by_global_norm", {{"clip_norm", 0.1}}};
  });
  ExpectSparseAsDense(sgd, [](VarDesc& table) {
    table.MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.3}}};
  });
  ExpectSparseAsDense(sgd, [](VarDesc& table) { table.SetErrorClip(ErrorClipByValue(0.02)); });
}

// A clipped gradient stays sparse; a decayed one is dense, since every row decays.
TEST(SparseOptimizer, TypesOfTheGradient) {
  Model model(true, kRows, [](VarDesc& table) {
    table.MutableTraining().gradient_clip = Setting{"by_value", {{"max", 0.05}}};
    table.MutableTraining().regularizer = Setting{"l2_decay", {{"coeff", 0.3}}};
  });
  Sgd({}).Minimize(model.loss, model.startup);
  const BlockDesc& root = model.main.Root();
  EXPECT_EQ(root.FindVar("table@GRAD")->type(), VarType::kSelectedRows);
  size_t clips = 0;
  root.ForEachOp([&](const OpDesc& op) {
    if (StageOf(op) != TrainingStage::kClip) return;
    EXPECT_EQ(root.FindVar(op.Output("Out").at(0))->type(), VarType::kSelectedRows);
    ++clips;
  });
  EXPECT_EQ(clips, 1u);
  EXPECT_EQ(root.FindVar("table@GRAD@DECAYED")->type(), VarType::kLoDTensor);
}

// The first step of adam moves every element that has a gradient by the learning rate, whatever the
// gradient; in the second a row without gradient stays (lazy) or moves on.
TEST(SparseOptimizer, LazyAdamLeavesOtherRows) {
  for (bool lazy : {true, false}) {
    Model model(true, kRows);
    Adam adam({.learning_rate = 0.1, .lazy_mode = lazy});
    adam.Minimize(model.loss, model.startup);
    Scope scope;
    Executor exe({.seed = 5});
    exe.Run(model.startup, scope);
    PreparedProgram step = exe.Prepare(model.main, {"a", "b"}, {model.loss.name()});
    const auto row = [&](int64_t r) {
      const float* from = scope.Get("table").data<float>() + r * kWidth;
      return std::vector<float>(from, from + kWidth);
    };
    const std::vector<float> first = row(30);
    const Tensor with = Tensor::Of<int64_t>({2}, {30, 1}), pad = Tensor::Of<int64_t>({2}, {2, 2});
    step.Run(scope, {with, pad});
    const std::vector<float> second = row(30);
    for (size_t j = 0; j < second.size(); ++j)
      EXPECT_NEAR(std::abs(second[j] - first[j]), 0.1, 1e-3);
    step.Run(scope, {Tensor::Of<int64_t>({2}, {1, 3}), pad});
    EXPECT_EQ(row(30) == second, lazy);
  }
}

// Ten million rows: neither a dense gradient nor a touch of the other rows.
TEST(SparseOptimizer, MemoryIsThatOfTheRowsTouched) {
  constexpr int64_t kMany = 10'000'000;
  Model model(true, kMany);
  Sgd({.learning_rate = 0.5}).Minimize(model.loss, model.startup);
  Scope scope;
  Tensor table(DType::kFloat32, {kMany, kWidth});
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t j = 0; j < kWidth; ++j)
      table.data<float>()[row * kWidth + j] = static_cast<float>(row + j);
  }
  scope.Set("table", table);
  scope.Set("learning_rate_0", Tensor::Of<float>({1}, {0.5f}));
  CompileOptions options;
  options.memory_limit = 1 << 20;
  PreparedProgram step = Executor(options).Prepare(model.main, {"a", "b"}, {model.loss.name()});
  float first = 0, last = 0;
  uint64_t bytes = 0;
  for (int i = 0; i < 30; ++i) {
    last = step.Run(scope, Feeds(0))[0].Item<float>();
    if (i == 0) first = last;
    if (i == 5) bytes = step.WorkspaceBytes();
  }
  EXPECT_LT(last, 0.5f * first);
  EXPECT_EQ(step.WorkspaceBytes(), bytes);
  EXPECT_LT(bytes, 100'000u);
}

TEST(SparseOptimizer, AdagradOptions) {
  EXPECT_THROW(Adagrad({.epsilon = -1}), Error);
  EXPECT_THROW(Adagrad({.initial_accumulator_value = -1}), Error);
  Model model(true, kRows);
  Adagrad({.initial_accumulator_value = 0.5}).Minimize(model.loss, model.startup);
  Scope scope;
  Executor().Run(model.startup, scope);
  for (float v : scope.Get("table_moment_0").span<float>()) EXPECT_EQ(v, 0.5f);
}
}  // namespace coracle::sparse_test
