#pragma once
// Tests that quantized_add and quantized_mul share.

#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace coracle::quantized_binary {

using quantized_tools::AddQuantized;
using quantized_tools::Draw;
using quantized_tools::IsRounded;
using quantized_tools::Number;
using quantized_tools::Quantized;

struct Case {
  std::string op;
  Quantized x, y;
  Shape shape;  // of the result
  int axis = -1;
  std::vector<int64_t> x_at, y_at;  // where element i of the result finds its operands
  DType out_dtype = DType::kUInt8;
  float out_scale = 1;
  int32_t out_zero = 0;
  std::string activation;

  double Real(int64_t i, double* size) const {
    const double a = x.Real(x_at[static_cast<size_t>(i)]), b = y.Real(y_at[static_cast<size_t>(i)]);
    double value = op == "quantized_add" ? a + b : a * b;
    *size = (op == "quantized_add" ? std::abs(a) + std::abs(b) : std::abs(value)) +
            (activation == "sigmoid" ? 1 : 0);
    if (activation == "relu") value = std::max(value, 0.0);
    if (activation == "relu6") value = std::clamp(value, 0.0, 1.5);
    if (activation == "sigmoid") value = 1 / (1 + std::exp(-value));
    return value;
  }
  OpTest Test() const {
    OpTest test(op);
    AddQuantized(test, "X", x, x.zero != 0);
    AddQuantized(test, "Y", y, y.zero != 0);
    test.Attr("axis", axis).Attr("out_dtype", Number(out_dtype));
    test.Attr("fuse_activation", activation).Attr("fuse_alpha", 1.5f);
    if (IsByte(out_dtype))
      test.TensorInput("OutScale", Tensor::Of<float>({1}, {out_scale}))
          .TensorInput("OutZeroPoint", Quantized::Filled(out_dtype, {1}, out_zero));
    return test;
  }
  void Compare(const Tensor& got, bool exact) const {
    ASSERT_EQ(got.dtype(), out_dtype);
    ASSERT_EQ(got.shape(), shape);
    for (int64_t i = 0; i < got.numel(); ++i) {
      double size = 0;
      const double real = Real(i, &size), s = static_cast<double>(out_scale);
      if (out_dtype == DType::kFloat32)
        ASSERT_NEAR(static_cast<double>(got.data<float>()[i]), real, (exact ? 6e-8 : 1e-6) * size);
      else
        ASSERT_TRUE(IsRounded(got, i, real / s, out_zero, exact ? 1e-9 : 1e-6 * (1 + size / s)))
            << i << ": " << real / s + out_zero;
    }
  }
};

inline std::vector<int64_t> Positions(int64_t n, int64_t block, int64_t count, bool repeats) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < n; ++i) at.push_back(repeats ? i / block % count : i);
  return at;
}

// [N, C, P] with an operand of the same shape, a number, or a number for each channel or pixel;
// it is the first or the second operand.
inline Case RandomCase(Draw& draw, const std::string& op) {
  Case c;
  c.op = op;
  const int64_t n = draw.Int(1, 3), channels = draw.Int(1, 70), pixels = draw.Int(1, 70);
  c.shape = {n, channels, pixels};
  const int64_t numel = c.shape.numel(), form = draw.Int(0, 3);
  c.x = draw.Any(c.shape);
  c.x_at = c.y_at = Positions(numel, 1, numel, false);
  if (form == 0) c.y = draw.Any(c.shape);
  if (form == 1) {
    c.y = draw.Any({1});
    c.y_at = Positions(numel, 1, 1, true);
  }
  if (form == 2) {
    c.y = draw.Any({channels});
    c.axis = 1;
    c.y_at = Positions(numel, pixels, channels, true);
  }
  if (form == 3) {
    c.y = draw.Any({pixels});
    c.y_at = Positions(numel, 1, pixels, true);
  }
  if (draw.Int(0, 3) == 0) {
    std::swap(c.x, c.y);
    std::swap(c.x_at, c.y_at);
  }
  c.out_dtype = std::vector<DType>{DType::kInt8, DType::kUInt8,
                                   DType::kFloat32}[static_cast<size_t>(draw.Int(0, 2))];
  if (IsByte(c.out_dtype)) {
    c.out_scale = draw.Real(0.001, 0.2);
    c.out_zero = static_cast<int32_t>(quantized_tools::Least(c.out_dtype) + draw.Int(0, 255));
  }
  c.activation = std::vector<std::string>{"", "", "relu", "relu6",
                                          "sigmoid"}[static_cast<size_t>(draw.Int(0, 4))];
  return c;
}

