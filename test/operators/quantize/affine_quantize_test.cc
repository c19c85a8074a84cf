#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace coracle::affine_quantize_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }

std::vector<int64_t> ToInts(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kInt64);
  return {wide.span<int64_t>().begin(), wide.span<int64_t>().end()};
}

// The nearest integer, of two equally near ones the even one.
double NearestEven(double x) {
  const double low = std::floor(x), rest = x - low;
  if (rest == 0.5) return std::fmod(low, 2) == 0 ? low : low + 1;
  return rest < 0.5 ? low : low + 1;
}

struct Range {
  int64_t least, most;
};
Range RangeOf(DType dtype) {
  if (dtype == DType::kUInt8) return {0, 255};
  if (dtype == DType::kInt8) return {-128, 127};
  return dtype == DType::kInt16 ? Range{-32768, 32767} : Range{-2147483648LL, 2147483647LL};
}

int64_t Expected(float x, float scale, int64_t zero, Range range) {
  const float quotient = x / scale;
  if (std::isnan(quotient)) return range.least;
  const double q = NearestEven(static_cast<double>(quotient)) + static_cast<double>(zero);
  return static_cast<int64_t>(
      std::clamp(q, static_cast<double>(range.least), static_cast<double>(range.most)));
}

Tensor Integers(const Shape& shape, const std::vector<int64_t>& values, DType dtype) {
  return Tensor::Of<int64_t>(shape, values).Cast(dtype);
}

OpTest Quantize(const Tensor& x, const Tensor& scale, DType dtype) {
  OpTest op("affine_quantize");
  op.TensorInput("X", x).TensorInput("Scale", scale).Attr("out_dtype", Number(dtype));
  return op;
}

void ExpectBoth(OpTest op, const std::vector<int64_t>& values, const std::string& what) {
  EXPECT_EQ(ToInts(op.Output("Out", KernelMode::kReference)), values) << what << " (reference)";
  EXPECT_EQ(ToInts(op.Output("Out", KernelMode::kAuto)), values) << what << " (fast)";
}

// All ties and what lies around them, both ends of the range included.
TEST(AffineQuantize, TiesAndSaturation) {
  for (const float scale : {0.25f, 1.0f, 0.1f, -0.5f}) {
    std::vector<float> x;
    for (int k = -600; k <= 600; ++k) {
      const float tie = static_cast<float>(k) * 0.5f * scale;
      x.insert(x.end(), {tie, std::nextafter(tie, kInf), std::nextafter(tie, -kInf)});
    }
    const int64_t n = static_cast<int64_t>(x.size());
    for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32}) {
      for (const int64_t zero : {0, 1, 128, -3}) {
        const Range range = RangeOf(dtype);
        if (zero < range.least || zero > range.most) continue;
        std::vector<int64_t> expected;
        for (float v : x) expected.push_back(Expected(v, scale, zero, range));
        ExpectBoth(Quantize(Tensor::Of<float>({n}, x), Tensor::Of<float>({1}, {scale}), dtype)
                       .TensorInput("ZeroPoint", Integers({1}, {zero}, dtype)),
                   expected, std::to_string(scale) + " zero " + std::to_string(zero));
      }
    }
  }
}

TEST(AffineQuantize, ZeroPointIsAddedAfterRounding) {
  // 2.5 rounds to 2, and 2 + 1 = 3; rounding 2.5 + 1 would give 4.
  ExpectBoth(
      Quantize(Tensor::Of<float>({2}, {2.5f, 3.5f}), Tensor::Of<float>({1}, {1}), DType::kUInt8)
          .TensorInput("ZeroPoint", Integers({1}, {1}, DType::kUInt8)),
      {3, 5}, "");
}

TEST(AffineQuantize, SpecialNumbers) {
  const float tiny = std::numeric_limits<float>::denorm_min(), least = 1e-40f;
  const std::vector<float> x = {kNan, kInf,  -kInf,  3.4e38f, -3.4e38f, tiny, -tiny, least, -0.0f,
                                0.0f, 1e10f, -1e10f, kNan,    1,        2,    3,     4};
  const int64_t n = static_cast<int64_t>(x.size());
  for (const float scale : {1.0f, least, tiny, 3e38f, kInf, 0.0f, kNan}) {
    for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32}) {
      std::vector<int64_t> expected;
      for (float v : x) expected.push_back(Expected(v, scale, 5, RangeOf(dtype)));
      ExpectBoth(Quantize(Tensor::Of<float>({n}, x), Tensor::Of<float>({1}, {scale}), dtype)
                     .TensorInput("ZeroPoint", Integers({1}, {5}, dtype)),
                 expected, "scale " + std::to_string(scale));
    }
  }
}

