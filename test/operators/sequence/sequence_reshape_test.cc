#include <coracle/test/op_test.h>

namespace coracle::sequence_reshape_test {

OpTest Reshape(int32_t new_dim, const Shape& x, LoD lod) {
  return std::move(
      OpTest("sequence_reshape").Attr("new_dim", new_dim).RandomInput("X", x).Lod(std::move(lod)));
}

TEST(SequenceReshape, Values) {
  OpTest("sequence_reshape")
      .Attr("new_dim", 4)
      .Input("X", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Lod({{0, 2, 2, 4}})
      .Expect("Out", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})
      .ExpectLod("Out", {{0, 1, 1, 2}})
      .CheckGradient({"X"});
  Reshape(1, {2, 3}, {{0, 2}}).ExpectLod("Out", {{0, 6}}).CheckGradient({"X"});
  Reshape(5, {0, 3}, {{0, 0}}).Expect("Out", {0, 5}, {}).ExpectLod("Out", {{0, 0}});
}

TEST(SequenceReshape, Constraints) {
  Reshape(1, {2}, {{0, 2}}).ExpectError("sequence_reshape.C1");
  Reshape(1, {2, 1}, {}).ExpectError("sequence_reshape.C2");
  Reshape(0, {2, 1}, {{0, 2}}).ExpectError("sequence_reshape.C3");
  Reshape(4, {3, 1}, {{0, 3}}).ExpectError("sequence_reshape.C3");
  Reshape(2, {4, 1}, {{0, 1, 4}}).ExpectError("sequence_reshape.C3");
  OpTest("sequence_reshape_grad")
      .Attr("new_dim", 1)
      .RandomInput("X", {1, 2})
      .RandomInput("Out@GRAD", {1, 2})
      .ExpectError("sequence_reshape_grad.C4");
}
}  // namespace coracle::sequence_reshape_test
