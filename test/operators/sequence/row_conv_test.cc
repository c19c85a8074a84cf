#include <coracle/test/op_test.h>

namespace coracle::row_conv_test {

TEST(RowConv, Values) {
  // Out[t] = x[t] + 10 x[t + 1] in the first column, 2 x[t] in the second.
  OpTest("row_conv")
      .Input("X", {4, 2}, {1, 1, 2, 2, 3, 3, 4, 4})
      .Lod({{0, 3, 3, 4}})
      .Input("Filter", {2, 2}, {1, 2, 10, 0})
      .Expect("Out", {4, 2}, {21, 2, 32, 4, 3, 6, 4, 8})
      .ExpectLod("Out", {{0, 3, 3, 4}})
      .CheckGradient({"X", "Filter"});
  OpTest("row_conv")
      .Input("X", {2, 2, 1}, {1, 2, 3, 4})
      .Input("Filter", {3, 1}, {1, 10, 100})
      .Expect("Out", {2, 2, 1}, {21, 2, 43, 4})
      .CheckGradient({"X", "Filter"});
  OpTest("row_conv")
      .Input("X", {0, 2}, {})
      .Lod({{0, 0}})
      .Input("Filter", {1, 2}, {1, 2})
      .Expect("Out", {0, 2}, {});
}

TEST(RowConv, Constraints) {
  const auto with = [](const Shape& x, LoD lod, const Shape& filter) {
    return std::move(
        OpTest("row_conv").RandomInput("X", x).Lod(std::move(lod)).RandomInput("Filter", filter));
  };
  with({2}, {{0, 2}}, {1, 1}).ExpectError("row_conv.C1");
  with({2, 1}, {{0, 2}}, {1, 2}).ExpectError("row_conv.C2");
  with({2, 1}, {}, {1, 1}).ExpectError("row_conv.C3");
  OpTest("row_conv_grad")
      .RandomInput("X", {1, 1, 1})
      .RandomInput("Filter", {1, 1})
      .RandomInput("Out@GRAD", {1, 1})
      .ExpectError("row_conv_grad.C4");
}
}  // namespace coracle::row_conv_test
