#include <coracle/framework/tensor/rng.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/digits/digits.h>

#include <array>
#include <cmath>
#include <set>
#include <string_view>

namespace coracle::digits_test {

using Image = std::array<uint8_t, kDigitPixels>;

TEST(Digits, AFunctionOfSeedSplitAndIndex) {
  Image a, b;
  int label = DrawDigit(3, DigitSplit::kTrain, 17, a);
  EXPECT_EQ(DrawDigit(3, DigitSplit::kTrain, 17, b), label);
  EXPECT_EQ(a, b);
  DrawDigit(3, DigitSplit::kTrain, 18, b);
  EXPECT_NE(a, b);
  DrawDigit(4, DigitSplit::kTrain, 17, b);
  EXPECT_NE(a, b);
}

// A test set must share no image with any training set, of whatever seed.
TEST(Digits, TestStreamsMeetNoTrainingStream) {
  std::set<Image> train;
  Image image;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t i = 0; i < 200; ++i) {
      DrawDigit(seed, DigitSplit::kTrain, i, image);
      train.insert(image);
    }
  }
  EXPECT_EQ(train.size(), 1600u);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (uint64_t i = 0; i < 200; ++i) {
      DrawDigit(seed, DigitSplit::kTest, i, image);
      EXPECT_EQ(train.count(image), 0u);
    }
  }
}

// The pictures of a seed never change: jobs and snapshots rely on them.
TEST(Digits, GoldenPictures) {
  uint64_t hash = 0;
  std::string labels;
  Image image;
  for (uint64_t i = 0; i < 64; ++i) {
    labels += static_cast<char>('0' + DrawDigit(1, DigitSplit::kTrain, i, image));
    hash = hash * 31 +
           HashName(std::string_view(reinterpret_cast<const char*>(image.data()), image.size()));
  }
  EXPECT_EQ(labels, "5868193004288356076292727894471103795688879501361195345400481516");
  EXPECT_EQ(hash, 36499410124879757u);
}

TEST(Digits, LookLikeInkOnPaper) {
  std::array<int, 10> count{};
  Image image;
  double ink_total = 0, x_total = 0, y_total = 0;
  constexpr int kImages = 2000;
  for (uint64_t i = 0; i < kImages; ++i) {
    ++count[static_cast<size_t>(DrawDigit(5, DigitSplit::kTest, i, image))];
    double ink = 0, x_sum = 0, y_sum = 0;
    int dark = 0;
    for (int p = 0; p < kDigitPixels; ++p) {
      double value = image[static_cast<size_t>(p)] / 255.0;
      ink += value;
      x_sum += value * (p % kDigitSide);
      const int row = p / kDigitSide;
      y_sum += value * row;
      dark += value > 0.5;
    }
    EXPECT_GT(dark, 12) << "an empty picture, index " << i;
    EXPECT_LT(dark, 400) << "a blot, index " << i;
    ink_total += ink / kDigitPixels;
    x_total += x_sum / ink;
    y_total += y_sum / ink;
  }
  for (int c : count) EXPECT_NEAR(c, kImages * 0.1, 5 * std::sqrt(kImages * 0.09));
  EXPECT_NEAR(x_total / kImages, 13.5, 0.6);
  EXPECT_NEAR(y_total / kImages, 13.5, 0.6);
  EXPECT_GT(ink_total / kImages, 0.06);
  EXPECT_LT(ink_total / kImages, 0.25);
}

TEST(Digits, SourceHasImagesInZeroToOneAndLabels) {
  DataSourcePtr source = MakeDigits({.count = 20, .seed = 9}, DigitSplit::kTest);
  ASSERT_EQ(source->size(), 20);
  ASSERT_EQ(source->columns().size(), 2u);
  EXPECT_EQ(source->columns()[0].shape, Shape({1, 28, 28}));
  EXPECT_EQ(source->columns()[1].dtype, DType::kInt64);
  std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 1, 28, 28}), Tensor(DType::kInt64, {1, 1})};
  std::vector<int64_t> rows{13};
  source->Get(rows, out);
  Image image;
  EXPECT_EQ(out[1].Item<int64_t>(), DrawDigit(9, DigitSplit::kTest, 13, image));
  for (size_t p = 0; p < kDigitPixels; ++p)
    EXPECT_FLOAT_EQ(out[0].data<float>()[p], static_cast<float>(image[p]) / 255.0f);
  const auto refused = [](const DigitsOptions& options) {
    return ErrorOf([&] { MakeDigits(options, DigitSplit::kTrain); });
  };
  refused({.count = 0});
  refused({.count = int64_t{1} << 40});
  refused({.count = 5, .length = 0});
  refused({.count = 200'000, .length = 64});
  refused({.count = 5, .classes = {3, 10}});
  refused({.count = 5, .classes = {3, 4, 3}});
}

TEST(Digits, StringsOfChosenDigits) {
  const std::vector<int32_t> classes = {7, 2};
  DataSourcePtr source =
      MakeDigits({.count = 6, .seed = 4, .classes = classes, .length = 3}, DigitSplit::kTrain);
  EXPECT_EQ(source->columns()[0].shape, Shape({1, 28, 84}));
  EXPECT_EQ(source->columns()[1].shape, Shape({3}));
  std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 1, 28, 84}), Tensor(DType::kInt64, {1, 3})};
  source->Get(std::vector<int64_t>{5}, out);
  for (uint64_t k = 0; k < 3; ++k) {
    Image image;
    EXPECT_EQ(out[1].data<int64_t>()[k], DrawDigit(4, DigitSplit::kTrain, 15 + k, image, classes));
    for (size_t p = 0; p < kDigitPixels; ++p) {
      EXPECT_FLOAT_EQ(out[0].data<float>()[p / 28 * 84 + k * 28 + p % 28],
                      static_cast<float>(image[p]) / 255.0f);
    }
  }
}
}  // namespace coracle::digits_test
