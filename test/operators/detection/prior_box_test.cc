#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::prior_box_test {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

OpTest Priors(const Floats& min, const Floats& max, const Floats& ratios) {
  return std::move(OpTest("prior_box")
                       .Attr("min_sizes", min)
                       .Attr("max_sizes", max)
                       .Attr("aspect_ratios", ratios)
                       .Attr("variances", Floats{0.1f, 0.2f, 0.3f, 0.5f}));
}

// 4 x 4, 8 x 2, 2 x 8 and 6 x 6 around (2, 2) in an image of 8 x 4.
const std::vector<double> kOne = {0, 0, .5, 1}, kWide = {-.25, .25, .75, .75},
                          kHigh = {.125, -.5, .375, 1.5}, kSquare = {-.125, -.25, .625, 1.25};

std::vector<double> Join(const std::vector<std::vector<double>>& boxes, double right) {
  std::vector<double> all;
  for (const std::vector<double>& b : boxes)
    all.insert(all.end(), {b[0] + right, b[1], b[2] + right, b[3]});
  return all;
}

TEST(PriorBox, Values) {
  std::vector<double> boxes = Join({kOne, kWide, kHigh, kSquare}, 0);
  const std::vector<double> second = Join({kOne, kWide, kHigh, kSquare}, 0.5);
  boxes.insert(boxes.end(), second.begin(), second.end());
  std::vector<double> variances;
  for (int i = 0; i < 8; ++i) variances.insert(variances.end(), {0.1f, 0.2f, 0.3f, 0.5f});
  Priors({4}, {9}, {1, 4, 4})
      .Attr("clip", false)
      .RandomInput("Input", {1, 1, 1, 2})
      .RandomInput("Image", {1, 3, 4, 8})
      .Expect("Boxes", {1, 2, 4, 4}, boxes)
      .Expect("Variances", {1, 2, 4, 4}, variances);
  for (double& v : boxes) v = std::min(std::max(v, 0.0), 1.0);
  Priors({4}, {9}, {4})
      .Attr("step_w", 4.f)
      .Attr("step_h", 4.f)
      .RandomInput("Input", {1, 1, 1, 2})
      .RandomInput("Image", {1, 3, 4, 8})
      .Expect("Boxes", {1, 2, 4, 4}, boxes);
  Priors({4}, {9}, {4})
      .Attr("min_max_aspect_ratios_order", true)
      .Attr("clip", false)
      .RandomInput("Input", {1, 1, 1, 1})
      .RandomInput("Image", {1, 3, 4, 4})
      .Attr("step_w", 4.f)
      .Attr("step_h", 4.f)
      .Expect("Boxes", {1, 1, 4, 4},
              {0, 0, 1, 1, -.25, -.25, 1.25, 1.25, -.5, .25, 1.5, .75, .25, -.5, .75, 1.5});
  Priors({4}, {}, {})
      .Attr("flip", false)
      .RandomInput("Input", {1, 1, 0, 2})
      .RandomInput("Image", {1, 3, 4, 8})
      .Expect("Boxes", {0, 2, 1, 4}, {});
}

// More boxes than one thread gets: 4 x 4 and 6 x 6 around the centres of cells of 4 x 4.
TEST(PriorBox, ManyBoxes) {
  constexpr int64_t kRows = 200, kColumns = 70;
  std::vector<double> boxes, variances;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t column = 0; column < kColumns; ++column) {
      const auto x = static_cast<double>(4 * column + 2), y = static_cast<double>(4 * row + 2);
      for (const double half : {2, 3}) {
        boxes.insert(boxes.end(), {(x - half) / (4 * kColumns), (y - half) / (4 * kRows),
                                   (x + half) / (4 * kColumns), (y + half) / (4 * kRows)});
        variances.insert(variances.end(), {0.1f, 0.2f, 0.3f, 0.5f});
      }
    }
  }
  for (const int threads : {1, 3}) {
    const Threads set(threads);
    Priors({4}, {9}, {})
        .Attr("clip", false)
        .RandomInput("Input", {1, 1, kRows, kColumns})
        .RandomInput("Image", {1, 1, 4 * kRows, 4 * kColumns})
        .Expect("Boxes", {kRows, kColumns, 2, 4}, boxes)
        .Expect("Variances", {kRows, kColumns, 2, 4}, variances);
  }
}

