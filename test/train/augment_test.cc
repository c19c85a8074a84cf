// Random changes of images in training, against formulas written out.
// Weights and sampling of classes.

#include <coracle/framework/tensor/rng.h>
#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace coracle::augment_test {

constexpr int64_t kH = 5, kW = 7;

float Pixel(int64_t row, int64_t c, int64_t y, int64_t x) {
  return static_cast<float>((row * 53 + c * 31 + y * y * 7 + x * 11) % 97);
}

DataSourcePtr Images(int64_t channels = 3) {
  std::vector<float> values;
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < kH; ++y)
        for (int64_t x = 0; x < kW; ++x) values.push_back(Pixel(row, c, y, x));
  return MakeMemorySource(
      {{"x", Tensor::Of<float>({4, channels * kH * kW}, values), {channels, kH, kW}},
       {"label", Tensor::Of<int64_t>({4, 1}, {0, 2, 0, 0}), {1}}},
      "images");
}

std::vector<float> RowOf(const DataSource& source, int64_t epoch, int64_t row) {
  Shape shape{1};
  for (const int64_t dim : source.columns()[0].shape) shape.Append(dim);
  std::vector<Tensor> out{Tensor(DType::kFloat32, shape), Tensor(DType::kInt64, {1, 1})};
  source.GetInEpoch(epoch, std::vector<int64_t>{row}, out);
  const auto values = out[0].span<float>();
  return {values.begin(), values.end()};
}

std::array<uint32_t, 4> Words(uint64_t seed, const char* stream, int64_t epoch, int64_t row) {
  return Philox(seed, HashName(stream), static_cast<uint64_t>(epoch))
      .Block(static_cast<uint64_t>(row));
}

double Signed(uint32_t word) { return 2.0 * static_cast<double>(word >> 8) / 16777216.0 - 1; }

// A value of the image that lies in a plane of `fill`.
double At(int64_t row, int64_t c, int64_t y, int64_t x, double fill) {
  const bool inside = y >= 0 && x >= 0 && y < kH && x < kW;
  return inside ? static_cast<double>(Pixel(row, c, y, x)) : fill;
}

TEST(Augment, RotatesZoomsAndShifts) {
  TransformOptions options = {.random_crop = true, .seed = 9};
  options.rotate = 40;
  options.zoom = 0.3f;
  options.shift = 0.2f;
  options.fill = 4;
  const DataSourcePtr source = MakeTransformed(Images(), options);
  for (int64_t row = 0; row < 4; ++row) {
    const auto words = Words(9, "transform.motion", 2, row);
    const double angle = Signed(words[0]) * 40 * std::numbers::pi / 180;
    const double zoom = 1 + Signed(words[1]) * static_cast<double>(0.3f);
    const double down = Signed(words[2]) * static_cast<double>(0.2f) * kH;
    const double right = Signed(words[3]) * static_cast<double>(0.2f) * kW;
    const std::vector<float> got = RowOf(*source, 2, row);
    for (int64_t y = 0; y < kH; ++y) {
      for (int64_t x = 0; x < kW; ++x) {
        const double v = (static_cast<double>(y) - 2 - down) / zoom;
        const double u = (static_cast<double>(x) - 3 - right) / zoom;
        const double sy = 2 + std::sin(angle) * u + std::cos(angle) * v;
        const double sx = 3 + std::cos(angle) * u - std::sin(angle) * v;
        const auto y0 = static_cast<int64_t>(std::floor(sy));
        const auto x0 = static_cast<int64_t>(std::floor(sx));
        const double ty = sy - static_cast<double>(y0), tx = sx - static_cast<double>(x0);
        for (int64_t c = 0; c < 3; ++c) {
          const double top = (1 - tx) * At(row, c, y0, x0, 4) + tx * At(row, c, y0, x0 + 1, 4);
          const double low =
              (1 - tx) * At(row, c, y0 + 1, x0, 4) + tx * At(row, c, y0 + 1, x0 + 1, 4);
          EXPECT_NEAR(got[static_cast<size_t>((c * kH + y) * kW + x)], (1 - ty) * top + ty * low,
                      1e-4)
              << row << c << y << x;
        }
      }
    }
  }
}