TEST(AffineQuantize, NarrowRanges) {
  const Tensor x = Tensor::Of<float>({6}, {-100, -8.6f, -7.5f, 6.5f, 7.6f, kNan});
  const Tensor one = Tensor::Of<float>({1}, {1});
  ExpectBoth(Quantize(x, one, DType::kInt8).Attr("qmin", int64_t{-8}).Attr("qmax", int64_t{7}),
             {-8, -8, -8, 6, 7, -8}, "int4");
  ExpectBoth(Quantize(Tensor::Of<float>({3}, {-1, 70000, 65535}), one, DType::kInt32)
                 .Attr("qmin", int64_t{0})
                 .Attr("qmax", int64_t{65535}),
             {0, 65535, 65535}, "uint16");
}

TEST(AffineQuantize, HalvesAwayFromZero) {
  ExpectBoth(Quantize(Tensor::Of<float>({5}, {0.5f, 1.5f, -0.5f, -2.5f, 2.4f}),
                      Tensor::Of<float>({1}, {1}), DType::kInt8)
                 .Attr("round_mode", std::string("away")),
             {1, 2, -1, -3, 2}, "");
}

// All ties and their neighbours, against std::round.
TEST(AffineQuantize, AwayLikeRound) {
  std::vector<float> x;
  for (int i = -300; i <= 300; ++i) {
    const float tie = static_cast<float>(i) / 2;
    for (const float v : {std::nextafter(tie, -1e9f), tie, std::nextafter(tie, 1e9f)})
      x.push_back(v);
  }
  std::vector<int64_t> want;
  for (const float v : x)
    want.push_back(static_cast<int64_t>(std::min(127.0f, std::max(-127.0f, std::round(v)))));
  ExpectBoth(Quantize(Tensor::Of<float>({static_cast<int64_t>(x.size())}, x),
                      Tensor::Of<float>({1}, {1}), DType::kInt8)
                 .Attr("round_mode", std::string("away"))
                 .Attr("qmin", int64_t{-127})
                 .Attr("qmax", int64_t{127}),
             want, "");
}

TEST(AffineQuantize, Dtypes) {
  // The float64 quotient 0.5 + 1e-12 is no tie; a float32 would be.
  ExpectBoth(Quantize(Tensor::Of<double>({2}, {0.5 + 1e-12, 0.5}), Tensor::Of<float>({1}, {1}),
                      DType::kInt8),
             {1, 0}, "float64");
  // 2^24 + 1 is no float32.
  ExpectBoth(Quantize(Tensor::Of<int32_t>({2}, {16777217, -7}), Tensor::Of<float>({1}, {1}),
                      DType::kInt32),
             {16777217, -7}, "int32");
  const Tensor half = Tensor::Of<float>({3}, {2.5f, -1000, 3}).Cast(DType::kFloat16);
  ExpectBoth(Quantize(half, Tensor::Of<float>({1}, {1}), DType::kInt8), {2, -128, 3}, "float16");
  const Tensor brain = Tensor::Of<float>({3}, {2.5f, -1000, 3}).Cast(DType::kBFloat16);
  ExpectBoth(Quantize(brain, Tensor::Of<float>({1}, {1}).Cast(DType::kBFloat16), DType::kInt8),
             {2, -128, 3}, "bfloat16");
}

