#include <coracle/test/op_test.h>

namespace coracle::sequence_pad_test {

OpTest Pad(int32_t length) {
  return std::move(OpTest("sequence_pad")
                       .Attr("padded_length", length)
                       .Input("X", {3, 2}, {1, 2, 3, 4, 5, 6})
                       .Lod({{0, 2, 2, 3}}));
}

TEST(SequencePad, Values) {
  Pad(-1)
      .Input("PadValue", {1}, {9})
      .Expect("Out", {3, 2, 2}, {1, 2, 3, 4, 9, 9, 9, 9, 5, 6, 9, 9})
      .ExpectLod("Out", {})
      .Expect("Length", {3}, {2, 0, 1})
      .ExpectDType("Length", DType::kInt64)
      .CheckGradient({"X"});
  Pad(3)
      .Input("PadValue", {2}, {8, 9})
      .Expect("Out", {3, 3, 2}, {1, 2, 3, 4, 8, 9, 8, 9, 8, 9, 8, 9, 5, 6, 8, 9, 8, 9})
      .CheckGradient({"X"});
  OpTest("sequence_pad")
      .IntInput("X", {0}, {})
      .Lod({{0, 0}})
      .IntInput("PadValue", {1}, {7})
      .Attr("padded_length", 2)
      .Expect("Out", {1, 2}, {7, 7})
      .Expect("Length", {1}, {0});
}

// The tensor's length counts, not the attr's.
TEST(SequencePad, LengthOfATensor) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    Pad(1)
        .Input("PadValue", {1}, {9})
        .IntInput("PaddedLengthTensor", {1}, {3}, dtype)
        .Expect("Out", {3, 3, 2}, {1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9, 9, 5, 6, 9, 9, 9, 9})
        .Expect("Length", {3}, {2, 0, 1})
        .CheckGradient({"X"});
  }
  Pad(-1)
      .Input("PadValue", {1}, {9})
      .IntInput("PaddedLengthTensor", {1}, {1})
      .ExpectError("sequence_pad.C4");
  Pad(-1)
      .Input("PadValue", {1}, {9})
      .IntInput("PaddedLengthTensor", {1}, {-7})
      .ExpectError("sequence_pad.C4");
  Pad(-1)
      .Input("PadValue", {1}, {9})
      .IntInput("PaddedLengthTensor", {2}, {3, 3})
      .ExpectError("sequence_pad.C5");
  Pad(-1)
      .Input("PadValue", {1}, {9})
      .Input("PaddedLengthTensor", {1}, {3})
      .ExpectError("sequence_pad.C5");
}

TEST(SequencePad, Constraints) {
  OpTest("sequence_pad")
      .Input("X", {}, {1})
      .Input("PadValue", {1}, {0})
      .ExpectError("sequence_pad.C1");
  OpTest("sequence_pad")
      .Input("X", {1}, {1})
      .Input("PadValue", {1}, {0})
      .ExpectError("sequence_pad.C2");
  Pad(-1).Input("PadValue", {3}, {1, 2, 3}).ExpectError("sequence_pad.C3");
  Pad(-2).Input("PadValue", {1}, {0}).ExpectError("sequence_pad.C4");
  Pad(1).Input("PadValue", {1}, {0}).ExpectError("sequence_pad.C4");
  for (int64_t rank : {2, 3}) {
    OpTest("sequence_pad_grad")
        .Input("X", {2, 1}, {1, 2})
        .Lod({{0, 2}})
        .RandomInput("Out@GRAD", rank == 2 ? Shape{1, 2} : Shape{1, 1, 1})
        .ExpectError("sequence_pad_grad.C5");
  }
}

TEST(SequenceUnpad, Values) {
  for (const Shape& shape : {Shape{3}, Shape{3, 1}}) {
    OpTest("sequence_unpad")
        .Input("X", {3, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
        .IntInput("Length", shape, {2, 0, 1})
        .Expect("Out", {3, 2}, {1, 2, 3, 4, 9, 10})
        .ExpectLod("Out", {{0, 2, 2, 3}})
        .CheckGradient({"X"});
  }
  OpTest("sequence_unpad")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .IntInput("Length", {2}, {1, 2}, DType::kInt32)
      .Expect("Out", {3, 1}, {1, 3, 4})
      .CheckGradient({"X"});
}

// As programs have it whose forward op kept the lengths in the LoD.
TEST(SequenceUnpad, GradientWithoutLength) {
  const auto with = [](int64_t sequences, const LoD& lod) {
    return std::move(OpTest("sequence_unpad_grad")
                         .RandomInput("X", {sequences, 2, 1})
                         .Input("Out@GRAD", {3, 1}, {1, 2, 3})
                         .Lod(lod));
  };
  with(3, {{0, 2, 2, 3}}).Expect("X@GRAD", {3, 2, 1}, {1, 2, 0, 0, 3, 0});
  with(2, {{0, 3, 3}}).ExpectError("sequence_unpad_grad.C3");
  with(2, {{0, 1, 2, 3}}).ExpectError("sequence_unpad_grad.C3");
  with(3, {}).ExpectError("sequence_unpad_grad.C5");
  with(3, {{0, 1, 3}, {0, 2, 2, 3}}).ExpectError("sequence_unpad_grad.C5");
}

TEST(SequenceUnpad, Constraints) {
  const auto with = [](const Shape& x, const std::vector<int64_t>& length) {
    return std::move(OpTest("sequence_unpad")
                         .RandomInput("X", x)
                         .IntInput("Length", {static_cast<int64_t>(length.size())}, length));
  };
  with({2}, {1, 1}).ExpectError("sequence_unpad.C1");
  with({2, 2}, {1}).ExpectError("sequence_unpad.C2");
  with({1, 2}, {3}).ExpectError("sequence_unpad.C3");
  with({1, 2}, {-1}).ExpectError("sequence_unpad.C3");
  for (int64_t rows : {1, 3}) {
    OpTest("sequence_unpad_grad")
        .RandomInput("X", {1, 2})
        .IntInput("Length", {1}, {2})
        .RandomInput("Out@GRAD", {rows, 1})
        .ExpectError("sequence_unpad_grad.C4");
  }
}
}  // namespace coracle::sequence_pad_test
