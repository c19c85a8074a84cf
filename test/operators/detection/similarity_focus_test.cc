#include <coracle/test/op_test.h>

namespace coracle::similarity_focus_test {

using Ints = std::vector<int32_t>;

OpTest Focus(int32_t axis, const Ints& indexes) {
  return std::move(OpTest("similarity_focus").Attr("axis", axis).Attr("indexes", indexes));
}

TEST(SimilarityFocus, Values) {
  // In the first channel 9 is the largest, then 7; in the second one 8, then 4.
  const std::vector<double> x = {1, 9, 3, 5, 6, 7, 2, 1, 4, 8, 0, 3};
  Focus(1, {0})
      .Input("X", {1, 2, 2, 3}, x)
      .Expect("Out", {1, 2, 2, 3}, {0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1});
  Focus(1, {0, 1})
      .Input("X", {1, 2, 2, 3}, x)
      .Expect("Out", {1, 2, 2, 3}, {0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1});
  // Channels and columns of row 1: 8 of channel 1, then 7 of channel 0.
  Focus(2, {1})
      .Input("X", {1, 2, 2, 3}, x)
      .Expect("Out", {1, 2, 2, 3}, {0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0});
  // Channels and rows of column 0: 8 of channel 1, then 1 of channel 0.
  Focus(3, {0})
      .Input("X", {1, 2, 2, 3}, x)
      .Expect("Out", {1, 2, 2, 3}, {1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1});
  Focus(1, {0}).Input("X", {2, 1, 1, 2}, {1, 1, 1, 2}).Expect("Out", {2, 1, 1, 2}, {1, 0, 0, 1});
  Focus(1, {0}).Input("X", {0, 1, 1, 2}, {}).Expect("Out", {0, 1, 1, 2}, {});
}

TEST(SimilarityFocus, Constraints) {
  Focus(1, {0}).RandomInput("X", {1, 1, 1}).ExpectError("similarity_focus.C1");
  Focus(1, {1}).RandomInput("X", {1, 1, 1, 1}).ExpectError("similarity_focus.C2");
  Focus(4, {0}).RandomInput("X", {1, 1, 1, 1}).ExpectError("lie in [1, 3]");
  Focus(1, {}).RandomInput("X", {1, 1, 1, 1}).ExpectError("similarity_focus.C2");
}
}  // namespace coracle::similarity_focus_test
