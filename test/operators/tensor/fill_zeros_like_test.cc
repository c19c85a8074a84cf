#include <coracle/test/op_test.h>

namespace coracle::fill_zeros_like_test {

TEST(FillZerosLike, Values) {
  OpTest("fill_zeros_like").Input("X", {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {0, 0, 0, 0});
  OpTest("fill_zeros_like").Input("X", {}, {1}).Expect("Out", {}, {0});
  OpTest("fill_zeros_like").Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("fill_zeros_like")
      .IntInput("X", {2}, {1, 2})
      .Expect("Out", {2}, {0, 0})
      .ExpectDType("Out", DType::kInt64);
}

TEST(FillZerosLike, TensorArray) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("out");
  block.AppendOp("fill_zeros_like", {{"X", {"a"}}}, {{"Out", {"out"}}});
  VarValues env = {{"a", TensorArray{Tensor::Of<float>({2}, {1, 2})}}};
  Interpret(block, DefaultOps(), env);
  const auto& zeros = std::get<TensorArray>(env.at("out"));
  EXPECT_EQ(zeros.size(), 1u);
  EXPECT_FALSE(zeros.IsWritten(0));
}

}  // namespace coracle::fill_zeros_like_test
