#include <coracle/test/op_test.h>

namespace coracle::sequence_softmax_test {

TEST(SequenceSoftmax, Values) {
  const double e = std::exp(1);
  OpTest("sequence_softmax")
      .Input("X", {4, 1}, {1000, 1001, 3, 3})
      .Lod({{0, 2, 2, 4}})
      .Expect("Out", {4, 1}, {1 / (1 + e), e / (1 + e), 0.5, 0.5})
      .ExpectLod("Out", {{0, 2, 2, 4}});
  OpTest("sequence_softmax").RandomInput("X", {6}).Lod({{0, 1, 2}, {0, 2, 6}}).CheckGradient({"X"});
  OpTest("sequence_softmax").Input("X", {0}, {}).Lod({{0, 0}}).Expect("Out", {0}, {});
  OpTest("sequence_softmax")
      .Input("X", {2}, {4, 4})
      .Lod({{0, 2}})
      .InPlace("X", "Out")
      .Expect("Out", {2}, {0.5, 0.5});
}

TEST(SequenceSoftmax, FastKernel) {
  OpTest("sequence_softmax")
      .RandomInput("X", {120}, -30, 30)
      .Lod({{0, 1, 1, 9, 24, 57, 120}})
      .CheckFast(1e-5);
  OpTest("sequence_softmax").RandomInput("X", {0, 1}).Lod({{0, 0}}).CheckFast();
}

TEST(SequenceSoftmax, Constraints) {
  OpTest("sequence_softmax")
      .Input("X", {1, 2}, {1, 2})
      .Lod({{0, 1}})
      .ExpectError("sequence_softmax.C1");
  OpTest("sequence_softmax").Input("X", {2}, {1, 2}).ExpectError("sequence_softmax.C2");
  OpTest("sequence_softmax_grad")
      .Input("X", {2}, {1, 2})
      .Lod({{0, 2}})
      .Input("Out", {2}, {1, 2})
      .Input("Out@GRAD", {1}, {1})
      .ExpectError("sequence_softmax_grad.C3");
}
}  // namespace coracle::sequence_softmax_test
