// `call`: blocks as functions, and where their gradients come from. Rows T22, T24, T26 and T42 of
// the specification of tf.gradients.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/pass.h>
#include <gtest/gtest.h>

namespace coracle::function_test {

using Names = std::vector<std::string>;

class Function : public ::testing::Test {
 protected:
  Function() {
    for (const char* name : {"x", "b"}) Parameter(name);
  }
  BlockDesc& root() { return program.Root(); }
  void Parameter(const std::string& name) {
    VarDesc& var = root().Var(name);
    var.SetShape({1});
    var.SetPersistable(true);
    var.SetIsParameter(true);
  }
  BlockDesc& Block(const Names& parameters) {
    BlockDesc& block = program.AppendBlock(root());
    for (const std::string& name : parameters) block.Var(name).SetShape({1});
    return block;
  }
  static void Op(BlockDesc& block, const char* type, SlotList in, const std::string& out,
                 AttrList attrs = {}) {
    InferOp(block, block.AppendOp(type, std::move(in), {{"Out", {out}}}, std::move(attrs)),
            DefaultOps());
  }
  static void Times(BlockDesc& block, const std::string& x, const std::string& y,
                    const std::string& out) {
    Op(block, "elementwise_mul", {{"X", {x}}, {"Y", {y}}}, out);
  }
  static void Scale(BlockDesc& block, const std::string& x, float by, const std::string& out) {
    Op(block, "scale", {{"X", {x}}}, out, {{"scale", by}});
  }
  // f(p, q) = p^2 + q
  BlockDesc& SquarePlus() {
    BlockDesc& f = Block({"p", "q"});
    Times(f, "p", "p", "pp");
    Op(f, "elementwise_add", {{"X", {"pp"}}, {"Y", {"q"}}}, "r");
    return f;
  }
  static OpDesc& Call(BlockDesc& block, const BlockDesc& f, Names args, const Names& parameters,
                      const Names& outs, const Names& results, AttrList attrs = {}) {
    attrs.push_back({"sub_block", BlockRef{f.idx()}});
    attrs.push_back({"parameters", parameters});
    attrs.push_back({"results", results});
    OpDesc& op =
        block.AppendOp("call", {{"X", std::move(args)}}, {{"Out", outs}}, std::move(attrs));
    InferOp(block, op, DefaultOps());
    return op;
  }
  // Gradients of y by x and b, at x = 2, b = 1.
  std::vector<float> Run(const Names& grads) {
    VerifyOrThrow(program, DefaultOps());
    Scope scope;
    scope.Set("x", Tensor::Of<float>({1}, {2}));
    scope.Set("b", Tensor::Of<float>({1}, {1}));
    std::vector<float> values;
    for (const Tensor& t : Executor().Run(program, scope, {}, grads))
      values.push_back(t.Item<float>());
    return values;
  }
  Names Differentiate(const std::string& y, const BackwardOptions& options = {}) {
    return Gradients({Variable::Of(root(), y)},
                     {Variable::Of(root(), "x"), Variable::Of(root(), "b")}, options);
  }
  ProgramDesc program;
};

TEST_F(Function, T22_DerivedFromTheBlock) {
  Call(root(), SquarePlus(), {"x", "b"}, {"p", "q"}, {"y"}, {"r"});
  EXPECT_EQ(Run({"y"}), std::vector<float>{5});
  EXPECT_EQ(Run(Differentiate("y")), (std::vector<float>{4, 1}));
}

TEST_F(Function, T24_GivenByAnotherBlock) {
  BlockDesc& f = SquarePlus();
  BlockDesc& g = Block({"gp", "gq", "gdr"});  // twice the gradient
  Times(g, "gp", "gdr", "gpdr");
  Scale(g, "gpdr", 4, "gdp");
  Scale(g, "gdr", 2, "gdq");
  Call(root(), f, {"x", "b"}, {"p", "q"}, {"y"}, {"r"},
       {{"gradient_block", BlockRef{g.idx()}},
        {"gradient_parameters", Names{"gp", "gq", "gdr"}},
        {"gradient_results", Names{"gdp", "gdq"}}});
  EXPECT_EQ(Run(Differentiate("y")), (std::vector<float>{8, 2}));
}

TEST_F(Function, T26_GivenTwice) {
  BlockDesc& f = SquarePlus();
  BlockDesc& g = Block({"g"});
  try {
    Call(root(), f, {"x", "b"}, {"p", "q"}, {"y"}, {"r"},
         {{"gradient_block", BlockRef{g.idx()}}, {"gradient_function", std::string("mine")}});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(e.message().find("defined twice"), std::string::npos) << e.what();
  }
}

TEST_F(Function, T42_GivenByAFunctionAndAppliedTwice) {
  BlockDesc& identity = Block({"p"});
  Scale(identity, "p", 1, "r");
  for (auto [in, out] : {std::pair{"x", "once"}, {"once", "y"}}) {
    Call(root(), identity, {in}, {"p"}, {out}, {"r"},
         {{"gradient_function", std::string("triple")}});
  }
  BackwardOptions options;
  options.functions["triple"] = [](GradientContext& g) {
    g.Append("scale", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}},
             {{"scale", 3.f}});
  };
  const Names grads = Differentiate("y", options);
  EXPECT_EQ(grads[1], "");
  EXPECT_EQ(Run({grads[0]}), std::vector<float>{9});
  try {
    Differentiate("y");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_NE(e.message().find("'triple'"), std::string::npos) << e.what();
  }
}

