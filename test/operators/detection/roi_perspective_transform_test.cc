#include <coracle/test/op_test.h>

#include <algorithm>
#include <limits>

namespace coracle::roi_perspective_transform_test {

using Doubles = std::vector<double>;

OpTest Transform(int32_t height, int32_t width) {
  return std::move(OpTest("roi_perspective_transform")
                       .Attr("transformed_height", height)
                       .Attr("transformed_width", width));
}

// 10 y + x, and 100 for each plane.
Doubles Planes(int planes, int rows, int columns) {
  Doubles x;
  for (int p = 0; p < planes; ++p) {
    for (int i = 0; i < rows * columns; ++i)
      x.push_back(100 * p + 10 * (i / columns) + i % columns);
  }
  return x;
}

TEST(RoiPerspectiveTransform, UprightAndTurned) {
  const Doubles x = Planes(1, 4, 4);
  Transform(4, 4)
      .Input("X", {1, 1, 4, 4}, x)
      .Input("ROIs", {1, 8}, {0, 0, 3, 0, 3, 3, 0, 3})
      .Expect("Out", {1, 1, 4, 4}, x)
      .Expect("Mask", {1, 1, 4, 4}, Doubles(16, 1))
      .ExpectDType("Mask", DType::kInt32)
      .Expect("TransformMatrix", {1, 9}, {1, 0, 0, 0, 1, 0, 0, 0, 1})
      .NoOutput("TransformMatrix")
      .CheckGradient({"X"});
  // Its upper left corner is X's upper right one: columns go down in X, and rows to the left.
  Doubles turned;
  for (int v = 0; v < 4; ++v) {
    for (int u = 0; u < 4; ++u) turned.push_back(10 * u + 3 - v);
  }
  Transform(4, 4)
      .Input("X", {1, 1, 4, 4}, x)
      .Input("ROIs", {1, 8}, {3, 0, 3, 3, 0, 3, 0, 0})
      .Expect("Out", {1, 1, 4, 4}, turned)
      .Expect("TransformMatrix", {1, 9}, {0, -1, 3, 1, 0, 0, 0, 0, 1});
  // A RoI three times as high as wide fills two of the columns.
  Transform(4, 3)
      .Input("X", {1, 1, 4, 4}, x)
      .Input("ROIs", {1, 8}, {0, 0, 1, 0, 1, 3, 0, 3})
      .Expect("Out", {1, 1, 4, 3}, {0, 1, 0, 10, 11, 0, 20, 21, 0, 30, 31, 0})
      .Expect("Mask", {1, 1, 4, 3}, {1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0})
      .NoOutput("TransformMatrix")
      .CheckGradient({"X"});
}

TEST(RoiPerspectiveTransform, BetweenAndBesideElements) {
  Transform(3, 3)
      .Attr("spatial_scale", 0.5f)
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("ROIs", {1, 8}, {0, 0, 2, 0, 2, 2, 0, 2})
      .Expect("Out", {1, 1, 3, 3}, {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4})
      .NoOutput("TransformMatrix")
      .CheckGradient({"X"});
  // A column outside, and one in the border.
  const Doubles x = {1, 2, 3, 4, 5, 6};
  Transform(3, 3)
      .Input("X", {1, 1, 3, 2}, x)
      .Input("ROIs", {1, 8}, {-1, 0, 1, 0, 1, 2, -1, 2})
      .Expect("Out", {1, 1, 3, 3}, {0, 1, 2, 0, 3, 4, 0, 5, 6})
      .Expect("Mask", {1, 1, 3, 3}, {0, 1, 1, 0, 1, 1, 0, 1, 1});
  Transform(3, 3)
      .Input("X", {1, 1, 3, 2}, x)
      .Input("ROIs", {1, 8}, {-0.25, 0, 1.75, 0, 1.75, 2, -0.25, 2})
      .Expect("Out", {1, 1, 3, 3}, {1, 1.75, 0, 3, 3.75, 0, 5, 5.75, 0});
}

// A trapezium, against its map worked out by hand.
TEST(RoiPerspectiveTransform, Perspective) {
  const double m7 = 16 / (-24 + 1e-5) / 4, m4 = (4 + m7 * 16) / 4;
  Doubles expected;
  for (int c = 0; c < 2; ++c) {
    for (int v = 0; v < 5; ++v) {
      for (int u = 0; u < 5; ++u) {
        const double z = 1 + m7 * v;
        const double y = std::clamp(m4 * v / z, 0.0, 4.0);
        expected.push_back(100 * c + 10 * y + std::clamp((0.5 * u - 0.5 * v + 2) / z, 0.0, 6.0));
      }
    }
  }
  EXPECT_NEAR(expected[17], 23, 1e-4);
  EXPECT_NEAR(expected[24], 46, 1e-4);
  Transform(5, 9)
      .Input("X", {1, 2, 5, 7}, Planes(2, 5, 7))
      .Input("ROIs", {1, 8}, {2, 0, 4, 0, 6, 4, 0, 4})
      .Expect("TransformMatrix", {1, 9}, {0.5, -0.5, 2, 0, m4, 0, 0, m7, 1})
      .NoOutput("TransformMatrix")
      .CheckGradient({"X"});
  Transform(5, 5)
      .Input("X", {1, 2, 5, 7}, Planes(2, 5, 7))
      .Input("ROIs", {1, 8}, {2, 0, 4, 0, 6, 4, 0, 4})
      .Expect("Out", {1, 2, 5, 5}, expected)
      .Expect("Mask", {1, 1, 5, 5}, Doubles(25, 1));
}

TEST(RoiPerspectiveTransform, ImagesAndIntermediates) {
  Transform(1, 2)
      .Input("X", {2, 1, 1, 2}, {5, 7, 1, 2})
      .Input("ROIs", {2, 8}, {0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 2, 0, 2, 1, 1, 1})
      .Lod({{0, 1, 2}})
      .Expect("Out", {2, 1, 1, 2}, {5, 7, 2, 0})
      .ExpectLod("Out", {{0, 1, 2}})
      .Expect("Out2InIdx", {4, 4}, {0, 1, 0, 1, 1, 1, 1, 1, 3, 3, 3, 3, -1, -1, -1, -1})
      .Expect("Out2InWeights", {4, 4}, {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})
      .NoOutput("TransformMatrix")
      .CheckGradient({"X"});
  Transform(2, 2)
      .Input("X", {1, 3, 1, 1}, {1, 2, 3})
      .Input("ROIs", {0, 8}, {})
      .Expect("Out", {0, 3, 2, 2}, {});
  // All corners in one place.
  Transform(1, 2)
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("ROIs", {1, 8}, {1, 1, 1, 1, 1, 1, 1, 1})
      .Expect("Out", {1, 1, 1, 2}, {4, 4});
}

// Paddle's kernel for processors writes no Out2InIdx: gradients do not depend on it.
TEST(RoiPerspectiveTransform, GradientWithoutIntermediates) {
  OpTest test("roi_perspective_transform_grad");
  test.Attr("transformed_width", 2)
      .RandomInput("X", {1, 1, 1, 2})
      .Input("ROIs", {1, 8}, {0, 0, 1, 0, 1, 1, 0, 1})
      .IntInput("Out2InIdx", {2, 4}, std::vector<int64_t>(8, 0), DType::kInt32)
      .Input("Out2InWeights", {2, 4}, std::vector<double>(8, 0))
      .Input("Out@GRAD", {1, 1, 1, 2}, {3, 5})
      .Expect("X@GRAD", {1, 1, 1, 2}, {3, 5});
}

TEST(RoiPerspectiveTransform, Constraints) {
  const auto with = [](const Shape& x, const Shape& rois) {
    return std::move(Transform(1, 2).RandomInput("X", x).RandomInput("ROIs", rois));
  };
  const std::string op = "roi_perspective_transform";
  with({1, 2, 1}, {1, 8}).ExpectError(op + ".C1");
  with({1, 2, 1, 1}, {1, 4}).ExpectError(op + ".C2");
  with({2, 2, 1, 1}, {1, 8}).ExpectError(op + ".C3");
  for (const double corner : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Transform(1, 2)
        .Input("X", {1, 1, 1, 1}, {1})
        .Input("ROIs", {1, 8}, {0, 0, 1, 0, corner, 1, 0, 1})
        .ExpectError(op + ".C4");
  }
  OpTest("roi_perspective_transform_grad")
      .RandomInput("X", {1, 1, 1, 2})
      .RandomInput("ROIs", {1, 8})
      .RandomInput("Out@GRAD", {1, 1, 1, 2})
      .ExpectError(op + "_grad.C5");
}
}  // namespace coracle::roi_perspective_transform_test