// 1.5005 / 3 lies above 0.5, but the nearest float16 is 0.5.
TEST(AffineQuantize, QuotientOf16Bits) {
  const Tensor x = Tensor::Of<float>({1}, {1.50097656f}).Cast(DType::kFloat16);
  const Tensor scale = Tensor::Of<float>({1}, {3.0019531f}).Cast(DType::kFloat16);
  const float quotient =
      x.Cast(DType::kFloat32).data<float>()[0] / scale.Cast(DType::kFloat32).data<float>()[0];
  const float rounded = Tensor::Of<float>({1}, {quotient})
                            .Cast(DType::kFloat16)
                            .Cast(DType::kFloat32)
                            .data<float>()[0];
  ASSERT_EQ(rounded, 0.5f);
  const int64_t plain = quotient > 0.5f ? 1 : 0;
  ExpectBoth(Quantize(x, scale, DType::kInt8), {plain}, "float32");
  ExpectBoth(Quantize(x, scale, DType::kInt8).Attr("quotient_dtype", Number(DType::kFloat16)), {0},
             "float16");
  ExpectBoth(Quantize(Tensor::Of<float>({1}, {2.505f}), Tensor::Of<float>({1}, {1}), DType::kInt8)
                 .Attr("quotient_dtype", Number(DType::kBFloat16)),
             {2}, "bfloat16");
}

// Scales of channels and blocks against a loop over all elements.
struct Case {
  Shape x;
  int axis;
  int64_t block;  // 0: channels
  bool one_zero;  // a zero point for all
};

std::vector<float> Random(std::mt19937& rng, int64_t n, float low, float high) {
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = draw(rng);
  return values;
}

void CheckCase(const Case& c, DType dtype, std::mt19937& rng) {
  const int at = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
  Shape steps = {c.x[at]};
  if (c.block > 0) {
    steps = c.x;
    steps[at] = (c.x[at] + c.block - 1) / c.block;
  }
  const Range range = RangeOf(dtype);
  const std::vector<float> x = Random(rng, c.x.numel(), -30, 30);
  const std::vector<float> scales = Random(rng, steps.numel(), 0.02f, 0.4f);
  const Shape zero_shape = c.one_zero ? Shape{1} : steps;
  std::vector<int64_t> zeros(static_cast<size_t>(zero_shape.numel()));
  for (int64_t& zero : zeros) zero = range.least + static_cast<int64_t>(rng() % 200);
  std::vector<int64_t> expected;
  const int64_t inner = c.x.Product(at + 1, c.x.rank());
  for (int64_t i = 0; i < c.x.numel(); ++i) {
    const int64_t a = i / inner % c.x[at], o = i / inner / c.x[at];
    const int64_t step = c.block == 0 ? a : (o * steps[at] + a / c.block) * inner + i % inner;
    const auto zero = zeros[static_cast<size_t>(c.one_zero ? 0 : step)];
    expected.push_back(
        Expected(x[static_cast<size_t>(i)], scales[static_cast<size_t>(step)], zero, range));
  }
  ExpectBoth(
      Quantize(Tensor::Of<float>(c.x, x), Tensor::Of<float>(steps, scales), dtype)
          .TensorInput("ZeroPoint", Integers(zero_shape, zeros, dtype))
          .Attr("axis", c.axis)
          .Attr("block_size", c.block),
      expected,
      c.x.ToString() + " axis " + std::to_string(c.axis) + " block " + std::to_string(c.block));
}

TEST(AffineQuantize, ChannelsAndBlocks) {
  std::mt19937 rng(5);
  const Case cases[] = {
      {{3, 5, 7, 7}, 0, 0, false}, {{3, 5, 7, 7}, 1, 0, false}, {{3, 5, 7, 37}, 2, 0, false},
      {{3, 5, 37}, 2, 0, false},   {{40, 33}, -1, 0, false},    {{40, 33}, -2, 0, true},
      {{7}, 0, 0, false},          {{130, 300}, 1, 0, true},    {{4, 50}, 1, 16, false},
      {{4, 64}, 1, 16, false},     {{50, 33}, 0, 16, false},    {{2, 35, 20}, 1, 32, true},
      {{2, 5, 3}, -1, 2, false},   {{2, 5, 3}, 1, 100, false},  {{0, 5, 3}, 1, 0, false},
      {{2, 0, 3}, 1, 0, true},     {{2, 5, 0}, 1, 2, false},    {{200, 3, 40}, 1, 1, false}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16}) CheckCase(c, dtype, rng);
  }
}

// Lengths around those of vectors, and the shares of threads.
TEST(AffineQuantize, Lengths) {
  std::mt19937 rng(6);
  for (int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 16383, 16385, 70001}) {
    const std::vector<float> x = Random(rng, n, -30, 30);
    for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
      std::vector<int64_t> expected;
      for (float v : x) expected.push_back(Expected(v, 0.2f, 0, RangeOf(dtype)));
      ExpectBoth(Quantize(Tensor::Of<float>({n}, x), Tensor::Of<float>({1}, {0.2f}), dtype),
                 expected, std::to_string(n));
    }
  }
}

