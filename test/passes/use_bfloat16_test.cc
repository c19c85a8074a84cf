// Inference in bfloat16: which ops the pass takes, what stays float32, and the numbers.

#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <coracle/test/passes/op_program.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace coracle::use_bfloat16_test {

bool Has(const std::string& listing, const std::string& text) {
  return listing.find(text) != std::string::npos;
}

CompileOptions InBFloat16(std::vector<std::string> float32_vars = {}) {
  CompileOptions options;
  options.precision = DType::kBFloat16;
  options.float32_vars = std::move(float32_vars);
  options.disabled_passes = {"fuse_images"};  // would move ops into blocks
  return options;
}

Tensor Waves(const Shape& shape, double factor = 1) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = static_cast<float>(factor * std::cos(1.3 * static_cast<double>(i) + 1));
  return t;
}

// Three convolutions with batch_norm, one of them with a residual, pools and a product.
struct ConvNet {
  ProgramDesc main, startup;
  Scope scope;
  std::string x = "x", first, y;

  ConvNet() {
    Builder b(main, startup);
    const Variable in = b.Data(x, {-1, 64, 12, 10});
    const auto conv = [&](const Variable& v) {
      const Variable c = b.Conv2d(
          v, {.num_filters = 64, .filter_size = 3, .padding = 1, .bias_attr = std::nullopt});
      return b.BatchNorm(c, {.is_test = true});
    };
    const Variable h = b.Relu(conv(in));
    first = h.name();
    const Variable sum = b.Relu(conv(h) + h);
    const Variable half = b.Pool2d(sum, {.pool_size = 2, .pool_stride = 2});
    const Variable last = b.Relu(conv(half));
    const Variable pooled = b.Pool2d(last, {.pool_type = "avg", .global_pooling = true});
    y = b.Fc(pooled, {.size = 200}).name();
    Executor().Run(startup, scope);
    // Statistics that give each convolution a bias.
    for (const std::string& name : scope.LocalNames()) {
      auto* value = std::get_if<Tensor>(&scope.Var(name));
      if (value && value->shape() == Shape({64}) && value->dtype() == DType::kFloat32)
        for (float& v : value->span<float>()) v += 0.25f;
    }
  }

  PreparedProgram Prepare(const CompileOptions& options, std::vector<std::string> fetches) const {
    return Executor(options).PrepareFrozen(main, scope, {x}, fetches);
  }
  std::string Listed(const CompileOptions& options, std::vector<std::string> fetches) const {
    return Listing(Prepare(options, std::move(fetches)).program());
  }
  std::vector<Tensor> Run(const CompileOptions& options, const Tensor& feed,
                          std::vector<std::string> fetches) {
    std::vector<Tensor> results;
    PreparedProgram prepared = Prepare(options, std::move(fetches));
    for (const Tensor& t : prepared.Run(scope, {feed})) results.push_back(t.Clone());
    return results;
  }
};

const CompileOptions kPlain{.kernels = KernelMode::kReference, .optimize = false};

// The dtype of the variable in this slot of the ops of a type.
std::vector<DType> TypesOf(const ProgramDesc& program, const std::string& type,
                           const std::string& slot) {
  std::vector<DType> types;
  program.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() != type || op.Input(slot).empty()) return;
    types.push_back(program.Root().FindVar(op.Input(slot)[0])->dtype());
  });
  return types;
}

void ExpectNear(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.ToString(), want.ToString());
  double largest = 0;
  for (const float v : want.span<float>()) largest = std::max<double>(largest, std::abs(v));
  for (int64_t i = 0; i < want.numel(); ++i)
    ASSERT_NEAR(got.data<float>()[i], want.data<float>()[i], tolerance * largest) << i;
}

TEST(UseBfloat16, ConvolutionsAndProducts) {
  const ScopedBFloat16Products fast(true);
  ConvNet net;
  const PreparedProgram prepared = net.Prepare(InBFloat16(), {net.y});
  const ProgramDesc& after = prepared.program();
  const std::vector<DType> halves(3, DType::kBFloat16);
  EXPECT_EQ(TypesOf(after, "conv2d", "Input"), halves) << Listing(after);
  EXPECT_EQ(TypesOf(after, "conv2d", "Filter"), halves);
  EXPECT_EQ(TypesOf(after, "conv2d", "Bias"), std::vector<DType>(3, DType::kFloat32));
  EXPECT_EQ(TypesOf(after, "pool2d", "X"), (std::vector<DType>{DType::kBFloat16, DType::kFloat32}));
  EXPECT_EQ(TypesOf(after, "fc", "W"), std::vector<DType>{DType::kBFloat16});
  EXPECT_EQ(TypesOf(after, "fc", "Input"), std::vector<DType>{DType::kFloat32});
  EXPECT_FALSE(Has(Listing(after), "batch_norm(")) << Listing(after);
}

