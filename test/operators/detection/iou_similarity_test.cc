#include <coracle/test/op_test.h>

namespace coracle::iou_similarity_test {

TEST(IouSimilarity, Values) {
  OpTest("iou_similarity")
      .Input("X", {2, 4}, {0, 0, 2, 2, 1, 1, 1, 1})
      .Lod({{0, 2}})
      .Input("Y", {3, 4}, {1, 1, 3, 3, 0, 0, 2, 2, 5, 5, 6, 6})
      .Expect("Out", {2, 3}, {1.0 / 7, 1, 0, 0, 0, 0})
      .ExpectLod("Out", {{0, 2}});
  OpTest("iou_similarity")
      .Attr("box_normalized", false)
      .Input("X", {1, 4}, {0, 0, 1, 1})
      .Input("Y", {2, 4}, {1, 1, 2, 2, 0, 0, 1, 1})
      .Expect("Out", {1, 2}, {1.0 / 7, 1});
  // Half a pixel apart: 0.5 in common. A box whose corners are turned has the area 0.5 * 2.
  OpTest("iou_similarity")
      .Attr("box_normalized", false)
      .Input("X", {1, 4}, {0, 0, 1, 1})
      .Input("Y", {3, 4}, {1.5, 0, 2.5, 1, 1, 0, 0.5, 1, 2, 0, 3, 1})
      .Expect("Out", {1, 3}, {1.0 / 7, 1.0 / 4, 0});
  OpTest("iou_similarity")
      .Input("X", {0, 4}, {})
      .RandomInput("Y", {2, 4})
      .Expect("Out", {0, 2}, {});
}

TEST(IouSimilarity, ManyBoxes) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  const auto draw = [&](int64_t n) {
    std::vector<double> boxes;
    for (int64_t i = 0; i < n; ++i) {
      const double x = unit(random), y = unit(random);
      for (double v : {x, y, x + unit(random), y + unit(random)})
        boxes.push_back(static_cast<float>(v));
    }
    return boxes;
  };
  for (int64_t m : {1, 7, 40}) {
    const std::vector<double> a = draw(9), b = draw(m);
    std::vector<double> out;
    for (size_t i = 0; i < 9; ++i) {
      for (size_t j = 0; j < static_cast<size_t>(m); ++j) {
        const double *p = a.data() + 4 * i, *q = b.data() + 4 * j;
        const double w = std::min(p[2], q[2]) - std::max(p[0], q[0]);
        const double h = std::min(p[3], q[3]) - std::max(p[1], q[1]);
        const double common = std::max(w, 0.0) * std::max(h, 0.0);
        const double areas = (p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]);
        out.push_back(common / (areas - common));
      }
    }
    OpTest("iou_similarity")
        .Input("X", {9, 4}, a)
        .Input("Y", {m, 4}, b)
        .Expect("Out", {9, m}, out, 1e-5);
  }
}

TEST(IouSimilarity, Constraints) {
  OpTest("iou_similarity")
      .RandomInput("X", {1, 4})
      .IntInput("Y", {1, 4}, {1, 2, 3, 4})
      .ExpectError("iou_similarity.C1");
  OpTest("iou_similarity")
      .RandomInput("X", {1, 4})
      .RandomInput("Y", {4})
      .ExpectError("iou_similarity.C2");
}

TEST(BoxClip, Values) {
  OpTest("box_clip")
      .Input("Input", {3, 4}, {-1, 2, 30, 4, 1, -2, 3, 9, -5, 50, 5, 50})
      .Lod({{0, 2, 3}})
      .Input("ImInfo", {2, 3}, {10, 21, 2, 8, 4, 1})
      .Expect("Output", {3, 4}, {0, 2, 10, 4, 1, 0, 3, 4, 0, 7, 3, 7})
      .ExpectLod("Output", {{0, 2, 3}});
  OpTest("box_clip")
      .Input("Input", {1, 2, 4}, {-1, 2, 30, 4, 1, -2, 3, 9})
      .Input("ImInfo", {1, 3}, {4, 4, 1})
      .InPlace("Input", "Output")
      .Expect("Output", {1, 2, 4}, {0, 2, 3, 3, 1, 0, 3, 3});
}

TEST(BoxClip, Constraints) {
  const auto with = [](const Shape& boxes, const Shape& info) {
    return std::move(OpTest("box_clip").RandomInput("Input", boxes).RandomInput("ImInfo", info));
  };
  OpTest("box_clip")
      .RandomInput("Input", {1, 4})
      .IntInput("ImInfo", {1, 3}, {1, 2, 3})
      .ExpectError("box_clip.C1");
  with({4}, {1, 3}).ExpectError("box_clip.C2");
  with({1, 4}, {1, 2}).ExpectError("box_clip.C3");
  with({1, 4}, {2, 3}).ExpectError("box_clip.C4");
}

TEST(PolygonBoxTransform, Values) {
  OpTest("polygon_box_transform")
      .Input("Input", {1, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 2, 2})
      .Expect("Output", {1, 2, 2, 2}, {-1, 3, -1, 3, -1, -1, 2, 2});
  OpTest("polygon_box_transform")
      .RandomInput("Input", {1, 3, 2, 2})
      .ExpectError("polygon_box_transform.C1");
}
}  // namespace coracle::iou_similarity_test
