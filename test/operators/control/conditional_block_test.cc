#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/test/completeness.h>
#include <coracle/test/error_of.h>
#include <coracle/test/op_test.h>

namespace coracle::conditional_block_test {

// y = x, and then x * w if p.
struct Branch2 {
  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x = net.Data("x", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable w = net.Data("w", {2}, DType::kFloat64, {.stop_gradient = false});
  Variable p = net.Data("p", {1}, DType::kBool);
  Variable y = net.Scale(x, {.scale = 1.0f});

  Branch2() {
    If(net, p, [&] { Assign(net, net.Mul(y, w), y); });
  }
  static VarValues Inputs(bool taken) {
    return {{"x", Tensor::Of<double>({2}, {0.5, -1.5})},
            {"w", Tensor::Of<double>({2}, {2, 3})},
            {"p", Tensor::Full<bool>({1}, taken)}};
  }
};

TEST(ConditionalBlock, TakenOrNot) {
  for (bool taken : {true, false}) {
    Branch2 net;
    VarValues env = Branch2::Inputs(taken);
    Interpret(net.main.Root(), DefaultOps(), env);
    const auto& y = std::get<Tensor>(env.at(net.y.name()));
    EXPECT_EQ(y.data<double>()[0], taken ? 1 : 0.5);
    EXPECT_EQ(y.data<double>()[1], taken ? -4.5 : -1.5);
  }
}

TEST(BranchError, StopsTheRun) {
  OpTest("branch_error")
      .Attr("message", std::string("no such branch"))
      .ExpectError("no such branch");
}

TEST(BranchError, OnlyIfItsBranchIsTaken) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {2}), p = net.Data("p", {1}, DType::kBool);
  const Variable y = net.Scale(x, {.scale = 2.0f});
  If(net, p, [&] {
    main.Block(main.NumBlocks() - 1)
        .AppendOp(OpDesc("branch_error", {}, {}, {{"message", std::string("taken")}}));
  });
  for (const bool taken : {false, true}) {
    Scope scope;
    PreparedProgram step = Executor().Prepare(main, {"x", "p"}, {y.name()});
    const std::vector<Tensor> feeds = {Tensor::Of<float>({2}, {1, 2}),
                                       Tensor::Full<bool>({1}, taken)};
    if (taken)
      EXPECT_THROW(step.Run(scope, feeds), Error);
    else
      EXPECT_EQ(step.Run(scope, feeds)[0].data<float>()[1], 4);
  }
}

// An op that cannot run fails the run only if its branch is taken; no pass runs it earlier.
TEST(ConditionalBlock, ImpossibleBranch) {
  for (const bool frozen : {false, true}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"w", "x", "y"}) root.Var(name).SetShape({2, 3});
    root.Var("w").SetPersistable(true);
    root.Var("p").SetMeta({VarType::kLoDTensor, DType::kBool, {1}, 0});
    root.Var("scopes").SetType(VarType::kStepScopes);
    root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"scale", 2.0f}});
    BlockDesc& block = program.AppendBlock(root);
    block.Var("i").SetDType(DType::kInt64);
    block.AppendOp("top_k_v2", {{"X", {frozen ? "w" : "x"}}}, {{"Out", {"y"}}, {"Indices", {"i"}}},
                   {{"k", 1000}});
    root.AppendOp("conditional_block", {{"Cond", {"p"}}, {"Input", {"x", "w"}}},
                  {{"Out", {"y"}}, {"Scope", {"scopes"}}},
                  {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}});
    Scope scope;
    std::vector<Tensor> feeds = {Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}),
                                 Tensor::Full<bool>({1}, false)};
    scope.Set("w", feeds[0]);
    PreparedProgram step = frozen ? Executor().PrepareOwning(program, scope, {"x", "p"}, {"y"})
                                  : Executor().Prepare(program, {"x", "p"}, {"y"});
    EXPECT_EQ(step.Run(scope, feeds)[0].data<float>()[5], 12);
    feeds[1] = Tensor::Full<bool>({1}, true);
    const std::string error = ErrorOf([&] { step.Run(scope, feeds); });
    EXPECT_NE(error.find("top_k_v2"), std::string::npos) << error;
  }
}

// Without is_scalar_condition the block runs if no Cond is empty.
TEST(ConditionalBlock, CondThatMustNotBeEmpty) {
  for (int64_t rows : {2, 0}) {
    Branch2 net;
    BlockDesc& root = net.main.Root();
    OpDesc& op = root.op(root.NumOps() - 1);
    op.SetAttr("is_scalar_condition", false);
    op.SetInput("Cond", {"x", "rows"});
    root.Var("rows").SetShape({-1, 3});
    VarValues env = Branch2::Inputs(false);
    env["rows"] = Tensor::Zeros(DType::kFloat32, {rows, 3});
    Interpret(root, DefaultOps(), env);
    EXPECT_EQ(std::get<Tensor>(env.at(net.y.name())).data<double>()[0], rows ? 1 : 0.5);
  }
}

TEST(ConditionalBlock, Constraints) {
  const AttrList scalar = {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}};
  const VarMeta one{VarType::kLoDTensor, DType::kBool, {1}, 0};
  const VarMeta number{VarType::kLoDTensor, DType::kInt64, {1}, 0};
  ExpectRefused("conditional_block", {{"Cond", one}, {"Cond", one}}, scalar,
                "conditional_block.C1");
  ExpectRefused("conditional_block", {{"Cond", number}}, scalar, "conditional_block.C2");
}

TEST(ConditionalBlock, Gradient) {
  for (bool taken : {true, false}) {
    Branch2 net;
    Variable loss = net.net.Reshape(net.net.ReduceSum(net.net.Mul(net.y, net.y), {}), {1});
    CheckProgramGradient({"conditional_block"}, net.main, loss.name(), {"x", "w"},
                         Branch2::Inputs(taken));
  }
}

// A program from elsewhere.
TEST(ConditionalBlockGrad, Constraints) {
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
  ExpectRefused("conditional_block_grad", {{"Scope", x}, {"Out@GRAD", x}}, fits,
                "conditional_block_grad.C1");
  ExpectRefused("conditional_block_grad", {{"Scope", scopes}}, fits, "conditional_block_grad.C2");
  ExpectRefused("conditional_block_grad", {{"Scope", scopes}, {"Out@GRAD", x}},
                attrs({"g"}, {"", "h"}, 1), "conditional_block_grad.C3");
  ExpectRefused("conditional_block_grad", {{"Scope", scopes}, {"Out@GRAD", x}},
                attrs({"g"}, {"h", "h"}, -1), "conditional_block_grad.C3");
}
}  // namespace coracle::conditional_block_test
