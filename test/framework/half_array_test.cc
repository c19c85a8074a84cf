// Arrays of 16-bit floats: every conversion of the vector loops is that of one element.

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
}  // namespace coracle::half_array_test
