#include <coracle/test/operators/quantize/quantized_tools.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::quantized_pool2d_test {

using quantized_tools::AddQuantized;
using quantized_tools::Draw;
using quantized_tools::IsRounded;
using quantized_tools::Least;
using quantized_tools::Number;
using quantized_tools::Quantized;

using Ints = std::vector<int32_t>;

// Windows of [n, c, h, w] images.
struct Case {
  int64_t n = 1, c = 1, h = 1, w = 1;
  int32_t kernel = 1, stride = 1, padding = 0;
  bool last = false, exclusive = true, global = false;

  int64_t Size(int64_t in) const { return global ? 1 : (in + 2 * padding - kernel) / stride + 1; }
  Shape InShape() const { return last ? Shape{n, h, w, c} : Shape{n, c, h, w}; }
  Shape OutShape() const {
    return last ? Shape{n, Size(h), Size(w), c} : Shape{n, c, Size(h), Size(w)};
  }
  static int64_t At(const Shape& s, bool last, int64_t i, int64_t c, int64_t y, int64_t x) {
    return last ? ((i * s[1] + y) * s[2] + x) * s[3] + c : ((i * s[1] + c) * s[2] + y) * s[3] + x;
  }
  // Calls f(index of Out, indices of X in the window, divisor of an average).
  template <class F>
  void ForEach(F&& f) const {
    const Shape in = InShape(), out = OutShape();
    for (int64_t at = 0; at < out.numel(); ++at) {
      const int64_t ow = Size(w), oh = Size(h);
      const int64_t i = at / (c * oh * ow), rest = at % (c * oh * ow);
      const int64_t channel = last ? rest % c : rest / (oh * ow);
      const int64_t pixel = last ? rest / c : rest % (oh * ow);
      std::vector<int64_t> window;
      int64_t padded = 0;
      for (int64_t y = 0; y < (global ? h : kernel); ++y) {
        for (int64_t x = 0; x < (global ? w : kernel); ++x) {
          const int64_t row = global ? y : pixel / ow * stride - padding + y;
          const int64_t column = global ? x : pixel % ow * stride - padding + x;
          padded += row < h + padding && column < w + padding;
          if (row >= 0 && row < h && column >= 0 && column < w)
            window.push_back(At(in, last, i, channel, row, column));
        }
      }
      const bool whole = exclusive || global;
      f(at, window, std::max<int64_t>(1, whole ? static_cast<int64_t>(window.size()) : padded));
    }
  }
  OpTest Test(const std::string& op, const std::string& type) const {
    OpTest test(op);
    test.Attr("ksize", Ints{kernel, kernel}).Attr("strides", Ints{stride, stride});
    test.Attr("paddings", Ints{padding, padding}).Attr("exclusive", exclusive);
    test.Attr("global_pooling", global).Attr("pooling_type", type);
    test.Attr("data_format", std::string(last ? "NHWC" : "NCHW"));
    return test;
  }
};

Case RandomCase(Draw& draw) {
  Case c;
  c.n = draw.Int(1, 3);
  c.c = draw.Flip() ? draw.Int(1, 20) : draw.Int(21, 200);
  c.h = draw.Int(3, 12);
  c.w = draw.Int(3, 12);
  c.kernel = static_cast<int32_t>(draw.Int(1, 3));
  c.stride = static_cast<int32_t>(draw.Int(1, 3));
  c.padding = static_cast<int32_t>(draw.Int(0, c.kernel - 1));
  c.last = draw.Flip();
  c.exclusive = draw.Flip();
  c.global = draw.Int(0, 3) == 0;
  return c;
}

