#include <coracle/test/op_test.h>

namespace coracle::psroi_pool_test {

OpTest Pool(int32_t channels, int32_t height, int32_t width) {
  return std::move(OpTest("psroi_pool")
                       .Attr("output_channels", channels)
                       .Attr("pooled_height", height)
                       .Attr("pooled_width", width));
}

TEST(PsroiPool, Values) {
  // X[c, y, x] = 100 c + 10 y + x. The RoI has columns 0 to 2 and rows 0 to 1.
  std::vector<double> x;
  for (int c = 0; c < 4; ++c) {
    for (int y = 0; y < 3; ++y) {
      for (int i = 0; i < 4; ++i) x.push_back(100 * c + 10 * y + i);
    }
  }
  // Bins of 1.5 columns: columns 0 and 1, then 1 and 2, each of a channel of its own.
  Pool(2, 1, 2)
      .Input("X", {1, 4, 3, 4}, x)
      .Input("ROIs", {1, 4}, {-0.2, 0.4, 2.3, 1.2})
      .Expect("Out", {1, 2, 1, 2}, {5.5, 106.5, 205.5, 306.5})
      .CheckGradient({"X"});
  // Scaled by one half: columns [1, 2), rows [0.5, 1.5). The second RoI lies outside.
  Pool(4, 1, 1)
      .Attr("spatial_scale", 0.5f)
      .Input("X", {1, 4, 3, 4}, x)
      .Input("ROIs", {2, 4}, {2, 1, 3, 2, 20, 20, 30, 30})
      .Expect("Out", {2, 4, 1, 1}, {6, 106, 206, 306, 0, 0, 0, 0})
      .CheckGradient({"X"});
  Pool(1, 1, 1)
      .Input("X", {2, 1, 1, 2}, {1, 2, 3, 4})
      .Input("ROIs", {2, 4}, {0, 0, 0, 0, 0, 0, 1, 0})
      .Lod({{0, 1, 2}})
      .Expect("Out", {2, 1, 1, 1}, {1, 3.5});
}

TEST(PsroiPool, Constraints) {
  const auto with = [](const Shape& x, const Shape& rois) {
    return std::move(Pool(1, 1, 2).RandomInput("X", x).RandomInput("ROIs", rois));
  };
  with({1, 2, 1}, {1, 4}).ExpectError("psroi_pool.C1");
  with({1, 2, 1, 1}, {4}).ExpectError("psroi_pool.C2");
  with({2, 2, 1, 1}, {1, 4}).ExpectError("psroi_pool.C3");
  with({1, 3, 1, 1}, {1, 4}).ExpectError("psroi_pool.C4");
  OpTest("psroi_pool_grad")
      .Attr("output_channels", 1)
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("ROIs", {1, 4})
      .RandomInput("Out@GRAD", {1, 1, 1, 2})
      .ExpectError("psroi_pool_grad.C5");
}
}  // namespace coracle::psroi_pool_test