TEST(UseBfloat16, NearlyTheSameNumbers) {
  const Tensor feed = Waves({3, 64, 12, 10});
  for (const bool fast : {true, false}) {
    const ScopedBFloat16Products products(fast);
    ConvNet net;
    const Tensor want = net.Run(kPlain, feed, {net.y})[0];
    const Tensor got = net.Run(InBFloat16(), feed, {net.y})[0];
    ExpectNear(got, want, fast ? 0.02 : 1e-5);
    CompileOptions reference = InBFloat16();
    reference.kernels = KernelMode::kReference;
    ExpectNear(net.Run(reference, feed, {net.y})[0], want, fast ? 0.02 : 1e-5);
  }
}

// Products with numbers that bfloat16 holds round only the weight.
TEST(UseBfloat16, RoundsTheWeightOfAProduct) {
  for (const auto& [fast, inner, columns] : {std::tuple<bool, int64_t, int64_t>{true, 70, 90},
                                             {false, 70, 90},
                                             {true, 500, 10},
                                             {false, 500, 10}}) {
    SCOPED_TRACE(columns);
    const ScopedBFloat16Products products(fast);
    OpProgram p;
    const int64_t rows = 5;
    p.Data("x", {rows, inner});
    p.Parameter("w", {inner, columns});
    p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    Tensor x(DType::kFloat32, {rows, inner});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 9 - 4);
    PreparedProgram prepared =
        Executor(InBFloat16()).PrepareFrozen(p.program, p.scope, {"x"}, {"y"});
    EXPECT_EQ(Has(Listing(prepared.program()), "fc(Input=x, W=w.cast_bf16)"), fast);
    const Tensor w = std::get<Tensor>(*p.scope.Find("w"));
    const Tensor got = prepared.Run(p.scope, {x})[0];
    ASSERT_EQ(got.dtype(), DType::kFloat32);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
          const float weight = w.data<float>()[k * columns + j];
          const double used = fast ? static_cast<double>(static_cast<float>(bfloat16(weight)))
                                   : static_cast<double>(weight);
          sum += static_cast<double>(x.data<float>()[i * inner + k]) * used;
        }
        ASSERT_NEAR(got.data<float>()[i * columns + j], sum, 1e-3) << i << " " << j;
      }
    }
  }
}

// Results and intermediate values that the caller sees keep their dtype.
TEST(UseBfloat16, VisibleVariablesStayFloat32) {
  const ScopedBFloat16Products fast(true);
  ConvNet net;
  const Tensor feed = Waves({2, 64, 12, 10});
  const std::vector<Tensor> want = net.Run(kPlain, feed, {net.first, net.y});
  const std::vector<Tensor> got = net.Run(InBFloat16(), feed, {net.first, net.y});
  ExpectNear(got[0], want[0], 0.01);
  ExpectNear(got[1], want[1], 0.02);
}

TEST(UseBfloat16, LayersStayFloat32OnRequest) {
  const ScopedBFloat16Products fast(true);
  ConvNet net;
  // relu writes it, and is part of the first convolution then.
  const PreparedProgram one = net.Prepare(InBFloat16({net.first}), {net.y});
  EXPECT_EQ(TypesOf(one.program(), "conv2d", "Filter"),
            (std::vector<DType>{DType::kFloat32, DType::kBFloat16, DType::kBFloat16}));
  EXPECT_EQ(TypesOf(one.program(), "fc", "W"), std::vector<DType>{DType::kBFloat16});
  const PreparedProgram product = net.Prepare(InBFloat16({net.y}), {net.y});
  EXPECT_EQ(TypesOf(product.program(), "fc", "W"), std::vector<DType>{DType::kFloat32});
}

TEST(UseBfloat16, UnchangedPrograms) {
  const ConvNet net;
  CompileOptions plain = InBFloat16();
  plain.precision = DType::kFloat32;
  {
    const ScopedBFloat16Products slow(false);
    EXPECT_EQ(net.Listed(InBFloat16(), {net.y}), net.Listed(plain, {net.y}));
  }
  const ScopedBFloat16Products fast(true);
  CompileOptions disabled = InBFloat16();
  disabled.disabled_passes.push_back("use_bfloat16");
  EXPECT_EQ(net.Listed(disabled, {net.y}), net.Listed(plain, {net.y}));
  // Parameters that may change.
  const auto listed = [&](const CompileOptions& options) {
    return Listing(Executor(options).Prepare(net.main, {net.x}, {net.y}).program());
  };
  EXPECT_EQ(listed(InBFloat16()), listed(plain));
}

// Convolutions with few products for each number, and Winograd's where they have few channels.
TEST(UseBfloat16, SmallConvolutionsStay) {
  const ScopedBFloat16Products fast(true);
  for (const auto& [channels, kernel, narrow] : {std::tuple{8, 3, false},
                                                 {40, 3, false},
                                                 {64, 3, true},
                                                 {100, 1, false},
                                                 {160, 1, true},
                                                 {16, 5, true},
                                                 {4, 5, false}}) {
    ProgramDesc main, startup;
    Builder b(main, startup);
    const Variable x = b.Data("x", {-1, channels, 12, 10});
    const Variable y = b.Conv2d(x, {.num_filters = channels, .filter_size = kernel});
    Scope scope;
    Executor().Run(startup, scope);
    const PreparedProgram prepared =
        Executor(InBFloat16()).PrepareFrozen(main, scope, {"x"}, {y.name()});
    EXPECT_EQ(TypesOf(prepared.program(), "conv2d", "Filter"),
              std::vector<DType>{narrow ? DType::kBFloat16 : DType::kFloat32})
        << channels << " channels, kernel " << kernel;
  }
}

