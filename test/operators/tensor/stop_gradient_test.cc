#include <coracle/backward/backward.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::stop_gradient_test {

// y = op(x) * x; the gradient of y by x.
std::string Differentiate(const std::string& type, AttrList attrs, ProgramDesc* program) {
  BlockDesc& block = program->Root();
  VarDesc& x = block.Var("x");
  x.SetShape({2});
  InferOp(block, block.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"s"}}}, std::move(attrs)),
          DefaultOps());
  InferOp(block, block.AppendOp("elementwise_mul", {{"X", {"s"}}, {"Y", {"x"}}}, {{"Out", {"y"}}}),
          DefaultOps());
  return Gradients({Variable::Of(block, "y")}, {Variable::Of(block, "x")})[0];
}

TEST(StopGradient, Values) {
  for (const char* type : {"stop_gradient", "prevent_gradient"}) {
    OpTest(type).Input("X", {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {1, 2, 3, 4});
    OpTest(type).Input("X", {}, {5}).Expect("Out", {}, {5});
    OpTest(type).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
    OpTest(type).InPlace("X", "Out").Input("X", {2}, {5, 6}).Expect("Out", {2}, {5, 6});
    OpTest(type).IntInput("X", {2}, {1, 0}, DType::kInt64).ExpectDType("Out", DType::kInt64);
  }
}

TEST(StopGradient, IsAConstantForBackward) {
  ProgramDesc program;
  const std::string grad = Differentiate("stop_gradient", {}, &program);
  VarValues env;
  env["x"] = Tensor::Of<float>({2}, {3, 5});
  Interpret(program.Root(), DefaultOps(), env);
  const auto& dx = std::get<Tensor>(env.at(grad));
  EXPECT_EQ(dx.data<float>()[0], 3);  // without the stop it were 6
  EXPECT_EQ(dx.data<float>()[1], 5);
}

TEST(PreventGradient, IsAnErrorOnThePath) {
  ProgramDesc program;
  try {
    Differentiate("prevent_gradient", {{"message", std::string("sampled labels")}}, &program);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    for (const char* text : {"prevent_gradient", "explicitly disabled", "sampled labels"})
      EXPECT_NE(e.message().find(text), std::string::npos) << e.what();
  }
}
}  // namespace coracle::stop_gradient_test
