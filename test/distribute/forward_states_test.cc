// Values that could differ between ranks: those that the startup program draws, and states that
// forward ops change.

#include <coracle/distribute/all_reduce.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_run.h>

#include <random>

namespace coracle::forward_states_test {

constexpr double kTolerance = 1e-12;

constexpr const char* kData = R"(
data { name: "x" shape: [-1, 6] dtype: FP64 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
)";
constexpr const char* kLoss = R"(
layer { fc { input: "h" size: 4 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
)";

// `layers` make h from x; `terms` makes the input "terms" of the mean from h and ce.
StepPrograms Make(const std::string& layers, const std::string& terms) {
  BuiltModel model = ParseModelText(kData + layers + kLoss + terms +
                                    "layer { mean { input: \"terms\" output: \"loss\" } }");
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  Sgd({.learning_rate = 0.1}).Minimize(loss, model.startup);
  return {std::move(model.main), std::move(model.startup)};
}

// The last batches have fewer rows than three ranks.
std::vector<Batch> Draw() {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<Batch> batches;
  for (const int64_t rows : {12, 7, 5, 2, 9, 2}) {
    Tensor x = Tensor::Zeros(DType::kFloat64, {rows, 6}), label(DType::kInt64, {rows, 1});
    for (double& value : x.span<double>()) value = normal(random);
    for (int64_t& value : label.span<int64_t>()) value = static_cast<int64_t>(random() % 4);
    batches.push_back({{"label", label}, {"x", x}});
  }
  return batches;
}

// Every persistable variable has the value that one rank computes.
void ExpectWhatOneRankHas(const StepPrograms& whole, const std::vector<std::string>& averaged) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  Scope one;
  TrainOn(whole, Draw(), "", {.seed = 3}, nullptr, &one);
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    StepPrograms parts = whole;
    const AllReduceReport report =
        InsertAllReduce(parts.main, parts.startup, {.nranks = ranks, .share = "share"});
    EXPECT_EQ(report.averaged, averaged);
    EXPECT_TRUE(report.own.empty());
    VerifyOrThrow(parts.main, DefaultOps());
    std::vector<Scope> scopes(static_cast<size_t>(ranks));
    OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
      TrainOn(parts, Draw(), "share", {.seed = 3}, communicator,
              &scopes[static_cast<size_t>(communicator->rank())]);
    });
    for (const std::string& name : one.LocalNames()) {
      for (const Scope& scope : scopes) {
        EXPECT_LT(RelativeDifference(scope.Get(name), one.Get(name)), kTolerance) << name;
        EXPECT_TRUE(BitEqual(scope.Get(name), scopes[0].Get(name))) << name;
      }
    }
  }
}

constexpr const char* kCenters = R"(
layer { parameter { shape: [4, 5] dtype: FP64 output: "centers" } }
layer { parameter { shape: [1] dtype: FP64 output: "rate" } }
layer { op { center_loss { X: "h" Label: "label" Centers: "centers" CenterUpdateRate: "rate" DIFF
                           Loss: "cl" CentersOut: "centers" cluster_num: 4 need_update: true } } }
layer { elementwise_add { x: "ce" y: "cl" output: "terms" } }
)";

// Their update is not a mean over rows: it divides by the rows of a class plus one.
TEST(ForwardStates, CentersMoveByTheRowsOfAllRanks) {
  std::string centers = kCenters;
  centers.replace(centers.find("DIFF"), 4, "SampleCenterDiff: \"diff\"");
  ExpectWhatOneRankHas(Make("layer { fc { input: \"x\" size: 5 output: \"h\" } }", centers), {});
}

// An average of what the rows give, by ops of its own, that the next step subtracts.
TEST(ForwardStates, AveragesThatStepsRead) {
  ExpectWhatOneRankHas(Make(R"(
layer { parameter { shape: [6] dtype: FP64 param { trainable: false } output: "s" } }
layer { elementwise_sub { x: "x" y: "s" output: "centred" } }
layer { fc { input: "centred" size: 5 output: "h" } }
layer { reduce_mean { input: "x" dim: 0 output: "m" } }
layer { scale { input: "m" scale: 0.5 output: "new" } }
layer { scale { input: "s" scale: 0.5 output: "old" } }
layer { op { elementwise_add { X: "old" Y: "new" Out: "s" } } }
)",
                            "layer { scale { input: \"ce\" output: \"terms\" } }"),
                       {"s"});
}

