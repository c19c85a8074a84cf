// Arrays of 16-bit floats: the vector loops convert every element as the scalar function does.

#include <coracle/framework/tensor/half_array.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/framework/tensor/tensor.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace coracle::half_array_test {

template <class Half>
std::vector<Half> AllPatterns() {
  std::vector<Half> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  return all;
}

template <class Half>
void ExpectWidens() {
  const std::vector<Half> all = AllPatterns<Half>();
  std::vector<float> wide(all.size());
  ConvertArray(all.data(), wide.data(), static_cast<int64_t>(all.size()));
  for (size_t i = 0; i < all.size(); ++i) {
    const float expected = static_cast<float>(all[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    else
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
  }
}

TEST(HalfArray, WidensEveryPattern) {
  ExpectWidens<float16>();
  ExpectWidens<bfloat16>();
}

// Numbers around every place where rounding turns: halves, their middles, the neighbours of these.
template <class Half>
std::vector<float> Delicate() {
  std::vector<float> values;
  for (uint32_t i = 0; i < 65536; ++i) {
    Half half;
    half.bits = static_cast<uint16_t>(i);
    const float value = static_cast<float>(half);
    values.push_back(value);
    half.bits = static_cast<uint16_t>(i + 1);
    const float next = static_cast<float>(half);
    if (std::isnan(value) || std::isnan(next)) continue;
    const float middle = value / 2 + next / 2;
    for (float v : {middle, std::nextafter(middle, 1e38f), std::nextafter(middle, -1e38f)})
      values.push_back(v);
  }
  Philox random(3, 0, 0);
  for (uint64_t i = 0; i < 20000; ++i) values.push_back(std::bit_cast<float>(random.Block(i)[0]));
  for (float v : {65504.f, 65519.996f, 65520.f, 1e30f, std::numeric_limits<float>::max(),
                  std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                  std::numeric_limits<float>::denorm_min(), 0.f}) {
    values.push_back(v);
    values.push_back(-v);
  }
  return values;
}

template <class Half>
void ExpectNarrows() {
  const std::vector<float> values = Delicate<Half>();
  std::vector<Half> halves(values.size());
  ConvertArray(values.data(), halves.data(), static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const Half expected(values[i]);
    if (std::isnan(values[i]))
      EXPECT_TRUE(std::isnan(static_cast<float>(halves[i]))) << i;
    else
      ASSERT_EQ(halves[i].bits, expected.bits) << values[i];
  }
}

TEST(HalfArray, NarrowsToNearestEvenAndKeepsNans) {
  ExpectNarrows<float16>();
  ExpectNarrows<bfloat16>();
}

TEST(HalfArray, AnyLengthAndNothingPastTheEnd) {
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<float> from(static_cast<size_t>(n), 1.5f);
    std::vector<bfloat16> to(static_cast<size_t>(n) + 1, bfloat16(7.f));
    FloatToHalf(from.data(), DType::kBFloat16, to.data(), n);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(static_cast<float>(to[static_cast<size_t>(i)]), 1.5f);
    EXPECT_EQ(static_cast<float>(to.back()), 7.f);
  }
}

TEST(HalfArray, TensorCasts) {
  const Tensor x = Tensor::Of<float>({4}, {1.0009765625f, -70000.f, 1e-8f, 3.f});
  const Tensor half = x.Cast(DType::kFloat16).Cast(DType::kFloat32);
  const float inf = std::numeric_limits<float>::infinity();
  const float expected[] = {1.0009765625f, -inf, 0.f, 3.f};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(half.data<float>()[i], expected[i]);
  EXPECT_EQ(x.Cast(DType::kBFloat16).Cast(DType::kFloat64).data<double>()[0], 1.0);
}

// Around the number halfway between each two neighbours a double rounds to the nearer one, and at
// it to the even one. By way of float it would not: close to the middle it becomes the middle.
template <class Half>
void ExpectOneRounding() {
  for (uint32_t bits = 0; bits < 0x8000u; ++bits) {
    Half low, high;
    low.bits = static_cast<uint16_t>(bits);
    high.bits = static_cast<uint16_t>(bits + 1);
    const auto a = static_cast<double>(static_cast<float>(low));
    const auto b = static_cast<double>(static_cast<float>(high));
    if (!std::isfinite(a) || !std::isfinite(b)) continue;
    const double middle = (a + b) / 2;
    const Half even = bits % 2 == 0 ? low : high;
    for (double sign : {1.0, -1.0}) {
      const uint16_t flag = sign < 0 ? 0x8000 : 0;
      EXPECT_EQ(ToHalf<Half>(sign * middle).bits, even.bits | flag) << middle;
      EXPECT_EQ(ToHalf<Half>(sign * std::nextafter(middle, a)).bits, low.bits | flag) << middle;
      EXPECT_EQ(ToHalf<Half>(sign * std::nextafter(middle, b)).bits, high.bits | flag) << middle;
      EXPECT_EQ(ToHalf<Half>(sign * a).bits, low.bits | flag) << a;
    }
  }
  EXPECT_TRUE(std::isinf(static_cast<float>(ToHalf<Half>(1e300))));
  EXPECT_EQ(ToHalf<Half>(-1e-300).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(ToHalf<Half>(std::nan("")))));
}

TEST(HalfArray, DoublesRoundOnce) {
  ExpectOneRounding<float16>();
  ExpectOneRounding<bfloat16>();
}

TEST(HalfArray, IntegersRoundOnce) {
  // bfloat16 has 8 digits: halfway between 2^62 and its neighbour, and one more or less.
  constexpr int64_t kFirst = int64_t{1} << 62, kStep = int64_t{1} << 55;
  const auto value = [](int64_t x) { return static_cast<float>(ToHalf<bfloat16>(x)); };
  EXPECT_EQ(value(kFirst + kStep / 2), 0x1p62f);
  EXPECT_EQ(value(kFirst + kStep / 2 + 1), 0x1p62f + 0x1p55f);
  EXPECT_EQ(value(kFirst + 3 * (kStep / 2) - 1), 0x1p62f + 0x1p55f);
  EXPECT_EQ(value(-kFirst - kStep / 2 - 1), -0x1p62f - 0x1p55f);
  EXPECT_EQ(static_cast<float>(ToHalf<bfloat16>(int32_t{(1 << 30) + (1 << 22) + 1})),
            0x1p30f + 0x1p23f);
}

TEST(HalfArray, TensorsOfDoublesRoundOnce) {
  const Tensor x = Tensor::Of<double>({1}, {1 + 0x1p-11 + 0x1p-40});
  EXPECT_EQ(x.Cast(DType::kFloat16).Cast(DType::kFloat32).Item<float>(), 1 + 0x1p-10f);
}

}  // namespace coracle::half_array_test
