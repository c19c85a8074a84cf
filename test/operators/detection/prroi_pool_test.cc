#include <coracle/test/op_test.h>

namespace coracle::prroi_pool_test {

OpTest Pool(int32_t height, int32_t width) {
  return std::move(OpTest("prroi_pool").Attr("pooled_height", height).Attr("pooled_width", width));
}

TEST(PrroiPool, Values) {
  // X[y, x] = 3 y + x is linear: a mean is the value in the middle of the bin.
  const std::vector<double> x = {0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9};
  for (bool counts : {true, false}) {
    OpTest test = Pool(1, 2);
    test.Attr("spatial_scale", 0.5f)
        .Input("X", {1, 1, 3, 4}, x)
        .Input("ROIs", {2, 4}, {1, 1, 5, 3.5, 0.5, 0.25, 5.5, 3});
    if (counts)
      test.IntInput("BatchRoINums", {1}, {2});
    else
      test.Lod({{0, 2}});
    // Rows 0.5 to 1.75, columns 0.5, 1.5, 2.5; rows 0.125 to 1.5, columns 0.25, 1.5, 2.75.
    test.Expect("Out", {2, 1, 1, 2}, {3.375 + 1, 3.375 + 2, 2.4375 + 0.875, 2.4375 + 2.125})
        .CheckGradient({"X", "ROIs"})
        .CheckGradient({"ROIs"})
        .CheckGradient({"X"});
  }
  // The hat of one element has volume 1; of nothing it is nothing.
  Pool(1, 1)
      .Input("X", {1, 1, 1, 1}, {6})
      .Input("ROIs", {3, 4}, {-1, -2, 2, 2, 0, 0, 1, 1, 2, 2, 1, 3})
      .Expect("Out", {3, 1, 1, 1}, {6.0 / 12, 6.0 / 4, 0})
      .CheckGradient({"X"});
}

TEST(PrroiPool, Images) {
  Pool(2, 2)
      .RandomInput("X", {2, 3, 4, 5})
      .Input("ROIs", {3, 4}, {0.3, 0.6, 3.2, 2.7, -0.7, 1.1, 2.45, 4.6, 1.3, 1.4, 1.9, 1.85})
      .IntInput("BatchRoINums", {2}, {1, 2})
      .CheckGradient({"X", "ROIs"});
}

TEST(PrroiPool, Constraints) {
  const auto with = [](const Shape& x, const Shape& rois) {
    return std::move(Pool(1, 1).RandomInput("X", x).RandomInput("ROIs", rois));
  };
  with({1, 1, 1}, {1, 4}).ExpectError("prroi_pool.C1");
  with({1, 1, 1, 1}, {4}).ExpectError("prroi_pool.C2");
  with({2, 1, 1, 1}, {1, 4}).ExpectError("prroi_pool.C3");
  OpTest("prroi_pool_grad")
      .RandomInput("X", {1, 1, 1, 1})
      .RandomInput("ROIs", {1, 4})
      .RandomInput("Out@GRAD", {1, 1, 1, 2})
      .ExpectError("prroi_pool_grad.C4");
}
}  // namespace coracle::prroi_pool_test
