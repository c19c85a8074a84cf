// Weights stored in 16 bits: which ones, their numbers, and the same results.

#include <coracle/edit/store_halves.h>
#include <coracle/executor/executor.h>
#include <coracle/test/error_of.h>
#include <coracle/test/passes/op_program.h>
#include <gtest/gtest.h>

#include <limits>

namespace coracle::store_halves_test {

// y = x w + v, with a matrix of 32 x 64 and a vector of 64.
OpProgram Product() {
  OpProgram p;
  p.Data("x", {-1, 32});
  p.Parameter("w", {32, 64});
  p.Parameter("v", {64});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"s"}}});
  p.Append("elementwise_add", {{"X", {"s"}}, {"Y", {"v"}}}, {{"Out", {"y"}}});
  return p;
}

Tensor& Weight(OpProgram& p, const std::string& name = "w") {
  return std::get<Tensor>(p.scope.Var(name));
}

std::vector<Tensor> ResultsOf(OpProgram& p) {
  std::vector<Tensor> results;
  PreparedProgram prepared = Executor().PrepareFrozen(p.program, p.scope, {"x"}, {"y"});
  results.push_back(prepared.Run(p.scope, {p.feeds.at("x")})[0].Clone());
  results.push_back(Executor({.optimize = false})
                        .Run(p.program, p.scope, {{"x", p.feeds.at("x")}}, {"y"})[0]
                        .Clone());
  return results;
}

TEST(StoreHalves, RoundsLargeWeights) {
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(ToString(half));
    OpProgram p = Product();
    OpProgram rounded;
    rounded.program = p.program;
    rounded.feeds = p.feeds;
    rounded.scope.Set("w", Weight(p).Cast(half).Cast(DType::kFloat32));
    rounded.scope.Set("v", Weight(p, "v"));
    const std::vector<Tensor> want = ResultsOf(rounded);
    const StoredHalves stored = StoreInHalves(p.program, p.scope, half, DefaultOps());
    EXPECT_EQ(stored.stored, 1u);
    EXPECT_EQ(stored.bytes_before, 4u * (32 * 64 + 64));
    EXPECT_EQ(stored.bytes_after, 2u * 32 * 64 + 4 * 64);
    EXPECT_TRUE(stored.kept.empty());
    const std::string name = half == DType::kFloat16 ? "w@FLOAT16" : "w@BFLOAT16";
    EXPECT_EQ(p.Listing(), "Out=w = cast(X=" + name +
                               ")\nOut=s = mul(X=x, Y=w)\n"
                               "Out=y = elementwise_add(X=s, Y=v)\n");
    EXPECT_EQ(Weight(p, name).dtype(), half);
    EXPECT_FALSE(p.scope.Find("w"));
    EXPECT_TRUE(Verify(p.program, DefaultOps()).empty());
    const std::vector<Tensor> got = ResultsOf(p);
    for (size_t k = 0; k < want.size(); ++k) {
      for (int64_t i = 0; i < want[k].numel(); ++i)
        ASSERT_EQ(got[k].data<float>()[i], want[k].data<float>()[i]) << k << " " << i;
    }
    // Nothing is left to store.
    EXPECT_EQ(StoreInHalves(p.program, p.scope, half, DefaultOps()).stored, 0u);
  }
}

TEST(StoreHalves, KeepsWhatRoundingHarms) {
  const auto kept = [](float number, float factor, DType half) {
    OpProgram p = Product();
    for (float& v : Weight(p).span<float>()) v *= factor;
    Weight(p).data<float>()[7] = number;
    const StoredHalves stored = StoreInHalves(p.program, p.scope, half, DefaultOps());
    EXPECT_EQ(stored.stored, stored.kept.empty() ? 1u : 0u);
    EXPECT_TRUE(stored.kept.empty() || stored.bytes_after == stored.bytes_before);
    return stored.kept.empty() ? "" : stored.kept[0].first + ": " + stored.kept[0].second;
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(kept(7e4f, 1, DType::kFloat16), "w: 70000 is beyond the range of float16");
  EXPECT_EQ(kept(65504, 1, DType::kFloat16), "");
  EXPECT_EQ(kept(7e4f, 1, DType::kBFloat16), "");
  EXPECT_EQ(kept(std::numeric_limits<float>::max(), 1, DType::kBFloat16),
            "w: 3.40282e+38 is beyond the range of bfloat16");
  EXPECT_EQ(kept(kInf, 1, DType::kFloat16), "");
  EXPECT_NE(kept(0, 1e-7f, DType::kFloat16), "");
  EXPECT_EQ(kept(0, 1e-7f, DType::kBFloat16), "");
  EXPECT_EQ(kept(0, 0, DType::kFloat16), "");
}

TEST(StoreHalves, LeavesOthersAlone) {
  OpProgram written = Product();
  written.Unary("scale", "w", "w", {{"scale", 0.5f}});
  EXPECT_EQ(StoreInHalves(written.program, written.scope, DType::kFloat16, DefaultOps()).stored,
            0u);
  OpProgram wide;
  wide.Data("x", {-1, 32}, DType::kFloat64);
  wide.Parameter("w", {32, 64}, DType::kFloat64);
  wide.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(StoreInHalves(wide.program, wide.scope, DType::kFloat16, DefaultOps()).stored, 0u);
  OpProgram absent = Product();
  absent.scope = Scope();
  EXPECT_EQ(StoreInHalves(absent.program, absent.scope, DType::kFloat16, DefaultOps()).stored, 0u);
  OpProgram p = Product();
  EXPECT_EQ(ErrorOf([&] { StoreInHalves(p.program, p.scope, DType::kInt8, DefaultOps()); }),
            "weights are stored in float16 or bfloat16, got int8");
}

}  // namespace coracle::store_halves_test
