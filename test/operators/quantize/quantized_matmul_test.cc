#include <coracle/coracle.h>
#include <coracle/test/operators/quantize/quantized_tools.h>
#include <coracle/test/threads.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::quantized_matmul_test {

using quantized_tools::AddQuantized;
using quantized_tools::Draw;
using quantized_tools::IsRounded;
using quantized_tools::Number;
using quantized_tools::Quantized;

// Parameters for each row or column, or one for all.
struct Operand {
  Tensor q, scales, zeros;  // zeros may be absent
  int64_t Zero(int64_t i) const {
    if (zeros.empty()) return 0;
    return IntegerAt(zeros.dtype(), zeros.raw(), zeros.numel() == 1 ? 0 : i);
  }
  double Scale(int64_t i) const {
    if (scales.empty()) return 1;
    return static_cast<double>(scales.data<float>()[scales.numel() == 1 ? 0 : i]);
  }
};

struct Case {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool trans_x = false, trans_y = false, shared_y = true;
  Operand x, y;
  Tensor bias;
  Quantized residual, out;  // out.q has only a dtype
  bool has_residual = false, float_residual = false;
  DType out_dtype = DType::kUInt8;
  std::string activation;

  // The sum of the products of one element of Out, and the size of its terms.
  int64_t Sum(int64_t b, int64_t i, int64_t j) const {
    int64_t sum = 0;
    const int64_t x0 = b * m * k, y0 = shared_y ? 0 : b * k * n;
    for (int64_t r = 0; r < k; ++r) {
      const int64_t p = x0 + (trans_x ? r * m + i : i * k + r);
      const int64_t q = y0 + (trans_y ? j * k + r : r * n + j);
      sum += (IntegerAt(x.q.dtype(), x.q.raw(), p) - x.Zero(b * m + i)) *
             (IntegerAt(y.q.dtype(), y.q.raw(), q) - y.Zero(j));
    }
    return sum;
  }
  // The value before rounding; `size`: of its terms.
  double Real(int64_t b, int64_t i, int64_t j, double* size) const {
    const int64_t at = (b * m + i) * n + j;
    double sum = static_cast<double>(Sum(b, i, j)), real_bias = 0, more = 0;
    if (!bias.empty() && bias.dtype() == DType::kInt32) sum += bias.data<int32_t>()[j];
    if (!bias.empty() && bias.dtype() == DType::kFloat32)
      real_bias = static_cast<double>(bias.data<float>()[j]);
    if (has_residual)
      more = float_residual ? static_cast<double>(residual.q.data<float>()[at]) : residual.Real(at);
    const double product = x.Scale(b * m + i) * y.Scale(j) * sum;
    *size = std::abs(product) + std::abs(real_bias) + std::abs(more) +
            (activation == "sigmoid" ? 1 : 0);
    double value = product + real_bias + more;
    if (activation == "relu") value = std::max(value, 0.0);
    if (activation == "clip") value = std::clamp(value, -0.5, 1.5);
    if (activation == "sigmoid") value = 1 / (1 + std::exp(-value));
    return value;
  }

  OpTest Test() const {
    OpTest test("quantized_matmul");
    test.Attr("trans_x", trans_x).Attr("trans_y", trans_y).Attr("out_dtype", Number(out_dtype));
    test.Attr("fuse_activation", activation).Attr("fuse_alpha", -0.5f).Attr("fuse_beta", 1.5f);
    test.TensorInput("X", x.q).TensorInput("Y", y.q);
    if (!x.scales.empty()) test.TensorInput("XScale", x.scales);
    if (!x.zeros.empty()) test.TensorInput("XZeroPoint", x.zeros);
    if (!y.scales.empty()) test.TensorInput("YScale", y.scales);
    if (!y.zeros.empty()) test.TensorInput("YZeroPoint", y.zeros);
    if (!bias.empty()) test.TensorInput("Bias", bias);
    if (has_residual && float_residual) test.TensorInput("Residual", residual.q);
    if (has_residual && !float_residual) AddQuantized(test, "Residual", residual);
    if (IsByte(out_dtype))
      test.TensorInput("OutScale", out.Scale())
          .TensorInput("OutZeroPoint", Quantized::Filled(out_dtype, {1}, out.zero));
    return test;
  }

