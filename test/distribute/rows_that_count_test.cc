// Steps in which some ranks have no rows, or none that count: N ranks learn what one rank learns.

#include <coracle/backward/backward.h>
#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/op/writer.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_run.h>
#include <coracle/test/error_of.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

namespace coracle::rows_that_count_test {

constexpr double kTolerance = 1e-12;
constexpr const char* kHead = R"(
data { name: "label" shape: [-1, 1] dtype: INT64 }
data { name: "x" shape: [-1, 6] dtype: FP64 }
)";

struct CountCase {
  std::string name, net;
  bool skips = false;  // a loss that is not finite
  int accumulate = 1;
};

StepPrograms Make(const CountCase& c) {
  BuiltModel model = ParseModelText(kHead + c.net);
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
  AppendTrainingStep(
      {.groups = {group}, .accumulate = c.accumulate, .skip_non_finite_loss = c.skips}, loss,
      model.startup);
  return {std::move(model.main), std::move(model.startup)};
}

// Batches of fewer rows than ranks; in some a rank's labels are all 4, which is ignored.
std::vector<Batch> Draw() {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<Batch> batches;
  for (const int64_t rows : {6, 7, 1, 6, 2, 1, 6, 5}) {
    Tensor x = Tensor::Zeros(DType::kFloat64, {rows, 6}), label(DType::kInt64, {rows, 1});
    for (double& value : x.span<double>()) value = normal(random);
    for (int64_t i = 0; i < rows; ++i)
      label.data<int64_t>()[i] = rows == 6 && i >= 2 ? 4 : static_cast<int64_t>(random() % 4);
    batches.push_back({{"label", label}, {"x", x}});
  }
  return batches;
}

std::string StatisticsNet(int slot_dim) {
  return fmt::format(R"(
layer {{ parameter {{ shape: [6] dtype: FP64 output: "n" param {{ initializer {{ constant {{ value: 10 }} }} }} }} }}
layer {{ parameter {{ shape: [6] dtype: FP64 output: "s" param {{ initializer {{ constant {{ value: 0 }} }} }} }} }}
layer {{ parameter {{ shape: [6] dtype: FP64 output: "q" param {{ initializer {{ constant {{ value: 10 }} }} }} }} }}
layer {{ op {{ data_norm {{ X: "x" BatchSize: "n" BatchSum: "s" BatchSquareSum: "q" Y: "y" Means: "mm" Scales: "sc" slot_dim: {} }} }} }}
layer {{ fc {{ input: "y" size: 5 output: "logits" }} }}
layer {{ softmax_with_cross_entropy {{ logits: "logits" label: "label" output: "ce" }} }}
layer {{ mean {{ input: "ce" output: "loss" }} }}
)",
                     slot_dim);
}

std::vector<CountCase> Cases() {
  const std::string ignoring = R"(
layer { fc { input: "x" size: 4 output: "logits" } }
layer { log_softmax { input: "logits" output: "lp" } }
layer { op { squeeze2 { X: "label" Out: "l" XShape: "ls" axes: 1 } } }
layer { op { nll_loss { X: "lp" Label: "l" Out: "loss" Total_weight: "tw" ignore_index: 4 } } }
)";
  const std::string counts = R"(
layer { parameter { shape: [6, 6] dtype: FP64 output: "w" param { initializer { uniform { low: 0.1 high: 0.9 } } } } }
layer { op { mul { X: "x" Y: "w" Out: "xw" } } }
layer { op { square { X: "xw" Out: "y" } } }
layer { op { slice { Input: "x" Out: "c" axes: 1 starts: 0 ends: 2 } } }
layer { op { cvm { X: "y" CVM: "c" Y: "z" use_cvm: true } } }
layer { fc { input: "z" size: 5 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
)";
  const std::string center = R"(
layer { fc { input: "x" size: 6 act: "tanh" output: "h" } }
layer { fill_constant { shape: [1] value: 4 dtype: INT64 output: "four" } }
layer { less_than { x: "label" y: "four" output: "chosen" } }
layer { op { split_lod_tensor { X: "h" Mask: "chosen" OutTrue: "g" OutFalse: "left" } } }
layer { op { reduce_mean { X: "g" Out: "center" dim: 0 } } }
layer { op { square { X: "center" Out: "c2" } } }
layer { op { reduce_sum { X: "c2" Out: "loss" reduce_all: true } } }
)";
  const std::string masks = R"(
layer { fc { input: "x" size: 1 output: "h" } }
layer { op { squeeze2 { X: "label" Out: "l0" XShape: "ls" axes: 1 } } }
layer { op { scale { X: "l0" Out: "l" bias: 1 } } }
layer { op { sequence_mask { X: "l" Y: "m1" out_dtype: 6 } } }
layer { elementwise_mul { x: "m1" y: "h" output: "a" } }
layer { reduce_sum { input: "a" output: "s" } }
layer { op { scale { X: "l" Out: "l2" scale: 2 } } }
layer { op { assign { X: "l2" Out: "l" } } }
layer { op { sequence_mask { X: "l" Y: "m2" out_dtype: 6 } } }
layer { elementwise_mul { x: "m2" y: "h" output: "b" } }
layer { op { square { X: "b" Out: "b2" } } }
layer { mean { input: "b2" output: "m" } }
layer { elementwise_add { x: "m" y: "s" output: "loss" } }
)";
  const std::string shared = R"(
