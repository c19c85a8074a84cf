#include <coracle/test/op_test.h>

namespace coracle::fill_test {

using Ints = std::vector<int32_t>;

OpTest Fill(std::vector<float> values, Ints shape) {
  OpTest test("fill");
  test.Attr("value", std::move(values)).Attr("shape", std::move(shape));
  return test;
}

TEST(Fill, Values) {
  Fill({1, -2.5f, 3, 4}, {2, 2})
      .Expect("Out", {2, 2}, {1, -2.5, 3, 4})
      .ExpectDType("Out", DType::kFloat32);
  Fill({}, {0}).Expect("Out", {0}, {});
  Fill({2}, {}).Expect("Out", {}, {2});
  Fill({1.75f, -3}, {2})
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Expect("Out", {2}, {1, -3})
      .ExpectDType("Out", DType::kInt64);
  Fill({0.5f, 0}, {2}).Attr("dtype", static_cast<int32_t>(DType::kBool)).Expect("Out", {2}, {1, 0});
}

TEST(Fill, Constraints) {
  Fill({1}, {-1}).ExpectError("fill.C1");
  Fill({1}, {2}).ExpectError("fill.C2");
  Fill({1}, {1}).Attr("dtype", 7).ExpectError("fill.C3");
}

TEST(Empty, Shapes) {
  using Longs = std::vector<int64_t>;
  OpTest("empty").Attr("shape", Longs{1, 2}).Expect("Out", {1, 2}, {0, 0});
  OpTest("empty")
      .Attr("shape", Longs{5})
      .Attr("dtype", static_cast<int32_t>(DType::kInt32))
      .IntInput("ShapeTensorList", {1}, {3})
      .IntInput("ShapeTensor", {2}, {2, 1})
      .Expect("Out", {2, 1}, {0, 0})
      .ExpectDType("Out", DType::kInt32);
  OpTest("empty").IntInput("ShapeTensorList", {1}, {3}).Expect("Out", {3}, {0, 0, 0});
  OpTest("empty").Attr("shape", Longs{-1}).ExpectError("empty.C1");
  OpTest("empty").Attr("shape", Longs(10, 1)).ExpectError("empty.C2");
  OpTest("empty").Attr("shape", Longs{1}).Attr("dtype", 7).ExpectError("empty.C3");
}

TEST(FillZerosLike2, Values) {
  OpTest("fill_zeros_like2")
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2}, {0, 0})
      .ExpectDType("Out", DType::kFloat32);
  OpTest("fill_zeros_like2")
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2}, {0, 0})
      .ExpectDType("Out", DType::kInt64);
  OpTest("fill_zeros_like2")
      .Attr("dtype", 7)
      .Input("X", {1}, {1})
      .ExpectError("fill_zeros_like2.C1");
}
}  // namespace coracle::fill_test