TEST(PriorBox, Constraints) {
  const auto run = [](OpTest test, const Shape& input, const std::string& id) {
    test.RandomInput("Input", input).RandomInput("Image", {1, 1, 2, 2}).ExpectError(id);
  };
  run(Priors({4}, {}, {1}), {1, 1}, "prior_box.C1");
  run(std::move(Priors({4}, {}, {1}).Attr("variances", Floats{1, 1})), {1, 1, 1, 1},
      "prior_box.C2");
  run(Priors({}, {}, {1}), {1, 1, 1, 1}, "prior_box.C3");
  // Equal ones count too, as each is compared with those before.
  run(Priors({4}, {}, Floats(1025, 2)), {1, 1, 1, 1}, "prior_box.C3");
  run(Priors({-4}, {}, {1}), {1, 1, 1, 1}, "prior_box.C4");
  run(Priors({4}, {3}, {1}), {1, 1, 1, 1}, "prior_box.C5");
  run(Priors({4}, {5, 6}, {1}), {1, 1, 1, 1}, "prior_box.C5");
}

OpTest Dense(const Floats& sizes, const Ints& densities) {
  return std::move(OpTest("density_prior_box")
                       .Attr("fixed_sizes", sizes)
                       .Attr("fixed_ratios", Floats{1})
                       .Attr("densities", densities)
                       .Attr("variances", Floats{1, 1, 1, 1}));
}

TEST(DensityPriorBox, Values) {
  const std::vector<double> boxes = {0,  0, .5, .5, .5, 0, 1, .5, 0, .5,
                                     .5, 1, .5, .5, 1,  1, 0, 0,  1, 1};
  Dense({4, 16}, {2, 1})
      .RandomInput("Input", {1, 1, 1, 1})
      .RandomInput("Image", {1, 1, 8, 8})
      .Expect("Boxes", {1, 1, 5, 4}, boxes);
  Dense({4, 16}, {2, 1})
      .Attr("flatten_to_2d", true)
      .Attr("clip", false)
      .RandomInput("Input", {1, 1, 1, 1})
      .RandomInput("Image", {1, 1, 8, 8})
      .Expect("Boxes", {5, 4}, boxes)
      .Expect("Variances", {5, 4}, std::vector<double>(20, 1));
  // Only the outer corner of each side is clipped: the box lies beyond the image.
  Dense({4}, {1})
      .Attr("clip", false)
      .Attr("offset", 2.5f)
      .RandomInput("Input", {1, 1, 1, 1})
      .RandomInput("Image", {1, 1, 8, 8})
      .Expect("Boxes", {1, 1, 1, 4}, {2.25, 2.25, 1, 1});
}

TEST(DensityPriorBox, Constraints) {
  const auto run = [](OpTest test, const Shape& image, const std::string& id) {
    test.RandomInput("Input", {1, 1, 1, 1}).RandomInput("Image", image).ExpectError(id);
  };
  run(Dense({4}, {1}), {1, 2}, "density_prior_box.C1");
  run(std::move(Dense({4}, {1}).Attr("variances", Floats{1, 1, 1, 0})), {1, 1, 2, 2},
      "density_prior_box.C2");
  run(Dense({4, 4}, {256, 256}), {1, 1, 2, 2}, "density_prior_box.C3");
  run(Dense({0}, {1}), {1, 1, 2, 2}, "density_prior_box.C4");
  run(Dense({4}, {1, 1}), {1, 1, 2, 2}, "density_prior_box.C5");
  run(Dense({4}, {0}), {1, 1, 2, 2}, "density_prior_box.C5");
}

OpTest Anchors(const Floats& sizes, const Floats& stride) {
  return std::move(OpTest("anchor_generator")
                       .Attr("anchor_sizes", sizes)
                       .Attr("aspect_ratios", Floats{0.5f, 1})
                       .Attr("stride", stride)
                       .Attr("variances", Floats{1, 1, 2, 2}));
}

TEST(AnchorGenerator, Values) {
  Anchors({32}, {16, 16})
      .RandomInput("Input", {1, 1, 1, 2})
      .Expect("Anchors", {1, 2, 2, 4},
              {-15, -4, 30, 19, -8, -8, 23, 23, 1, -4, 46, 19, 8, -8, 39, 23})
      .Expect("Variances", {1, 2, 2, 4}, {1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2});
}

TEST(AnchorGenerator, Constraints) {
  Anchors({32}, {16, 16}).RandomInput("Input", {1, 1}).ExpectError("anchor_generator.C1");
  Anchors({32}, {16, 16})
      .Attr("variances", Floats{})
      .RandomInput("Input", {1, 1, 1, 1})
      .ExpectError("anchor_generator.C2");
  Anchors({}, {16, 16}).RandomInput("Input", {1, 1, 1, 1}).ExpectError("anchor_generator.C3");
  Anchors({-1}, {16, 16}).RandomInput("Input", {1, 1, 1, 1}).ExpectError("anchor_generator.C4");
  Anchors({32}, {16}).RandomInput("Input", {1, 1, 1, 1}).ExpectError("anchor_generator.C5");
}
}  // namespace coracle::prior_box_test
