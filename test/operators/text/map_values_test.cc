#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::map_values_test {

using Texts = std::vector<std::string>;
using Longs = std::vector<int64_t>;
using Doubles = std::vector<double>;

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }

Tensor Letters() { return Tensor::OfStrings({2, 2}, Texts{"a", "z", "c", "b"}); }

TEST(MapValues, StringsToNumbers) {
  OpTest op("map_values");
  op.TensorInput("X", Letters())
      .Attr("out_dtype", Number(DType::kInt64))
      .Attr("keys_strings", Texts{"a", "b", "c"})
      .Attr("values_int64s", Longs{0, 1, INT64_MIN})
      .Attr("default_int64", int64_t{42});
  EXPECT_TRUE(BitEqual(op.Output("Out"), Tensor::Of<int64_t>({2, 2}, {0, 42, INT64_MIN, 1})));
}

TEST(MapValues, NumbersToStrings) {
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    OpTest op("map_values");
    op.TensorInput("X", Tensor::Of<int64_t>({3}, {1, 2, 1}).Cast(dtype))
        .Attr("out_dtype", Number(DType::kString))
        .Attr("keys_int64s", Longs{1, 1})
        .Attr("values_strings", Texts{"first", "last"})
        .Attr("default_string", std::string("\xff"));
    EXPECT_EQ(op.Output("Out").Strings(), (Texts{"last", "\xff", "last"}));
  }
}

// A nan finds a nan, and 0 finds -0; a float32 key is the double that equals it.
TEST(MapValues, Floats) {
  const double nan = std::nan("");
  OpTest op("map_values");
  op.TensorInput("X", Tensor::Of<float>({4}, {-0.0f, std::nanf("1"), 0.1f, INFINITY}))
      .Attr("out_dtype", Number(DType::kFloat32))
      .Attr("keys_float64s", Doubles{0, nan, static_cast<double>(0.1f), 0.1})
      .Attr("values_float64s", Doubles{1, 2, 3, 4})
      .Attr("default_float64", -0.5);
  op.Expect("Out", {4}, {1, 2, 3, -0.5});
}

TEST(MapValues, WithoutDefault) {
  OpTest("map_values")
      .TensorInput("X", Letters())
      .Attr("out_dtype", Number(DType::kInt32))
      .Attr("keys_strings", Texts{"a", "b", "c"})
      .Attr("values_int64s", Longs{0, 1, 2})
      .Attr("has_default", false)
      .ExpectError("X holds 'z', which is none of the keys");
}

TEST(MapValues, C1_Operand) {
  OpTest("map_values")
      .TensorInput("X", Tensor::Of<uint64_t>({1}, {1}))
      .Attr("out_dtype", Number(DType::kInt32))
      .ExpectError("map_values.C1");
}
TEST(MapValues, C2_Result) {
  for (int32_t dtype : {Number(DType::kComplex64), 99})
    OpTest("map_values").Input("X", {1}, {1}).Attr("out_dtype", dtype).ExpectError("map_values.C2");
}
TEST(MapValues, C3_Keys) {
  OpTest("map_values")
      .TensorInput("X", Letters())
      .Attr("out_dtype", Number(DType::kInt32))
      .Attr("keys_int64s", Longs{1})
      .ExpectError("map_values.C3");
}
TEST(MapValues, C4_Values) {
  OpTest("map_values")
      .TensorInput("X", Letters())
      .Attr("out_dtype", Number(DType::kInt32))
      .Attr("keys_strings", Texts{"a"})
      .Attr("values_int64s", Longs{1, 2})
      .ExpectError("map_values.C4");
}

}  // namespace coracle::map_values_test
