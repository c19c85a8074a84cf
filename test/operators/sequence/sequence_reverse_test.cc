#include <coracle/test/op_test.h>

namespace coracle::sequence_reverse_test {

TEST(SequenceReverse, Values) {
  OpTest("sequence_reverse")
      .Input("X", {5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
      .Lod({{0, 3, 3, 5}})
      .Expect("Y", {5, 2}, {5, 6, 3, 4, 1, 2, 9, 10, 7, 8})
      .ExpectLod("Y", {{0, 3, 3, 5}})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("sequence_reverse")
      .IntInput("X", {2}, {1, 2}, DType::kUInt8)
      .Lod({{0, 2}})
      .Expect("Y", {2}, {2, 1});
  OpTest("sequence_reverse").Input("X", {0}, {}).Lod({{0}}).Expect("Y", {0}, {});
}

TEST(SequenceReverse, Constraints) {
  OpTest("sequence_reverse").Input("X", {}, {1}).ExpectError("sequence_reverse.C1");
  OpTest("sequence_reverse").Input("X", {1}, {1}).ExpectError("sequence_reverse.C2");
  OpTest("sequence_reverse")
      .Input("X", {1}, {1})
      .Lod({{0, 1}, {0, 1}})
      .ExpectError("sequence_reverse.C2");
}
}  // namespace coracle::sequence_reverse_test
