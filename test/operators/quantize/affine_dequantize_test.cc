#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>
#include <random>

namespace coracle::affine_dequantize_test {

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }

std::vector<float> Floats(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat32);
  return {wide.span<float>().begin(), wide.span<float>().end()};
}

Tensor Integers(const Shape& shape, const std::vector<int64_t>& values, DType dtype) {
  return Tensor::Of<int64_t>(shape, values).Cast(dtype);
}

OpTest Dequantize(const Tensor& x, const Tensor& scale) {
  OpTest op("affine_dequantize");
  op.TensorInput("X", x).TensorInput("Scale", scale);
  return op;
}

void ExpectBoth(OpTest op, const std::vector<float>& values, const std::string& what) {
  EXPECT_EQ(Floats(op.Output("Out", KernelMode::kReference)), values) << what << " (reference)";
  EXPECT_EQ(Floats(op.Output("Out", KernelMode::kAuto)), values) << what << " (fast)";
}

// All codes, and quantising gives them back.
TEST(AffineDequantize, RoundTrip) {
  for (const DType dtype : {DType::kInt8, DType::kUInt8}) {
    for (const int64_t zero : {0, 1, 127, -128, 128, 255}) {
      for (const float scale : {0.1f, 1.0f, 0.0371f, 3e-39f, 1e36f}) {
        const int64_t least = dtype == DType::kInt8 ? -128 : 0;
        if (zero < least || zero > least + 255) continue;
        std::vector<int64_t> codes;
        std::vector<float> expected;
        for (int64_t q = least; q < least + 256; ++q) {
          codes.push_back(q);
          expected.push_back(static_cast<float>(q - zero) * scale);
        }
        const Tensor q = Integers({256}, codes, dtype), z = Integers({1}, {zero}, dtype);
        const Tensor s = Tensor::Of<float>({1}, {scale});
        OpTest op = Dequantize(q, s).TensorInput("ZeroPoint", z);
        ExpectBoth(op, expected, std::to_string(zero));
        for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
          const Tensor back = OpTest("affine_quantize")
                                  .TensorInput("X", op.Output("Out", mode))
                                  .TensorInput("Scale", s)
                                  .TensorInput("ZeroPoint", z)
                                  .Attr("out_dtype", Number(dtype))
                                  .Output("Out", mode);
          EXPECT_EQ(Floats(back), Floats(q)) << scale;
        }
      }
    }
  }
}

TEST(AffineDequantize, Dtypes) {
  const Tensor scale = Tensor::Of<float>({1}, {0.1f});
  ExpectBoth(Dequantize(Integers({2}, {-32768, 32767}, DType::kInt16), scale)
                 .TensorInput("ZeroPoint", Integers({1}, {-1}, DType::kInt16)),
             {-32767 * 0.1f, 32768 * 0.1f}, "int16");
  // The difference is exact, and then a float32.
  ExpectBoth(Dequantize(Integers({2}, {2147483647, -2147483648LL}, DType::kInt32),
                        Tensor::Of<float>({1}, {1}))
                 .TensorInput("ZeroPoint", Integers({1}, {-1}, DType::kInt32)),
             {2147483648.0f, -2147483647.0f}, "int32");
  const double tenth = 0.1;
  OpTest wide = Dequantize(Integers({1}, {3}, DType::kInt8), Tensor::Of<double>({1}, {tenth}));
  EXPECT_EQ(wide.Output("Out").data<double>()[0], 3 * tenth);
  EXPECT_EQ(Dequantize(Integers({1}, {3}, DType::kInt8), scale)
                .Attr("out_dtype", Number(DType::kFloat64))
                .Output("Out")
                .data<double>()[0],
            3 * static_cast<double>(0.1f));
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    OpTest op = Dequantize(Integers({3}, {127, -128, 3}, DType::kInt8), scale.Cast(half));
    op.ExpectDType("Out", half);
    std::vector<float> expected;
    for (float q : {127.0f, -128.0f, 3.0f}) expected.push_back(q * Floats(scale.Cast(half))[0]);
    const Tensor rounded = Tensor::Of<float>({3}, expected).Cast(half);
    ExpectBoth(op, Floats(rounded), ToString(half));
    ExpectBoth(op.Attr("out_dtype", Number(DType::kFloat32)), expected, ToString(half));
  }
}

struct Case {
  Shape x;
  int axis;
  int64_t block;  // 0: channels
  bool one_zero, one_scale;
};

