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

TEST(Cast, StringsAndBack) {
  using Texts = std::vector<std::string>;
  const auto text_of = [](const Tensor& x) {
    return OpTest("cast")
        .TensorInput("X", x)
        .Attr("out_dtype", static_cast<int32_t>(DType::kString))
        .Output("Out")
        .Strings();
  };
  EXPECT_EQ(
      text_of(Tensor::Of<double>({6}, {0.1, -1e22, 123456789012345680, 1e16, 0.0001, 5e-324})),
      (Texts{"0.1", "-1e+22", "1.2345678901234568e+17", "1e+16", "0.0001", "5e-324"}));
  EXPECT_EQ(text_of(Tensor::Of<float>({4}, {16777216, -0.0f, 3.4028235e38f, 100})),
            (Texts{"16777216.0", "-0.0", "3.4028235e+38", "100.0"}));
  EXPECT_EQ(text_of(Tensor::Of<float16>({3}, {float16(0.1f), float16(65504.0f), float16(6e-8f)})),
            (Texts{"0.1", "65500.0", "6e-08"}));
  EXPECT_EQ(text_of(Tensor::Of<uint64_t>({1}, {UINT64_MAX})), (Texts{"18446744073709551615"}));
  EXPECT_EQ(text_of(Tensor::Of<bool>({2}, {true, false})), (Texts{"1", "0"}));
  const Tensor words = Tensor::OfStrings({5}, Texts{"300", "-300", "1.9", "-inf", " nan "});
  OpTest("cast")
      .TensorInput("X", words)
      .Attr("out_dtype", static_cast<int32_t>(DType::kInt8))
      .Expect("Out", {5}, {127, -128, 1, -128, 0});
  // Out of range: the place of the first digit decides, not how the text begins.
  const std::string nines(400, '9'), zeros(400, '0');
  OpTest("cast")
      .TensorInput(
          "X", Tensor::OfStrings({6}, Texts{"0" + nines, "0." + zeros + "1e+5", "1e999", "-1e-999",
                                            "." + zeros + "1e800", nines + "e-800"}))
      .Attr("out_dtype", static_cast<int32_t>(DType::kFloat64))
      .Expect("Out", {6}, {HUGE_VAL, 0, HUGE_VAL, -0.0, HUGE_VAL, 0});
  OpTest("cast")
      .TensorInput("X", Tensor::OfStrings({1}, Texts{"1e"}))
      .Attr("out_dtype", static_cast<int32_t>(DType::kFloat32))
      .ExpectError("cast: the text '1e' spells no number");
  OpTest("cast")
      .TensorInput("X", words)
      .Attr("out_dtype", static_cast<int32_t>(DType::kComplex64))
      .ExpectError("complex64 elements are not supported here");
}

TEST(Cast, UInt64) {
  const auto cast = [](const Tensor& x, DType dtype) {
    return OpTest("cast")
        .TensorInput("X", x)
        .Attr("out_dtype", static_cast<int32_t>(dtype))
        .Output("Out");
  };
  const Tensor big = Tensor::Of<uint64_t>({3}, {UINT64_MAX, uint64_t{1} << 63, 3});
  EXPECT_TRUE(BitEqual(cast(big, DType::kFloat64), Tensor::Of<double>({3}, {0x1p64, 0x1p63, 3})));
  EXPECT_TRUE(BitEqual(cast(big, DType::kInt64), Tensor::Of<int64_t>({3}, {-1, INT64_MIN, 3})));
  EXPECT_TRUE(BitEqual(cast(big, DType::kBool), Tensor::Of<bool>({3}, {true, true, true})));
  EXPECT_TRUE(BitEqual(cast(Tensor::Of<float>({4}, {-1, 0x1p63f, INFINITY, NAN}), DType::kUInt64),
                       Tensor::Of<uint64_t>({4}, {0, uint64_t{1} << 63, UINT64_MAX, 0})));
  EXPECT_TRUE(BitEqual(cast(Tensor::Of<int8_t>({1}, {-1}), DType::kUInt64),
                       Tensor::Of<uint64_t>({1}, {UINT64_MAX})));
}

}  // namespace coracle::cast_test
