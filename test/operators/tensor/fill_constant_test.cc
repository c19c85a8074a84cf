#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::fill_constant_test {

int32_t Number(DType dtype) { return static_cast<int32_t>(dtype); }
std::vector<int64_t> Dims(std::initializer_list<int64_t> dims) { return dims; }

TEST(FillConstant, Values) {
  OpTest("fill_constant")
      .Attr("shape", Dims({2, 2}))
      .Attr("value", 1.5f)
      .Expect("Out", {2, 2}, {1.5, 1.5, 1.5, 1.5})
      .ExpectDType("Out", DType::kFloat32);
  OpTest("fill_constant").Attr("value", 2.f).Expect("Out", {}, {2});
  OpTest("fill_constant").Attr("shape", Dims({0, 3})).Expect("Out", {0, 3}, {});
}

TEST(FillConstant, EveryDType) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32,
                      DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat64}) {
    SCOPED_TRACE(ToString(dtype));
    const double expected = dtype == DType::kBool ? 1 : 3;
    OpTest("fill_constant")
        .Attr("shape", Dims({3}))
        .Attr("dtype", Number(dtype))
        .Attr("value", 3.f)
        .Expect("Out", {3}, {expected, expected, expected})
        .ExpectDType("Out", dtype);
  }
}

TEST(FillConstant, TextWins) {
  Tensor big = OpTest("fill_constant")
                   .Attr("shape", Dims({1}))
                   .Attr("dtype", Number(DType::kInt64))
                   .Attr("value", 1.f)
                   .Attr("str_value", std::string("9007199254740993"))
                   .Output("Out");
  EXPECT_EQ(9007199254740993, big.Item<int64_t>());
  const double inf = std::numeric_limits<double>::infinity();
  OpTest("fill_constant")
      .Attr("shape", Dims({1}))
      .Attr("str_value", std::string("-inf"))
      .Expect("Out", {1}, {-inf});
  OpTest("fill_constant")
      .Attr("shape", Dims({1}))
      .Attr("str_value", std::string("nan"))
      .Expect("Out", {1}, {std::nan("")});
}

// As with cast, and with a text as with a number.
TEST(FillConstant, NegativeNumbersWrapInUInt64) {
  const auto filled = [](OpTest test) {
    return test.Attr("shape", Dims({1}))
        .Attr("dtype", Number(DType::kUInt64))
        .Output("Out")
        .Item<uint64_t>();
  };
  EXPECT_EQ(filled(OpTest("fill_constant").Attr("value", -1.f)), UINT64_MAX);
  EXPECT_EQ(filled(OpTest("fill_constant").Attr("str_value", std::string("-1"))), UINT64_MAX);
  EXPECT_EQ(filled(OpTest("fill_constant").Attr("str_value", std::string("-2.0"))), UINT64_MAX - 1);
  EXPECT_EQ(filled(OpTest("fill_constant").Attr("value", 3.f)), 3U);
}

TEST(FillConstant, TensorsWinOverAttrs) {
  OpTest("fill_constant")
      .Attr("shape", Dims({7}))
      .Attr("value", 1.f)
      .TensorInput("ValueTensor", Tensor::Of<float>({1}, {4}))
      .IntInput("ShapeTensor", {2}, {1, 2}, DType::kInt32)
      .Expect("Out", {1, 2}, {4, 4});
  OpTest("fill_constant")
      .Attr("value", 1.f)
      .IntInput("ShapeTensor", {1}, {9})
      .IntInput("ShapeTensorList", {1}, {2})
      .IntInput("ShapeTensorList", {1}, {1}, DType::kInt32)
      .Expect("Out", {2, 1}, {1, 1});
}

TEST(FillConstant, UnknownShapeAtBuildTime) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("s").SetShape({3});
  block.Var("s").SetDType(DType::kInt64);
  block.Var("out");
  InferOp(block, block.AppendOp("fill_constant", {{"ShapeTensor", {"s"}}}, {{"Out", {"out"}}}),
          DefaultOps());
  EXPECT_EQ("[-1, -1, -1]", block.FindVarRecursive("out")->shape().ToString());
}

