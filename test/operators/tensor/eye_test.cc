#include <coracle/test/op_test.h>

namespace coracle::eye_test {

OpTest Eye(int64_t rows, int64_t columns) {
  OpTest test("eye");
  test.Attr("num_rows", rows).Attr("num_columns", columns);
  return test;
}

TEST(Eye, Values) {
  OpTest("eye").Attr("num_rows", int64_t{2}).Expect("Out", {2, 2}, {1, 0, 0, 1});
  Eye(2, 3).Expect("Out", {2, 3}, {1, 0, 0, 0, 1, 0}).ExpectDType("Out", DType::kFloat32);
  Eye(3, 1).Expect("Out", {3, 1}, {1, 0, 0});
  Eye(0, 2).Expect("Out", {0, 2}, {});
  for (DType dtype :
       {DType::kInt32, DType::kInt64, DType::kFloat64, DType::kFloat16, DType::kBool}) {
    Eye(1, 2)
        .Attr("dtype", static_cast<int32_t>(dtype))
        .Expect("Out", {1, 2}, {1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(Eye, Constraints) {
  Eye(1, 1).Attr("dtype", 7).ExpectError("eye.C1");
  Eye(-1, 1).ExpectError("eye.C2");
  Eye(1, -2).ExpectError("eye.C2");
}
}  // namespace coracle::eye_test