// The result differs from that of a product with 1 / Scale.
TEST(AffineQuantize, QuotientIsExact) {
  std::mt19937 rng(7);
  std::vector<float> x, scales;
  std::vector<int64_t> expected;
  for (int k = 0; k < 4096; ++k) {
    const float scale = Random(rng, 1, 0.001f, 2)[0];
    scales.push_back(scale);
    x.push_back(static_cast<float>(k % 250 - 125 + 0.5) * scale);
    expected.push_back(Expected(x.back(), scale, 0, RangeOf(DType::kInt8)));
  }
  ExpectBoth(Quantize(Tensor::Of<float>({4096}, x), Tensor::Of<float>({4096}, scales), DType::kInt8)
                 .Attr("axis", 0),
             expected, "");
}

TEST(AffineQuantize, Guarded) {
  OpTest("affine_quantize")
      .Attr("out_dtype", Number(DType::kUInt8))
      .Attr("axis", 0)
      .TensorInput("X", Tensor::Of<float>({3, 19}, std::vector<float>(57, 0.7f)))
      .TensorInput("Scale", Tensor::Of<float>({3}, {0.1f, 0.2f, 0.3f}))
      .IntInput("ZeroPoint", {3}, {1, 2, 3}, DType::kUInt8)
      .CheckFast(0);
}

OpTest Bad(const Shape& x, const Shape& scale) {
  return Quantize(Tensor::Zeros(DType::kFloat32, x), Tensor::Zeros(DType::kFloat32, scale),
                  DType::kInt8);
}

TEST(AffineQuantize, Constraints) {
  const std::string type = "affine_quantize";
  Quantize(Tensor::Zeros(DType::kFloat32, {2}), Tensor::Zeros(DType::kInt32, {1}), DType::kInt8)
      .ExpectError(type + ".C1");
  Bad({2, 3}, {2}).ExpectError(type + ".C2");
  Bad({2, 3}, {1, 3}).ExpectError(type + ".C2");
  Bad({2, 3}, {2, 3}).Attr("block_size", int64_t{2}).ExpectError(type + ".C2");
  Bad({2, 3}, {2}).Attr("block_size", int64_t{2}).ExpectError(type + ".C2");
  Bad({2, 3}, {3})
      .TensorInput("ZeroPoint", Tensor::Zeros(DType::kInt8, {2}))
      .ExpectError(type + ".C2");
  Bad({2, 3}, {3}).Attr("axis", 2).ExpectError(type + ".C3");
  Bad({2, 3}, {3}).Attr("axis", -3).ExpectError(type + ".C3");
  Bad({2, 3}, {1})
      .TensorInput("ZeroPoint", Tensor::Zeros(DType::kUInt8, {1}))
      .ExpectError(type + ".C4");
  Bad({2}, {1}).Attr("out_dtype", Number(DType::kFloat32)).ExpectError(type + ".C5");
  Bad({2}, {1}).Attr("out_dtype", 99).ExpectError(type + ".C5");
  Bad({2}, {1}).Attr("qmin", int64_t{0}).Attr("qmax", int64_t{255}).ExpectError(type + ".C6");
  Bad({2}, {1}).Attr("qmin", int64_t{5}).Attr("qmax", int64_t{5}).ExpectError(type + ".C6");
  Bad({2}, {1}).Attr("quotient_dtype", Number(DType::kFloat64)).ExpectError(type + ".C7");
  Bad({2}, {1}).Attr("round_mode", std::string("up")).ExpectError("round_mode");
  Bad({2}, {1}).Attr("block_size", int64_t{-1}).ExpectError("block_size");
  // Near misses.
  EXPECT_NO_THROW(Bad({2, 3}, {3}).Output("Out"));
  EXPECT_NO_THROW(Bad({2, 3}, {2, 2}).Attr("block_size", int64_t{2}).Output("Out"));
  EXPECT_NO_THROW(Bad({3}, {1, 1}).Attr("axis", 7).Output("Out"));
}

}  // namespace coracle::affine_quantize_test
