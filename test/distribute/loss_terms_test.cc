// Losses with several terms that are weighted differently: N ranks learn and show what one does.

#include <coracle/distribute/all_reduce.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/distribute/rank_run.h>
#include <fmt/format.h>

#include <random>

namespace coracle::loss_terms_test {

constexpr double kTolerance = 1e-12;

// ce, a cost of each row, and terms: the mean over the rows that a mask leaves, a mean over all
// rows, a sum over rows, and one of parameters alone.
constexpr const char* kTerms = R"(
data { name: "x" shape: [-1, 6] dtype: FP64 }
data { name: "m" shape: [-1, 1] dtype: FP64 }
data { name: "label" shape: [-1, 1] dtype: INT64 }
layer { parameter { shape: [6, 5] dtype: FP64 output: "v" } }
layer { tanh { input: "v" output: "u" } }
layer { op { mul { X: "x" Y: "u" Out: "xu" } } }
layer { tanh { input: "xu" output: "h" } }
layer { fc { input: "h" size: 4 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { fill_constant { shape: [1] value: 0.5 dtype: FP64 output: "half" } }
layer { fill_constant { shape: [1] value: 1 dtype: FP64 output: "one" } }
layer { greater_than { x: "m" y: "half" output: "inside" } }
layer { cast { input: "inside" dtype: FP64 output: "mask" } }
layer { elementwise_mul { x: "ce" y: "mask" output: "cem" } }
layer { reduce_sum { input: "cem" output: "s" } }
layer { reduce_sum { input: "mask" output: "count" } }
layer { elementwise_max { x: "count" y: "one" output: "count1" } }
layer { elementwise_div { x: "s" y: "count1" output: "masked" CLIP_MASKED } }
layer { op { square { X: "h" Out: "h2" } } }
layer { mean { input: "h2" output: "plain" CLIP_PLAIN } }
layer { reduce_sum { input: "h2" output: "sum" CLIP_SUM } }
layer { op { square { X: "u" Out: "u2" } } }
layer { reduce_sum { input: "u2" output: "l2" CLIP_L2 } }
)";

struct TermsCase {
  std::string name, loss;
  std::string clip = {};  // an error clip of each term
  bool accumulates = false;
  bool links = true;  // gradient ops name their forward op; not in programs of other libraries
};

void Replace(std::string* text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text->find(from)) != std::string::npos;)
    text->replace(at, from.size(), to);
}

StepPrograms Make(const TermsCase& c) {
  std::string text = kTerms + c.loss;
  for (const auto& [place, term] : {std::pair{"CLIP_MASKED", "masked"},
                                    {"CLIP_PLAIN", "plain"},
                                    {"CLIP_SUM", "sum"},
                                    {"CLIP_L2", "l2"}}) {
    const bool is_read = c.loss.find(fmt::format("\"{}\"", term)) != std::string::npos;
    Replace(&text, place, c.clip.empty() || !is_read ? "" : "error_clip { " + c.clip + " }");
  }
  BuiltModel model = ParseModelText(text);
  const Variable loss(&model.main.Root(), model.main.Root().FindVar("loss"));
  OptimizerGroup group{.optimizer =
                           std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.1})};
  AppendTrainingStep({.groups = {group}, .accumulate = c.accumulates ? 2 : 1}, loss, model.startup);
  if (!c.links) model.main.ForEachOp([](OpDesc& op) { op.RemoveAttr(kForwardOpAttr); });
  return {std::move(model.main), std::move(model.startup)};
}

// Masks leave different shares of the ranks' rows; the last batches have fewer rows than
// three ranks.
std::vector<Batch> Draw() {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<Batch> batches;
  for (const int64_t rows : {12, 13, 7, 5, 11, 9, 2, 2}) {
    Tensor x = Tensor::Zeros(DType::kFloat64, {rows, 6}), m(DType::kFloat64, {rows, 1});
    Tensor label(DType::kInt64, {rows, 1});
    for (double& value : x.span<double>()) value = normal(random);
    for (int64_t i = 0; i < rows; ++i)
      m.data<double>()[i] = i < rows / 2 ? 0.9 : static_cast<double>(random() % 100) / 120;
    for (int64_t& value : label.span<int64_t>()) value = static_cast<int64_t>(random() % 4);
    batches.push_back({{"label", label}, {"m", m}, {"x", x}});
  }
  return batches;
}

