#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>

namespace coracle::assign_test {

TEST(Assign, Values) {
  OpTest("assign")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {1, 2, 3, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("assign").Input("X", {}, {5}).Expect("Out", {}, {5});
  OpTest("assign").Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
  OpTest("assign").InPlace("X", "Out").Input("X", {2}, {5, 6}).Expect("Out", {2}, {5, 6});
}

TEST(Assign, EveryDType) {
  for (DType dtype : {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32,
                      DType::kInt64, DType::kFloat16, DType::kBFloat16}) {
    OpTest("assign")
        .IntInput("X", {3}, {1, 0, 1}, dtype)
        .Expect("Out", {3}, {1, 0, 1})
        .ExpectDType("Out", dtype);
  }
}

TEST(Assign, SelectedRowsOfStringsAreRefused) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetMeta({VarType::kSelectedRows, DType::kString, {2, 1}, 0});
  block.Var("y");
  block.AppendOp("assign", {{"X", {"x"}}}, {{"Out", {"y"}}});
  EXPECT_NE(ErrorOf([&] {
              InferOp(block, block.op(0), DefaultOps());
            }).find("assign: the op takes no selected rows of strings, and input X is 'x'"),
            std::string::npos);
}

TEST(Assign, TensorArray) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("a").SetType(VarType::kLoDTensorArray);
  block.Var("b");
  const OpDesc& op = block.AppendOp("assign", {{"X", {"a"}}}, {{"Out", {"b"}}});
  InferOp(block, op, DefaultOps());
  EXPECT_EQ(VarType::kLoDTensorArray, block.FindVarRecursive("b")->type());
  VarValues env;
  env["a"] = TensorArray{Tensor::Of<float>({2}, {1, 2})};
  InterpretOp(op, DefaultOps(), env);
  const auto& copy = std::get<TensorArray>(env.at("b"));
  ASSERT_EQ(1u, copy.size());
  EXPECT_TRUE(BitEqual(Tensor::Of<float>({2}, {1, 2}), copy[0]));
  EXPECT_NE(copy[0].raw(), std::get<TensorArray>(env.at("a"))[0].raw());
}

TEST(ShareData, Values) {
  OpTest("share_data")
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2}, {1, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("share_data").InPlace("X", "Out").IntInput("X", {1}, {3}).Expect("Out", {1}, {3});
  OpTest("share_data").RowsInput("X", {4, 1}, {2, 0}, {5, 6}).ExpectRows("Out", 4, {2, 0}, {5, 6});
}

TEST(Memcpy, Values) {
  OpTest("memcpy")
      .Attr("dst_place_type", 1)
      .Input("X", {3, 1}, {1, 2, 3})
      .Lod({{0, 1, 3}})
      .Expect("Out", {3, 1}, {1, 2, 3})
      .ExpectLod("Out", {{0, 1, 3}})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("memcpy").Attr("dst_place_type", 0).IntInput("X", {0}, {}).Expect("Out", {0}, {});
}

TEST(AssignValue, Values) {
  OpTest("assign_value")
      .Attr("shape", std::vector<int32_t>{1, 3})
      .Attr("dtype", static_cast<int32_t>(DType::kFloat32))
      .Attr("fp32_values", std::vector<float>{1, 2.5, -3})
      .Expect("Out", {1, 3}, {1, 2.5, -3});
  OpTest("assign_value")
      .Attr("shape", std::vector<int32_t>{2})
      .Attr("dtype", static_cast<int32_t>(DType::kBool))
      .Attr("bool_values", std::vector<int32_t>{1, 0})
      .Expect("Out", {2}, {1, 0})
      .ExpectDType("Out", DType::kBool);
  OpTest("assign_value")
      .Attr("shape", std::vector<int32_t>{1})
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Attr("int64_values", std::vector<int64_t>{-5})
      .Expect("Out", {1}, {-5})
      .ExpectDType("Out", DType::kInt64);
}

// Programs since Paddle 2.5 have one attr for all types.
TEST(AssignValue, Scalars) {
  const auto op = [](DType dtype, std::vector<Scalar> values) {
    OpTest test("assign_value");
    test.Attr("shape", std::vector<int32_t>{static_cast<int32_t>(values.size())})
        .Attr("dtype", static_cast<int32_t>(dtype))
        .Attr("values", std::move(values));
    return test;
  };
  op(DType::kFloat32, {Scalar{1.5}, Scalar{-2.0}}).Expect("Out", {2}, {1.5, -2});
  op(DType::kInt64, {Scalar{int64_t{1} << 60}, Scalar{int64_t{-3}}})
      .Expect("Out", {2}, {1152921504606846976.0, -3})
      .ExpectDType("Out", DType::kInt64);
  op(DType::kBool, {Scalar{true}, Scalar{false}})
      .Expect("Out", {2}, {1, 0})
      .ExpectDType("Out", DType::kBool);
}

TEST(AssignValue, Constraints) {
  auto op = [](std::vector<int32_t> shape, DType dtype) {
    OpTest test("assign_value");
    test.Attr("shape", std::move(shape)).Attr("dtype", static_cast<int32_t>(dtype));
    test.Attr("fp32_values", std::vector<float>{1, 2});
    return test;
  };
  op({-1, 2}, DType::kFloat32).ExpectError("assign_value.C1");
  op({2}, DType::kFloat16).ExpectError("assign_value.C2");
  op({3}, DType::kFloat32).ExpectError("assign_value.C3");
}

TEST(AssignValue, Strings) {
  using Texts = std::vector<std::string>;
  OpTest op("assign_value");
  op.Attr("dtype", static_cast<int32_t>(DType::kString))
      .Attr("shape", std::vector<int32_t>{2, 1})
      .Attr("string_values", Texts{"a", ""});
  EXPECT_EQ(op.Output("Out").Strings(), (Texts{"a", ""}));
}

}  // namespace coracle::assign_test