// Results of a step differ between the ranks; counters of steps are equal.
TEST(ForwardStates, ResultsAndCounters) {
  StepPrograms programs = Make(R"(
layer { parameter { shape: [1] dtype: FP64 param { trainable: false } output: "count" } }
layer { op { increment { X: "count" Out: "count" } } }
layer { parameter { shape: [6] dtype: INT64 output: "seen"
                    param { trainable: false initializer { constant { value: 0 } } } } }
layer { cast { input: "x" dtype: INT64 output: "digits" } }
layer { reduce_sum { input: "digits" dim: 0 output: "sum" } }
layer { op { elementwise_add { X: "seen" Y: "sum" Out: "seen" } } }
layer { fc { input: "x" size: 5 output: "h" } }
)",
                               "layer { scale { input: \"ce\" output: \"terms\" } }");
  programs.main.Root().FindVar("h")->SetPersistable(true);
  const AllReduceReport report = InsertAllReduce(programs.main, programs.startup, {.nranks = 2});
  EXPECT_EQ(report.own, (std::vector<std::string>{"h", "seen"}));
  EXPECT_TRUE(report.averaged.empty());
  EXPECT_TRUE(report.local.empty());
}

// Each rank draws its own numbers, so states that they change are exchanged, in blocks, too.
TEST(ForwardStates, WalksOfDrawnSteps) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  StepPrograms programs = Make(R"(
layer { parameter { shape: [1] dtype: FP64 param { trainable: false } output: "walk" } }
layer { parameter { shape: [1] dtype: FP64 param { trainable: false } output: "way" } }
layer { op { gaussian_random { Out: "noise" shape: 1 dtype: FP64 } } }
layer { fill_constant { shape: [1] dtype: BOOL value: 1 output: "yes" } }
layer { op { elementwise_add { X: "walk" Y: "noise" Out: "walk" } } }
layer { if { condition: "yes"
  layer { op { gaussian_random { Out: "more" shape: 1 dtype: FP64 } } }
  layer { elementwise_add { x: "way" y: "more" output: "next" } }
  layer { assign_to { x: "next" var: "way" } } } }
layer { fc { input: "x" size: 5 output: "h0" } }
layer { elementwise_add { x: "h0" y: "walk" output: "h1" } }
layer { elementwise_add { x: "h1" y: "way" output: "h" } }
)",
                               "layer { scale { input: \"ce\" output: \"terms\" } }");
  const AllReduceReport report =
      InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .share = "share"});
  EXPECT_EQ(report.averaged, (std::vector<std::string>{"walk", "way"}));
  std::vector<Scope> scopes(2);
  OnRanks(2, [&](const std::shared_ptr<Communicator>& communicator) {
    const auto rank = static_cast<size_t>(communicator->rank());
    TrainOn(programs, Draw(), "share", {.seed = 3 + rank}, communicator, &scopes[rank]);
  });
  for (const char* name : {"walk", "way", "fc_0.w_0"})
    EXPECT_TRUE(BitEqual(scopes[0].Get(name), scopes[1].Get(name))) << name;
}

// Parameters that are not trained, and drawn variables that are none; the optimizer's constants
// need no exchange.
TEST(ForwardStates, AllThatIsDrawnIsOfRankZero) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  const auto make = [] {
    StepPrograms programs = Make(R"(
layer { fc { input: "x" size: 5 output: "a" param { name: "fixed" trainable: false } } }
layer { parameter { shape: [5, 5] dtype: FP64 output: "drawn" } }
layer { op { mul { X: "a" Y: "drawn" Out: "h" } } }
)",
                                 "layer { scale { input: \"ce\" output: \"terms\" } }");
    for (ProgramDesc* program : {&programs.main, &programs.startup})
      program->Root().FindVar("drawn")->SetIsParameter(false);
    return programs;
  };
  Scope one;
  Executor(CompileOptions{.seed = 3}).Prepare(make().startup).Run(one);
  StepPrograms programs = make();
  const std::vector<std::string> broadcast =
      InsertAllReduce(programs.main, programs.startup, {.nranks = 3}).broadcast;
  EXPECT_EQ(broadcast,
            (std::vector<std::string>{"drawn", "fc_0.b_0", "fc_1.b_0", "fc_1.w_0", "fixed"}));
  std::vector<Scope> scopes(3);
  OnRanks(3, [&](const std::shared_ptr<Communicator>& communicator) {
    PreparedProgram startup = Executor(CompileOptions{.seed = 3}).Prepare(programs.startup);
    startup.SetCommunicator(communicator);
    startup.Run(scopes[static_cast<size_t>(communicator->rank())]);
  });
  for (const Scope& scope : scopes) {
    for (const std::string& name : broadcast)
      EXPECT_TRUE(BitEqual(scope.Get(name), one.Get(name))) << name;
  }
}

}  // namespace coracle::forward_states_test
