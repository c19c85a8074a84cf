#include <coracle/test/op_test.h>

namespace coracle::sequence_slice_test {

OpTest Slice(const std::vector<int64_t>& offset, const std::vector<int64_t>& length) {
  return std::move(OpTest("sequence_slice")
                       .Input("X", {5, 1}, {1, 2, 3, 4, 5})
                       .Lod({{0, 3, 3, 5}})
                       .IntInput("Offset", {static_cast<int64_t>(offset.size()), 1}, offset)
                       .IntInput("Length", {static_cast<int64_t>(length.size()), 1}, length));
}

TEST(SequenceSlice, Values) {
  Slice({1, 0, 0}, {2, 0, 1})
      .Expect("Out", {3, 1}, {2, 3, 4})
      .ExpectLod("Out", {{0, 2, 2, 3}})
      .CheckGradient({"X"});
  Slice({3, 0, 2}, {0, 0, 0}).Expect("Out", {0, 1}, {}).ExpectLod("Out", {{0, 0, 0, 0}});
}

TEST(SequenceSlice, Constraints) {
  const auto with = [](const Shape& x, LoD lod) {
    return std::move(OpTest("sequence_slice")
                         .RandomInput("X", x)
                         .Lod(std::move(lod))
                         .IntInput("Offset", {1}, {0})
                         .IntInput("Length", {1}, {1}));
  };
  with({}, {}).ExpectError("sequence_slice.C1");
  with({1}, {}).ExpectError("sequence_slice.C2");
  Slice({0, 0}, {1, 0}).ExpectError("sequence_slice.C3");
  OpTest("sequence_slice")
      .RandomInput("X", {1})
      .Lod({{0, 1}})
      .IntInput("Offset", {1}, {0}, DType::kUInt8)
      .IntInput("Length", {1}, {1})
      .ExpectError("sequence_slice.C3");
  Slice({0, 0, 0}, {4, 0, 0}).ExpectError("sequence_slice.C4");
  Slice({-1, 0, 0}, {1, 0, 0}).ExpectError("sequence_slice.C4");
  Slice({0, 0, 0}, {1, 1, 0}).ExpectError("sequence_slice.C4");
  for (int64_t rows : {1, 2}) {
    OpTest("sequence_slice_grad")
        .RandomInput("X", {2, rows})
        .Lod({{0, 2}})
        .IntInput("Offset", {1}, {0})
        .IntInput("Length", {1}, {1})
        .RandomInput("Out@GRAD", {2, 1})
        .ExpectError("sequence_slice_grad.C5");
  }
}
}  // namespace coracle::sequence_slice_test
