#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::quantized_linear_test {

using quantized_tools::Draw;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The numbers of a weight, one in an element, and the op's inputs.
struct Case {
  int64_t m = 1, n = 1, k = 1, block = 0;
  int32_t bits = 8;
  DType dtype = DType::kInt8;
  std::vector<int32_t> numbers;  // [n, k]
  Tensor x, scale, zero, bias;   // zero and bias may be absent
  std::string activation;

  int64_t Blocks() const { return block == 0 ? 1 : (k + block - 1) / block; }
  int64_t StepAt(const Tensor& steps, int64_t j, int64_t i) const {
    if (steps.numel() == 1) return 0;
    return block == 0 ? j : j * Blocks() + i / block;
  }
  double Weight(int64_t j, int64_t i) const {
    const int32_t z = zero.empty() ? 0 : IntegerAt(zero.dtype(), zero.raw(), StepAt(zero, j, i));
    return (numbers[static_cast<size_t>(j * k + i)] - z) *
           static_cast<double>(scale.data<float>()[StepAt(scale, j, i)]);
  }
  Tensor Packed() const {
    const int64_t bytes = bits == 8 ? k : (k + 1) / 2;
    Tensor t = Tensor::Zeros(dtype, {n, bytes});
    auto* to = static_cast<uint8_t*>(t.raw());
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < k; ++i) {
        const auto q = static_cast<uint8_t>(numbers[static_cast<size_t>(j * k + i)]);
        if (bits == 8)
          to[j * bytes + i] = q;
        else
          to[j * bytes + i / 2] |= static_cast<uint8_t>((q & 15) << i % 2 * 4);
      }
      // The bits after the last number mean nothing.
      if (bits == 4 && k % 2 == 1) to[j * bytes + k / 2] |= 0xb0;
    }
    return t;
  }
  OpTest Test() const {
    OpTest test("quantized_linear");
    test.TensorInput("X", x).TensorInput("Weight", Packed()).TensorInput("Scale", scale);
    if (!zero.empty()) test.TensorInput("ZeroPoint", zero);
    if (!bias.empty()) test.TensorInput("Bias", bias);
    test.Attr("bits", bits).Attr("block_size", block).Attr("fuse_activation", activation);
    return test;
  }
  // The value of an element of Out, and the size of its terms.
  double Real(int64_t row, int64_t j, double* size) const {
    double sum = bias.empty() ? 0 : static_cast<double>(bias.data<float>()[j]);
    *size = std::abs(sum);
    for (int64_t i = 0; i < k; ++i) {
      const double term = static_cast<double>(x.data<float>()[row * k + i]) * Weight(j, i);
      sum += term;
      *size += std::abs(term);
    }
    if (activation == "relu") return sum > 0 ? sum : sum < 0 ? 0 : sum;
    if (activation == "sigmoid") return 1 / (1 + std::exp(-sum));
    return sum;
  }

  void Check(const std::string& what) const {
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor out = Test().Output("Out", mode);
      ASSERT_EQ(out.numel(), m * n) << what;
      for (int64_t at = 0; at < m * n; ++at) {
        double size = 0;
        const double wanted = Real(at / n, at % n, &size);
        const float got = out.data<float>()[at];
        const float limit = std::numeric_limits<float>::max();
        const std::string where =
            fmt::format("{} element {} mode {}", what, at,
                        mode == KernelMode::kReference ? "reference" : "fast");
        if (std::isnan(wanted))
          EXPECT_TRUE(std::isnan(got)) << where << ": " << got;
        else if (std::abs(wanted) > static_cast<double>(limit))
          EXPECT_EQ(got, wanted > 0 ? kInfinity : -kInfinity) << where;
        else
          EXPECT_NEAR(static_cast<double>(got), wanted, 2e-6 * size + 1e-6) << where;
      }
    }
  }
};

