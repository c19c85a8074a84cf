// examples/text_detection: its boxes on maps drawn by hand, and on a picture by the real model.

#include <boxes.h>
#include <coracle/test/test_data.h>
#include <detector.h>
#include <gtest/gtest.h>
#include <lettering.h>
#include <picture.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace text_detection_test {

// Twice the signed area of a, b, c; positive clockwise, as y points down.
double Turn(Point a, Point b, Point c) {
  return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

double Area(const std::vector<Point>& polygon) {
  double twice = 0;
  for (size_t k = 2; k < polygon.size(); ++k) twice += Turn(polygon[0], polygon[k - 1], polygon[k]);
  return twice / 2;
}

std::vector<Point> Corners(const Quad& quad) { return {quad.begin(), quad.end()}; }

// Sutherland and Hodgman: `a` cut by each side of `b`.
double Overlap(const Quad& a, const Quad& b) {
  std::vector<Point> rest = Corners(a);
  for (size_t side = 0; side < 4; ++side) {
    const Point from = b[side], to = b[(side + 1) % 4];
    std::vector<Point> kept;
    for (size_t k = 0; k < rest.size(); ++k) {
      const Point p = rest[k], q = rest[(k + 1) % rest.size()];
      const double at_p = Turn(from, to, p), at_q = Turn(from, to, q);
      if (at_p >= 0) kept.push_back(p);
      if ((at_p >= 0) != (at_q >= 0)) {
        const double t = at_p / (at_p - at_q);
        kept.push_back({p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)});
      }
    }
    rest = kept;
  }
  return Area(rest);
}

double IntersectionOverUnion(const Quad& a, const Quad& b) {
  const double both = Overlap(a, b);
  return both / (Area(Corners(a)) + Area(Corners(b)) - both);
}

struct Map {
  Map(int width, int height)
      : width(width), height(height), values(static_cast<size_t>(width * height)) {}
  void Fill(int left, int top, int w, int h, float value) {
    for (int y = top; y < top + h; ++y)
      for (int x = left; x < left + w; ++x) values[static_cast<size_t>(y * width + x)] = value;
  }
  std::vector<TextBox> Boxes(const BoxOptions& options = {}) const {
    return FindBoxes(values.data(), height, width, options);
  }
  int width, height;
  std::vector<float> values;
};

void ExpectCorners(const Quad& actual, const Quad& expected) {
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(actual[k].x, expected[k].x, 1e-6) << k;
    EXPECT_NEAR(actual[k].y, expected[k].y, 1e-6) << k;
  }
}

// Centres of pixels 10 to 49 and 20 to 29: 39 x 9, which grow by 1.5 * 39 * 9 / (2 * 48).
TEST(TextBoxes, ByHand) {
  Map map(64, 48);
  map.Fill(10, 20, 40, 10, 0.75f);
  const std::vector<TextBox> boxes = map.Boxes();
  ASSERT_EQ(boxes.size(), 1u);
  const double d = 1.5 * 39 * 9 / 96;
  ExpectCorners(boxes[0].corners,
                {Point{10 - d, 20 - d}, {49 + d, 20 - d}, {49 + d, 29 + d}, {10 - d, 29 + d}});
  EXPECT_NEAR(boxes[0].score, 0.75, 1e-9);
}

TEST(TextBoxes, RegionsThatAreLeftOut) {
  Map map(64, 48);
  EXPECT_TRUE(map.Boxes().empty());
  map.Fill(0, 0, 20, 10, 0.5f);  // likely text, but not likely enough
  map.Fill(30, 0, 20, 3, 1);     // too thin
  map.Fill(60, 47, 1, 1, 1);     // one pixel
  EXPECT_TRUE(map.Boxes().empty());
  map.Fill(30, 20, 34, 28, 1);  // up to two borders
  map.Fill(0, 20, 20, 10, 1);
  EXPECT_EQ(map.Boxes().size(), 2u);
  EXPECT_EQ(map.Boxes({.min_score = 0.4}).size(), 3u);
  EXPECT_TRUE(map.Boxes({.threshold = 1}).empty());
  EXPECT_TRUE(FindBoxes(nullptr, 0, 0).empty());
}

// Regions that touch at a corner are one; a row apart they are two.
TEST(TextBoxes, Neighbours) {
  Map map(40, 40);
  map.Fill(5, 5, 10, 10, 1);
  map.Fill(15, 15, 10, 10, 1);
  EXPECT_EQ(map.Boxes({.min_score = 0.1}).size(), 1u);
  map.Fill(15, 15, 10, 1, 0);
  EXPECT_EQ(map.Boxes({.min_score = 0.1}).size(), 2u);
}

