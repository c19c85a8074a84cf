#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::sum_test {

TEST(Sum, Values) {
  OpTest("sum")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("X", {2, 2}, {10, 20, 30, 40})
      .Input("X", {2, 2}, {0.5, 0, -1, 0})
      .Expect("Out", {2, 2}, {11.5, 22, 32, 44})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("sum").Input("X", {2}, {1, 2}).Expect("Out", {2}, {1, 2}).CheckGradient({"X"});
}

TEST(Sum, Integers) {
  OpTest("sum")
      .IntInput("X", {2}, {1, INT64_MAX})
      .IntInput("X", {2}, {5, 0})
      .Expect("Out", {2}, {6, 9223372036854775807.0});
}

TEST(Sum, EdgeShapesAndInPlace) {
  OpTest("sum").Input("X", {}, {1}).Input("X", {}, {2}).Expect("Out", {}, {3});
  OpTest("sum").Input("X", {0}, {}).Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("sum")
      .InPlace("X", "Out")
      .Input("X", {2}, {1, 2})
      .Input("X", {2}, {5, 6})
      .Expect("Out", {2}, {6, 8});
}

TEST(Sum, FastAgainstReference) {
  for (int64_t n : {1, 15, 33, 2048, 5000, 70001}) {
    for (int count = 1; count <= 4; ++count) {
      OpTest test("sum");
      for (int i = 0; i < count; ++i) test.RandomInput("X", {n});
      test.CheckFast(1e-6);
    }
  }
}

TEST(Sum, C1_Shapes) {
  OpTest("sum").RandomInput("X", {2}).RandomInput("X", {3}).ExpectError("sum.C1");
  OpTest("sum").RandomInput("X", {2}).RandomInput("X", {2, 1}).ExpectError("sum.C1");
}
TEST(Sum, C2_DTypes) {
  OpTest("sum").RandomInput("X", {2}).IntInput("X", {2}, {1, 2}).ExpectError("sum.C2");
}

// An element that was not written counts as zero; the sum may be one of its terms.
TEST(Sum, TensorArrays) {
  auto two = [](float a, float b) { return Tensor::Of<float>({2}, {a, b}); };
  for (const char* out : {"out", "a", "b"}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    block.Var("out");
    block.AppendOp("sum", {{"X", {"a", "b"}}}, {{"Out", {out}}});
    TensorArray a(3), b(2);
    a.Set(0, two(1, 2));
    a.Set(2, two(5, 6));
    b.Set(0, two(10, 20));
    b.Set(1, two(30, 40));
    VarValues env = {{"a", a}, {"b", b}};
    Interpret(block, DefaultOps(), env);
    const auto& sum = std::get<TensorArray>(env.at(out));
    ASSERT_EQ(sum.size(), 3u);
    EXPECT_TRUE(BitEqual(sum[0], two(11, 22)));
    EXPECT_TRUE(BitEqual(sum[1], two(30, 40)));
    EXPECT_TRUE(BitEqual(sum[2], two(5, 6)));
  }
  const VarMeta tensor{VarType::kLoDTensor, DType::kFloat32, {2}, 0};
  const VarMeta array{VarType::kLoDTensorArray, DType::kFloat32, {2}, 0};
  ExpectRefused("sum", {{"X", tensor}, {"X", array}}, {}, "sum.C3");
}

}  // namespace coracle::sum_test
