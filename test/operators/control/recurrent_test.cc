#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::recurrent_test {

// h' = h w + x; outputs h' and h'^2.
struct Rnn {
  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x = net.Data("x", {3, 2}, DType::kFloat64, {.stop_gradient = false});
  Variable h0 = net.Data("h0", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable w = net.Data("w", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable y, z;

  explicit Rnn(bool reverse = false) {
    StaticRnn rnn(net, {.reverse = reverse});
    rnn.Step([&] {
      Variable step = rnn.StepInput(x), h = rnn.Memory(h0);
      Variable next = net.Add(net.Mul(h, w), step);
      rnn.UpdateMemory(h, next);
      rnn.StepOutput(next);
      rnn.StepOutput(net.Mul(next, next));
    });
    y = rnn.Outputs()[0];
    z = rnn.Outputs()[1];
  }
  static VarValues Inputs() {
    return {{"x", Tensor::Of<double>({3, 2}, {1, 2, 3, 4, 5, 6})},
            {"h0", Tensor::Of<double>({2}, {0.5, -1})},
            {"w", Tensor::Of<double>({2}, {2, -1})}};
  }
};

TEST(Recurrent, Steps) {
  for (bool reverse : {false, true}) {
    Rnn rnn(reverse);
    VarValues env = Rnn::Inputs();
    Interpret(rnn.main.Root(), DefaultOps(), env);
    const auto y = std::get<Tensor>(env.at(rnn.y.name())).span<double>();
    const std::vector<double> forward = {2, 3, 7, 1, 19, 5};
    const std::vector<double> backward = {31, 5, 15, -3, 6, 7};
    EXPECT_EQ(std::vector<double>(y.begin(), y.end()), reverse ? backward : forward);
  }
}

// There is no slice, so the declared shape counts.
TEST(Recurrent, NoSteps) {
  Rnn rnn;
  Builder& net = rnn.net;
  const Variable total = net.ReduceSum(rnn.y, {.dim = {0}});
  VarValues env = Rnn::Inputs();
  env["x"] = Tensor(DType::kFloat64, {0, 2});
  Interpret(rnn.main.Root(), DefaultOps(), env);
  EXPECT_EQ(std::get<Tensor>(env.at(rnn.y.name())).shape(), (Shape{0, 2}));
  const auto& sum = std::get<Tensor>(env.at(total.name()));
  ASSERT_EQ(sum.shape(), Shape{2});
  EXPECT_EQ(sum.data<double>()[1], 0.0);

  env.erase(rnn.y.name());
  for (int b = 0; b < rnn.main.NumBlocks(); ++b) rnn.main.Block(b).Var(rnn.y.name()).SetShape({-1});
  EXPECT_NO_THROW(Interpret(rnn.main.Root(), DefaultOps(), env));
  EXPECT_EQ(std::get<Tensor>(env.at(rnn.y.name())).shape(), (Shape{0, 0}));
}

TEST(Recurrent, Gradient) {
  for (bool reverse : {false, true}) {
    Rnn rnn(reverse);
    Builder& net = rnn.net;
    Variable loss = net.Reshape(net.ReduceSum(net.Mul(net.Add(rnn.y, rnn.z), rnn.y), {}), {1});
    CheckProgramGradient({"recurrent", "rnn_memory_helper"}, rnn.main, loss.name(),
                         {"x", "h0", "w"}, Rnn::Inputs());
  }
}

TEST(Recurrent, InitialStatesAreThere) {
  Rnn rnn(false);
  BlockDesc& root = rnn.main.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (root.op(i).type() == "recurrent")
      root.op(i).SetInput("initial_states", {std::string(kEmptyVarName)});
  }
  const std::vector<VerifyProblem> problems = Verify(rnn.main, DefaultOps());
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].ToString().find("input initial_states is required"), std::string::npos)
      << problems[0].ToString();
}