std::string Binary(const std::string& op, const std::string& x, const std::string& y,
                   const std::string& out) {
  return fmt::format("layer {{ elementwise_{} {{ x: \"{}\" y: \"{}\" output: \"{}\" }} }}\n", op, x,
                     y, out);
}
std::string Sum(const std::string& x, const std::string& y, const std::string& out) {
  return Binary("add", x, y, out);
}
std::string Scaled(const std::string& x, double scale, double bias, const std::string& out) {
  return fmt::format("layer {{ scale {{ input: \"{}\" scale: {} bias: {} output: \"{}\" }} }}\n", x,
                     scale, bias, out);
}
std::string Op(const std::string& type, const std::string& x, const std::string& out,
               const std::string& attrs = "") {
  return fmt::format("layer {{ op {{ {} {{ X: \"{}\" Out: \"{}\" {} }} }} }}\n", type, x, out,
                     attrs);
}

std::string Transposed(const std::string& x, const std::string& out) {
  return fmt::format(
      "layer {{ op {{ transpose2 {{ X: \"{0}\" Out: \"{1}\" XShape: \"{1}_shape\" "
      "axis: 1 axis: 0 }} }} }}\n",
      x, out);
}
std::string Divergence(const std::string& x, const std::string& target) {
  return fmt::format(
      "layer {{ op {{ kldiv_loss {{ X: \"{}\" Target: \"{}\" Loss: \"loss\" "
      "reduction: \"batchmean\" }} }} }}\n",
      x, target);
}

// A formula of the terms by drawn ops.
std::string DrawFormula(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> pool = {"masked", "plain", "sum", "l2", "one", "count1"};
  const auto any = [&] { return pool[random() % pool.size()]; };
  std::string text = Scaled("sum", 0.02, 0, "sum2");
  pool[2] = "sum2";
  for (int i = 0; i < 8; ++i) {
    const std::string x = any(), y = any(), out = fmt::format("t{}", i), before = out + "b";
    switch (random() % 7) {
      case 0:
      case 1:
        text += Sum(x, y, out);
        break;
      case 2:
        text += Op("tanh", x, before) + Binary("mul", before, y, out);
        break;
      case 3:
        text += Op("tanh", y, before) + Binary("sub", x, before, out);
        break;
      case 4:
        text += Op("square", y, before + "2") + Scaled(before + "2", 1, 1, before) +
                Binary("div", x, before, out);
        break;
      case 5:
        text += Op("square", x, before + "2") + Scaled(before + "2", 1, 0.1, before) +
                Op("sqrt", before, out);
        break;
      default:
        text += Scaled(x, 0.5, -0.3, out);
    }
    pool.push_back(out);
  }
  std::string all = "masked";
  for (const std::string& term : pool) {
    text += Op("tanh", term, "end_" + term) + Sum(all, "end_" + term, "with_" + term);
    all = "with_" + term;
  }
  return text + Scaled(all, 0.5, 0, "loss");
}