TEST(Augment, ColoursChange) {
  TransformOptions options = {.scale = 0.5f, .mean_value = {10}, .random_crop = true, .seed = 3};
  options.brightness = 0.25f;
  options.contrast = 0.5f;
  options.saturation = 0.75f;
  const DataSourcePtr source = MakeTransformed(Images(), options);
  const int64_t row = 1;
  const auto words = Words(3, "transform.colour", 0, row);
  const double b = 1 + 0.25 * Signed(words[0]), c = 1 + 0.5 * Signed(words[1]);
  const double s = 1 + 0.75 * Signed(words[2]);
  const auto value = [&](int64_t k, int64_t i) { return b * Pixel(row, k, i / kW, i % kW); };
  const auto grey = [](double red, double green, double blue) {
    return 0.299 * red + 0.587 * green + 0.114 * blue;
  };
  double middle = 0;
  for (int64_t i = 0; i < kH * kW; ++i)
    middle += grey(value(0, i), value(1, i), value(2, i)) / (kH * kW);
  const std::vector<float> got = RowOf(*source, 0, row);
  for (int64_t i = 0; i < kH * kW; ++i) {
    double x[3];
    for (int64_t k = 0; k < 3; ++k) x[k] = middle + (value(k, i) - middle) * c;
    const double g = grey(x[0], x[1], x[2]);
    for (int64_t k = 0; k < 3; ++k)
      EXPECT_NEAR(got[static_cast<size_t>(k * kH * kW + i)], (g + (x[k] - g) * s - 10) * 0.5, 1e-4);
  }
}

TEST(Augment, PadsFlipsAddsNoiseAndErases) {
  TransformOptions options = {.scale = 2, .random_crop = true, .mirror = true, .seed = 5};
  options.pad = 2;
  options.flip = true;
  options.fill = 1;
  options.noise = 0.5f;
  options.erase = 3;
  const DataSourcePtr source = MakeTransformed(Images(1), options);
  EXPECT_EQ(source->columns()[0].shape, (Shape{1, kH, kW}));
  std::set<int64_t> tops;
  for (int64_t epoch = 0; epoch < 12; ++epoch) {
    for (int64_t row = 0; row < 4; ++row) {
      const auto crop = Words(5, "transform", epoch, row);
      const auto below = [](uint32_t word, int64_t n) {
        return static_cast<int64_t>(static_cast<uint64_t>(word) * static_cast<uint64_t>(n) >> 32);
      };
      const int64_t top = below(crop[1], 5) - 2, left = below(crop[2], 5) - 2;
      const bool mirror = crop[0] & 1, flip = Words(5, "transform.colour", epoch, row)[3] & 1;
      const auto hole = Words(5, "transform.erase", epoch, row);
      const int64_t hole_y = below(hole[0], kH), hole_x = below(hole[1], kW);
      const Philox noise(5, HashName("transform.noise"), static_cast<uint64_t>(epoch));
      tops.insert(top);
      const std::vector<float> got = RowOf(*source, epoch, row);
      for (int64_t y = 0; y < kH; ++y) {
        for (int64_t x = 0; x < kW; ++x) {
          double wanted =
              2 * At(row, 0, top + (flip ? kH - 1 - y : y), left + (mirror ? kW - 1 - x : x), 1);
          wanted += 0.5 * noise.Normal(static_cast<uint64_t>(row * kH * kW + y * kW + x));
          if (std::abs(y - hole_y) <= 1 && std::abs(x - hole_x) <= 1) wanted = 0;
          EXPECT_NEAR(got[static_cast<size_t>(y * kW + x)], wanted, 1e-4);
        }
      }
    }
  }
  EXPECT_EQ(tops.size(), 5u);
}

TEST(Augment, RowsDoNotDependOnTheirBatch) {
  TransformOptions options = {.random_crop = true, .mirror = true, .seed = 1};
  options.rotate = 10;
  options.noise = 1;
  options.contrast = 0.1f;
  const DataSourcePtr source = MakeTransformed(Images(), options);
  std::vector<Tensor> out{Tensor(DType::kFloat32, {3, 3, kH, kW}), Tensor(DType::kInt64, {3, 1})};
  source->GetInEpoch(6, std::vector<int64_t>{3, 0, 2}, out);
  const std::vector<float> alone = RowOf(*source, 6, 2);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out[0].data<float>() + 2 * 3 * kH * kW));
  EXPECT_NE(RowOf(*source, 7, 2), alone);
  EXPECT_EQ(RowOf(*MakeTransformed(Images(), options), 6, 2), alone);
}

