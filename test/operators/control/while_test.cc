// test/executor/control_flow_test.cc tests the results of programs with loops,
// test/backward/control_flow_test.cc their gradients in larger programs.
#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::while_test {

struct Loop {
  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x = net.Data("x", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable w = net.Data("w", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable n = net.Data("n", {1}, DType::kInt64);
  Variable h = net.Scale(x, {.scale = 1.0f});
  Variable i = FillConstant(net, {1}, DType::kInt64, 0);
  Variable condition = net.Binary("less_than", i, n);

  Loop() {
    While(net, condition, [&] {
      Assign(net, net.Mul(h, w), h);
      Increment(net, i);
      Assign(net, net.Binary("less_than", i, n), condition);
    });
  }
  static VarValues Inputs(int64_t times) {
    return {{"x", Tensor::Of<double>({2}, {0.5, -1.5})},
            {"w", Tensor::Of<double>({2}, {2, 3})},
            {"n", Tensor::Full<int64_t>({1}, times)}};
  }
};

TEST(While, MultipliesSoOften) {
  for (int64_t times : {0, 1, 3}) {
    Loop loop;
    VarValues env = Loop::Inputs(times);
    Interpret(loop.main.Root(), DefaultOps(), env);
    const auto& h = std::get<Tensor>(env.at(loop.h.name()));
    EXPECT_DOUBLE_EQ(h.data<double>()[0], 0.5 * std::pow(2, times));
    EXPECT_DOUBLE_EQ(h.data<double>()[1], -1.5 * std::pow(3, times));
  }
}

TEST(While, C1_Condition) {
  const VarMeta two{VarType::kLoDTensor, DType::kBool, {2}, 0};
  ExpectRefused("while", {{"Condition", two}}, {{"sub_block", BlockRef{1}}}, "while.C1");
  const VarMeta number{VarType::kLoDTensor, DType::kInt64, {1}, 0};
  ExpectRefused("while", {{"Condition", number}}, {{"sub_block", BlockRef{1}}}, "while.C1");
}

TEST(While, Gradient) {
  for (int64_t times : {1, 3}) {
    Loop loop;
    Variable loss = loop.net.Reshape(loop.net.ReduceSum(loop.net.Mul(loop.h, loop.h), {}), {1});
    CheckProgramGradient({"while"}, loop.main, loss.name(), {"x", "w"}, Loop::Inputs(times));
  }
}

TEST(While, NoGradientOfATestLoop) {
  Loop loop;
  BlockDesc& root = loop.main.Root();
  root.op(root.NumOps() - 1).SetAttr("is_test", true);
  Variable loss = loop.net.Reshape(loop.net.ReduceSum(loop.h, {}), {1});
  try {
    BackwardOptions options;
    options.parameter_list = {"x"};
    AppendBackward(loss, options);
    FAIL() << "a loop that keeps nothing was differentiated";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("is_test"), std::string::npos) << e.message();
  }
}

// A program from elsewhere.
TEST(WhileGrad, Constraints) {
  using Names = std::vector<std::string>;
  const VarMeta scopes{VarType::kStepScopes, DType::kFloat32, {}, 0};
  const VarMeta x{VarType::kLoDTensor, DType::kFloat32, {2}, 0};
  auto attrs = [](const Names& arriving, const Names& leaving, int32_t state) {
    return AttrList{{"arriving", arriving},
                    {"before", arriving},
                    {"leaving", leaving},
                    {"state", std::vector<int32_t>{state, -1}}};
  };
  // One variable in each output slot; the second sum has no variable with a declared type.
  const AttrList fits = attrs({"g"}, {"", "h"}, 0);
  ExpectRefused("while_grad", {{"StepScopes", x}, {"Out@GRAD", x}}, fits, "while_grad.C1");
  ExpectRefused("while_grad", {{"StepScopes", scopes}}, fits, "while_grad.C2");
  ExpectRefused("while_grad", {{"StepScopes", scopes}, {"Out@GRAD", x}}, attrs({"g"}, {"", "h"}, 1),
                "while_grad.C3");
  ExpectRefused("while_grad", {{"StepScopes", scopes}, {"Out@GRAD", x}},
                attrs({"g"}, {"h", "h"}, -1), "while_grad.C3");
}
}  // namespace coracle::while_test
