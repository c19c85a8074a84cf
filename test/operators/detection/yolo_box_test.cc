#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::yolo_box_test {

using Ints = std::vector<int32_t>;

OpTest Yolo(int32_t classes, const Ints& anchors) {
  return std::move(OpTest("yolo_box").Attr("class_num", classes).Attr("anchors", anchors));
}

double S(double x) { return 1 / (1 + std::exp(-x)); }

TEST(YoloBox, Values) {
  // Two cells; the confidence of the second is too low. The network's input is 64 wide, 32 high.
  Yolo(2, {16, 8})
      .Attr("conf_thresh", 0.5f)
      .Input("X", {1, 7, 1, 2}, {0, 1, 0, 1, 0, 1, 0, 1, 1, -1, 2, 3, -2, 3})
      .IntInput("ImgSize", {1, 2}, {40, 80}, DType::kInt32)
      .Expect("Boxes", {1, 2, 4}, {10, 15, 30, 25, 0, 0, 0, 0})
      .Expect("Scores", {1, 2, 2}, {S(1) * S(2), S(1) * S(-2), 0, 0});
  // Clipped to the image; the centre is scaled about the middle of the cell.
  const double scaled = (0 + S(1) * 1.5 - 0.25) * 40;
  for (bool clip : {true, false}) {
    const double top = 20 - 80, bottom = 20 + 80;
    Yolo(1, {8, 128})
        .Attr("clip_bbox", clip)
        .Attr("scale_x_y", 1.5f)
        .Input("X", {1, 6, 1, 1}, {1, 0, 0, 0, 3, 0})
        .IntInput("ImgSize", {1, 2}, {40, 40})
        .Expect("Boxes", {1, 1, 4}, {scaled - 5, clip ? 0 : top, scaled + 5, clip ? 39 : bottom});
  }
  // Overlaps come first.
  Yolo(1, {16, 8})
      .Attr("iou_aware", true)
      .Attr("iou_aware_factor", 0.25f)
      .Input("X", {1, 7, 1, 1}, {2, 0, 0, 0, 0, 1, 3})
      .IntInput("ImgSize", {1, 2}, {32, 32})
      .Expect("Boxes", {1, 1, 4}, {8, 12, 24, 20})
      .Expect("Scores", {1, 1, 1}, {std::pow(S(1), 0.75) * std::pow(S(2), 0.25) * S(3)});
}

TEST(YoloBox, OrderOfAnchors) {
  Yolo(1, {32, 32, 64, 32})
      .Attr("clip_bbox", false)
      .Input("X", {1, 12, 1, 1}, {0, 0, 0, 0, 5, 1, 0, 0, 0, 0, 5, 2})
      .IntInput("ImgSize", {1, 2}, {2, 2})
      .Expect("Boxes", {1, 2, 4}, {0, 0, 2, 2, -1, 0, 3, 2})
      .Expect("Scores", {1, 2, 1}, {S(5) * S(1), S(5) * S(2)});
}

// Scores of maps with more than one block of cells, most of which are found or few.
TEST(YoloBox, ManyCells) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-4, 4);
  const size_t images = 2, anchors = 2, classes = 3, area = 9 * 11;
  std::vector<double> x(images * anchors * (5 + classes) * area);
  for (double& v : x) v = static_cast<float>(uniform(random));
  for (double threshold : {0.01, 0.5, 0.95}) {
    std::vector<double> scores;
    for (size_t map = 0; map < images * anchors; ++map) {
      for (size_t cell = 0; cell < area; ++cell) {
        const auto at = [&](size_t entry) {
          return x[(map * (5 + classes) + entry) * area + cell];
        };
        for (size_t c = 0; c < classes; ++c)
          scores.push_back(S(at(4)) < threshold ? 0 : S(at(4)) * S(at(5 + c)));
      }
    }
    Yolo(3, {8, 8, 16, 4})
        .Attr("conf_thresh", static_cast<float>(threshold))
        .Input("X", {2, 16, 9, 11}, x)
        .IntInput("ImgSize", {2, 2}, {32, 32, 64, 64})
        .Expect("Scores", {2, 2 * 99, 3}, scores);
  }
}

TEST(YoloBox, Constraints) {
  const auto with = [](const Ints& anchors, const Shape& x, const Shape& size) {
    return std::move(
        Yolo(1, anchors).RandomInput("X", x).IntInput("ImgSize", size, {1, 1}, DType::kInt32));
  };
  with({1, 2, 3}, {1, 6, 1, 1}, {1, 2}).ExpectError("yolo_box.C1");
  with({1, 2}, {1, 7, 1, 1}, {1, 2}).ExpectError("yolo_box.C2");
  with({1, 2}, {1, 6, 1, 1}, {2}).ExpectError("yolo_box.C3");
}
}  // namespace coracle::yolo_box_test