TEST(UseBfloat16, ProductsThatStay) {
  const ScopedBFloat16Products fast(true);
  const auto stays = [](const char* what, OpProgram& p) {
    const auto listed = [&](const CompileOptions& options) {
      return Listing(Executor(options).PrepareFrozen(p.program, p.scope, {"x"}, {"y"}).program());
    };
    EXPECT_EQ(listed(InBFloat16()), listed({})) << what;
  };
  OpProgram transposed, small, batch, huge, wide;
  const auto product = [](OpProgram& p, const Shape& x, const Shape& w, AttrList attrs = {},
                          DType dtype = DType::kFloat32) {
    p.Data("x", x, dtype);
    p.Parameter("w", w, dtype);
    p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}}, std::move(attrs));
  };
  product(transposed, {5, 70}, {90, 70}, {{"trans_y", true}});
  product(small, {5, 7}, {7, 9});
  product(batch, {3, 5, 70}, {3, 70, 90});
  product(huge, {5, 70}, {70, 90});
  product(wide, {5, 70}, {70, 90}, {}, DType::kFloat64);
  stays("a weight in another order", transposed);
  stays("a small weight", small);
  stays("a weight for each item", batch);
  stays("float64", wide);
  // Rounds to infinity.
  std::get<Tensor>(huge.scope.Var("w")).data<float>()[3] = std::numeric_limits<float>::max();
  stays("a number beyond the range of bfloat16", huge);
  std::get<Tensor>(huge.scope.Var("w")).data<float>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(Has(
      Listing(
          Executor(InBFloat16()).PrepareFrozen(huge.program, huge.scope, {"x"}, {"y"}).program()),
      "w.cast_bf16"));
}

// A folded batch_norm may have a bias that is much larger than the results.
TEST(UseBfloat16, LargeBiases) {
  const ScopedBFloat16Products fast(true);
  ConvNet net;
  const Tensor feed = Waves({1, 64, 12, 10});
  for (const std::string& name : net.scope.LocalNames()) {
    auto* value = std::get_if<Tensor>(&net.scope.Var(name));
    if (value && value->shape() == Shape({64}) && value->dtype() == DType::kFloat32)
      for (float& v : value->span<float>()) v += 50;
  }
  const Tensor want = net.Run(kPlain, feed, {net.y})[0];
  ExpectNear(net.Run(InBFloat16(), feed, {net.y})[0], want, 0.02);
}

TEST(UseBfloat16, NansAndInfinities) {
  const ScopedBFloat16Products fast(true);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e38f}) {
    OpProgram p;
    p.Data("x", {3, 64});
    p.Parameter("w", {64, 64});
    p.Append("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    Tensor x = Waves({3, 64});
    x.data<float>()[70] = bad;
    std::vector<Tensor> results;
    for (const CompileOptions& options : {CompileOptions(), InBFloat16()}) {
      PreparedProgram prepared = Executor(options).PrepareFrozen(p.program, p.scope, {"x"}, {"y"});
      results.push_back(prepared.Run(p.scope, {x})[0].Clone());
    }
    for (int64_t i = 0; i < results[0].numel(); ++i) {
      const float want = results[0].data<float>()[i], got = results[1].data<float>()[i];
      EXPECT_EQ(std::isnan(got), std::isnan(want)) << bad << " " << i;
      EXPECT_EQ(std::isinf(got), std::isinf(want)) << bad << " " << i;
    }
  }
}

TEST(UseBfloat16, EmptyBatches) {
  const ScopedBFloat16Products fast(true);
  ConvNet net;
  const Tensor got = net.Run(InBFloat16(), Tensor(DType::kFloat32, {0, 64, 12, 10}), {net.y})[0];
  EXPECT_EQ(got.shape(), Shape({0, 200}));
}

TEST(UseBfloat16, Refusals) {
  const ConvNet net;
  CompileOptions options;
  options.precision = DType::kFloat16;
  EXPECT_EQ(ErrorOf([&] { net.Prepare(options, {net.y}); }),
            "precision must be float32 or bfloat16, got float16");
  EXPECT_EQ(ErrorOf([&] { net.Prepare(InBFloat16({"nothing"}), {net.y}); }),
            "cannot keep in float32 'nothing': the program has no such var");
  ProgramDesc main, startup;
  Builder b(main, startup);
  const Variable loss = b.Mean(b.Fc(b.Data("x", {-1, 8}), {.size = 4}));
  Sgd({.learning_rate = 0.1}).Minimize(loss, startup);
  EXPECT_TRUE(Has(ErrorOf([&] { Executor(InBFloat16()).Prepare(main, {"x"}, {loss.name()}); }),
                  "precision bfloat16 is for inference, and the program has gradient or update "
                  "ops"));
}

}  // namespace coracle::use_bfloat16_test
