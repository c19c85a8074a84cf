// Convolutions with frozen filters as products with windows (conv_implicit.cc).
#include <coracle/coracle.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/window_products.h>
#include <coracle/test/threads.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace coracle::conv_implicit_test {

// Sums over windows: all heights of tiles, panels that are not full, several blocks of rows and
// several units.
struct Case {
  int64_t taps, channels, pixels, columns;
  bool gathered, bias, residual, relu;
};

Case RandomCase(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Case c;
  c.gathered = pick(0, 2) > 0;
  c.taps = c.gathered ? pick(1, 9) : 1;
  c.channels = pick(0, 3) ? pick(1, 70) : pick(200, 600);
  c.pixels = pick(0, 3) ? pick(1, 40) : pick(190, 420);
  c.columns = pick(1, 75);
  c.bias = pick(0, 1);
  c.residual = pick(0, 1);
  c.relu = pick(0, 1);
  return c;
}

std::vector<float> Drawn(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

// Computes the units in two calls, the later ones first; the residual is where the result goes.
void RequireSums(const Case& c, std::mt19937& random) {
  const int64_t rows = c.taps * c.channels, stored = c.pixels + 3;
  const std::vector<float> in = Drawn(random, stored * c.channels);
  const std::vector<float> filter = Drawn(random, rows * c.columns);
  const std::vector<float> bias = Drawn(random, c.columns);
  std::vector<float> out = Drawn(random, c.pixels * c.columns);
  const std::vector<float> residual = out, zeros(static_cast<size_t>(c.channels));
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < c.taps * c.pixels; ++i)
    offsets.push_back(random() % 4 ? static_cast<int64_t>(random() % stored) * c.channels : -1);
  std::vector<float> packed(static_cast<size_t>(PackedWindowSize(rows, c.columns)));
  for (int64_t k = 0; k < rows; ++k) {
    for (int64_t m = 0; m < c.columns; ++m)
      packed[static_cast<size_t>(PackedWindowAt(rows, k, m))] =
          filter[static_cast<size_t>(k * c.columns + m)];
  }
  WindowProducts products;
  products.in = in.data();
  products.zeros = zeros.data();
  products.offsets = c.gathered ? offsets.data() : nullptr;
  products.taps = c.taps;
  products.channels = c.channels;
  products.pixels = c.pixels;
  products.columns = c.columns;
  products.filter = packed.data();
  products.bias = c.bias ? bias.data() : nullptr;
  products.residual = c.residual ? out.data() : nullptr;
  products.out = out.data();
  products.relu = c.relu;
  const int64_t units = NumWindowUnits(products);
  RunWindowUnits(products, units / 2, units);
  RunWindowUnits(products, 0, units / 2);
  for (int64_t p = 0; p < c.pixels; ++p) {
    for (int64_t m = 0; m < c.columns; ++m) {
      const auto at = static_cast<size_t>(p * c.columns + m);
      double sum = (c.bias ? bias[static_cast<size_t>(m)] : 0) + (c.residual ? residual[at] : 0);
      for (int64_t k = 0; k < rows; ++k) {
        const int64_t from = c.gathered
                                 ? offsets[static_cast<size_t>(k / c.channels * c.pixels + p)]
                                 : p * c.channels;
        if (from >= 0)
          sum += static_cast<double>(in[static_cast<size_t>(from + k % c.channels)]) *
                 filter[static_cast<size_t>(k * c.columns + m)];
      }
      if (c.relu && sum < 0) sum = 0;
      ASSERT_NEAR(out[at], sum, 1e-5 * (10 + std::sqrt(static_cast<double>(rows))))
          << c.taps << " taps, " << c.channels << " channels, pixel " << p << " of " << c.pixels
          << ", column " << m << " of " << c.columns;
    }
  }
}

TEST(WindowProducts, RandomShapes) {
  std::mt19937 random(11);
  for (int i = 0; i < 60; ++i) {
    const Case c = RandomCase(random);
    RequireSums(c, random);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(WindowProducts, NansStay) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), in[] = {nan};
  std::vector<float> packed(static_cast<size_t>(PackedWindowSize(1, 1))), out(1);
  packed[0] = 1;
  WindowProducts products;
  products.in = in;
  products.channels = products.pixels = products.columns = 1;
  products.filter = packed.data();
  products.out = out.data();
  products.relu = true;
  RunWindowUnits(products, 0, NumWindowUnits(products));
  EXPECT_TRUE(std::isnan(out[0]));
}

