#include <coracle/test/op_test.h>

namespace coracle::match_matrix_tensor_test {

OpTest Match(const Shape& x, LoD x_lod, const Shape& y, LoD y_lod, const Shape& w, int32_t kinds) {
  return std::move(OpTest("match_matrix_tensor")
                       .Attr("dim_t", kinds)
                       .RandomInput("X", x)
                       .Lod(std::move(x_lod))
                       .RandomInput("Y", y)
                       .Lod(std::move(y_lod))
                       .RandomInput("W", w));
}

TEST(MatchMatrixTensor, ByHand) {
  // W is 2 times the unit matrix, then the one that exchanges the columns.
  OpTest("match_matrix_tensor")
      .Attr("dim_t", 2)
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Lod({{0, 2, 2, 3}})
      .Input("Y", {2, 2}, {1, 10, 100, 1000})
      .Lod({{0, 1, 1, 2}})
      .Input("W", {2, 2, 2}, {2, 0, 0, 1, 0, 2, 1, 0})
      .Expect("Out", {6, 1}, {42, 86, 12, 34, 13000, 5600})
      .ExpectLod("Out", {{0, 4, 4, 6}})
      .Expect("Tmp", {12, 1}, {2, 4, 2, 1, 6, 8, 4, 3, 10, 12, 6, 5});
}

TEST(MatchMatrixTensor, Gradient) {
  Match({4, 3}, {{0, 1, 1, 4}}, {5, 3}, {{0, 2, 3, 5}}, {3, 2, 3}, 2)
      .CheckGradient({"X", "Y", "W"});
  Match({0, 3}, {{0, 0}}, {1, 3}, {{0, 1}}, {3, 1, 3}, 1).Expect("Out", {0, 1}, {});
}

TEST(MatchMatrixTensor, Constraints) {
  const std::string type = "match_matrix_tensor";
  Match({1, 2}, {{0, 1}}, {1, 3}, {{0, 1}}, {2, 1, 2}, 1).ExpectError(type + ".C1");
  Match({1, 2}, {{0, 1}}, {1, 2}, {{0, 1}}, {2, 2, 2}, 1).ExpectError(type + ".C2");
  Match({1, 2}, {}, {1, 2}, {{0, 1}}, {2, 1, 2}, 1).ExpectError(type + ".C3");
  Match({1, 2}, {{0, 1}}, {1, 2}, {{0, 1, 1}}, {2, 1, 2}, 1).ExpectError(type + ".C4");
  for (const Shape& dout : {Shape{2, 1}, Shape{1}}) {
    OpTest(type + "_grad")
        .RandomInput("X", {1, 2})
        .Lod({{0, 1}})
        .RandomInput("Y", {1, 2})
        .Lod({{0, 1}})
        .RandomInput("W", {2, 1, 2})
        .RandomInput("Out@GRAD", dout)
        .ExpectError(type + "_grad.C5");
  }
}
}  // namespace coracle::match_matrix_tensor_test
