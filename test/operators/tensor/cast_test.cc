#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::cast_test {

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }

OpTest CastTo(DType dtype) {
  OpTest test("cast");
  test.Attr("out_dtype", Number(dtype));
  return test;
}

TEST(Cast, FloatToIntegerTruncatesAndSaturates) {
  CastTo(DType::kInt32)
      .Attr("in_dtype", Number(DType::kFloat32))
      .TensorInput("X", Tensor::Of<float>({6}, {1.9f, -1.9f, 3e9f, -3e9f, 0.f, NAN}))
      .Expect("Out", {6}, {1, -1, 2147483647.0, -2147483648.0, 0, 0})
      .ExpectDType("Out", DType::kInt32);
  CastTo(DType::kUInt8)
      .TensorInput("X", Tensor::Of<float>({3}, {-5.f, 300.f, 7.7f}))
      .Expect("Out", {3}, {0, 255, 7});
}

TEST(Cast, Bool) {
  CastTo(DType::kBool).Input("X", {4}, {0, 1, -0.5, NAN}).Expect("Out", {4}, {0, 1, 1, 1});
  CastTo(DType::kFloat32)
      .TensorInput("X", Tensor::Of<bool>({2}, {true, false}))
      .Expect("Out", {2}, {1, 0});
}

TEST(Cast, EveryPairAgreesWithTensorCast) {
  const DType all[] = {DType::kBool,    DType::kInt8,   DType::kUInt8,   DType::kInt16,
                       DType::kInt32,   DType::kInt64,  DType::kFloat16, DType::kBFloat16,
                       DType::kFloat32, DType::kFloat64};
  const Tensor values = Tensor::Of<double>({5}, {0, 1, -3.5, 100.25, 77});
  for (DType from : all) {
    for (DType to : all) {
      const Tensor in = values.Cast(from);
      Tensor out = CastTo(to).TensorInput("X", in).Output("Out");
      EXPECT_TRUE(BitEqual(in.Cast(to), out)) << ToString(from) << " to " << ToString(to);
    }
  }
}

TEST(Cast, GradientReturnsToTheType) {
  CastTo(DType::kFloat64).Input("X", {2, 2}, {1, 2, 3, 4}).CheckGradient({"X"});
  CastTo(DType::kFloat64).Input("X", {}, {1}).Expect("Out", {}, {1});
  CastTo(DType::kFloat64).Input("X", {0}, {}).Expect("Out", {0}, {});
}

TEST(Cast, C1_NoSuchType) {
  OpTest("cast").Attr("out_dtype", 7).Input("X", {1}, {1}).ExpectError("cast.C1");
  OpTest("cast").Attr("out_dtype", -1).Input("X", {1}, {1}).ExpectError("cast.C1");
}

}  // namespace coracle::cast_test