TEST_F(Function, CalledFromSeveralPlacesAndFromAnother) {
  BlockDesc& f = Block({"p", "q"});
  BlockDesc& inner = Block({"u"});  // comes after the block that calls it
  Op(inner, "tanh", {{"X", {"u"}}}, "t");
  Times(inner, "t", "u", "v");
  Call(f, inner, {"p"}, {"u"}, {"a"}, {"v"});
  Call(f, inner, {"a"}, {"u"}, {"c"}, {"v"});
  Times(f, "c", "q", "r");
  Call(root(), f, {"x", "b"}, {"p", "q"}, {"y"}, {"r"});
  Call(root(), f, {"y", "x"}, {"p", "q"}, {"z"}, {"r"});
  Op(root(), "mean", {{"X", {"z"}}}, "loss");
  VerifyOrThrow(program, DefaultOps());
  CheckGradientOptions options;
  options.loss = "loss";
  const CheckGradientReport report = CheckGradient(program, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
  ASSERT_EQ(report.checks.size(), 2u);
  for (const GradientCheck& check : report.checks) EXPECT_NE(check.by_gradient, 0);
}

TEST_F(Function, OverwritesItsParameterAndHasAResultThatNobodyReads) {
  BlockDesc& f = Block({"p"});
  Op(f, "tanh", {{"X", {"p"}}}, "t");
  Times(f, "p", "t", "p");
  Times(f, "p", "p", "r");
  Scale(f, "r", 3, "unused");
  Call(root(), f, {"x"}, {"p"}, {"y", "z"}, {"r", "unused"});
  Op(root(), "mean", {{"X", {"y"}}}, "loss");
  CheckGradientOptions options;
  options.loss = "loss";
  options.wrt = {"x"};
  const CheckGradientReport report = CheckGradient(program, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
}

TEST_F(Function, AResultThatIsAParameter) {
  BlockDesc& f = Block({"p"});
  Call(root(), f, {"x"}, {"p"}, {"y"}, {"p"});
  EXPECT_EQ(Run({Differentiate("y")[0]}), std::vector<float>{1});
}

TEST_F(Function, InliningKeepsNamesAndRefusesCycles) {
  BlockDesc& f = SquarePlus();
  Call(root(), f, {"x", "b"}, {"p", "q"}, {"y"}, {"r"});
  Differentiate("y");
  ProgramDesc inlined = program;
  InlineCalls(inlined);
  VerifyOrThrow(inlined, DefaultOps());
  for (int b = 0; b < inlined.NumBlocks(); ++b) {
    for (size_t i = 0; i < inlined.Block(b).NumOps(); ++i)
      EXPECT_NE(inlined.Block(b).op(i).type().substr(0, 4), "call");
  }
  for (const char* name : {"y", "x@GRAD", "b@GRAD"}) EXPECT_TRUE(inlined.Root().FindVar(name));
  // Second derivatives equal the second derivatives of the inlined program.
  const Names second =
      Gradients({Variable::Of(inlined.Root(), "x@GRAD")}, {Variable::Of(inlined.Root(), "x")});
  VarValues env;
  env["x"] = Tensor::Of<float>({1}, {2});
  env["b"] = Tensor::Of<float>({1}, {1});
  Interpret(inlined.Root(), DefaultOps(), env);
  EXPECT_EQ(std::get<Tensor>(env.at(second.at(0))).Item<float>(), 2);

  f.AppendOp(
      "call", {{"X", {"p"}}}, {{"Out", {"r"}}},
      {{"sub_block", BlockRef{f.idx()}}, {"parameters", Names{"p"}}, {"results", Names{"r"}}});
  EXPECT_THROW(InlineCalls(program), Error);
}

// r = p^2: nothing flows to q.
TEST_F(Function, AnArgumentThatNoResultDependsOn) {
  BlockDesc& f = Block({"p", "q"});
  Times(f, "p", "p", "r");
  Call(root(), f, {"x", "x"}, {"p", "q"}, {"y"}, {"r"});
  const Names gradients = Differentiate("y");
  VerifyOrThrow(program, DefaultOps());
  EXPECT_EQ(Run({gradients[0]}), std::vector<float>{2 * Run({"x"})[0]});
}

// Random ops draw by the names of their outputs, which must not change when backward is appended.
TEST_F(Function, DrawsAreTheSameWithAndWithoutBackward) {
  for (const char* name : {"x", "b"}) root().FindVar(name)->SetShape({64});
  BlockDesc& f = program.AppendBlock(root());
  f.Var("p").SetShape({64});
  f.Var("mask");
  InferOp(f,
          f.AppendOp("dropout", {{"X", {"p"}}}, {{"Out", {"r"}}, {"Mask", {"mask"}}},
                     {{"dropout_implementation", std::string("upscale_in_train")}}),
          DefaultOps());
  Call(root(), f, {"x"}, {"p"}, {"y"}, {"r"});
  Call(root(), f, {"y"}, {"p"}, {"z"}, {"r"});
  Op(root(), "mean", {{"X", {"z"}}}, "loss");
  const auto run = [&] {
    Scope scope;
    for (const char* name : {"x", "b"}) scope.Set(name, Tensor::Full<float>({64}, 1));
    const Tensor z = Executor().Run(program, scope, {}, {"z"})[0];
    return std::vector<float>(z.span<float>().begin(), z.span<float>().end());
  };
  const std::vector<float> before = run();
  EXPECT_NE(std::count(before.begin(), before.end(), 0.0f), 0);
  AppendBackward(Variable::Of(root(), "loss"));
  EXPECT_EQ(run(), before);
}

// The order of a function's ops is looked at where they run.
TEST_F(Function, AVariableThatIsReadBeforeItIsWritten) {
  BlockDesc& f = Block({"p"});
  f.Var("late").SetShape({1});
  Scale(f, "late", 2, "r");
  Scale(f, "p", 3, "late");
  Call(root(), f, {"x"}, {"p"}, {"y"}, {"r"});
  try {
    Run({"y"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(error.message().find("before op"), std::string::npos) << error.message();
  }
}

// y = (x^2 + b)^2 by two calls, at x = 2, b = 1.
TEST_F(Function, SecondDerivativesInlineTheCallsFirst) {
  BlockDesc& f = SquarePlus();
  Call(root(), f, {"x", "b"}, {"p", "q"}, {"h"}, {"r"});
  Times(root(), "h", "h", "y");
  const Names first = Differentiate("y");
  EXPECT_EQ(Run(first), (std::vector<float>{2 * 5 * 4, 2 * 5}));
  const Names by_x = Differentiate(first[0]), by_b = Differentiate(first[1]);
  EXPECT_EQ(Run(by_x), (std::vector<float>{12 * 4 + 4, 4 * 2})) << "12 x^2 + 4 b, 4 x";
  EXPECT_EQ(Run(by_b), (std::vector<float>{4 * 2, 2}));
}

// y = x^2: the penalty (dy/dx)^2 and what AppendBackward makes of it.
TEST_F(Function, AGradientPenaltyThroughACall) {
  BlockDesc& f = Block({"p"});
  Times(f, "p", "p", "r");
  Call(root(), f, {"x"}, {"p"}, {"y"}, {"r"});
  const std::string first = Differentiate("y")[0];
  Times(root(), first, first, "penalty");
  Op(root(), "elementwise_add", {{"X", {"penalty"}}, {"Y", {"y"}}}, "loss");
  const auto pairs = AppendBackward(Variable::Of(root(), "loss"));
  EXPECT_EQ(Run({pairs[0].grad}), std::vector<float>{8 * 2 + 2 * 2}) << "4 x^2 + x^2";
}

TEST_F(Function, HessiansOfACall) {
  BlockDesc& f = Block({"p"});
  Times(f, "p", "p", "pp");
  Times(f, "pp", "p", "r");
  Call(root(), f, {"x"}, {"p"}, {"y"}, {"r"});
  const Variable x = Variable::Of(root(), "x"), y = Variable::Of(root(), "y");
  EXPECT_EQ(Run(HessianVectorProduct(y, {x}, {x})), std::vector<float>{6 * 2 * 2});
  EXPECT_EQ(Run(Hessian(y, {x})), std::vector<float>{6 * 2});
}

// g(p, d) = 3 d is what a function is differentiated by, twice too: it depends on no p.
TEST_F(Function, AGivenGradientStaysWhenOthersAreInlined) {
  BlockDesc& f = Block({"p"});
  Times(f, "p", "p", "r");
  BlockDesc& given = Block({"u"});
  Times(given, "u", "u", "v");
  BlockDesc& gradient = Block({"u", "d"});
  Scale(gradient, "d", 3, "du");
  Call(root(), given, {"x"}, {"u"}, {"a"}, {"v"},
       {{"gradient_block", BlockRef{gradient.idx()}},
        {"gradient_parameters", Names{"u", "d"}},
        {"gradient_results", Names{"du"}}});
  Call(root(), f, {"a"}, {"p"}, {"y"}, {"r"});
  const Names first = Differentiate("y");
  EXPECT_EQ(Run({first[0]}), std::vector<float>{3 * 2 * 4}) << "3 * 2 a";
  EXPECT_EQ(Run({Differentiate(first[0])[0]}), std::vector<float>{3 * 2 * 3}) << "6 da, da = 3 dx";
}
}  // namespace coracle::function_test