TEST(FillConstant, C1_NegativeDimension) {
  OpTest("fill_constant").IntInput("ShapeTensor", {1}, {-1}).ExpectError("fill_constant.C1");
}
TEST(FillConstant, ShapeTensorsHoldIntegers) {
  OpTest("fill_constant")
      .Input("ShapeTensor", {1}, {2})
      .ExpectError("ShapeTensor must be int32 or int64, got float");
  OpTest("fill_constant")
      .IntInput("ShapeTensorList", {2}, {1, 2})
      .ExpectError("ShapeTensorList must be int32 or int64 of one element, got int64[2]");
}
TEST(FillConstant, C2_RankTooHigh) {
  OpTest("fill_constant")
      .Attr("shape", std::vector<int64_t>(10, 1))
      .ExpectError("fill_constant.C2");
}
TEST(FillConstant, C3_UnknownDType) {
  OpTest("fill_constant").Attr("dtype", 99).ExpectError("fill_constant.C3");
}
TEST(FillConstant, C4_TextIsNoNumber) {
  OpTest("fill_constant").Attr("str_value", std::string("one")).ExpectError("fill_constant.C4");
}
TEST(FillConstant, C5_ValueTensor) {
  OpTest("fill_constant").IntInput("ValueTensor", {1}, {1}).ExpectError("fill_constant.C5");
  OpTest("fill_constant").Input("ValueTensor", {2}, {1, 2}).ExpectError("fill_constant.C5");
}

TEST(FillConstantBatchSizeLike, Values) {
  OpTest("fill_constant_batch_size_like")
      .Attr("shape", std::vector<int32_t>{-1, 2})
      .Attr("value", 3.f)
      .Attr("dtype", Number(DType::kInt64))
      .Attr("input_dim_idx", 1)
      .Input("Input", {5, 3}, std::vector<double>(15))
      .Expect("Out", {3, 2}, {3, 3, 3, 3, 3, 3})
      .ExpectDType("Out", DType::kInt64);
}
TEST(FillConstantBatchSizeLike, Sequences) {
  OpTest("fill_constant_batch_size_like")
      .Attr("shape", std::vector<int32_t>{2, -1})
      .Attr("output_dim_idx", 1)
      .Attr("value", 3.f)
      .Input("Input", {5, 1}, std::vector<double>(5))
      .Lod({{0, 1, 3}, {0, 2, 2, 5}})
      .Expect("Out", {2, 3}, {3, 3, 3, 3, 3, 3});
}
TEST(FillConstantBatchSizeLike, Constraints) {
  auto op = [](std::vector<int32_t> shape, int in, int out) {
    OpTest test("fill_constant_batch_size_like");
    test.Attr("shape", std::move(shape)).Attr("input_dim_idx", in).Attr("output_dim_idx", out);
    test.Input("Input", {2, 2}, {1, 2, 3, 4});
    return test;
  };
  op({-1, -2}, 0, 0).ExpectError("fill_constant_batch_size_like.C1");
  op({-1, 2}, 2, 0).ExpectError("fill_constant_batch_size_like.C2");
  op({-1, 2}, 0, 2).ExpectError("fill_constant_batch_size_like.C3");
  op({-1, 2}, 0, 0).Attr("dtype", 9).ExpectError("fill_constant_batch_size_like.C4");
  op({-1, 2}, 0, 0)
      .Attr("str_value", std::string("x"))
      .ExpectError("fill_constant_batch_size_like.C5");
}

TEST(FillAnyLike, Values) {
  OpTest("fill_any_like").Attr("value", 2.f).Input("X", {2}, {7, 8}).Expect("Out", {2}, {2, 2});
  OpTest("fill_any_like")
      .Attr("value", 2.f)
      .Attr("dtype", Number(DType::kInt32))
      .Input("X", {2}, {7, 8})
      .Expect("Out", {2}, {2, 2})
      .ExpectDType("Out", DType::kInt32);
}
TEST(FillAnyLike, C1_UnknownDType) {
  OpTest("fill_any_like").Attr("dtype", 77).Input("X", {1}, {1}).ExpectError("fill_any_like.C1");
}

TEST(FillConstant, AllBitsOfUInt64) {
  OpTest op("fill_constant");
  op.Attr("dtype", static_cast<int32_t>(DType::kUInt64))
      .Attr("shape", std::vector<int64_t>{2})
      .Attr("str_value", std::string("18446744073709551615"));
  EXPECT_TRUE(BitEqual(op.Output("Out"), Tensor::Of<uint64_t>({2}, {UINT64_MAX, UINT64_MAX})));
}

}  // namespace coracle::fill_constant_test
