#include <coracle/test/op_test.h>

namespace coracle::sequence_mask_test {

OpTest Mask(DType out, const std::vector<int64_t>& lengths) {
  return std::move(OpTest("sequence_mask")
                       .Attr("out_dtype", static_cast<int32_t>(out))
                       .IntInput("X", {static_cast<int64_t>(lengths.size())}, lengths));
}

TEST(SequenceMask, Values) {
  Mask(DType::kFloat32, {1, 3, 0}).Expect("Y", {3, 3}, {1, 0, 0, 1, 1, 1, 0, 0, 0});
  for (DType dtype : {DType::kInt64, DType::kBool, DType::kFloat16, DType::kUInt8})
    Mask(dtype, {1, 5}).Attr("maxlen", 2).Expect("Y", {2, 2}, {1, 0, 1, 1}).ExpectDType("Y", dtype);
  Mask(DType::kInt32, {2, -1})
      .IntInput("MaxLenTensor", {1}, {3}, DType::kInt32)
      .Expect("Y", {2, 3}, {1, 1, 0, 0, 0, 0});
  Mask(DType::kInt32, {}).Expect("Y", {0, 0}, {});
  OpTest("sequence_mask")
      .Attr("out_dtype", static_cast<int32_t>(DType::kInt32))
      .Input("X", {1, 2}, {0.5, 2})
      .Expect("Y", {1, 2, 2}, {1, 0, 1, 1});
}

TEST(SequenceMask, Constraints) {
  OpTest("sequence_mask")
      .Attr("out_dtype", 99)
      .IntInput("X", {1}, {1})
      .ExpectError("sequence_mask.C1");
  Mask(DType::kInt32, {1}).IntInput("MaxLenTensor", {2}, {1, 2}).ExpectError("sequence_mask.C2");
  OpTest("sequence_mask")
      .Attr("out_dtype", static_cast<int32_t>(DType::kInt32))
      .IntInput("X", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1})
      .ExpectError("sequence_mask.C3");
}
}  // namespace coracle::sequence_mask_test
