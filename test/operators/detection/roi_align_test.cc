#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::roi_align_test {

using Doubles = std::vector<double>;

OpTest Align(int32_t height, int32_t width) {
  return std::move(OpTest("roi_align").Attr("pooled_height", height).Attr("pooled_width", width));
}

// X[c, y, x] = 10 c + 3 y + x, so that interpolation gives the value at the sample.
Doubles Plane(int64_t images, int64_t channels, int64_t rows, int64_t columns) {
  Doubles x;
  for (int64_t i = 0; i < images * channels * rows * columns; ++i) {
    const int64_t c = i / columns / rows % channels, n = i / columns / rows / channels;
    x.push_back(static_cast<double>(100 * n + 10 * c + 3 * (i / columns % rows) + i % columns));
  }
  return x;
}

TEST(RoiAlign, Values) {
  // Bins of 2 x 1 with 2 x 1 samples: rows 1 + 0.5, 1 + 1.5, columns 0.5 and 1.5.
  for (bool counts : {true, false}) {
    OpTest test = Align(1, 2);
    test.Attr("spatial_scale", 0.5f)
        .Input("X", {2, 2, 5, 4}, Plane(2, 2, 5, 4))
        .Input("ROIs", {2, 4}, {0, 2, 4, 6, 0, 2, 4, 6});
    if (counts)
      test.IntInput("RoisNum", {2}, {1, 1}, DType::kInt32);
    else
      test.Lod({{0, 1, 2}});
    test.Expect("Out", {2, 2, 1, 2}, {6.5, 7.5, 16.5, 17.5, 106.5, 107.5, 116.5, 117.5})
        .CheckGradient({"X"});
  }
  // A RoI of no size is one cell; aligned, it has no samples. Half a cell away when aligned.
  Align(1, 1)
      .Input("X", {1, 1, 5, 4}, Plane(1, 1, 5, 4))
      .Input("ROIs", {1, 4}, {1, 1, 1, 1})
      .Expect("Out", {1, 1, 1, 1}, {6});
  Align(1, 1)
      .Attr("aligned", true)
      .Input("X", {1, 1, 5, 4}, Plane(1, 1, 5, 4))
      .Input("ROIs", {2, 4}, {1, 1, 1, 1, 1, 1, 3, 3})
      .Expect("Out", {2, 1, 1, 1}, {0, 6})
      .CheckGradient({"X"});
  Align(2, 2)
      .Input("X", {1, 1, 5, 4}, Plane(1, 1, 5, 4))
      .Input("ROIs", {0, 4}, {})
      .Expect("Out", {0, 1, 2, 2}, {});
}

// The border: up to one cell outside of X its edge counts, beyond it nothing does.
TEST(RoiAlign, Outside) {
  Align(1, 1)
      .Attr("sampling_ratio", 2)
      .Input("X", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("ROIs", {3, 4}, {-1, 0, 1, 0, -6, -6, -2, -2, 1, 1, 3, 3})
      // Columns -0.5 and 0.5, rows 0.25 and 0.75; nothing; rows and columns 1.5 and 2.5.
      .Expect("Out", {3, 1, 1, 1}, {(1.5 + 2 + 2.5 + 3) / 4, 0, 4.0 / 4})
      .CheckGradient({"X"});
}

OpTest With(const Shape& x, const Shape& rois) {
  return std::move(Align(1, 1).RandomInput("X", x).RandomInput("ROIs", rois));
}

TEST(RoiAlign, Constraints) {
  With({1, 1, 1}, {1, 4}).ExpectError("roi_align.C1");
  With({1, 1, 1, 1}, {1, 5}).ExpectError("roi_align.C2");
  With({2, 1, 1, 1}, {1, 4}).ExpectError("roi_align.C3");
  With({1, 1, 1, 1}, {1, 4}).IntInput("RoisNum", {1}, {2}).ExpectError("roi_align.C3");
  With({1, 1, 1, 1}, {1, 4}).RandomInput("RoisNum", {1}).ExpectError("roi_align.C3");
  for (double far : {1e9, static_cast<double>(INFINITY)}) {
    Align(1, 1)
        .RandomInput("X", {1, 1, 1, 1})
        .Input("ROIs", {1, 4}, {0, 0, far, far})
        .ExpectError("roi_align.C4");
  }
  OpTest("roi_align_grad")
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("ROIs", {1, 4})
      .RandomInput("Out@GRAD", {1, 1, 1, 2})
      .ExpectError("roi_align_grad.C5");
}
}  // namespace coracle::roi_align_test
