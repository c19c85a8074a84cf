#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::flip_test {

using Ints = std::vector<int32_t>;
using Longs = std::vector<int64_t>;

TEST(Flip, Values) {
  for (const char* type : {"flip", "reverse"}) {
    OpTest(type)
        .Attr("axis", Ints{-1})
        .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
        .Expect("Out", {2, 3}, {3, 2, 1, 6, 5, 4})
        .CheckGradient({"X"})
        .CheckHigherGradients();
    OpTest(type)
        .Attr("axis", Ints{0, 1})
        .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
        .Expect("Out", {2, 3}, {6, 5, 4, 3, 2, 1})
        .CheckGradient({"X"});
    OpTest(type)
        .Attr("axis", Ints{0})
        .IntInput("X", {2, 2}, {1, 0, 1, 1}, DType::kBool)
        .Expect("Out", {2, 2}, {1, 1, 1, 0});
    OpTest(type).Attr("axis", Ints{0}).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
    OpTest(type).Attr("axis", Ints{1}).Input("X", {2, 1}, {1, 2}).Expect("Out", {2, 1}, {1, 2});
  }
}

TEST(Flip, AttrOfOldFiles) {
  OpTest("flip").Attr("dims", Ints{0}).Input("X", {2}, {1, 2}).Expect("Out", {2}, {2, 1});
}

TEST(Flip, Constraints) {
  OpTest("flip").Attr("axis", Ints{1}).Input("X", {1}, {1}).ExpectError("flip.C1");
  OpTest("flip").Attr("axis", Ints{0, -1}).Input("X", {1}, {1}).ExpectError("flip.C1");
  OpTest("reverse").Attr("axis", Ints{1}).Input("X", {1}, {1}).ExpectError("reverse.C1");
}

// A program with a tensor array, which OpTest does not make.
VarValues ReverseArray(const Ints& axis) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetMeta({VarType::kLoDTensorArray, DType::kFloat32, {-1}, 0});
  const OpDesc& op = block.AppendOp("reverse", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"axis", axis}});
  VarValues env;
  TensorArray array(3);
  array.Set(0, Tensor::Of<float>({1}, {1}));
  array.Set(2, Tensor::Of<float>({2}, {2, 3}));
  env["x"] = array;
  InterpretOp(op, DefaultOps(), env);
  return env;
}

TEST(Reverse, TensorArray) {
  const VarValues env = ReverseArray({0});
  const auto& out = std::get<TensorArray>(env.at("y"));
  ASSERT_EQ(out.size(), 3u);
  EXPECT_TRUE(BitEqual(out[0], Tensor::Of<float>({2}, {2, 3})));
  EXPECT_FALSE(out.IsWritten(1));
  EXPECT_TRUE(BitEqual(out[2], Tensor::Of<float>({1}, {1})));
  EXPECT_TRUE(BitEqual(std::get<TensorArray>(env.at("x"))[0], Tensor::Of<float>({1}, {1})));
}

TEST(Reverse, C2_AxisOfATensorArray) {
  try {
    ReverseArray({1});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    ExpectConstraint(e.message(), "reverse.C2");
  }
}

TEST(Roll, Values) {
  OpTest("roll")
      .Attr("shifts", Longs{1})
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {2, 3}, {6, 1, 2, 3, 4, 5})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("roll")
      .Attr("shifts", Longs{1, -1})
      .Attr("axis", Longs{0, 1})
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {2, 3}, {5, 6, 4, 2, 3, 1})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  // Shifts of one axis add up, and wrap around it.
  OpTest("roll")
      .Attr("shifts", Longs{-4, 9})
      .Attr("dims", Longs{-1, 1})
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {2, 3}, {2, 3, 1, 5, 6, 4});
  OpTest("roll").Attr("shifts", Longs{2}).Input("X", {0}, {}).Expect("Out", {0}, {});
  OpTest("roll").Attr("shifts", Longs{2}).Input("X", {}, {3}).Expect("Out", {}, {3});
}

TEST(Roll, Constraints) {
  OpTest("roll").Input("X", {1}, {1}).ExpectError("roll.C1");
  OpTest("roll")
      .Attr("shifts", Longs{1})
      .Attr("axis", Longs{1})
      .Input("X", {1}, {1})
      .ExpectError("roll.C2");
  OpTest("roll")
      .Attr("shifts", Longs{std::numeric_limits<int64_t>::min()})
      .Input("X", {1}, {1})
      .ExpectError("roll.C3");
}
}  // namespace coracle::flip_test