layer { fc { input: "x" size: 5 output: "h0" } }
layer { tanh { input: "h0" output: "h1" } }
layer { batch_norm { input: "h0" moving_mean_name: "mm" moving_variance_name: "mv" output: "b0" } }
layer { batch_norm { input: "h1" moving_mean_name: "mm" moving_variance_name: "mv" output: "b1" } }
layer { elementwise_add { x: "b0" y: "b1" output: "h" } }
layer { op { square { X: "h" Out: "h2" } } }
layer { op { tanh { X: "h2" Out: "h3" } } }
layer { reduce_sum { input: "h3" output: "s" } }
layer { scale { input: "s" scale: 0.1 output: "loss" } }
)";
  return {
      {"lengths that are written again between masks", masks},
      {"running statistics that two batch_norms share", shared},
      {"a mean of chosen rows, of several elements", center},
      {"no rows that count, losses are checked", ignoring, true},
      {"the same over two runs", ignoring, true, 2},
      {"data_norm", StatisticsNet(-1)},
      {"cvm", counts},
  };
}

class RowsThatCount : public testing::TestWithParam<int> {};

TEST_P(RowsThatCount, EqualOneRank) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  const int ranks = GetParam();
  for (const CountCase& c : Cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<Batch> batches = Draw();
    const StepPrograms whole = Make(c);
    Scope expected;
    TrainOn(whole, batches, "", {.seed = 3}, nullptr, &expected);
    StepPrograms parts = Make(c);
    InsertAllReduce(parts.main, parts.startup,
                    {.nranks = ranks, .share = "share", .sync_batch_norm = true});
    VerifyOrThrow(parts.main, DefaultOps());
    std::vector<Scope> scopes(static_cast<size_t>(ranks));
    OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
      const auto rank = static_cast<size_t>(communicator->rank());
      TrainOn(parts, batches, "share", {.seed = 3}, communicator, &scopes[rank]);
    });
    if (testing::Test::HasFailure()) return;
    for (const std::string& name : whole.main.Parameters()) {
      for (const Scope& scope : scopes)
        EXPECT_LT(RelativeDifference(scope.Get(name), expected.Get(name)), kTolerance) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RowsThatCount, testing::Values(1, 2, 3, 4));

std::string Refusal(StepPrograms programs) {
  return ErrorOf(
      [&] { InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"}); });
}

TEST(RowsThatCount, FixedBatchesAreRefused) {
  const auto refusal = [](const char* rows) {
    BuiltModel model = ParseModelText(fmt::format(R"(
data {{ name: "x" shape: [{}, 6] }}
layer {{ fc {{ input: "x" size: 1 output: "h" }} }}
layer {{ reduce_sum {{ input: "h" output: "loss" }} }})",
                                                  rows));
    const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
    OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
    AppendTrainingStep({.groups = {group}}, loss, model.startup);
    return Refusal({std::move(model.main), std::move(model.startup)});
  };
  EXPECT_EQ(refusal("-1"), "no error");
  EXPECT_EQ(
      refusal("8"),
      "distribute: input 'x' is float32[8, 6], and ranks divide the batch: its first dimension "
      "must be -1");
}

TEST(RowsThatCount, PenaltiesOnGradientsAreRefused) {
  BuiltModel model = ParseModelText(std::string(kHead) + R"(
layer { fc { input: "x" size: 6 act: "tanh" output: "h" } }
layer { reduce_sum { input: "h" output: "s" } }
)");
  BlockDesc& root = model.main.Root();
  root.FindVar("x")->SetStopGradient(false);
  const std::vector<std::string> gradients =
      Gradients({Variable(&root, root.FindVar("s"))}, {Variable(&root, root.FindVar("x"))});
  Writer writer(root, DefaultOps());
  const Variable loss = Sum(Square(writer.Var(gradients.at(0))));
  OptimizerGroup group{.optimizer = std::make_shared<Sgd>(SgdOptions{.learning_rate = 0.1})};
  AppendTrainingStep({.groups = {group}}, loss, model.startup);
  EXPECT_THAT(Refusal({std::move(model.main), std::move(model.startup)}),
              testing::HasSubstr("mul_grad makes 'x@GRAD', a gradient of the rows"));
}

// Statistics of slots are means over the rows that have the slot, which ranks cannot add.
TEST(RowsThatCount, MeansOfSlotsAreRefused) {
  EXPECT_EQ(Refusal(Make({"slots", StatisticsNet(-1)})), "no error");
  EXPECT_EQ(
      Refusal(Make({"slots", StatisticsNet(3)})),
      "distribute: the ranks cannot add 'n@GRAD', which data_norm_grad makes from the rows of a "
      "rank; train on one rank, or without the op");
}

}  // namespace coracle::rows_that_count_test