inline void RunRandomCases(const std::string& op) {
  Draw draw(5);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(draw, op);
    SCOPED_TRACE(fmt::format("case {}: X {} Y {} axis {} {}", i, c.x.q.shape().ToString(),
                             c.y.q.shape().ToString(), c.axis, c.activation));
    OpTest test = c.Test();
    c.Compare(test.Output("Out", KernelMode::kReference), true);
    c.Compare(test.Output("Out", KernelMode::kAuto), false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Many elements, for several threads, in place and not.
inline void RunLargeCase(const std::string& op) {
  Draw draw(6);
  Case c;
  c.op = op;
  c.shape = {3, 100003};
  c.x = draw.Any(c.shape);
  c.y = draw.Any(c.shape);
  c.x_at = c.y_at = Positions(c.shape.numel(), 1, 1, false);
  c.out_dtype = c.x.q.dtype();
  c.out_scale = 0.05f;
  c.out_zero = c.out_dtype == DType::kInt8 ? -3 : 120;
  c.Compare(c.Test().Output("Out"), false);
  c.Compare(c.Test().InPlace("X", "Out").Output("Out"), false);
}

// Parameters that are nan, infinite, zero or negative.
inline void RunStrangeParameters(const std::string& op) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {1.f, kNan, kInf, -kInf, 0.f, 1e30f, 1e-38f, -2.f}) {
    for (const float out : {1.f, kNan, kInf, 0.f, 1e-30f, 1e30f, -2.f}) {
      OpTest test(op);
      test.Attr("out_dtype", Number(DType::kInt8))
          .IntInput("X", {4}, {0, 1, 2, 255}, DType::kUInt8)
          .TensorInput("XScale", Tensor::Of<float>({1}, {x}))
          .IntInput("XZeroPoint", {1}, {1}, DType::kUInt8)
          .IntInput("Y", {4}, {-128, 0, 3, 127}, DType::kInt8)
          .TensorInput("YScale", Tensor::Of<float>({1}, {1}))
          .TensorInput("OutScale", Tensor::Of<float>({1}, {out}));
      const Tensor exact = test.Output("Out", KernelMode::kReference);
      const Tensor fast = test.Output("Out", KernelMode::kAuto);
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(fast.data<int8_t>()[i], exact.data<int8_t>()[i]) << x << " " << out << " " << i;
    }
  }
}

inline OpTest Valid(const std::string& op, DType out = DType::kUInt8) {
  OpTest test(op);
  test.Attr("out_dtype", Number(out)).IntInput("X", {2, 3}, {1, 2, 3, 4, 5, 6}, DType::kUInt8);
  test.TensorInput("XScale", Tensor::Of<float>({1}, {1}));
  if (IsByte(out)) test.TensorInput("OutScale", Tensor::Of<float>({1}, {1}));
  return test;
}

inline void RunConstraints(const std::string& op) {
  const Tensor one = Tensor::Of<float>({1}, {1}), two = Tensor::Of<float>({2}, {1, 1});
  const Tensor row = Quantized::Filled(DType::kInt8, {3}, 1);
  Valid(op)
      .TensorInput("Y", row)
      .TensorInput("YScale", one)
      .Attr("axis", 4)
      .ExpectError(op + ".C1");
  Valid(op)
      .TensorInput("Y", row)
      .TensorInput("YScale", one)
      .Attr("axis", 2)
      .ExpectError(op + ".C2");
  Valid(op)
      .TensorInput("Y", Quantized::Filled(DType::kInt8, {2}, 1))
      .TensorInput("YScale", one)
      .ExpectError(op + ".C3");
  Valid(op).TensorInput("Y", row).TensorInput("YScale", two).ExpectError(op + ".C4");
  Valid(op)
      .TensorInput("Y", two)
      .TensorInput("YScale", one)
      .Attr("axis", 0)
      .ExpectError(op + ".C4");
  Valid(op)
      .TensorInput("Y", row)
      .TensorInput("YScale", one)
      .IntInput("YZeroPoint", {1}, {0}, DType::kUInt8)
      .ExpectError(op + ".C4");
  Valid(op, DType::kInt32).TensorInput("Y", row).TensorInput("YScale", one).ExpectError(op + ".C5");
  Valid(op, DType::kFloat32)
      .TensorInput("Y", row)
      .TensorInput("YScale", one)
      .TensorInput("OutScale", one)
      .ExpectError(op + ".C5");
}

inline void RunEmpty(const std::string& op) {
  OpTest(op)
      .Attr("out_dtype", Number(DType::kFloat32))
      .TensorInput("X", Tensor::Zeros(DType::kInt8, {0, 3}))
      .TensorInput("XScale", Tensor::Of<float>({1}, {1}))
      .TensorInput("Y", Tensor::Zeros(DType::kUInt8, {3}))
      .TensorInput("YScale", Tensor::Of<float>({1}, {1}))
      .Expect("Out", {0, 3}, {});
}

}  // namespace coracle::quantized_binary
