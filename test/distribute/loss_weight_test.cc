// AllReduceOptions::loss_weight: how a loss combines for which no rule is known.

#include <coracle/distribute/all_reduce.h>
#include <coracle/operators/operators.h>
#include <coracle/test/distribute/rank_nets.h>
#include <coracle/test/error_of.h>

namespace coracle::loss_weight_test {

using namespace rank_nets;

// A loss for which no rule is known is refused, unless its weight is declared.
TEST(LossWeight, IsNeededWithoutARule) {
  const auto insert = [](const std::function<Variable(Builder&, const Variable& h)>& loss,
                         const std::string& loss_weight) {
    const auto net = [&](Builder& net) {
      return loss(net, net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 4}));
    };
    StepPrograms programs =
        Make({.name = "", .feeds = {}, .net = net, .train = With<Sgd>(SgdOptions{})});
    return ErrorOf([&] {
      InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .loss_weight = loss_weight});
    });
  };
  const auto products = [](Builder& net, const Variable& h) {
    return Mean(net.Matmul(h, h, {.transpose_y = true}));
  };
  const auto mean = [](Builder&, const Variable& h) { return Mean(Square(h)) * 3.0 + 1.0; };
  const auto root = [](Builder&, const Variable& h) { return Sqrt(Mean(Square(h))); };
  EXPECT_EQ(insert(mean, ""), "no error");
  EXPECT_EQ(insert(root, ""), "no error");
  const std::string error = insert(products, "");
  EXPECT_TRUE(error.starts_with("distribute: how the ranks' values of '")) << error;
  EXPECT_NE(error.find("' combine is unknown: matmul combines each row with each other row; say it "
                       "with distribute { loss_weight: \"ROWS\" } (or \"SUM\", or the name of a "
                       "variable whose elements count)"),
            std::string::npos)
      << error;
  for (const char* declared : {"ROWS", "SUM", "x"})
    EXPECT_EQ(insert(products, declared), "no error");
  EXPECT_EQ(insert(products, "y"),
            "distribute: loss_weight must be ROWS, SUM or a variable of the program, got 'y'");
}

// A weight must show how much of the batch a rank has before the loss is computed.
TEST(LossWeight, OfAVariable) {
  const auto insert = [](const std::string& loss_weight) {
    const auto net = [](Builder& net) {
      const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 4});
      const Variable r =
          net.Make("reverse", {{"X", {h.name()}}}, {{"axis", std::vector<int32_t>{0}}});
      const Variable sum = net.Make("reduce_sum", {{"X", {"x"}}}, {{"reduce_all", true}});
      net.block().Var("n").SetMeta(sum.desc().meta());
      net.block().AppendOp("assign", {{"X", {sum.name()}}}, {{"Out", {"n"}}});
      const Variable loss = Mean(Square(r));
      net.block().Var("late").SetMeta(h.desc().meta());
      net.block().AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"late"}}});
      return loss;
    };
    StepPrograms programs =
        Make({.name = "", .feeds = {}, .net = net, .train = With<Sgd>(SgdOptions{})});
    const std::string error = ErrorOf([&] {
      InsertAllReduce(programs.main, programs.startup, {.nranks = 2, .loss_weight = loss_weight});
    });
    VerifyOrThrow(programs.main, DefaultOps());
    return error;
  };
  EXPECT_EQ(insert("x"), "no error");
  EXPECT_EQ(insert("n"), "no error");
  for (const std::string weight : {"fc_0.w_0", "fc_0.w_0@GRAD", "late"}) {
    const std::string error = insert(weight);
    EXPECT_NE(error.find("distribute: loss_weight '" + weight +
                         "' does not show how much of the batch a rank has; name a variable with "
                         "an open dimension, or a sum over the rows, that is computed before '"),
              std::string::npos)
        << error;
  }
}

// Declared weights: the ranks learn what one rank learns from a loss that combines in this way.
TEST(LossWeight, RanksLearnWhatOneRankLearns) {
  // No rule is known for rows in another order, but means and sums do not change.
  const auto reversed = [](Builder& net) {
    const Variable h = net.Fc(net.Data("x", {-1, 6}, kF64), {.size = 4});
    return net.Make("reverse", {{"X", {h.name()}}}, {{"axis", std::vector<int32_t>{0}}});
  };
  const auto mean = [&](Builder& net) { return Mean(Square(reversed(net))); };
  const auto sum = [&](Builder& net) { return Sum(Square(reversed(net))) * 0.01; };
  for (const auto& [weight, net] :
       {std::pair<std::string, std::function<Variable(Builder&)>>("ROWS", mean),
        {"x", mean},
        {"SUM", sum}}) {
    SCOPED_TRACE(weight);
    const Case c{.name = "",
                 .feeds = {{"x", {6}}},
                 .net = net,
                 .train = With<Sgd>(SgdOptions{.learning_rate = 0.2}),
                 .rows = {12, 7}};
    const StepPrograms whole = Make(c);
    StepPrograms parts = whole;
    InsertAllReduce(parts.main, parts.startup,
                    {.nranks = 3, .share = "share", .loss_weight = weight});
    ExpectOneRank(c, whole, parts, 3, "share");
  }
}

}  // namespace coracle::loss_weight_test
