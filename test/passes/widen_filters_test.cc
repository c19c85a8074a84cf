// Convolutions of bfloat16 that read float32 filters in place of their casts: what is rewritten,
// near misses, and nearly the same numbers.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::widen_filters_test {

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};

  // Two convolutions in mixed precision, and their update.
  explicit Net(bool trained, bool shared = false) {
    const auto conv = [&](const Variable& x, const std::string& filter) {
      return b.Conv2d(x, {.num_filters = 4,
                          .filter_size = 3,
                          .padding = 1,
                          .param_attr = {.name = filter},
                          .bias_attr = std::nullopt});
    };
    const Variable x = b.Data("x", {-1, 4, 6, 5});
    const Variable h = b.Relu(conv(x, "w0"));
    const Variable loss = b.Mean(Square(conv(h, shared ? "w0" : "w1")), {.output = "loss"});
    DecorateMixedPrecision(main, startup, {.dtype = DType::kBFloat16});
    if (trained) Sgd({.learning_rate = 0.1}).Minimize(b.Var(loss.name()), startup);
  }

  std::string After(std::unordered_set<std::string> fetches = {"loss"}) {
    ProgramDesc program = main;
    RunPasses(program, {DefaultOps(), {"x"}, std::move(fetches)}, {"widen_filters"});
    return Listing(program);
  }
};

bool Has(const std::string& listing, const std::string& text) {
  return listing.find(text) != std::string::npos;
}

TEST(WidenFilters, Training) {
  const ScopedBFloat16Products slow(false);
  const std::string after = Net(true).After();
  EXPECT_TRUE(Has(after, "conv2d(Input=x.cast_bf16, Filter=w0)")) << after;
  EXPECT_TRUE(Has(after, "Filter@GRAD=w0@GRAD")) << after;
  EXPECT_TRUE(Has(after, "Filter@GRAD=w1@GRAD")) << after;
  EXPECT_FALSE(Has(after, "w0.cast_bf16")) << after;
  EXPECT_FALSE(Has(after, "w1.cast_bf16")) << after;
}

TEST(WidenFilters, StaysWhereProductsAreFast) {
  const ScopedBFloat16Products fast(true);
  Net net(true);
  EXPECT_EQ(net.After(), Listing(net.main));
}

// A parameter that nothing in the program writes may have another dtype in the scope.
TEST(WidenFilters, StaysWhereTheDTypeIsNotCertain) {
  const ScopedBFloat16Products slow(false);
  Net net(false);
  EXPECT_EQ(net.After(), Listing(net.main));
}

TEST(WidenFilters, StaysWhereTheCastIsSeen) {
  const ScopedBFloat16Products slow(false);
  Net net(true);
  const std::string after = net.After({"loss", "w0.cast_bf16", "w1.cast_bf16@GRAD"});
  EXPECT_EQ(after, Listing(net.main));
}

// The gradients of a filter that two convolutions read are added up in bfloat16.
TEST(WidenFilters, StaysWhereTheFilterIsShared) {
  const ScopedBFloat16Products slow(false);
  Net net(true, true);
  EXPECT_EQ(net.After(), Listing(net.main));
}

// batch_norm is folded into the float32 filter, its bias is of the images' dtype.
TEST(WidenFilters, Frozen) {
  const ScopedBFloat16Products slow(false);
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable x = b.Data("x", {-1, 4, 60, 50});
  const Variable c = b.Conv2d(x, {.num_filters = 4, .filter_size = 3, .padding = 1});
  const Variable y = b.Relu(b.BatchNorm(c, {.is_test = true}));
  DecorateMixedPrecision(main, startup, {.dtype = DType::kBFloat16, .float32_vars = {y.name()}});
  Scope scope;
  Executor().Run(startup, scope);
  Tensor feed(DType::kFloat32, {3, 4, 60, 50});
  for (int64_t i = 0; i < feed.numel(); ++i)
    feed.data<float>()[i] = std::cos(static_cast<float>(3 * i + 1));
  const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
  const Tensor want = Executor(plain).Run(main, scope, {{"x", feed}}, {y.name()})[0];
  PreparedProgram frozen = Executor().PrepareFrozen(main, scope, {"x"}, {y.name()});
  const std::string listing = Listing(frozen.program());
  EXPECT_FALSE(Has(listing, "batch_norm(")) << listing;
  EXPECT_FALSE(Has(listing, "w_0.cast_bf16")) << listing;
  for (int run = 0; run < 2; ++run) {
    const Tensor got = frozen.Run(scope, {feed})[0];
    for (int64_t i = 0; i < want.numel(); ++i)
      ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], 0.05f) << i;
  }
}

// A variable that is written earlier must not have an earlier reader: here a reader of the gradient
// that the previous step left in a persistable variable.
TEST(WidenFilters, StaysWhereAReaderStandsBetween) {
  const ScopedBFloat16Products slow(false);
  for (const bool between : {true, false}) {
    Net net(true);
    BlockDesc& root = net.main.Root();
    root.FindVar("w0@GRAD")->SetPersistable(true);
    root.Var("seen").SetMeta(root.FindVar("w0@GRAD")->meta());
    size_t cast = 0;
    while (!root.op(cast).Writes("w0@GRAD")) ++cast;
    ASSERT_EQ(root.op(cast).type(), "cast");
    root.InsertOp(between ? cast : cast + 1,
                  OpDesc("assign", {{"X", {"w0@GRAD"}}}, {{"Out", {"seen"}}}));
    const std::string after = net.After({"loss", "seen"});
    EXPECT_EQ(Has(after, "Filter@GRAD=w0@GRAD"), !between) << after;
    EXPECT_EQ(Has(after, "w0.cast_bf16"), between) << after;
    EXPECT_TRUE(Has(after, "Filter@GRAD=w1@GRAD")) << after;
  }
}

TEST(WidenFilters, NearlyTheSameNumbers) {
  for (const bool fast : {false, true}) {
    const ScopedBFloat16Products products(fast);
    Net net(true);
    Tensor x(DType::kFloat32, {3, 4, 6, 5});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = std::cos(static_cast<float>(3 * i + 1));
    const auto run = [&](const CompileOptions& options) {
      Scope scope;
      Executor executor(options);
      executor.Run(net.startup, scope);
      Tensor loss;
      for (int step = 0; step < 5; ++step)
        loss = executor.Run(net.main, scope, {{"x", x}}, {"loss"})[0];
      return loss.Item<float>();
    };
    const float plain = run({.kernels = KernelMode::kReference, .optimize = false});
    EXPECT_NEAR(run({}), plain, 0.02f * plain);
    EXPECT_NEAR(run({.kernels = KernelMode::kReference}), plain, 0.02f * plain);
  }
}
}  // namespace coracle::widen_filters_test
