// Training with quantisation on several ranks: they have the moving averages of ranges of one rank.

#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/op/writer.h>
#include <coracle/test/distribute/rank_nets.h>

namespace coracle::activation_ranges_test {

using namespace rank_nets;

constexpr const char* kAverage = "fake_quantize_dequantize_moving_average_abs_max";

Variable Rounded(Builder& net, const Variable& x) {
  const std::string of = x.name(), out = of + "@ROUNDED";
  for (const char* part : {"@SCALE", "@SUM", "@COUNT"})
    MakeState(net.main(), net.startup(), of + part, kF64, {1}, 0);
  const Writer w(net.main().Root(), DefaultOps());
  w.Append(kAverage,
           {{"X", {of}},
            {"InScale", {of + "@SCALE"}},
            {"InAccum", {of + "@SUM"}},
            {"InState", {of + "@COUNT"}}},
           {{"Out", {out}},
            {"OutScale", {of + "@SCALE"}},
            {"OutAccum", {of + "@SUM"}},
            {"OutState", {of + "@COUNT"}}},
           {{"bit_length", int32_t{8}}});
  return Variable::Of(net.main().Root(), out);
}

Variable RoundedNet(Builder& net) {
  const Variable x = net.Data("x", {-1, 6}, kF64);
  const Variable h = net.Fc(Rounded(net, x), {.size = 9, .act = "tanh", .output = "h"});
  return CrossEntropyLoss(net, net.Fc(Rounded(net, h), {.size = 4}));
}

Case CaseOf(const std::vector<int64_t>& rows) {
  return {.name = "",
          .feeds = kMlpFeeds,
          .net = RoundedNet,
          .train = With<Sgd>(SgdOptions{.learning_rate = 0.2}),
          .rows = rows};
}

StepPrograms Divided(const StepPrograms& whole, int ranks, const std::string& share) {
  StepPrograms parts = whole;
  InsertAllReduce(parts.main, parts.startup, {.nranks = ranks, .share = share});
  return parts;
}

// With 2 rows, one of three ranks has none.
TEST(ActivationRanges, AreThoseOfOneRank) {
  const Case uneven = CaseOf({12, 2, 5}), even = CaseOf({12});
  const StepPrograms whole = Make(uneven);
  const StepPrograms parts = Divided(whole, 3, "share");
  int exchanges = 0, given = 0;
  parts.main.ForEachOp([&](const OpDesc& op) {
    exchanges += op.type() == "c_allreduce_max";
    given += op.type() == kAverage && op.HasInput("Largest");
  });
  EXPECT_EQ(exchanges, 2);
  EXPECT_EQ(given, 2);
  ExpectOneRank(uneven, whole, parts, 3, "share");
  ExpectOneRank(even, whole, Divided(whole, 2, ""), 2, "");
}

// A nan on one rank: no rank changes its averages, as one rank would not.
TEST(ActivationRanges, ValuesThatAreNotFinite) {
  if (FindLaunched().size > 1) GTEST_SKIP() << "of threads";
  Case c = CaseOf({12, 2, 5});
  c.poisoned = 3;
  const StepPrograms whole = Make(c), parts = Divided(whole, 3, "share");
  const std::vector<Batch> batches = Draw(c, 8);
  Scope expected;
  TrainOn(whole, batches, "", {}, nullptr, &expected);
  std::vector<Scope> scopes(3);
  OnRanks(3, [&](const std::shared_ptr<Communicator>& communicator) {
    TrainOn(parts, batches, "share", {}, communicator,
            &scopes[static_cast<size_t>(communicator->rank())]);
  });
  for (const char* name : {"x@SCALE", "x@SUM", "x@COUNT", "h@COUNT"}) {
    EXPECT_TRUE(std::isfinite(expected.Get(name).Item<double>())) << name;
    for (const Scope& scope : scopes)
      EXPECT_LT(RelativeDifference(scope.Get(name), expected.Get(name)), kTolerance) << name;
  }
  double count = 0;
  for (int i = 0; i < 7; ++i) count = static_cast<double>(0.9f) * count + 1;
  EXPECT_NEAR(expected.Get("x@COUNT").Item<double>(), count, 1e-9);
}

// In a test the scale is fixed, so nothing is exchanged.
TEST(ActivationRanges, FixedOnesNeedNoExchange) {
  StepPrograms programs = Make(CaseOf({12}));
  programs.main.ForEachOp([](OpDesc& op) {
    if (op.type() == kAverage) op.SetAttr("is_test", true);
  });
  const StepPrograms parts = Divided(programs, 3, "share");
  parts.main.ForEachOp([](const OpDesc& op) { EXPECT_NE(op.type(), "c_allreduce_max"); });
}

}  // namespace coracle::activation_ranges_test