void CheckCase(const Case& c, DType dtype, std::mt19937& rng) {
  const int at = c.axis < 0 ? c.axis + c.x.rank() : c.axis;
  Shape steps = {c.x[at]};
  if (c.block > 0) {
    steps = c.x;
    steps[at] = (c.x[at] + c.block - 1) / c.block;
  }
  const auto integers = [&](const Shape& shape) {
    std::vector<int64_t> values(static_cast<size_t>(shape.numel()));
    for (int64_t& v : values)
      v = static_cast<int64_t>(rng() % 256) - (dtype == DType::kInt8 ? 128 : 0);
    return values;
  };
  const Shape scale_shape = c.one_scale ? Shape{1} : steps,
              zero_shape = c.one_zero ? Shape{1} : steps;
  const std::vector<int64_t> x = integers(c.x), zeros = integers(zero_shape);
  std::vector<float> scales(static_cast<size_t>(scale_shape.numel())), expected;
  for (float& s : scales) s = static_cast<float>(static_cast<int64_t>(rng() % 2001) - 1000) / 777;
  const int64_t inner = c.x.Product(at + 1, c.x.rank());
  for (int64_t i = 0; i < c.x.numel(); ++i) {
    const int64_t a = i / inner % c.x[at], o = i / inner / c.x[at];
    const int64_t step = c.block == 0 ? a : (o * steps[at] + a / c.block) * inner + i % inner;
    expected.push_back(static_cast<float>(x[static_cast<size_t>(i)] -
                                          zeros[static_cast<size_t>(c.one_zero ? 0 : step)]) *
                       scales[static_cast<size_t>(c.one_scale ? 0 : step)]);
  }
  ExpectBoth(Dequantize(Integers(c.x, x, dtype), Tensor::Of<float>(scale_shape, scales))
                 .TensorInput("ZeroPoint", Integers(zero_shape, zeros, dtype))
                 .Attr("axis", c.axis)
                 .Attr("block_size", c.block),
             expected, c.x.ToString() + " axis " + std::to_string(c.axis));
}

TEST(AffineDequantize, ChannelsAndBlocks) {
  std::mt19937 rng(5);
  const Case cases[] = {{{3, 5, 7, 7}, 0, 0, false, false}, {{3, 5, 7, 7}, 1, 0, false, true},
                        {{3, 5, 7, 37}, 2, 0, true, false}, {{3, 5, 37}, 2, 0, false, false},
                        {{40, 33}, -1, 0, false, false},    {{130, 300}, 1, 0, true, false},
                        {{4, 50}, 1, 16, false, false},     {{50, 33}, 0, 16, false, false},
                        {{2, 35, 20}, 1, 32, true, false},  {{2, 5, 3}, 1, 100, false, false},
                        {{0, 5, 3}, 1, 0, false, false},    {{2, 0, 3}, 1, 0, false, false},
                        {{2, 5, 0}, 1, 2, false, true},     {{200, 3, 40}, 1, 1, false, false}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::kInt8, DType::kUInt8}) CheckCase(c, dtype, rng);
  }
}

TEST(AffineDequantize, Lengths) {
  for (int64_t n : {0, 1, 7, 8, 9, 15, 16, 17, 33, 16385, 70001}) {
    std::vector<int64_t> codes;
    std::vector<float> expected;
    for (int64_t i = 0; i < n; ++i) {
      codes.push_back(i * 37 % 256 - 128);
      expected.push_back(static_cast<float>(codes.back()) * 0.3f);
    }
    ExpectBoth(Dequantize(Integers({n}, codes, DType::kInt8), Tensor::Of<float>({1}, {0.3f})),
               expected, std::to_string(n));
  }
}

TEST(AffineDequantize, SpecialScales) {
  const float inf = std::numeric_limits<float>::infinity(), tiny = 1e-45f;
  const Tensor q = Integers({3}, {-128, 0, 127}, DType::kInt8);
  ExpectBoth(Dequantize(q, Tensor::Of<float>({1}, {tiny})), {-128 * tiny, 0, 127 * tiny}, "tiny");
  ExpectBoth(Dequantize(q, Tensor::Of<float>({1}, {3e38f})), {-inf, 0, inf}, "large");
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    const std::vector<float> out =
        Floats(Dequantize(q, Tensor::Of<float>({1}, {inf})).Output("Out", mode));
    EXPECT_EQ(out[0], -inf);
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_EQ(out[2], inf);
  }
}

TEST(AffineDequantize, Guarded) {
  OpTest("affine_dequantize")
      .Attr("axis", 0)
      .IntInput("X", {3, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, DType::kUInt8)
      .TensorInput("Scale", Tensor::Of<float>({3}, {0.1f, 0.2f, 0.3f}))
      .IntInput("ZeroPoint", {3}, {1, 2, 3}, DType::kUInt8)
      .CheckFast(0);
}

OpTest Bad(const Shape& x, const Shape& scale) {
  return Dequantize(Tensor::Zeros(DType::kInt8, x), Tensor::Zeros(DType::kFloat32, scale));
}

TEST(AffineDequantize, Constraints) {
  const std::string type = "affine_dequantize";
  Dequantize(Tensor::Zeros(DType::kInt8, {2}), Tensor::Zeros(DType::kInt32, {1}))
      .ExpectError(type + ".C1");
  Bad({2, 3}, {2}).ExpectError(type + ".C2");
  Bad({2, 3}, {3}).Attr("axis", 2).ExpectError(type + ".C3");
  Bad({2, 3}, {1})
      .TensorInput("ZeroPoint", Tensor::Zeros(DType::kUInt8, {1}))
      .ExpectError(type + ".C4");
  Bad({2}, {1}).Attr("out_dtype", Number(DType::kInt8)).ExpectError(type + ".C5");
  Bad({2}, {1}).Attr("out_dtype", 99).ExpectError(type + ".C5");
  Dequantize(Tensor::Zeros(DType::kFloat32, {2}), Tensor::Zeros(DType::kFloat32, {1}))
      .ExpectError(type);
  EXPECT_NO_THROW(Bad({2, 3}, {3}).Output("Out"));
}

}  // namespace coracle::affine_dequantize_test
