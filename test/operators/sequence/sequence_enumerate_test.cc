#include <coracle/test/op_test.h>

namespace coracle::sequence_enumerate_test {

TEST(SequenceEnumerate, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("sequence_enumerate")
        .Attr("win_size", 2)
        .Attr("pad_value", 9)
        .IntInput("X", {4, 1}, {1, 2, 3, 4}, dtype)
        .Lod({{0, 3, 3, 4}})
        .Expect("Out", {4, 2}, {1, 2, 2, 3, 3, 9, 4, 9})
        .ExpectLod("Out", {{0, 3, 3, 4}})
        .ExpectDType("Out", dtype);
  }
  OpTest("sequence_enumerate")
      .Attr("win_size", 3)
      .IntInput("X", {0, 1}, {})
      .Lod({{0, 0}})
      .Expect("Out", {0, 3}, {});
}

TEST(SequenceEnumerate, Constraints) {
  const auto with = [](const Shape& x, LoD lod) {
    return std::move(OpTest("sequence_enumerate")
                         .Attr("win_size", 1)
                         .IntInput("X", x, {1, 2})
                         .Lod(std::move(lod)));
  };
  with({2}, {{0, 2}}).ExpectError("sequence_enumerate.C1");
  with({2, 1}, {}).ExpectError("sequence_enumerate.C2");
}
}  // namespace coracle::sequence_enumerate_test
