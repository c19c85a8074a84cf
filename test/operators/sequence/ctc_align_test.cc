#include <coracle/test/op_test.h>

namespace coracle::ctc_align_test {

using Ints = std::vector<int64_t>;

OpTest Rows(const Ints& x, LoD lod) {
  return std::move(OpTest("ctc_align")
                       .IntInput("Input", {static_cast<int64_t>(x.size()), 1}, x)
                       .Lod(std::move(lod)));
}

TEST(CtcAlign, Values) {
  // 0 1 1 0 2 | (nothing) | 3 3 0 3
  const Ints x = {0, 1, 1, 0, 2, 3, 3, 0, 3};
  Rows(x, {{0, 5, 5, 9}})
      .Expect("Output", {4, 1}, {1, 2, 3, 3})
      .ExpectLod("Output", {{0, 2, 2, 4}})
      .ExpectDType("Output", DType::kInt64);
  Rows(x, {{0, 5, 5, 9}})
      .Attr("merge_repeated", false)
      .Expect("Output", {6, 1}, {1, 1, 2, 3, 3, 3})
      .ExpectLod("Output", {{0, 3, 3, 6}});
  Rows(x, {{0, 5, 5, 9}})
      .Attr("blank", 3)
      .Expect("Output", {5, 1}, {0, 1, 0, 2, 0})
      .ExpectLod("Output", {{0, 4, 4, 5}});
}

TEST(CtcAlign, NothingIsLeft) {
  Rows({0, 0, 0}, {{0, 1, 3}}).Expect("Output", {1, 1}, {-1}).ExpectLod("Output", {{0, 0, 0}});
}

TEST(CtcAlign, Padded) {
  OpTest("ctc_align")
      .Attr("padding_value", 7)
      .IntInput("Input", {3, 4}, {1, 1, 0, 1, 2, 3, 3, 9, 4, 4, 4, 4}, DType::kInt32)
      .IntInput("InputLength", {3}, {4, 3, 0})
      .Expect("Output", {3, 4}, {1, 1, 7, 7, 2, 3, 7, 7, 7, 7, 7, 7})
      .Expect("OutputLength", {3, 1}, {2, 2, 0})
      .ExpectDType("OutputLength", DType::kInt32);
}

TEST(CtcAlign, Constraints) {
  OpTest("ctc_align").IntInput("Input", {1, 2}, {1, 2}).Lod({{0, 1}}).ExpectError("ctc_align.C1");
  Rows({1}, {}).ExpectError("ctc_align.C2");
  OpTest("ctc_align")
      .IntInput("Input", {1, 2}, {1, 2})
      .IntInput("InputLength", {1}, {3})
      .ExpectError("ctc_align.C2");
}
}  // namespace coracle::ctc_align_test
