#include <coracle/test/op_test.h>

namespace coracle::roi_pool_test {

using Doubles = std::vector<double>;

OpTest Pool(int32_t height, int32_t width) {
  return std::move(OpTest("roi_pool").Attr("pooled_height", height).Attr("pooled_width", width));
}

const Doubles kX = {1,  9,  2,  8,  3,  7,  6,  4,  5,  5,  5,  5,
                    -1, -2, -3, -4, -5, -6, -7, -8, -1, -1, -1, -1};

TEST(RoiPool, Values) {
  // Rounded to columns 0 to 2 and rows 0 to 1; the bins of 1.5 columns share the middle one.
  for (bool counts : {true, false}) {
    OpTest test = Pool(1, 2);
    test.Attr("spatial_scale", 0.5f)
        .Input("X", {2, 1, 3, 4}, kX)
        .Input("ROIs", {2, 4}, {-0.8, 0, 4.4, 2.4, 0, 0, 4, 2});
    if (counts)
      test.IntInput("RoisNum", {2}, {1, 1});
    else
      test.Lod({{0, 1, 2}});
    test.Expect("Out", {2, 1, 1, 2}, {9, 9, -1, -2})
        .Expect("Argmax", {2, 1, 1, 2}, {1, 1, 0, 1})
        .CheckGradient({"X"});
  }
  // The first of equal ones; bins beyond the map are empty.
  Pool(1, 2)
      .Input("X", {1, 1, 3, 4}, Doubles(kX.begin(), kX.begin() + 12))
      .Input("ROIs", {2, 4}, {0, 2, 3, 2, 2, 0, 9, 0})
      .Expect("Out", {2, 1, 1, 2}, {5, 5, 8, 0})
      .Expect("Argmax", {2, 1, 1, 2}, {8, 10, 3, -1});
  Pool(1, 1)
      .Input("X", {1, 1, 3, 4}, Doubles(12, 1))
      .Input("ROIs", {0, 4}, {})
      .Expect("Out", {0, 1, 1, 1}, {});
}

OpTest Grad(DType argmax, int64_t at, const Shape& dout = {1, 1, 1, 1}) {
  return std::move(OpTest("roi_pool_grad")
                       .RandomInput("X", {1, 1, 2, 2})
                       .RandomInput("ROIs", {1, 4})
                       .IntInput("Argmax", {1, 1, 1, 1}, {at}, argmax)
                       .RandomInput("Out@GRAD", dout));
}

TEST(RoiPool, Constraints) {
  const auto with = [](const Shape& x, const Shape& rois) {
    return std::move(Pool(1, 1).RandomInput("X", x).RandomInput("ROIs", rois));
  };
  with({1, 1, 1}, {1, 4}).ExpectError("roi_pool.C1");
  with({1, 1, 1, 1}, {4}).ExpectError("roi_pool.C2");
  with({2, 1, 1, 1}, {1, 4}).ExpectError("roi_pool.C3");
  Grad(DType::kInt64, 0, {1, 1, 2, 1}).ExpectError("roi_pool_grad.C4");
  Grad(DType::kInt32, 0).ExpectError("roi_pool_grad.C5");
  Grad(DType::kInt64, 4).ExpectError("roi_pool_grad.C5");
  Grad(DType::kInt64, -2).ExpectError("roi_pool_grad.C5");
}
}  // namespace coracle::roi_pool_test