// Backward may get a program that was not verified.
TEST(Recurrent, ListsOfDifferentLengthHaveNoGradient) {
  for (const char* attr : {"ex_states", "states"}) {
    Rnn rnn;
    const Variable loss = rnn.net.Reshape(rnn.net.ReduceSum(rnn.y, {}), {1});
    rnn.main.Root().SubBlockOps()[0]->SetAttr(attr, std::vector<std::string>{});
    try {
      Gradients({loss}, {rnn.h0});
      ADD_FAILURE() << attr;
    } catch (const Error& error) {
      ExpectConstraint(error.message(), "recurrent.C1");
    }
  }
}

TEST(Recurrent, Constraints) {
  using Names = std::vector<std::string>;
  const VarMeta x{VarType::kLoDTensor, DType::kFloat32, {3, 2}, 0};
  const VarMeta longer{VarType::kLoDTensor, DType::kFloat32, {4, 2}, 0};
  const VarMeta scalar{VarType::kLoDTensor, DType::kFloat32, {}, 0};
  const AttrList none = {{"ex_states", Names{}}, {"states", Names{}}, {"sub_block", BlockRef{1}}};
  const AttrList one = {
      {"ex_states", Names{"a"}}, {"states", Names{"b"}}, {"sub_block", BlockRef{1}}};
  ExpectRefused("recurrent", {{"inputs", x}}, one, "recurrent.C1");
  ExpectRefused("recurrent", {{"initial_states", x}}, one, "recurrent.C2");
  ExpectRefused("recurrent", {{"inputs", x}, {"inputs", longer}}, none, "recurrent.C3");
  ExpectRefused("recurrent", {{"inputs", scalar}}, none, "recurrent.C3");
}

// The stacked variable's name must be declared in the block too: there it is the slice.
TEST(Recurrent, C4_OutputsOfTheStep) {
  Rnn rnn;
  OpDesc& op = rnn.main.Root().op(rnn.main.Root().NumOps() - 1);
  op.SetOutput("outputs", {"w"});
  std::string message;
  try {
    InferOp(rnn.main.Root(), op, DefaultOps());
  } catch (const Error& e) {
    message = e.message();
  }
  ExpectConstraint(message, "recurrent.C4");
}

// A program from elsewhere.
TEST(RecurrentGrad, Constraints) {
  using Names = std::vector<std::string>;
  using Ints = std::vector<int32_t>;
  const VarMeta scopes{VarType::kStepScopes, DType::kFloat32, {}, 0};
  const VarMeta x{VarType::kLoDTensor, DType::kFloat32, {3, 2}, 0};
  const VarMeta longer{VarType::kLoDTensor, DType::kFloat32, {4, 2}, 0};
  auto attrs = [](const Names& arriving, const Ints& of_output, const Names& left) {
    return AttrList{{"sub_block", BlockRef{1}},  {"arriving", arriving},
                    {"of_output", of_output},    {"of_state", Ints(of_output.size(), -1)},
                    {"left_inputs", left},       {"left_states", Names{}},
                    {"left_parameters", Names{}}};
  };
  // The slots of gradients hold one variable each in ExpectRefused.
  ExpectRefused("recurrent_grad", {{"inputs", x}, {"step_scopes", x}}, attrs({}, {}, {""}),
                "recurrent_grad.C1");
  ExpectRefused("recurrent_grad", {{"inputs", x}, {"step_scopes", scopes}}, attrs({"g"}, {}, {""}),
                "recurrent_grad.C2");
  ExpectRefused("recurrent_grad", {{"inputs", x}, {"step_scopes", scopes}}, attrs({"g"}, {0}, {""}),
                "recurrent_grad.C3");
  AttrList full = attrs({"g"}, {0}, {""});
  full[5].value = Names{""};
  full[6].value = Names{""};
  ExpectRefused("recurrent_grad",
                {{"inputs", x},
                 {"initial_states", x},
                 {"parameters", x},
                 {"step_scopes", scopes},
                 {"outputs@GRAD", longer}},
                full, "recurrent_grad.C4");
}

TEST(RnnMemoryHelper, Copies) {
  OpTest("rnn_memory_helper")
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2}, {1, 2})
      .CheckGradient({"X"});
}
}  // namespace coracle::recurrent_test