void ExpectAverages(const Case& c, const Quantized& x, Draw& draw) {
  const DType out_dtype = std::vector<DType>{DType::kInt8, DType::kUInt8,
                                             DType::kFloat32}[static_cast<size_t>(draw.Int(0, 2))];
  const bool bytes = IsByte(out_dtype);
  const float scale = bytes ? draw.Real(0.01, 0.1) : 1;
  const auto zero = static_cast<int32_t>(bytes ? Least(out_dtype) + draw.Int(0, 255) : 0);
  OpTest test = c.Test("quantized_pool2d", "avg");
  AddQuantized(test, "X", x);
  test.Attr("out_dtype", Number(out_dtype));
  if (bytes)
    test.TensorInput("OutScale", Tensor::Of<float>({1}, {scale}))
        .TensorInput("OutZeroPoint", Quantized::Filled(out_dtype, {1}, zero));
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const Tensor out = test.Output("Out", mode);
    ASSERT_EQ(out.shape(), c.OutShape());
    ASSERT_EQ(out.dtype(), out_dtype);
    c.ForEach([&](int64_t at, const std::vector<int64_t>& window, int64_t divisor) {
      double real = 0, size = 0;
      for (const int64_t i : window) real += x.Real(i) / static_cast<double>(divisor);
      size = std::abs(real) + 1;
      if (bytes)
        EXPECT_TRUE(IsRounded(out, at, real / static_cast<double>(scale), zero, 1e-4)) << at;
      else
        EXPECT_NEAR(static_cast<double>(out.data<float>()[at]), real, 1e-6 * size) << at;
    });
  }
}

TEST(QuantizedPool2d, RandomCases) {
  Draw draw(9);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(draw);
    SCOPED_TRACE(fmt::format("case {}: {} k {} s {} p {}", i, c.InShape().ToString(), c.kernel,
                             c.stride, c.padding));
    ExpectAverages(c, draw.Any(c.InShape()), draw);
    if (testing::Test::HasFailure()) return;
  }
}

// So many numbers that sums of 16 bits would overflow.
TEST(QuantizedPool2d, ManyPixels) {
  Draw draw(10);
  for (const bool last : {false, true}) {
    for (const int64_t channels : {1, 40}) {
      Case c;
      c.c = channels;
      c.h = 61;
      c.w = 67;
      c.last = last;
      c.global = true;
      ExpectAverages(c, {Quantized::Filled(DType::kUInt8, c.InShape(), 255), 0.01f, 3}, draw);
      ExpectAverages(c, draw.Any(c.InShape()), draw);
    }
  }
}

TEST(QuantizedPool2d, ByHand) {
  // 0.5 ((1 + 2 + 3 + 6) / 4 - 1) = 1 is 4 steps of 0.25.
  OpTest("quantized_pool2d")
      .Attr("ksize", Ints{2, 2})
      .Attr("out_dtype", Number(DType::kInt8))
      .IntInput("X", {1, 1, 2, 2}, {1, 2, 3, 6}, DType::kUInt8)
      .TensorInput("XScale", Tensor::Of<float>({1}, {0.5f}))
      .IntInput("XZeroPoint", {1}, {1}, DType::kUInt8)
      .TensorInput("OutScale", Tensor::Of<float>({1}, {0.25f}))
      .IntInput("OutZeroPoint", {1}, {-10}, DType::kInt8)
      .Expect("Out", {1, 1, 1, 1}, {-6});
}

TEST(QuantizedPool2d, StrangeParameters) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {1.f, kNan, kInf, 0.f, -1.f, 1e-38f}) {
    for (const float out : {1.f, kNan, kInf, 0.f, -1.f, 1e-30f}) {
      OpTest test("quantized_pool2d");
      test.Attr("ksize", Ints{1, 1})
          .Attr("out_dtype", Number(DType::kInt8))
          .IntInput("X", {1, 3, 1, 1}, {-128, 0, 3}, DType::kInt8)
          .TensorInput("XScale", Tensor::Of<float>({1}, {x}))
          .TensorInput("OutScale", Tensor::Of<float>({1}, {out}));
      const Tensor exact = test.Output("Out", KernelMode::kReference);
      const Tensor fast = test.Output("Out", KernelMode::kAuto);
      for (int i = 0; i < 3; ++i)
        EXPECT_EQ(fast.data<int8_t>()[i], exact.data<int8_t>()[i]) << x << " " << out << " " << i;
    }
  }
}