// Nets that the rule gives to these kernels where vectors have eight floats, against the
// reference kernels.
TEST(ConvImplicit, FrozenFilters) {
  struct Net {
    int64_t channels, size;
    int filters, kernel, stride, padding, dilation;
    const char* act;
    bool residual;
  };
  for (const Net& n : {Net{64, 11, 40, 3, 2, 1, 1, "relu", false},
                       {96, 7, 24, 3, 2, 1, 1, "hard_swish", false},
                       {70, 8, 17, 3, 1, 2, 2, "", true},
                       {64, 13, 16, 1, 2, 0, 1, "relu", true},
                       {130, 14, 96, 1, 1, 0, 1, "relu", true},
                       {48, 15, 144, 1, 1, 0, 1, "relu", false},
                       {160, 1, 120, 1, 1, 0, 1, "sigmoid", false}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", n.channels, n.size, n.filters, n.kernel));
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {-1, n.channels, n.size, n.size});
    Variable y = net.Conv2d(x, {.num_filters = n.filters,
                                .filter_size = n.kernel,
                                .stride = n.stride,
                                .padding = n.padding,
                                .dilation = n.dilation});
    if (n.residual)
      y = y + net.Conv2d(x, {.num_filters = n.filters,
                             .filter_size = n.kernel,
                             .stride = n.stride,
                             .padding = n.padding,
                             .dilation = n.dilation});
    if (*n.act) y = net.Activation(y, n.act);
    Scope scope;
    Executor().Run(startup, scope);
    CompileOptions reference, profiled;
    profiled.profile = true;
    reference.kernels = KernelMode::kReference;
    PreparedProgram plain = Executor(reference).Prepare(main, {"x"}, {y.name()});
    for (int threads : {1, 2}) {
      const Threads set(threads);
      PreparedProgram frozen = Executor(profiled).PrepareFrozen(main, scope, {"x"}, {y.name()});
      for (int64_t rows : {3, 1}) {
        Tensor in(DType::kFloat32, {rows, n.channels, n.size, n.size});
        for (int64_t i = 0; i < in.numel(); ++i)
          in.data<float>()[i] = std::sin(static_cast<float>(i));
        const Tensor wanted = plain.Run(scope, {in})[0].Clone();
        const Tensor& got = frozen.Run(scope, {in})[0];
        ASSERT_EQ(got.shape(), wanted.shape());
        for (int64_t i = 0; i < got.numel(); ++i)
          ASSERT_NEAR(got.data<float>()[i], wanted.data<float>()[i], 2e-5) << i;
      }
      const std::vector<OpTime> times = frozen.Profile();
      const bool used = std::any_of(times.begin(), times.end(),
                                    [](const OpTime& t) { return t.kernel == "implicit"; });
      EXPECT_EQ(used, VectorLanes() == 8);
    }
  }
}

// A few rows are products with panels where oneDNN has no layout for the matrix.
TEST(ConvImplicit, FrozenFc) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable y = net.Fc(net.Data("x", {-1, 300}), {.size = 130, .act = "relu"});
  Scope scope;
  Executor().Run(startup, scope);
  CompileOptions reference;
  reference.kernels = KernelMode::kReference;
  PreparedProgram plain = Executor(reference).Prepare(main, {"x"}, {y.name()});
  for (int threads : {1, 2}) {
    const Threads set(threads);
    PreparedProgram frozen = Executor().PrepareFrozen(main, scope, {"x"}, {y.name()});
    for (int64_t rows : {1, 5, 16, 17}) {
      Tensor in(DType::kFloat32, {rows, 300});
      for (int64_t i = 0; i < in.numel(); ++i)
        in.data<float>()[i] = std::sin(static_cast<float>(i));
      const Tensor wanted = plain.Run(scope, {in})[0].Clone();
      const Tensor& got = frozen.Run(scope, {in})[0];
      for (int64_t i = 0; i < wanted.numel(); ++i)
        ASSERT_NEAR(got.data<float>()[i], wanted.data<float>()[i], 2e-5) << i;
    }
  }
}
}  // namespace coracle::conv_implicit_test