TEST(Augment, NothingChangesOutsideTraining) {
  TransformOptions options = {.seed = 1};
  options.rotate = options.noise = 1;
  options.zoom = options.shift = options.brightness = options.contrast = options.saturation = 0.5f;
  options.pad = options.erase = 2;
  options.flip = true;
  const DataSourcePtr source = MakeTransformed(Images(), options);
  for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(RowOf(*source, 3, row), RowOf(*Images(), 3, row));
}

TEST(Augment, RefusesWhatIsOutOfRange) {
  const auto error = [](auto change, int64_t channels = 3) {
    TransformOptions options = {.random_crop = true};
    change(options);
    return ErrorOf([&] { MakeTransformed(Images(channels), options); });
  };
  ExpectContains(error([](TransformOptions& o) { o.rotate = 181; }), "rotate must lie in [0, 180]");
  ExpectContains(error([](TransformOptions& o) { o.zoom = 1; }), "zoom must lie in [0, 0.99]");
  ExpectContains(error([](TransformOptions& o) { o.shift = std::nanf(""); }), "shift must lie in");
  ExpectContains(error([](TransformOptions& o) { o.noise = INFINITY; }), "must be finite");
  ExpectContains(error([](TransformOptions& o) { o.pad = -1; }), "pad and erase");
  ExpectContains(error([](TransformOptions& o) { o.saturation = 0.1f; }, 1), "needs 3 channels");
}

// --- classes ---

TEST(Balance, WeightsOfClasses) {
  const std::vector<float> weights = BalancedWeights(*Images());  // labels 0 2 0 0
  EXPECT_EQ(weights, (std::vector<float>{4.0f / (2 * 3), 0, 4.0f / (2 * 1)}));
  const DataSourcePtr source = MakeWeighted(Images(), {1, 2, 3});
  ASSERT_EQ(source->columns().back().name, "weight");
  std::vector<Tensor> out{Tensor(DType::kFloat32, {3, 3, kH, kW}), Tensor(DType::kInt64, {3, 1}),
                          Tensor(DType::kFloat32, {3, 1})};
  source->Get(std::vector<int64_t>{1, 0, 3}, out);
  EXPECT_TRUE(BitEqual(out[2], Tensor::Of<float>({3, 1}, {3, 1, 1})));
  EXPECT_EQ(source->fitted()->class_weight, (std::vector<float>{1, 2, 3}));
  ExpectContains(ErrorOf([] {
                   MakeWeighted(Images(), {1, 2});
                 }),
                 "row 1 of images: the label 2 has no weight; class_weight has 2 values");
  const DataSourcePtr unlabelled =
      MakeMemorySource({{"x", Tensor(DType::kFloat32, {2, 1}), {1}}}, "unlabelled");
  ExpectContains(ErrorOf([&] { MakeWeighted(unlabelled, {1}); }), "no column \"label\"");
  ExpectContains(ErrorOf([&] { MakeBalanced(unlabelled, 1); }), "no column \"label\"");
}

TEST(Balance, ClassesComeEquallyOften) {
  const DataSourcePtr source = MakeBalanced(Images(1), 8);
  EXPECT_EQ(source->size(), 4);
  std::set<std::string> places;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    for (int64_t p = 0; p < 4; ++p) {
      std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 1, kH, kW}),
                              Tensor(DType::kInt64, {1, 1})};
      source->GetInEpoch(epoch, std::vector<int64_t>{p}, out);
      EXPECT_EQ(out[1].Item<int64_t>(), p % 2 == 0 ? 0 : 2);
      const auto word = Words(8, "sampling", epoch, p);
      const int64_t drawn = static_cast<int64_t>(static_cast<double>(word[0]) / 4294967296.0 * 3);
      const int64_t row = p % 2 == 1 ? 1 : drawn == 0 ? 0 : drawn + 1;  // 0, 2 or 3
      EXPECT_EQ(source->PlaceInEpoch(epoch, p), "row " + std::to_string(row) + " of images");
      EXPECT_EQ(out[0].data<float>()[1], Pixel(row, 0, 0, 1));
      places.insert(source->PlaceInEpoch(epoch, p));
    }
  }
  EXPECT_EQ(places.size(), 4u);
}

}  // namespace coracle::augment_test