  void Compare(const Tensor& got, bool exact) const {
    ASSERT_EQ(got.dtype(), out_dtype);
    ASSERT_EQ(got.numel(), batch * m * n);
    for (int64_t at = 0; at < got.numel(); ++at) {
      double size = 0;
      const double real = Real(at / (m * n), at / n % m, at % n, &size);
      if (out_dtype == DType::kInt32) {
        ASSERT_EQ(static_cast<double>(got.data<int32_t>()[at]), real) << at;
      } else if (out_dtype == DType::kFloat32) {
        ASSERT_NEAR(static_cast<double>(got.data<float>()[at]), real, (exact ? 6e-8 : 1e-6) * size)
            << at;
      } else {
        const double s = static_cast<double>(out.scale);
        ASSERT_TRUE(IsRounded(got, at, real / s, out.zero, exact ? 1e-9 : 1e-6 * (1 + size / s)))
            << at << ": " << real / s + out.zero;
      }
    }
  }
};

Case RandomCase(Draw& draw) {
  Case c;
  c.m = draw.Flip() ? draw.Int(1, 5) : draw.Int(6, 70);
  c.n = draw.Flip() ? draw.Int(1, 20) : draw.Int(21, 150);
  c.k = draw.Flip() ? draw.Int(1, 9) : draw.Int(10, 300);
  c.trans_x = draw.Int(0, 3) == 0;
  c.trans_y = draw.Int(0, 2) == 0;
  if (draw.Int(0, 2) == 0) c.batch = draw.Int(2, 5);
  c.shared_y = c.batch == 1 || draw.Flip();
  c.out_dtype = std::vector<DType>{DType::kInt8, DType::kUInt8, DType::kFloat32,
                                   DType::kInt32}[static_cast<size_t>(draw.Int(0, 3))];
  const bool raw = c.out_dtype == DType::kInt32;
  const DType x = draw.Byte(), y = draw.Byte();
  const int64_t rows = c.trans_x ? c.k : c.m, cols = c.trans_x ? c.m : c.k;
  c.x.q = draw.Bytes(x, c.batch == 1 ? Shape{rows, cols} : Shape{c.batch, rows, cols});
  const int64_t y_rows = c.trans_y ? c.n : c.k, y_cols = c.trans_y ? c.k : c.n;
  c.y.q = draw.Bytes(y, c.shared_y ? Shape{y_rows, y_cols} : Shape{c.batch, y_rows, y_cols});
  const Shape per_row = c.batch == 1 ? Shape{c.m} : Shape{c.batch, c.m, 1};
  if (draw.Int(0, 3)) c.x.zeros = draw.Bytes(x, draw.Int(0, 2) ? Shape{1} : per_row);
  if (draw.Flip()) c.y.zeros = draw.Bytes(y, draw.Int(0, 2) ? Shape{1} : Shape{c.n});
  if (draw.Int(0, 2) == 0 && y == DType::kUInt8) c.y.zeros = Quantized::Filled(y, {1}, 128);
  if (draw.Flip()) c.bias = draw.Reals({c.n}, -1, 1);
  if (raw || draw.Int(0, 3) == 0) {
    c.bias = Tensor::Zeros(DType::kInt32, {c.n});
    for (int64_t j = 0; j < c.n; ++j)
      c.bias.data<int32_t>()[j] = static_cast<int32_t>(draw.Int(-40000, 40000));
  }
  if (raw) return c;
  c.x.scales = draw.Reals(draw.Int(0, 2) ? Shape{1} : per_row, 0.001, 0.01);
  c.y.scales = draw.Reals(draw.Flip() ? Shape{1} : Shape{c.n}, -0.01, 0.01);
  c.out = {Tensor(), draw.Real(0.001, 0.02), 0};
  c.out.zero = static_cast<int32_t>(draw.Int(-128, 127) + (c.out_dtype == DType::kUInt8 ? 128 : 0));
  c.activation = std::vector<std::string>{"", "", "relu", "clip",
                                          "sigmoid"}[static_cast<size_t>(draw.Int(0, 4))];
  if (draw.Int(0, 2) == 0) {
    c.has_residual = true;
    c.float_residual = draw.Int(0, 2) == 0;
    const Shape shape = c.batch == 1 ? Shape{c.m, c.n} : Shape{c.batch, c.m, c.n};
    if (c.float_residual)
      c.residual.q = draw.Reals(shape, -1, 1);
    else
      c.residual = draw.Any(shape);
  }
  return c;
}

