#include <coracle/test/op_test.h>

namespace coracle::sequence_concat_test {

TEST(SequenceConcat, Values) {
  OpTest("sequence_concat")
      .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
      .Lod({{0, 2, 2, 3}})
      .Input("X", {2, 2}, {7, 8, 9, 10})
      .Lod({{0, 1, 2, 2}})
      .Expect("Out", {5, 2}, {1, 2, 3, 4, 7, 8, 9, 10, 5, 6})
      .ExpectLod("Out", {{0, 3, 4, 5}})
      .CheckGradient({"X"});
  OpTest("sequence_concat")
      .IntInput("X", {1}, {1})
      .Lod({{0, 1}})
      .IntInput("X", {0}, {})
      .Lod({{0, 0}})
      .Expect("Out", {1}, {1});
}

OpTest With(const Shape& a, LoD of_a, const Shape& b, LoD of_b) {
  return std::move(OpTest("sequence_concat")
                       .RandomInput("X", a)
                       .Lod(std::move(of_a))
                       .RandomInput("X", b)
                       .Lod(std::move(of_b)));
}

TEST(SequenceConcat, Constraints) {
  With({1, 2}, {{0, 1}}, {1, 3}, {{0, 1}}).ExpectError("sequence_concat.C1");
  With({1}, {{0, 1}}, {1}, {}).ExpectError("sequence_concat.C2");
  With({1}, {{0, 1}}, {1}, {{0, 1, 1}}).ExpectError("sequence_concat.C3");
  OpTest("sequence_concat_grad")
      .RandomInput("X", {1})
      .Lod({{0, 1}})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("sequence_concat_grad.C4");
  OpTest("sequence_concat_grad")
      .RandomInput("X", {1})
      .Lod({{0, 1}})
      .RandomInput("Out@GRAD", {1})
      .Outputs("X@GRAD", 2)
      .ExpectError("sequence_concat_grad.C5");
}
}  // namespace coracle::sequence_concat_test
