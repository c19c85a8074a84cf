// Programs of Paddle 2 that overwrite a fed variable: their feed op writes it first, and no pass
// may take a read before the overwriting op for a defect, or for a read of the new value.
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/test/passes/op_program.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace coracle::overwritten_feed_test {

// The fetched values with and without passes; the values that a test computes itself.
void ExpectResults(const OpProgram& p, const std::vector<std::string>& fetches,
                   const std::vector<std::vector<double>>& want) {
  ProgramDesc program = p.program;
  SetFeedsAndFetches(program, {"x"}, fetches);
  for (const bool optimize : {false, true}) {
    SCOPED_TRACE(optimize);
    Scope scope = p.scope.Clone();
    const std::vector<Tensor> got =
        Executor(CompileOptions{.optimize = optimize}).Run(program, scope, p.feeds, fetches);
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Tensor wide = got[i].Cast(DType::kFloat64);
      ASSERT_EQ(wide.numel(), static_cast<int64_t>(want[i].size()));
      for (size_t k = 0; k < want[i].size(); ++k)
        ASSERT_NEAR(wide.data<double>()[k], want[i][k], 1e-5 * (1 + std::abs(want[i][k])));
    }
  }
}

std::vector<double> FedValues(const OpProgram& p) {
  const Tensor wide = p.feeds.at("x").Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

TEST(OverwrittenFeed, AnOpReadsItBefore) {
  OpProgram p;
  p.Data("x", {2, 3});
  p.Unary("relu", "x", "y");
  p.Unary("assign", "x", "m");
  p.Unary("scale", "x", "t", {{"scale", 2.0f}, {"bias", 1.0f}});
  p.Unary("tanh", "t", "x");
  p.Append("elementwise_add", {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"z"}}});
  const std::vector<double> x = FedValues(p);
  std::vector<double> y, z;
  for (double v : x) {
    y.push_back(std::max(v, 0.0));
    z.push_back(std::tanh(2 * v + 1) + v);
  }
  ExpectResults(p, {"y", "z"}, {y, z});
}

// The joined op is replaced by its parts before the passes run.
TEST(OverwrittenFeed, ByAJoinedOp) {
  OpProgram p;
  p.Data("x", {2, 3});
  p.Unary("square", "x", "y");
  p.Unary("exp", "x", "e");
  p.Append("fused_elemwise_activation", {{"X", {"e"}}, {"Y", {"y"}}}, {{"Out", {"x"}}},
           {{"functor_list", std::vector<std::string>{"relu", "elementwise_add"}}, {"axis", -1}});
  p.Unary("sqrt", "x", "z");
  std::vector<double> y, z;
  for (double v : FedValues(p)) {
    y.push_back(v * v);
    z.push_back(std::sqrt(std::exp(v) + v * v));
  }
  ExpectResults(p, {"y", "z"}, {y, z});
}

// nhwc puts conversions around the convolution, which reads and writes x.
TEST(OverwrittenFeed, ByAConvolution) {
  OpProgram p;
  p.Data("x", {2, 3, 5, 5});
  p.Parameter("w", {3, 3, 1, 1});
  p.Unary("relu", "x", "y");
  p.Append("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"x"}}});
  p.Unary("abs", "x", "z");
  const std::vector<double> x = FedValues(p);
  const Tensor w = p.scope.Get("w").Cast(DType::kFloat64);
  std::vector<double> y, z(x.size());
  for (double v : x) y.push_back(std::max(v, 0.0));
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t image = i / 75, to = i / 25 % 3, at = i % 25;
    for (size_t from = 0; from < 3; ++from)
      z[i] += w.data<double>()[to * 3 + from] * x[image * 75 + from * 25 + at];
    z[i] = std::abs(z[i]);
  }
  ExpectResults(p, {"y", "z"}, {y, z});
}

// Random programs over few variables, each written many times.
TEST(OverwrittenFeed, RandomPrograms) {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<std::string> names = {"x", "a", "b", "c"};
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    OpProgram p;
    p.Data("x", {2, 3});
    std::map<std::string, std::vector<double>> values = {{"x", FedValues(p)}};
    for (int step = 0; step < 9; ++step) {
      std::vector<std::string> known;
      for (const auto& [name, value] : values) known.push_back(name);
      const std::string one = known[pick(known.size())], other = known[pick(known.size())];
      const std::string& out = names[pick(names.size())];
      const size_t kind = pick(5);
      std::vector<double> result = values[one];
      for (size_t i = 0; i < result.size(); ++i) {
        const double v = result[i], w = values[other][i];
        result[i] = kind == 0   ? std::tanh(v)
                    : kind == 1 ? v
                    : kind == 2 ? 0.5 * v + 1
                    : kind == 3 ? v + w
                                : std::max(v, w);
      }
      if (kind == 0) p.Unary("tanh", one, out);
      if (kind == 1) p.Unary("assign", one, out);
      if (kind == 2) p.Unary("scale", one, out, {{"scale", 0.5f}, {"bias", 1.0f}});
      if (kind >= 3) {
        p.Append(kind == 3 ? "elementwise_add" : "elementwise_max", {{"X", {one}}, {"Y", {other}}},
                 {{"Out", {out}}});
      }
      values[out] = std::move(result);
    }
    std::vector<std::string> fetches;
    std::vector<std::vector<double>> want;
    for (const auto& [name, value] : values) {
      fetches.push_back(name);
      want.push_back(value);
    }
    ExpectResults(p, fetches, want);
    if (HasFatalFailure()) return;
  }
}

}  // namespace coracle::overwritten_feed_test
