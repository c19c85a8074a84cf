#include <coracle/test/op_test.h>

namespace coracle::affine_grid_test {

using Ints = std::vector<int32_t>;

OpTest Grid(bool align, const Ints& shape) {
  OpTest test("affine_grid");
  test.Attr("align_corners", align).Attr("output_shape", shape);
  return test;
}

TEST(AffineGrid, Values) {
  // The identity; then x' = 2 x + 10 y + 100, y' = 3.
  Grid(true, {1, 1, 2, 3})
      .Input("Theta", {1, 2, 3}, {1, 0, 0, 0, 1, 0})
      .Expect("Output", {1, 2, 3, 2}, {-1, -1, 0, -1, 1, -1, -1, 1, 0, 1, 1, 1});
  Grid(false, {1, 1, 2, 4})
      .Input("Theta", {1, 2, 3}, {2, 10, 100, 0, 0, 3})
      .Expect("Output", {1, 2, 4, 2},
              {93.5, 3, 94.5, 3, 95.5, 3, 96.5, 3, 103.5, 3, 104.5, 3, 105.5, 3, 106.5, 3});
  // One element: at -1, or, with edges, at 0.
  for (const bool align : {true, false}) {
    const double at = align ? -1 : 0;
    Grid(align, {})
        .Input("Theta", {1, 2, 3}, {1, 0, 0, 0, 1, 0})
        .IntInput("OutputShape", {4}, {1, 7, 1, 1}, DType::kInt32)
        .Expect("Output", {1, 1, 1, 2}, {at, at});
  }
  Grid(true, {0, 1, 2, 2}).Input("Theta", {0, 2, 3}, {}).Expect("Output", {0, 2, 2, 2}, {});
}

TEST(AffineGrid, Gradients) {
  for (const bool align : {true, false}) {
    Grid(align, {2, 1, 3, 4}).RandomInput("Theta", {2, 2, 3}).CheckGradient({"Theta"});
    Grid(align, {1, 1, 2, 2}).RandomInput("Theta", {1, 2, 3}).CheckHigherGradients();
  }
}

TEST(AffineGrid, Constraints) {
  Grid(true, {1, 1, 1, 1}).RandomInput("Theta", {1, 3, 2}).ExpectError("affine_grid.C1");
  for (const Ints& shape : {Ints{}, Ints{1}, Ints{1, 1, -2, 1}})
    Grid(true, shape).RandomInput("Theta", {1, 2, 3}).ExpectError("affine_grid.C2");
  OpTest("affine_grid_grad")
      .RandomInput("Output@GRAD", {1, 2, 2})
      .ExpectError("affine_grid_grad.C3");
}

}  // namespace coracle::affine_grid_test