TEST(TextBoxes, Turned) {
  Map map(100, 100);
  const double c = std::cos(0.5), s = std::sin(0.5);
  for (int y = 0; y < 100; ++y) {
    for (int x = 0; x < 100; ++x) {
      const double u = (x - 50) * c + (y - 50) * s, v = (y - 50) * c - (x - 50) * s;
      if (std::abs(u) <= 35 && std::abs(v) <= 8) map.Fill(x, y, 1, 1, 0.9f);
    }
  }
  const std::vector<TextBox> boxes = map.Boxes({.unclip_ratio = 0});
  ASSERT_EQ(boxes.size(), 1u);
  const auto at = [&](double u, double v) { return Point{50 + u * c - v * s, 50 + u * s + v * c}; };
  const Quad core = {at(-35, -8), at(35, -8), at(35, 8), at(-35, 8)};
  EXPECT_GT(IntersectionOverUnion(boxes[0].corners, core), 0.85);
}

TEST(TextBoxes, SmallestRectangle) {
  ExpectCorners(SmallestRectangle({{3, 4}}), {Point{3, 4}, {3, 4}, {3, 4}, {3, 4}});
  // A square on its corner, with points on its sides and inside.
  const Quad square =
      SmallestRectangle({{0, 5}, {5, 0}, {10, 5}, {5, 10}, {2.5, 2.5}, {5, 5}, {4, 6}});
  EXPECT_NEAR(Area(Corners(square)), 50, 1e-9);
  EXPECT_NEAR(IntersectionOverUnion(square, {Point{5, 0}, {10, 5}, {5, 10}, {0, 5}}), 1, 1e-9);
}

TEST(Pictures, PngAndBack) {
  const coracle::TemporaryDirectory directory;
  Picture picture(5, 3);
  for (size_t i = 0; i < picture.rgb.size(); ++i) picture.rgb[i] = static_cast<uint8_t>(5 * i);
  WritePng(picture, directory.File("p.png"));
  const Picture read = ReadPng(directory.File("p.png"));
  EXPECT_EQ(read.width, 5);
  EXPECT_EQ(read.height, 3);
  EXPECT_EQ(read.rgb, picture.rgb);
  EXPECT_THROW(ReadPng(directory.File("none.png")), std::runtime_error);
  EXPECT_THROW(WritePng(picture, directory.File("none/p.png")), std::runtime_error);
}

TEST(Pictures, Resized) {
  const Picture grey(7, 5, {10, 20, 30});
  const Picture large = Resized(grey, 20, 9);
  for (int x = 0; x < 20; ++x) EXPECT_EQ(large.At(x, 8)[2], 30);
  Picture halves(8, 1, {0, 0, 0});
  for (int x = 4; x < 8; ++x) Blend(halves, x, 0, {200, 200, 200}, 1);
  const Picture small = Resized(halves, 2, 1);
  EXPECT_EQ(small.At(0, 0)[0], 29);  // 200 * (3 / 8 + 1 / 8) / (7 / 2)
  EXPECT_EQ(small.At(0, 0)[0] + small.At(1, 0)[0], 200);
}

TEST(Lettering, RefusesUnknownLetters) {
  Picture picture(40, 40);
  EXPECT_THROW(Write(picture, {"\x01", 0, 0, 10}), std::invalid_argument);
}

// Each line of the picture is found where it was written, and nothing else is.
TEST(TextDetection, FindsTheLines) {
  const std::string data = coracle::TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "the model is not there";
  TextDetector detector(data + "/paddle/ch_PP-OCRv3_det/inference.pdmodel");
  const Sample sample = DrawSample();
  const std::vector<TextBox> boxes = detector.Find(sample.picture);
  EXPECT_EQ(boxes.size(), sample.places.size());
  for (size_t k = 0; k < sample.places.size(); ++k) {
    double best = 0;
    for (const TextBox& box : boxes)
      best = std::max(best, IntersectionOverUnion(box.corners, sample.places[k]));
    EXPECT_GE(best, 0.5) << "line " << k;
  }
  EXPECT_TRUE(detector.Find(Picture(320, 200)).empty());
  EXPECT_TRUE(detector.Find(Picture(1, 1)).empty());
}

// A larger picture is made smaller for the model; its boxes are in its own pixels.
TEST(TextDetection, LargePictures) {
  const std::string data = coracle::TestDataDirectory();
  if (data.empty()) GTEST_SKIP() << "the model is not there";
  TextDetector detector(data + "/paddle/ch_PP-OCRv3_det/inference.pdmodel");
  Picture large(1500, 300, {240, 240, 240});
  const Quad place = Write(large, {"A LONG LINE 123", 200, 100, 80});
  const std::vector<TextBox> boxes = detector.Find(large);
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_GE(IntersectionOverUnion(boxes[0].corners, place), 0.5);
}

}  // namespace text_detection_test