OpTest Valid(const Shape& shape = {1, 2, 3, 3}) {
  OpTest test("quantized_pool2d");
  return test.TensorInput("X", Tensor::Zeros(DType::kInt8, shape));
}

TEST(QuantizedPool2d, Constraints) {
  const std::string type = "quantized_pool2d";
  const Tensor one = Tensor::Of<float>({1}, {1}), two = Tensor::Of<float>({2}, {1, 1});
  const auto valid = [&](const Shape& shape, const Ints& ksize) {
    OpTest test = Valid(shape);
    test.TensorInput("XScale", one).TensorInput("OutScale", one);
    return test.Attr("ksize", ksize).Attr("out_dtype", Number(DType::kInt8));
  };
  const Shape image = {1, 2, 3, 3};
  valid({2, 3, 3}, {1, 1}).ExpectError(type + ".C1");
  valid(image, {0, 1}).ExpectError(type + ".C3");
  valid(image, {1, 1}).Attr("strides", Ints{0, 1}).ExpectError(type + ".C4");
  valid(image, {1, 1}).Attr("paddings", Ints{-1, 0}).ExpectError(type + ".C5");
  valid(image, {9, 9}).ExpectError(type + ".C6");
  Valid()
      .TensorInput("XScale", two)
      .Attr("ksize", Ints{1, 1})
      .Attr("out_dtype", Number(DType::kFloat32))
      .ExpectError(type + ".C7");
  valid(image, {1, 1}).Attr("out_dtype", Number(DType::kFloat32)).ExpectError(type + ".C8");
}

// pool2d computes maxima of integers.
TEST(MaxPoolOfBytes, RandomCases) {
  Draw draw(11);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(draw);
    const Tensor x = draw.Bytes(draw.Byte(), c.InShape());
    SCOPED_TRACE(fmt::format("case {}: {} k {} s {} p {}", i, c.InShape().ToString(), c.kernel,
                             c.stride, c.padding));
    OpTest test = c.Test("pool2d", "max");
    test.TensorInput("X", x);
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor out = test.Output("Out", mode);
      ASSERT_EQ(out.shape(), c.OutShape());
      ASSERT_EQ(out.dtype(), x.dtype());
      c.ForEach([&](int64_t at, const std::vector<int64_t>& window, int64_t) {
        int32_t most = window.empty() ? 0 : -1000;
        for (const int64_t k : window) most = std::max(most, IntegerAt(x.dtype(), x.raw(), k));
        EXPECT_EQ(IntegerAt(out.dtype(), out.raw(), at), most) << at;
      });
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MaxPoolOfBytes, AveragesAreRefused) {
  OpTest("pool2d")
      .Attr("ksize", Ints{1, 1})
      .Attr("pooling_type", std::string("avg"))
      .TensorInput("X", Tensor::Zeros(DType::kInt8, {1, 1, 2, 2}))
      .ExpectError("pool2d.C2");
  OpTest("pool3d")
      .Attr("ksize", Ints{1, 1, 1})
      .Attr("pooling_type", std::string("avg"))
      .TensorInput("X", Tensor::Zeros(DType::kUInt8, {1, 1, 2, 2, 2}))
      .ExpectError("pool3d.C2");
}

TEST(MaxPoolOfBytes, Volumes) {
  for (const std::string layout : {"NCDHW", "NDHWC"}) {
    OpTest("pool3d")
        .Attr("ksize", Ints{2, 2, 2})
        .Attr("pooling_type", std::string("max"))
        .Attr("data_format", layout)
        .IntInput("X", layout == "NCDHW" ? Shape{1, 1, 2, 2, 2} : Shape{1, 2, 2, 2, 1},
                  {1, -2, 3, 4, -5, 6, 7, -8}, DType::kInt8)
        .Expect("Out", {1, 1, 1, 1, 1}, {7});
  }
}

}  // namespace coracle::quantized_pool2d_test
