#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/subnormals.h>
#include <coracle/framework/op/writer.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

namespace coracle::subnormals_test {

constexpr float kTiny = 1e-40f;  // subnormal in float32

// The number of elements of 0.5 * x that are not 0, for x of `n` subnormal elements, and whether
// this thread treats subnormals as 0 after the run.
int64_t Kept(int64_t n, const CompileOptions& options) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1});
  const Variable y = 0.5 * x;
  Scope scope;
  PreparedProgram run = Executor(options).Prepare(main, {"x"}, {y.name()});
  const Tensor feed = Tensor::Full<float>({n}, kTiny);
  int64_t kept = 0;
  for (const float value : run.Run(scope, {feed})[0].span<float>())
    kept += std::fpclassify(value) == FP_SUBNORMAL;
  return kept;
}

TEST(Subnormals, FastKernelsFlushThemByDefault) {
  for (const int64_t n : {int64_t{100}, int64_t{1} << 20}) {
    EXPECT_EQ(Kept(n, {}), 0);
    EXPECT_EQ(Kept(n, {.flush_subnormals = false}), n);
    EXPECT_EQ(Kept(n, {.kernels = KernelMode::kReference}), n);
    EXPECT_FALSE(FlushesSubnormals()) << "a run changes the thread of its caller";
  }
}

// 0 is a common feature, and a split next to it may be subnormal in float32.
TEST(Subnormals, TreesCompareExactly) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 1});
  // x <= -1e-50 ? 10 : 20
  const Variable y = Writer(main.Root(), DefaultOps())
                         .Make("tree_ensemble", {{"X", {x.name()}}},
                               {{"nodes_features", std::vector<int32_t>{0}},
                                {"nodes_modes", std::vector<int32_t>{0}},
                                {"nodes_splits", std::vector<double>{-1e-50}},
                                {"nodes_true", std::vector<int32_t>{-1}},
                                {"nodes_false", std::vector<int32_t>{-2}},
                                {"roots", std::vector<int32_t>{0}},
                                {"leaf_targets", std::vector<int32_t>{0, 0}},
                                {"leaf_weights", std::vector<double>{10, 20}}});
  Scope scope;
  PreparedProgram run = Executor().Prepare(main, {"x"}, {y.name()});
  const Tensor feed = Tensor::Of<float>({3, 1}, {0, 1, -1});
  const Tensor& out = run.Run(scope, {feed})[0];
  EXPECT_EQ(std::vector<float>(out.span<float>().begin(), out.span<float>().end()),
            (std::vector<float>{20, 20, 10}));
}

// Every thread of a loop has the setting of its caller, and gets its own back.
TEST(Subnormals, LoopsPassTheSettingOn) {
  const int before = NumThreads();
  SetNumThreads(4);
  for (const bool flush : {true, false, true, false}) {
    const ScopedSubnormals scoped(flush);
    std::atomic<int> wrong{0};
    ParallelFor(1000, 1, [&](int64_t begin, int64_t end) {
      volatile float x = kTiny;
      for (int64_t i = begin; i < end; ++i) {
        const volatile float y = x * 0.5f;
        wrong += (y == 0) != flush;
      }
    });
    EXPECT_EQ(wrong, 0) << flush;
  }
  SetNumThreads(before);
}

TEST(Subnormals, ScopesNest) {
  const ScopedSubnormals outer(true);
  {
    const ScopedSubnormals inner(false);
    EXPECT_FALSE(FlushesSubnormals());
  }
  EXPECT_TRUE(FlushesSubnormals());
}

}  // namespace coracle::subnormals_test
