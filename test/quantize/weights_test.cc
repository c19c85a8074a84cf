// Rounded weights against loops.

#include <coracle/quantize/weights.h>
#include <coracle/test/quantize/quantize_programs.h>

#include <algorithm>

namespace coracle::weights_test {

// Index of an element along an axis.
int64_t Along(const Shape& shape, int64_t i, int axis) {
  return i / shape.Product(axis + 1, shape.rank()) % shape[axis];
}

TEST(RoundWeight, HasAScaleForEachIndexOfTheAxis) {
  const Tensor w = Drawn({4, 3, 2, 5}, 1, -2, 1);
  for (int axis = 0; axis < 4; ++axis) {
    const IntegerWeight rounded = RoundWeight(w, {8, axis, 0});
    ASSERT_EQ(rounded.scale.shape(), Shape({w.shape()[axis]}));
    for (int64_t i = 0; i < w.numel(); ++i) {
      const int64_t c = Along(w.shape(), i, axis);
      float magnitude = 0;
      for (int64_t j = 0; j < w.numel(); ++j)
        if (Along(w.shape(), j, axis) == c)
          magnitude = std::max(magnitude, std::abs(w.span<float>()[static_cast<size_t>(j)]));
      const float scale = rounded.scale.span<float>()[static_cast<size_t>(c)];
      EXPECT_EQ(scale, magnitude / 127);
      const float x = w.span<float>()[static_cast<size_t>(i)];
      EXPECT_EQ(static_cast<float>(rounded.values.span<int8_t>()[static_cast<size_t>(i)]),
                std::nearbyint(x / scale));
      EXPECT_NEAR(FloatOf(rounded).span<float>()[static_cast<size_t>(i)], x, scale * 0.501);
    }
  }
}

TEST(RoundWeight, DoesNotDivideByTheScaleOfZeros) {
  const Tensor w = Tensor::Of<float>({3, 2}, {0, 0, 1.27f, -0.1f, 0, 0});
  const IntegerWeight rounded = RoundWeight(w, {8, 0, 0});
  const std::span<const float> scale = rounded.scale.span<float>();
  EXPECT_FLOAT_EQ(scale[1], 0.01f);
  EXPECT_EQ(scale[0], scale[1]);
  EXPECT_EQ(scale[2], scale[1]);
  EXPECT_EQ(rounded.values.span<int8_t>()[0], 0);
  const IntegerWeight zeros = RoundWeight(Tensor::Zeros(DType::kFloat32, {2, 2}), {8, 1, 0});
  EXPECT_EQ(zeros.scale.span<float>()[0], 1);
  const IntegerWeight four = RoundWeight(Tensor::Zeros(DType::kFloat32, {2, 2}), {4, 1, 0});
  EXPECT_EQ(four.scale.span<float>()[0], 1);
}

TEST(RoundWeight, RaisesScalesToTheirLeastValues) {
  const Tensor w = Tensor::Of<float>({2, 2}, {1.27f, 0.5f, 1.27f, 0.5f});
  const std::vector<float> least = {0.001f, 0.1f};
  const IntegerWeight rounded = RoundWeight(w, {8, 0, 0}, least);
  EXPECT_FLOAT_EQ(rounded.scale.span<float>()[0], 0.01f);
  EXPECT_EQ(rounded.scale.span<float>()[1], 0.1f);
  EXPECT_EQ(rounded.values.span<int8_t>()[2], 13);
  // A scale of 4 bits, -1 here, keeps its sign.
  const Tensor negated = Tensor::Of<float>({1, 4}, {8, -7, 3, 1});
  EXPECT_EQ(RoundWeight(negated, {4, 0, 0}).scale.span<float>()[0], -1);
  const IntegerWeight raised = RoundWeight(negated, {4, 0, 0}, std::vector<float>{2});
  EXPECT_EQ(raised.scale.span<float>()[0], -2);
  EXPECT_EQ(raised.values.span<int8_t>()[0], -4);
}

// The smallest squared error of any of the scales, by loops over one block.
double LeastError(const std::vector<float>& block) {
  float low = 0, high = 0;
  for (const float x : block) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
  const float extreme = -low >= high ? low : high;
  double least = INFINITY;
  for (int percent = 100; percent >= 70; percent -= 2) {
    for (const float scale : {std::abs(extreme) * static_cast<float>(percent) / 100 / 7,
                              -extreme * static_cast<float>(percent) / 100 / 8}) {
      double error = 0;
      for (const float x : block) {
        const float q = std::min(std::max(std::nearbyint(x / scale), -8.0f), 7.0f);
        error += static_cast<double>((q * scale - x) * (q * scale - x));
      }
      least = std::min(least, error);
    }
  }
  return least;
}

TEST(RoundWeight, OfFourBitsHasTheBestScaleOfEachBlock) {
  const Tensor w = Drawn({70, 3}, 5, -1, 0.3);  // blocks of 32, 32 and 6
  const IntegerWeight rounded = RoundWeight(w, {4, 0, 32});
  ASSERT_EQ(rounded.scale.shape(), Shape({3, 3}));
  const Tensor floats = FloatOf(rounded);
  for (const int8_t q : rounded.values.span<int8_t>()) {
    EXPECT_GE(q, -8);
    EXPECT_LE(q, 7);
  }
  for (int64_t block = 0; block < 3; ++block) {
    for (int64_t column = 0; column < 3; ++column) {
      std::vector<float> values;
      double error = 0;
      for (int64_t k = block * 32; k < std::min<int64_t>(70, block * 32 + 32); ++k) {
        const auto i = static_cast<size_t>(k * 3 + column);
        values.push_back(w.span<float>()[i]);
        const float scale = rounded.scale.span<float>()[static_cast<size_t>(block * 3 + column)];
        EXPECT_EQ(floats.span<float>()[i],
                  scale * static_cast<float>(rounded.values.span<int8_t>()[i]));
        error += static_cast<double>((floats.span<float>()[i] - values.back()) *
                                     (floats.span<float>()[i] - values.back()));
      }
      EXPECT_NEAR(error, LeastError(values), 1e-4 * error + 1e-12);
    }
  }
}

TEST(RoundWeight, RefusesNanAndInfinity) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    EXPECT_EQ(ErrorOf([&] {
                RoundWeight(Tensor::Of<float>({1, 2}, {1, bad}), {8, 0, 0});
              }),
              "a weight is nan or infinite");
  }
}

}  // namespace coracle::weights_test
