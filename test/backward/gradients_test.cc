// Gradients(targets, inputs): rows of the TensorFlow and Paddle behaviour that it promises.

#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

namespace coracle::gradients_test {

GradientsOptions Options() {
  GradientsOptions options;
  options.ops = &TestOps();
  return options;
}

// Values of a gradient. All elements of these tests' gradients are equal, so the first one
// represents them.
double First(const VarValues& env, const std::string& name) { return Values(env, name).at(0); }

class GradientsTest : public ::testing::Test {
 protected:
  GradientsTest() : test({1}) { test.Param("x"); }
  // x = 1 everywhere.
  VarValues Run() {
    VarValues env = test.Inputs();
    for (auto& [name, value] : env) value = Tensor::Full<double>({1}, 1.0);
    return test.Run(env);
  }
  std::string Times(double k, const std::string& in, const std::string& out) {
    const std::string constant = out + "_k";
    OpDesc& op = test.root().AppendOp("fill_constant", {}, {{"Out", {constant}}},
                                      {{"shape", std::vector<int64_t>{1}},
                                       {"value", static_cast<float>(k)},
                                       {"dtype", static_cast<int32_t>(DType::kFloat64)}});
    InferOp(test.root(), op, TestOps());
    return test.Op("t_mul", {in, constant}, out);
  }
  TestProgram test;
};

TEST_F(GradientsTest, TotalDerivativeThroughAnotherInput) {  // T4: [6, 3]; T16: [3, 1]
  Times(2, "x", "y");
  Times(3, "y", "z");
  auto grads = Gradients({test.Var("z")}, {test.Var("x"), test.Var("y")}, Options());
  EXPECT_EQ(grads, (std::vector<std::string>{"x@GRAD", "y@GRAD"}));
  test.Op("t_add", {"x", "y"}, "s");
  auto again = Gradients({test.Var("s")}, {test.Var("x"), test.Var("y")}, Options());
  VarValues env = Run();
  EXPECT_EQ(First(env, grads[0]), 6);
  EXPECT_EQ(First(env, grads[1]), 3);
  EXPECT_EQ(First(env, again[0]), 3);
  EXPECT_EQ(First(env, again[1]), 1);
}

TEST_F(GradientsTest, TargetsThatFeedEachOtherAndRepeats) {
  Times(3, "x", "y");
  Times(2, "y", "z");
  Variable x = test.Var("x"), y = test.Var("y"), z = test.Var("z");
  auto both = Gradients({y, z}, {x}, Options());
  auto twice = Gradients({y, y}, {x, x}, Options());
  auto self = Gradients({x}, {x}, Options());
  VarValues env = Run();
  EXPECT_EQ(First(env, both[0]), 9);  // 3 + 6
  EXPECT_EQ(twice[0], twice[1]);
  EXPECT_EQ(First(env, twice[0]), 6);
  EXPECT_EQ(First(env, self[0]), 1);
}

TEST_F(GradientsTest, TargetGradients) {
  test.Data("d");
  Times(3, "x", "y");
  GradientsOptions options = Options();
  options.target_gradients = {"d"};
  auto grads = Gradients({test.Var("y")}, {test.Var("x")}, options);
  options.target_gradients = {"d", ""};
  ASSERT_THROW(Gradients({test.Var("y")}, {test.Var("x")}, options), Error);
  options.target_gradients = {"nothing"};
  ASSERT_THROW(Gradients({test.Var("y")}, {test.Var("x")}, options), Error);
  VarValues inputs = test.Inputs();
  inputs["d"] = Tensor::Full<double>({1}, 5.0);
  EXPECT_EQ(First(test.Run(inputs), grads[0]), 15);
  EXPECT_EQ(test.CountOps("fill_any_like"), 0);
}

TEST_F(GradientsTest, UnreachedInputsAndTargets) {
  test.Param("u");
  Times(2, "x", "y");
  Times(2, "u", "v");
  auto grads = Gradients({test.Var("y")}, {test.Var("u"), test.Var("x")}, Options());
  EXPECT_EQ(grads[0], "");
  EXPECT_NE(grads[1], "");
  EXPECT_EQ(Gradients({test.Var("y")}, {}, Options()).size(), 0u);
}

TEST_F(GradientsTest, UnknownShapeSeedsWithOnes) {
  TestProgram open({-1, 3});
  open.Param("w");
  open.Op("t_square", {"w"}, "y");
  auto grads = Gradients({open.Var("y")}, {open.Var("w")}, Options());
  EXPECT_EQ(open.CountOps("fill_any_like"), 1);
  VarValues env;
  env["w"] = Tensor::Full<double>({4, 3}, 0.5);
  EXPECT_EQ(Values(open.Run(env), grads[0]), std::vector<double>(12, 1.0));
}

TEST_F(GradientsTest, GradientOfAGradient) {
  test.Op("t_mul", {"x", "x"}, "p");
  test.Op("t_mul", {"p", "x"}, "cube");
  auto first = Gradients({test.Var("cube")}, {test.Var("x")}, Options());
  auto second = Gradients({test.Var(first[0])}, {test.Var("x")}, Options());
  ASSERT_NE(second[0], "");
  VerifyOrThrow(test.program, TestOps());
  VarValues env = test.Inputs();
  env["x"] = Tensor::Full<double>({1}, 2.0);
  env = test.Run(env);
  EXPECT_EQ(First(env, first[0]), 12);   // 3 x^2
  EXPECT_EQ(First(env, second[0]), 12);  // 6 x
}

TEST_F(GradientsTest, OfAnIntermediateVariable) {
  Times(2, "x", "y");
  test.Op("t_mul", {"y", "y"}, "z");
  auto grads = Gradients({test.Var("z")}, {test.Var("y")}, Options());
  EXPECT_EQ(test.root().FindVar("x@GRAD"), nullptr);
  EXPECT_EQ(First(Run(), grads[0]), 4);
}

// If a file declares a variable with another type than its ops make, the error says so.
TEST(Gradients, AVariableDeclaredOtherwiseThanWritten) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2, 3});
  root.Var("y").SetShape({5});
  root.Var("loss").SetShape({1});
  for (int k = 0; k < 2; ++k) {
    root.AppendOp("unsqueeze2", {{"X", {"x"}}}, {{"Out", {"y"}}},
                  {{"axes", std::vector<int32_t>{0}}});
  }
  root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  try {
    Gradients({Variable::Of(root, "loss")}, {Variable::Of(root, "x")});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    EXPECT_NE(error.message().find("'y' is declared float32[5]"), std::string::npos)
        << error.message();
  }
}

// The elements of an array need not be of the type that the array is declared with.
TEST(Gradients, OfAnArrayDeclaredOtherwise) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2});
  for (const char* name : {"i", "missing"}) {
    root.Var(name).SetShape({1});
    root.Var(name).SetDType(DType::kInt64);
  }
  root.Var("like").SetShape({3});
  root.Var("array").SetMeta({VarType::kLoDTensorArray, DType::kFloat32, {7, 7}, 0});
  InferOp(root, root.AppendOp("write_to_array", {{"X", {"x"}}, {"I", {"i"}}}, {{"Out", {"array"}}}),
          DefaultOps());
  InferOp(
      root,
      root.AppendOp("read_from_array", {{"X", {"array"}}, {"I", {"missing"}}, {"X_W", {"like"}}},
                    {{"Out", {"y"}}}),
      DefaultOps());
  const auto gradients = Gradients({Variable::Of(root, "y")}, {Variable::Of(root, "x")});
  EXPECT_FALSE(gradients.at(0).empty());
  VerifyOrThrow(program, DefaultOps());
}
}  // namespace coracle::gradients_test
