// Programs that are wrong: backward says so in the verifier's words, and ends.

#include <coracle/backward/backward.h>
#include <coracle/framework/ir/file_fields.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::unverified_test {

class UnverifiedTest : public ::testing::Test {
 protected:
  UnverifiedTest() {
    const Variable x = net.Data("x", {2, 3}, DType::kFloat32, {.stop_gradient = false});
    const Variable h = net.Fc(x, {.size = 4, .act = "tanh"});
    const Variable yes = net.Binary("less_than", FillConstant(net, {1}, DType::kInt64, 0),
                                    FillConstant(net, {1}, DType::kInt64, 1));
    If(net, yes, [&] { Assign(net, net.Mul(h, h), h); });
    net.Mean(h, {.output = "loss"});
  }

  static std::string MessageOf(const std::function<void()>& f) {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.message();
      return error.message();
    }
    return "nothing";
  }

  // The report of each way to differentiate the program.
  std::vector<std::string> Messages() const {
    return {
        MessageOf([&] {
          ProgramDesc copy = main;
          AppendBackward(Variable::Of(copy.Root(), "loss"));
        }),
        MessageOf([&] {
          ProgramDesc copy = main;
          if (Gradients({Variable::Of(copy.Root(), "loss")}, {Variable::Of(copy.Root(), "x")})[0]
                  .empty())
            ThrowInvalid("no gradient");
        }),
        MessageOf([&] { ExplainGradient(main, "loss", "x"); }),
        MessageOf([&] { CheckGradient(main, {.loss = "loss"}); }), MessageOf([&] {
          ProgramDesc copy = main;
          if (Hessian(Variable::Of(copy.Root(), "loss"), {Variable::Of(copy.Root(), "x")})[0]
                  .empty())
            ThrowInvalid("no gradient");
        })};
  }
  void ExpectVerifiersWords() const {
    std::vector<VerifyProblem> problems = Verify(main, DefaultOps());
    std::erase_if(problems, [](const VerifyProblem& p) {
      return p.severity != VerifyProblem::Severity::kError;
    });
    ASSERT_FALSE(problems.empty());
    for (const std::string& message : Messages()) {
      // (Gradients looks at ops between input and target only, and may find none.)
      EXPECT_TRUE(message.find(problems[0].ToString()) == 0 || message == "no gradient") << message;
    }
  }
  OpDesc& OpOf(const std::string& type) {
    for (size_t i = 0; i < main.Root().NumOps(); ++i) {
      if (main.Root().op(i).type() == type) return main.Root().op(i);
    }
    throw InternalError("no op " + type);
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
};

TEST_F(UnverifiedTest, ParentsThatFormACycle) {
  ProgramDesc cyclic;
  FileFields::ClearBlocks(cyclic);
  cyclic.AppendBlock(1);
  cyclic.AppendBlock(0);
  for (size_t i = 0; i < main.Root().NumVars(); ++i) cyclic.Root().AppendVar(main.Root().var(i));
  for (size_t i = 0; i < main.Root().NumOps(); ++i) cyclic.Root().AppendOp(main.Root().op(i));
  main = cyclic;
  ExpectVerifiersWords();
}

TEST_F(UnverifiedTest, AnEmptySlot) {
  for (const char* type : {"mean", "tanh", "mul"}) {
    SCOPED_TRACE(type);
    const ProgramDesc before = main;
    OpOf(type).SetOutput("Out", {});
    std::vector<VerifyProblem> problems = Verify(main, DefaultOps());
    for (const std::string& message : Messages())
      EXPECT_NE(message.find("internal"), 0u) << message;
    main = before;
    OpOf(type).SetInput("X", {});
    ExpectVerifiersWords();
    main = before;
  }
}

TEST_F(UnverifiedTest, AnUndeclaredVariable) {
  for (const char* type : {"mean", "tanh", "mul"}) {
    SCOPED_TRACE(type);
    const ProgramDesc before = main;
    OpOf(type).SetInput("X", {"nobody"});
    ExpectVerifiersWords();
    main = before;
  }
}

TEST_F(UnverifiedTest, ASubBlockThatIsNone) {
  for (int idx : {0, -1, 7}) {
    OpOf("conditional_block").SetAttr("sub_block", BlockRef{idx});
    ExpectVerifiersWords();
  }
}