TEST(QuantizedMatmul, RandomCases) {
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const Case c = RandomCase(draw);
    SCOPED_TRACE(fmt::format("case {}: {} x {} x {} x {}", i, c.batch, c.m, c.k, c.n));
    OpTest test = c.Test();
    if (i % 5 == 0) c.Compare(test.Output("Out", KernelMode::kReference), true);
    c.Compare(test.Output("Out", KernelMode::kAuto), false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Runs the op in a program whose inputs, except X and Residual, are frozen.
Tensor RunFrozen(const Case& c, int runs = 2) {
  ProgramDesc program;
  Scope scope;
  std::vector<std::string> feeds;
  std::vector<Tensor> values;
  SlotList inputs;
  const auto add = [&](const std::string& slot, const Tensor& value, bool feed) {
    VarDesc& var = program.Root().Var(slot);
    var.SetShape(value.shape());
    var.SetDType(value.dtype());
    if (feed) {
      feeds.push_back(slot);
      values.push_back(value);
    } else {
      var.SetPersistable(true);
      scope.Set(slot, value);
    }
    inputs.push_back({slot, {slot}});
  };
  add("X", c.x.q, true);
  add("Y", c.y.q, false);
  if (!c.x.scales.empty()) add("XScale", c.x.scales, false);
  if (!c.x.zeros.empty()) add("XZeroPoint", c.x.zeros, false);
  if (!c.y.scales.empty()) add("YScale", c.y.scales, false);
  if (!c.y.zeros.empty()) add("YZeroPoint", c.y.zeros, false);
  if (!c.bias.empty()) add("Bias", c.bias, false);
  if (c.has_residual) add("Residual", c.residual.q, true);
  if (c.has_residual && !c.float_residual) {
    add("ResidualScale", c.residual.Scale(), false);
    add("ResidualZeroPoint", c.residual.Zero(), false);
  }
  if (IsByte(c.out_dtype)) {
    add("OutScale", c.out.Scale(), false);
    add("OutZeroPoint", Quantized::Filled(c.out_dtype, {1}, c.out.zero), false);
  }
  program.Root().Var("Out");
  OpDesc& op = program.Root().AppendOp("quantized_matmul", inputs, {{"Out", {"Out"}}},
                                       {{"trans_x", c.trans_x},
                                        {"trans_y", c.trans_y},
                                        {"out_dtype", Number(c.out_dtype)},
                                        {"fuse_activation", c.activation},
                                        {"fuse_alpha", -0.5f},
                                        {"fuse_beta", 1.5f}});
  InferOp(program.Root(), op, DefaultOps());
  PreparedProgram frozen = Executor().PrepareFrozen(program, scope, feeds, {"Out"});
  Tensor out;
  for (int run = 0; run < runs; ++run) out = frozen.Run(scope, values)[0].Clone();
  return out;
}

TEST(QuantizedMatmul, FrozenWeights) {
  Draw draw(2);
  for (int i = 0; i < 80; ++i) {
    Case c = RandomCase(draw);
    if (i % 10 == 0) {  // several parts for each thread
      c = Case();
      c.m = draw.Flip() ? 3 : 130;
      c.n = 700;
      c.k = 600;
      c.x.q = draw.Bytes(DType::kUInt8, {c.m, c.k});
      c.y.q = draw.Bytes(DType::kInt8, {c.k, c.n});
      c.out_dtype = DType::kInt32;
    }
    SCOPED_TRACE(fmt::format("case {}: {} x {} x {} x {}", i, c.batch, c.m, c.k, c.n));
    c.Compare(RunFrozen(c), false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Machines without exact integer products compute in another way.
TEST(QuantizedMatmul, WithoutIntegerProducts) {
  const ScopedIntegerProducts inexact(false);
  Draw draw(3);
  for (int i = 0; i < 80; ++i) {
    Case c = RandomCase(draw);
    if (i % 10 == 0) {  // several chunks of products
      c = Case();
      c.m = draw.Int(1, 70);
      c.n = draw.Int(1, 40);
      c.k = draw.Int(500, 1600);
      c.x.q = draw.Bytes(draw.Byte(), {c.m, c.k});
      c.y.q = draw.Bytes(draw.Byte(), {c.k, c.n});
      c.out_dtype = DType::kInt32;
    }
    SCOPED_TRACE(fmt::format("case {}: {} x {} x {} x {}", i, c.batch, c.m, c.k, c.n));
    OpTest test = c.Test();
    c.Compare(test.Output("Out", KernelMode::kAuto), false);
    c.Compare(RunFrozen(c), false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Values whose sums in 16 bits would saturate.
TEST(QuantizedMatmul, ExtremeValues) {
  struct Pair {
    DType x, y;
    int64_t a, b;
  };
  const std::vector<Pair> pairs = {
      {DType::kUInt8, DType::kInt8, 255, 127},  {DType::kUInt8, DType::kInt8, 255, -128},
      {DType::kUInt8, DType::kUInt8, 255, 255}, {DType::kInt8, DType::kInt8, -128, -128},
      {DType::kInt8, DType::kInt8, 127, 127},   {DType::kInt8, DType::kUInt8, -128, 255}};
  for (const bool exact : {true, false}) {
    std::optional<ScopedIntegerProducts> inexact;
    if (!exact) inexact.emplace(false);
    for (const Pair& p : pairs) {
      for (const int64_t k : {1, 7, 64, 288, 2048}) {
        for (const int64_t m : {1, 17}) {
          Case c;
          c.m = m;
          c.n = 33;
          c.k = k;
          c.x.q = Quantized::Filled(p.x, {m, k}, p.a);
          c.y.q = Quantized::Filled(p.y, {k, c.n}, p.b);
          c.out_dtype = DType::kInt32;
          c.Compare(c.Test().Output("Out"), true);
          c.Compare(RunFrozen(c), true);
          // With the most distant zero points.
          c.x.zeros = Quantized::Filled(p.x, {1}, p.a > 0 ? quantized_tools::Least(p.x) : 127);
          c.y.zeros = Quantized::Filled(p.y, {1}, p.b > 0 ? quantized_tools::Least(p.y) : 127);
          c.Compare(c.Test().Output("Out"), true);
          c.Compare(RunFrozen(c), true);
          ASSERT_FALSE(testing::Test::HasFatalFailure());
        }
      }
    }
  }
}

// Sums beyond the range of int32 are limited to it, and do not wrap around.
TEST(QuantizedMatmul, LongSums) {
  const int64_t k = 40000;
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const auto test = [&](DType out) {
      OpTest test("quantized_matmul");
      test.Attr("out_dtype", Number(out))
          .TensorInput("X", Quantized::Filled(DType::kUInt8, {1, k}, 255))
          .TensorInput("Y", Quantized::Filled(DType::kUInt8, {k, 1}, 255));
      return test;
    };
    EXPECT_EQ(test(DType::kInt32).Output("Out", mode).data<int32_t>()[0],
              std::numeric_limits<int32_t>::max());
    OpTest real = test(DType::kFloat32);
    real.TensorInput("XScale", Tensor::Of<float>({1}, {1}));
    real.TensorInput("YScale", Tensor::Of<float>({1}, {1}));
    EXPECT_EQ(real.Output("Out", mode).data<float>()[0], 2601000000.f);
  }
}

TEST(QuantizedMatmul, ByHand) {
  // (10 - 8) (3 - 1) + (6 - 8) (5 - 1) = -4; times 0.5 * 0.25, plus 1, is 0.5.
  OpTest test("quantized_matmul");
  test.Attr("out_dtype", Number(DType::kInt8))
      .IntInput("X", {1, 2}, {10, 6}, DType::kUInt8)
      .IntInput("XZeroPoint", {1}, {8}, DType::kUInt8)
      .IntInput("Y", {2, 1}, {3, 5}, DType::kInt8)
      .IntInput("YZeroPoint", {1}, {1}, DType::kInt8)
      .TensorInput("XScale", Tensor::Of<float>({1}, {0.5f}))
      .TensorInput("YScale", Tensor::Of<float>({1}, {0.25f}))
      .TensorInput("Bias", Tensor::Of<float>({1}, {1}))
      .TensorInput("OutScale", Tensor::Of<float>({1}, {0.2f}))
      .IntInput("OutZeroPoint", {1}, {-3}, DType::kInt8)
      .Expect("Out", {1, 1}, {-1})  // 2.5 rounds to 2
      .ExpectDType("Out", DType::kInt8);
}

// Half-way values round to the even integer, before the zero point is added.
TEST(QuantizedMatmul, Ties) {
  Tensor x = Tensor::Zeros(DType::kInt8, {255, 1});
  for (int i = 0; i < 255; ++i) x.data<int8_t>()[i] = static_cast<int8_t>(i - 127);
  for (const int32_t zero : {0, 1, 128}) {
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      OpTest test("quantized_matmul");
      test.Attr("out_dtype", Number(DType::kUInt8))
          .TensorInput("X", x)
          .IntInput("Y", {1, 1}, {1}, DType::kInt8)
          .TensorInput("XScale", Tensor::Of<float>({1}, {0.5f}))
          .TensorInput("YScale", Tensor::Of<float>({1}, {1}))
          .TensorInput("OutScale", Tensor::Of<float>({1}, {1}))
          .IntInput("OutZeroPoint", {1}, {zero}, DType::kUInt8);
      const Tensor out = test.Output("Out", mode);
      for (int i = 0; i < 255; ++i) {
        const double wanted = std::clamp(std::nearbyint((i - 127) * 0.5) + zero, 0.0, 255.0);
        EXPECT_EQ(out.data<uint8_t>()[i], wanted) << i << " + " << zero;
      }
    }
  }
}

// Vectors, empty matrices and sums of nothing.
TEST(QuantizedMatmul, Shapes) {
  const auto test = [](const Shape& x, const Shape& y) {
    OpTest test("quantized_matmul");
    test.Attr("out_dtype", Number(DType::kInt32))
        .TensorInput("X", Quantized::Filled(DType::kUInt8, x, 2))
        .TensorInput("Y", Quantized::Filled(DType::kInt8, y, -3));
    return test;
  };
  test({4}, {4}).Expect("Out", {1}, {-24});
  test({4}, {4, 2}).Expect("Out", {2}, {-24, -24});
  test({2, 4}, {4}).Expect("Out", {2}, {-24, -24});
  test({2, 1, 1, 1}, {2, 1, 1}).Expect("Out", {2, 2, 1, 1}, {-6, -6, -6, -6});
  test({0, 4}, {4, 2}).Expect("Out", {0, 2}, {});
  test({2, 4}, {4, 0}).Expect("Out", {2, 0}, {});
  test({2, 0}, {0, 2}).Expect("Out", {2, 2}, {0, 0, 0, 0});
  test({0, 2, 4}, {4, 2}).Expect("Out", {0, 2, 2}, {});
}

// Parameters that are nan, infinite or zero give the same integers everywhere.
TEST(QuantizedMatmul, StrangeParameters) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Parameters {
    float x, out, bias;
    int wanted;
  };
  for (const Parameters& p : std::vector<Parameters>{{kNan, 1, 0, 0},
                                                     {1, kNan, 0, 0},
                                                     {1, 1, kNan, 0},
                                                     {kInf, 1, 0, 255},
                                                     {1, kInf, 0, 9},
                                                     {1, 0, 0, 255},
                                                     {-kInf, 1, 0, 0},
                                                     {1e30f, 1e-30f, 0, 255},
                                                     {1, 1, kInf, 255},
                                                     {1e-30f, 1e-30f, 0, 15}}) {
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      OpTest test("quantized_matmul");
      test.Attr("out_dtype", Number(DType::kUInt8))
          .IntInput("X", {1, 1}, {2}, DType::kUInt8)
          .IntInput("Y", {1, 1}, {3}, DType::kInt8)
          .TensorInput("XScale", Tensor::Of<float>({1}, {p.x}))
          .TensorInput("YScale", Tensor::Of<float>({1}, {1}))
          .TensorInput("Bias", Tensor::Of<float>({1}, {p.bias}))
          .TensorInput("OutScale", Tensor::Of<float>({1}, {p.out}))
          .IntInput("OutZeroPoint", {1}, {9}, DType::kUInt8);
      EXPECT_EQ(test.Output("Out", mode).data<uint8_t>()[0], p.wanted)
          << p.x << " " << p.out << " " << p.bias << " " << static_cast<int>(mode);
    }
  }
}

// A valid call, to be spoiled.
OpTest Valid(DType out = DType::kUInt8) {
  OpTest test("quantized_matmul");
  test.Attr("out_dtype", Number(out)).IntInput("X", {2, 3}, {1, 2, 3, 4, 5, 6}, DType::kUInt8);
  if (out != DType::kInt32)
    test.TensorInput("XScale", Tensor::Of<float>({1}, {1}))
        .TensorInput("YScale", Tensor::Of<float>({1}, {1}));
  if (IsByte(out)) test.TensorInput("OutScale", Tensor::Of<float>({1}, {1}));
  return test;
}
Tensor Weight(const Shape& shape = {3, 2}, DType dtype = DType::kInt8) {
  return Quantized::Filled(dtype, shape, 1);
}

TEST(QuantizedMatmul, Constraints) {
  const std::string type = "quantized_matmul";
  OpTest(type)
      .Attr("out_dtype", Number(DType::kInt32))
      .IntInput("X", {}, {1}, DType::kUInt8)
      .TensorInput("Y", Weight())
      .ExpectError(type + ".C1");
  Valid().TensorInput("Y", Weight({2, 2})).ExpectError(type + ".C2");
  Valid().TensorInput("Y", Weight({3, 2})).Attr("trans_y", true).ExpectError(type + ".C2");
  OpTest(type)
      .Attr("out_dtype", Number(DType::kInt32))
      .TensorInput("X", Weight({2, 1, 3}))
      .TensorInput("Y", Weight({3, 3, 1}))
      .ExpectError(type + ".C3");
  const Tensor two = Tensor::Of<float>({2}, {1, 1}), one = Tensor::Of<float>({1}, {1});
  const Tensor three = Tensor::Of<float>({3}, {1, 1, 1});
  Valid().TensorInput("Y", Weight()).TensorInput("XZeroPoint", Weight({1})).ExpectError(".C4");
  Valid()
      .TensorInput("Y", Weight())
      .TensorInput("XZeroPoint", Weight({3}, DType::kUInt8))
      .ExpectError(type + ".C4");
  Valid(DType::kInt32).TensorInput("Y", three).ExpectError(type + ".C5");
  Valid()
      .TensorInput("Y", Weight())
      .TensorInput("YZeroPoint", Weight({3}))
      .ExpectError(type + ".C5");
  Valid(DType::kInt16).TensorInput("Y", Weight()).ExpectError(type + ".C6");
  Valid(DType::kFloat32)
      .TensorInput("Y", Weight())
      .TensorInput("OutScale", one)
      .ExpectError(type + ".C6");
  Valid()
      .TensorInput("Y", Weight())
      .TensorInput("OutZeroPoint", Weight({1}))
      .ExpectError(type + ".C6");
  Valid(DType::kInt32).TensorInput("Y", Weight()).TensorInput("XScale", one).ExpectError(".C7");
  Valid(DType::kInt32)
      .TensorInput("Y", Weight())
      .Attr("fuse_activation", std::string("relu"))
      .ExpectError(type + ".C7");
  Valid(DType::kInt32).TensorInput("Y", Weight()).TensorInput("Bias", two).ExpectError(".C8");
  Valid().TensorInput("Y", Weight()).TensorInput("Bias", three).ExpectError(type + ".C8");
  Valid()
      .TensorInput("Y", Weight())
      .TensorInput("Residual", Weight({2, 2}))
      .ExpectError(type + ".C9");
  Valid()
      .TensorInput("Y", Weight())
      .TensorInput("Residual", Tensor::Zeros(DType::kFloat32, {1, 2}))
      .ExpectError(type + ".C9");
  Valid().TensorInput("Y", Weight()).TensorInput("ResidualScale", one).ExpectError(type + ".C9");
}

}  // namespace coracle::quantized_matmul_test