Case Drawn(Draw& draw, int64_t m, int64_t n, int64_t k, int32_t bits) {
  Case c;
  c.m = m;
  c.n = n;
  c.k = k;
  c.bits = bits;
  c.dtype = draw.Byte();
  const int64_t range = int64_t{1} << bits, least = c.dtype == DType::kInt8 ? -range / 2 : 0;
  for (int64_t i = 0; i < n * k; ++i)
    c.numbers.push_back(static_cast<int32_t>(least + draw.Int(0, range - 1)));
  c.block = draw.Flip() ? 0 : draw.Flip() ? draw.Int(1, k + 2) : 16;
  Shape steps = c.block == 0 ? Shape{n} : Shape{n, c.Blocks()};
  c.x = draw.Reals({m, k}, -1, 1);
  c.scale = draw.Reals(draw.Int(0, 3) == 0 ? Shape{1} : steps, -0.1, 0.1);
  if (draw.Flip()) {
    c.zero = Tensor::Zeros(c.dtype, draw.Int(0, 3) == 0 ? Shape{1} : steps);
    const int64_t same = least + draw.Int(0, range - 1);
    const bool equal = draw.Flip();
    for (int64_t i = 0; i < c.zero.numel(); ++i) {
      quantized_tools::Quantized::Set(c.zero, i, equal ? same : least + draw.Int(0, range - 1));
    }
  }
  if (draw.Flip()) c.bias = draw.Reals({n}, -1, 1);
  c.activation = draw.Flip() ? "" : draw.Flip() ? "relu" : "sigmoid";
  return c;
}

TEST(QuantizedLinear, RandomCases) {
  Draw draw(7);
  for (int round = 0; round < 300; ++round) {
    const int64_t m = draw.Int(1, draw.Flip() ? 4 : 40), n = draw.Int(1, 70), k = draw.Int(1, 90);
    const Case c = Drawn(draw, m, n, k, draw.Flip() ? 4 : 8);
    c.Check(fmt::format("round {}: {}x{}x{} bits {} block {}", round, m, n, k, c.bits, c.block));
    if (testing::Test::HasFailure()) return;
  }
}

// Every number of rows up to the kernel for floats, and blocks of several sizes.
TEST(QuantizedLinear, EveryNumberOfRows) {
  Draw draw(8);
  for (int64_t m = 1; m <= 34; ++m) {
    for (const int32_t bits : {4, 8}) {
      const Case c = Drawn(draw, m, 33, 75, bits);
      c.Check(fmt::format("{} rows, {} bits, block {}", m, bits, c.block));
      if (testing::Test::HasFailure()) return;
    }
  }
}

// More columns than the buffer of floats holds.
TEST(QuantizedLinear, LargerThanTheBuffer) {
  Draw draw(9);
  for (const int32_t bits : {4, 8}) {
    Case c = Drawn(draw, 50, 130, 1 << 15, bits);
    c.activation = "";
    c.Check(fmt::format("{} bits", bits));
  }
}

TEST(QuantizedLinear, AllNumbersOfFourBits) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    Case c;
    c.n = 16;
    c.k = 1;
    c.bits = 4;
    c.dtype = dtype;
    for (int i = 0; i < 16; ++i) c.numbers.push_back(dtype == DType::kInt8 ? i - 8 : i);
    c.x = Tensor::Of<float>({1, 1}, {1});
    c.scale = Tensor::Of<float>({1}, {0.5f});
    for (const int32_t zero : {0, 1, 7, 100}) {
      c.zero = quantized_tools::Quantized::Filled(dtype, {1}, zero);
      c.Check(ToString(dtype) + std::to_string(zero));
    }
  }
}

