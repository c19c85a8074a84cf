#include <coracle/backward/backward.h>
#include <coracle/edit/edit.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/passes/pass.h>
#include <coracle/test/passes/op_program.h>
#include <coracle/test/passes/same_results.h>

namespace coracle::expand_ops_test {

// y = skip_layernorm(x, r), with r = relu(x).
struct SkipNet : OpProgram {
  SkipNet() {
    Data("x", {-1, 4});
    Parameter("scale", {4});
    Unary("relu", "x", "r");
    Append("skip_layernorm", {{"X", {"x"}}, {"Y", {"r"}}, {"Scale", {"scale"}}}, {{"Out", {"y"}}},
           {{"epsilon", 0.125f}, {"begin_norm_axis", int32_t{1}}});
  }
};

int Count(const ProgramDesc& program, const std::string& type) {
  int count = 0;
  program.ForEachOp([&](const OpDesc& op) { count += op.type() == type ? 1 : 0; });
  return count;
}

TEST(ExpandOps, ReplacesTheOpAtItsPlace) {
  SkipNet net;
  net.Unary("tanh", "y", "z");
  ProgramDesc trained = net.program;
  EXPECT_TRUE(ExpandOps(net.program, DefaultOps(), false));
  EXPECT_EQ(net.Listing(),
            "Out=r = relu(X=x)\n"
            "Out=y.elementwise_add_0 = elementwise_add(X=x, Y=r)\n"
            "Y=y = layer_norm(Scale=scale, X=y.elementwise_add_0)\n"
            "Out=z = tanh(X=y)\n");
  EXPECT_FALSE(net.root().FindVar("y.Mean_0"));
  EXPECT_TRUE(ExpandOps(trained, DefaultOps()));
  EXPECT_TRUE(trained.Root().FindVar("y.Mean_0"));
  EXPECT_TRUE(Verify(trained, DefaultOps()).empty());
  EXPECT_TRUE(Verify(net.program, DefaultOps()).empty());
  EXPECT_FALSE(ExpandOps(net.program, DefaultOps()));
}

TEST(ExpandOps, KeepsRemarks) {
  SkipNet net;
  net.root().op(1).SetAttr(kOpNamescopeAttr, std::string("/block/"));
  ExpandOps(net.program, DefaultOps());
  for (size_t i : {1u, 2u})
    EXPECT_EQ(net.root().op(i).GetAttr<std::string>(kOpNamescopeAttr, ""), "/block/");
}

// The types that the program declares may be missing.
TEST(ExpandOps, InfersTypes) {
  SkipNet net;
  net.root().FindVar("r")->SetMeta({});
  ExpandOps(net.program, DefaultOps());
  const Shape want = {-1, 4};
  EXPECT_EQ(net.root().FindVar("y.elementwise_add_0")->shape(), want);
}

// An op may write a variable that it reads.
TEST(ExpandOps, WorksInPlace) {
  OpProgram net;
  net.Data("x", {-1, 3});
  net.Parameter("w", {3, 3});
  net.Parameter("b", {3});
  net.Unary("relu", "x", "h");
  net.Append("fusion_repeated_fc_relu", {{"X", {"h"}}, {"W", {"w", "w"}}, {"Bias", {"b", "b"}}},
             {{"ReluOut", {"h"}}, {"Out", {"y"}}});
  ExpectSameResults(net.program, net.scope, net.feeds, {"h", "y"});
  ProgramDesc separate = net.program;
  separate.Root().Var("other");
  separate.Root().op(1).SetOutput("ReluOut", {"other"});
  Scope one = net.scope.Clone(), other = net.scope.Clone();
  EXPECT_TRUE(BitEqual(Executor().Run(net.program, one, net.feeds, {"h"})[0],
                       Executor().Run(separate, other, net.feeds, {"other"})[0]));
}

TEST(ExpandOps, CompiledProgramsRunTheExpansion) {
  SkipNet net;
  ExpectSameResults(net.program, net.scope, net.feeds, {"y"});
}

// The program keeps its op until its gradient is taken.
TEST(ExpandOps, BackwardReplacesOpsOnItsPathFirst) {
  SkipNet net;
  net.Unary("mean", "y", "loss");
  ProgramDesc other = net.program;
  Gradients({Variable::Of(other.Root(), "r")}, {Variable::Of(other.Root(), "x")});
  EXPECT_EQ(Count(other, "skip_layernorm"), 1);
  AppendBackward(Variable::Of(net.root(), "loss"), {.parameter_list = {"scale"}});
  EXPECT_EQ(Count(net.program, "skip_layernorm"), 0);
  EXPECT_EQ(Count(net.program, "layer_norm_grad"), 1);
}

TEST(ExpandOps, BackwardReplacesOpsInBlocks) {
  OpProgram net;
  net.Data("x", {-1, 4});
  net.Parameter("w", {4});
  const auto declare = [&](const char* name, const VarMeta& meta) {
    net.root().Var(name).SetMeta(meta);
  };
  declare("go", {VarType::kLoDTensor, DType::kBool, {1}, 0});
  declare("y", {VarType::kLoDTensor, DType::kFloat32, {-1, 4}, 0});
  declare("scopes", {VarType::kStepScopes, DType::kFloat32, {}, 0});
  net.Append("fill_constant", {}, {{"Out", {"go"}}},
             {{"shape", std::vector<int64_t>{1}},
              {"dtype", static_cast<int32_t>(DType::kBool)},
              {"value", 1.0f}});
  BlockDesc& inner = net.program.AppendBlock(net.root());
  inner.AppendOp("fused_elemwise_activation", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}},
                 {{"functor_list", std::vector<std::string>{"tanh", "elementwise_mul"}}});
  net.root().AppendOp("conditional_block", {{"Cond", {"go"}}, {"Input", {"x", "w"}}},
                      {{"Out", {"y"}}, {"Scope", {"scopes"}}},
                      {{"sub_block", BlockRef{1}}, {"is_scalar_condition", true}});
  net.Unary("mean", "y", "loss");
  AppendBackward(Variable::Of(net.root(), "loss"), {.parameter_list = {"w"}});
  EXPECT_EQ(Count(net.program, "fused_elemwise_activation"), 0);
  EXPECT_EQ(Count(net.program, "elementwise_mul_grad"), 1);
}

TEST(ExpandOps, BackwardRefusesOverrides) {
  SkipNet net;
  net.Unary("mean", "y", "loss");
  BackwardOptions options;
  options.parameter_list = {"scale"};
  options.overrides = {{.op_type = "skip_layernorm", .rule = [](GradientContext&) {}}};
  try {
    AppendBackward(Variable::Of(net.root(), "loss"), options);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("override the gradients of elementwise_add, layer_norm"),
              std::string::npos)
        << e.message();
  }
}

TEST(ExpandOps, MixedPrecisionSeesTheParts) {
  SkipNet net;
  ProgramDesc startup;
  DecorateMixedPrecision(net.program, startup, {.dtype = DType::kFloat16});
  EXPECT_EQ(Count(net.program, "layer_norm"), 1);
}

// For Paddle the op stays, because it may not know those of the expansion.
TEST(ExpandOps, OptimizedForPaddleKeepsTheOp) {
  SkipNet net;
  OptimizeOptions options;
  options.paddle_only = true;
  const OptimizedProgram made = OptimizeProgram(net.program, net.scope, {"x"}, {"y"}, options);
  EXPECT_EQ(Count(made.program, "skip_layernorm"), 1);
}

}  // namespace coracle::expand_ops_test