// Every argument of every op emptied, exchanged with the next one, or renamed: whatever is said, it
// is about the program.
TEST_F(UnverifiedTest, NoChangeOfOneArgumentIsADefectOfBackward) {
  const ProgramDesc before = main;
  size_t refused = 0;
  for (size_t i = 0; i < before.Root().NumOps(); ++i) {
    const OpDesc& op = before.Root().op(i);
    for (bool inputs : {true, false}) {
      const SlotList& slots = inputs ? op.inputs() : op.outputs();
      for (size_t s = 0; s < slots.size(); ++s) {
        const std::vector<std::vector<std::string>> changes = {
            {}, {"@EMPTY@"}, {"nobody"}, {"x"}, {"loss"}, slots[(s + 1) % slots.size()].args};
        for (const auto& args : changes) {
          main = before;
          OpDesc& changed = main.Root().op(i);
          inputs ? changed.SetInput(slots[s].name, args) : changed.SetOutput(slots[s].name, args);
          SCOPED_TRACE(changed.type() + " " + slots[s].name + " = " +
                       (args.empty() ? "nothing" : args[0]));
          for (const std::string& message : Messages()) refused += message != "nothing";
        }
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

// The later check: a rule may read a variable that no op writes.
TEST_F(UnverifiedTest, AGradientThatNothingWrites) {
  const GradientFn rule = [this](GradientContext& g) {
    const std::string nobody = g.Temp("nobody");
    main.Root().FindVar(nobody)->SetMeta(g.MetaOf(g.Output("Out")));
    g.Append("tanh_grad", {{"Out", {g.Output("Out")}}, {"Out@GRAD", {nobody}}},
             {{"X@GRAD", {g.InputGrad("X")}}});
  };
  BackwardOptions options;
  options.overrides.push_back({"tanh", rule, ""});
  const ProgramDesc before = main;
  const std::string message =
      MessageOf([&] { AppendBackward(Variable::Of(main.Root(), "loss"), options); });
  EXPECT_NE(message.find("tanh_grad reads"), std::string::npos) << message;
  EXPECT_NE(message.find("no op before it writes"), std::string::npos) << message;
  EXPECT_TRUE(main == before);
}

// A call of a block that is not there: the calls are not replaced before that is found.
TEST(Unverified, ACallOfNoBlockLosesNothing) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {1}, DType::kFloat64, {.stop_gradient = false});
  net.block().Var("h").SetMeta(x.desc().meta());
  main.Root().AppendOp("call", {{"X", {"x"}}}, {{"Out", {"h"}}},
                       {{"sub_block", BlockRef{7}},
                        {"parameters", std::vector<std::string>{"p"}},
                        {"results", std::vector<std::string>{"q"}}});
  const Variable y = net.Mul(net.Var("h"), x);
  const ProgramDesc before = main;
  EXPECT_THROW(Hessian(y, {x}), Error);
  EXPECT_TRUE(main == before);
}

// Gradient rules rely on what shape rules check.
TEST(Unverified, ListsOfTheWrongLength) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable image = net.Data("image", {1, 2, 4, 4});
  const Variable filter = net.Parameter("filter", {2, 3, 3, 3}, DType::kFloat32);
  net.Append("conv2d_transpose", {{"Input", {image.name()}}, {"Filter", {filter.name()}}},
             {{"Output", {net.block().Var("wide").name()}}},
             {{"strides", std::vector<int32_t>{1, 1}}, {"paddings", std::vector<int32_t>{0, 0}}});
  const Variable wide = net.Var("wide");
  const Variable loss = net.Mean(net.Transpose(wide, {0, 2, 3, 1}));
  for (const char* type : {"conv2d_transpose", "transpose2"}) {
    ProgramDesc spoiled = main;
    for (size_t i = 0; i < spoiled.Root().NumOps(); ++i) {
      OpDesc& op = spoiled.Root().op(i);
      const char* list = op.HasAttr("paddings") ? "paddings" : "axis";
      if (op.type() == type) op.SetAttr(list, std::vector<int32_t>{1});
    }
    try {
      AppendBackward(Variable::Of(spoiled.Root(), loss.name()));
      ADD_FAILURE() << type;
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find(type), 0u) << error.message();
    }
  }
}
}  // namespace coracle::unverified_test