TEST(QuantizedLinear, NotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Draw draw(10);
  for (int round = 0; round < 60; ++round) {
    Case c = Drawn(draw, draw.Int(1, 30), 20, 37, draw.Flip() ? 4 : 8);
    for (const float special : {nan, kInfinity, -kInfinity, 3e38f, -3e38f, 1e-40f}) {
      c.x.data<float>()[draw.Int(0, c.x.numel() - 1)] = special;
      c.Check(fmt::format("round {}: x has {}", round, special));
    }
    c = Drawn(draw, 3, 20, 37, draw.Flip() ? 4 : 8);
    for (const float special : {0.0f, 1e-44f, 2e38f, kInfinity, nan}) {
      c.scale.data<float>()[draw.Int(0, c.scale.numel() - 1)] = special;
      c.Check(fmt::format("round {}: a scale is {}", round, special));
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Partial sums are too large for float32, but the result is not.
TEST(QuantizedLinear, LargeTermsThatCancel) {
  for (const int32_t bits : {4, 8}) {
    Case c;
    c.k = 4;
    c.bits = bits;
    c.numbers = {7, 7, -7, -7};
    c.x = Tensor::Of<float>({1, 4}, {3e38f, 2e38f, 3e38f, 2e38f});
    c.scale = Tensor::Of<float>({1}, {1});
    EXPECT_EQ(c.Test().Output("Out").data<float>()[0], 0);
    c.scale = Tensor::Of<float>({1}, {1e-3f});
    c.numbers = {7, 7, 7, 7};
    EXPECT_NEAR(c.Test().Output("Out").data<float>()[0], 7e36f, 1e31f);
  }
}

TEST(QuantizedLinear, Empty) {
  const auto shape = [](int64_t m, int64_t n, int64_t k) {
    const Tensor out = OpTest("quantized_linear")
                           .TensorInput("X", Tensor::Zeros(DType::kFloat32, {m, k}))
                           .TensorInput("Weight", Tensor::Zeros(DType::kInt8, {n, k}))
                           .TensorInput("Scale", Tensor::Of<float>({1}, {1}))
                           .Output("Out");
    for (const float value : out.span<float>()) EXPECT_EQ(value, 0);
    return out.shape();
  };
  EXPECT_EQ(shape(0, 3, 4), (Shape{0, 3}));
  EXPECT_EQ(shape(2, 0, 4), (Shape{2, 0}));
  EXPECT_EQ(shape(2, 3, 0), (Shape{2, 3}));
}

TEST(QuantizedLinear, LeadingDimsAndHalves) {
  Draw draw(11);
  Case c = Drawn(draw, 6, 5, 9, 4);
  c.activation = "";
  c.bias = Tensor();
  const Tensor flat = c.Test().Output("Out");
  c.x = c.x.Reshaped({2, 3, 9});
  const Tensor out = c.Test().Output("Out");
  EXPECT_EQ(out.shape(), (Shape{2, 3, 5}));
  EXPECT_TRUE(BitEqual(out.Reshaped({6, 5}), flat));
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    Case h = c;
    h.x = c.x.Cast(half).Cast(DType::kFloat32);
    const Tensor wanted = h.Test().Output("Out").Cast(half);
    h.x = c.x.Cast(half);
    EXPECT_TRUE(BitEqual(h.Test().Output("Out"), wanted)) << ToString(half);
  }
}

TEST(QuantizedLinear, Constraints) {
  const auto expect = [](const char* id, const std::function<void(Case&)>& change) {
    Draw draw(12);
    Case c = Drawn(draw, 2, 3, 4, 8);
    c.block = 2;
    c.zero = c.bias = Tensor();
    c.dtype = DType::kInt8;
    c.scale = Tensor::Zeros(DType::kFloat32, {3, 2});
    change(c);
    c.Test().ExpectError(std::string("quantized_linear.") + id);
  };
  expect("C1", [](Case& c) { c.x = Tensor::Zeros(DType::kFloat32, Shape()); });
  expect("C2", [](Case& c) { c.bits = 2; });
  expect("C3", [](Case& c) { c.x = Tensor::Zeros(DType::kFloat32, {2, 5}); });
  expect("C3", [](Case& c) { c.dtype = DType::kInt32; });
  expect("C4", [](Case& c) { c.scale = Tensor::Zeros(DType::kFloat32, {3}); });
  expect("C4", [](Case& c) { c.scale = Tensor::Zeros(DType::kFloat64, {1}); });
  expect("C5", [](Case& c) { c.zero = Tensor::Zeros(DType::kUInt8, {1}); });
  expect("C5", [](Case& c) { c.zero = Tensor::Zeros(DType::kInt8, {2, 3}); });
  expect("C6", [](Case& c) { c.bias = Tensor::Zeros(DType::kFloat32, {4}); });
  expect("C6", [](Case& c) { c.bias = Tensor::Zeros(DType::kFloat64, {3}); });
}

}  // namespace coracle::quantized_linear_test
