#include <coracle/test/op_test.h>

namespace coracle::sequence_erase_test {

TEST(SequenceErase, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("sequence_erase")
        .Attr("tokens", std::vector<int32_t>{2, 5})
        .IntInput("X", {6, 1}, {1, 2, 2, 3, 5, 2}, dtype)
        .Lod({{0, 2, 3}, {0, 2, 5, 6}})
        .Expect("Out", {2, 1}, {1, 3})
        .ExpectLod("Out", {{0, 2, 3}, {0, 1, 2, 2}})
        .ExpectDType("Out", dtype);
  }
  OpTest("sequence_erase")
      .Attr("tokens", std::vector<int32_t>{})
      .IntInput("X", {0, 1}, {})
      .Lod({{0}})
      .Expect("Out", {0, 1}, {})
      .ExpectLod("Out", {{0}});
}

TEST(SequenceErase, Constraints) {
  const auto with = [](const Shape& x, LoD lod) {
    return std::move(OpTest("sequence_erase")
                         .Attr("tokens", std::vector<int32_t>{1})
                         .IntInput("X", x, {1, 2})
                         .Lod(std::move(lod)));
  };
  with({2}, {{0, 2}}).ExpectError("sequence_erase.C1");
  with({2, 1}, {}).ExpectError("sequence_erase.C2");
}
}  // namespace coracle::sequence_erase_test