std::vector<TermsCase> Cases() {
  const std::string three =
      Sum("masked", "plain", "a") + Scaled("l2", 0.01, 0, "l2s") + Sum("a", "l2s", "loss");
  std::vector<TermsCase> cases = {
      {"masked_and_plain", Sum("masked", "plain", "loss")},
      {"masked_plain_and_parameters", three},
      {"sum_and_parameters", Scaled("sum", 0.02, 0, "ss") + Sum("l2", "ss", "loss")},
      {"difference", Binary("sub", "plain", "masked", "d") + Scaled("d", -0.5, 0, "loss")},
      // By ops that move or scale what they read, the sum op, and with a bias.
      {"through_linear_ops", Op("assign", "masked", "m1") +
                                 Op("reshape2", "m1", "m2", "shape: 1 shape: 1") +
                                 Op("reshape2", "m2", "m3", "shape: 1") +
                                 Scaled("plain", 3, 0.5, "p1") + Scaled("sum", 0.01, 0, "s1") +
                                 "layer { sum { input: \"m3\" input: \"p1\" input: \"s1\" input: "
                                 "\"l2\" output: \"t\" } }\n" +
                                 Scaled("t", 0.5, 2, "loss")},
      // The same term in two sums and next to them.
      {"term_read_twice", Sum("masked", "plain", "a") + Sum("plain", "l2", "b") +
                              Sum("a", "b", "c") + Sum("c", "masked", "loss")},
      // No linear formulas of terms.
      {"root_of_a_mean", Op("sqrt", "plain", "root") + Sum("root", "masked", "loss")},
      {"quotient_of_sums", Sum("sum", "one", "divisor") + Binary("div", "s", "divisor", "q") +
                               Sum("q", "plain", "loss")},
      {"product", Binary("mul", "masked", "plain", "loss")},
      {"square_of_itself", Binary("mul", "masked", "masked", "loss")},
      {"rows_by_a_mean",
       Binary("div", "ce", "plain", "r") + "layer { mean { input: \"r\" output: \"loss\" } }\n"},
      {"perplexity", Op("exp", "masked", "loss")},
      // batchmean divides by the first dimension, which has the rows or not.
      {"batchmean_of_rows", Divergence("h", "h2")},
      {"batchmean_of_columns",
       Transposed("h", "ht") + Transposed("h2", "h2t") + Divergence("ht", "h2t")},
  };
  for (const char* clip : {"by_value { max: 0.2 }", "by_norm { max_norm: 0.2 }"}) {
    cases.push_back({fmt::format("clips {}", clip), three, clip});
    cases.push_back({fmt::format("clips of sums {}", clip), cases[4].loss, clip});
    cases.push_back({fmt::format("clips of roots {}", clip), cases[6].loss, clip});
  }
  for (const int i : {1, 4, 6, 7}) {
    cases.push_back(cases[i]);
    cases.back().name += "_accumulated";
    cases.back().accumulates = true;
    cases.push_back(cases[i]);
    cases.back().name += "_without_links";
    cases.back().links = false;
  }
  for (uint64_t seed = 0; seed < 12; ++seed)
    cases.push_back({fmt::format("drawn {}", seed), DrawFormula(seed),
                     seed % 2 ? "by_value { max: 0.05 }" : ""});
  return cases;
}

class LossTerms : public testing::TestWithParam<int> {};

TEST_P(LossTerms, EqualOneRank) {
  if (CommunicatorOfProcess()) GTEST_SKIP() << "of threads";
  const int ranks = GetParam();
  for (const TermsCase& c : Cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<Batch> batches = Draw();
    const StepPrograms whole = Make(c);
    Scope expected;
    const auto losses = TrainOn(whole, batches, "", {.seed = 3}, nullptr, &expected, "loss");
    StepPrograms parts = Make(c);
    const AllReduceReport report = InsertAllReduce(
        parts.main, parts.startup, {.nranks = ranks, .share = "share", .wanted = {"loss"}});
    VerifyOrThrow(parts.main, DefaultOps());
    const std::string loss = report.whole.count("loss") ? report.whole.at("loss") : "loss";
    std::vector<Scope> scopes(static_cast<size_t>(ranks));
    std::vector<std::vector<double>> shown(static_cast<size_t>(ranks));
    OnRanks(ranks, [&](const std::shared_ptr<Communicator>& communicator) {
      const auto rank = static_cast<size_t>(communicator->rank());
      shown[rank] =
          TrainOn(parts, batches, "share", {.seed = 3}, communicator, &scopes[rank], loss);
    });
    if (testing::Test::HasFailure()) return;
    for (const std::string& name : whole.main.Parameters()) {
      EXPECT_LT(RelativeDifference(scopes[0].Get(name), expected.Get(name)), kTolerance) << name;
      for (const Scope& scope : scopes)
        EXPECT_TRUE(BitEqual(scope.Get(name), scopes[0].Get(name))) << name;
    }
    // A mean over rows is the rank's own.
    for (size_t step = 0; step < losses.size(); ++step) {
      const int64_t rows = batches[step].at("m").shape()[0];
      double all = 0;
      for (int r = 0; r < ranks; ++r) {
        const double share = static_cast<double>(RowsOfRank(rows, r, ranks).rows()) / rows;
        all += share * shown[static_cast<size_t>(r)].at(step);
      }
      EXPECT_NEAR(all, losses[step], kTolerance * std::abs(losses[step])) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LossTerms, testing::Values(1, 2, 3));

}  // namespace coracle::loss_terms_test
