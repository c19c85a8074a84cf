// ExplainGradient: where paths end, and why.

#include <coracle/backward/backward.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/backward/loop_ops.h>
#include <gtest/gtest.h>

namespace coracle::explain_test {

class Explain : public ::testing::Test {
 protected:
  Explain() {
    RegisterLoop(ops);
    RegisterTestOps(ops);
    ops.Add(Identity("t_constant").NotDifferentiable("it is a constant by decree"));
    ops.Add(Identity("t_forbidden")
                .Attr<std::string>("message", "", "why")
                .ForbidGradient("not to be used"));
    options.ops = &ops;
    test.Param("w");
    test.Op("t_square", {"w"}, "h");
  }
  static OpDef Identity(const char* type) {
    return OpDef(type).Doc("test").Input("X", "x").Output("Out", "out").Infer([](InferContext& c) {
      c.SetOutput("Out", c.Input("X"));
    });
  }
  void Add(const char* type, const char* in, const char* out, AttrList attrs = {}) {
    InferOp(test.root(),
            test.root().AppendOp(type, {{"X", {in}}}, {{"Out", {out}}}, std::move(attrs)), ops);
  }
  GradientExplanation Of(const std::string& of, const std::string& wrt = "w") {
    return ExplainGradient(test.program, of, wrt, options);
  }
  static void ExpectIn(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
  }
  OpRegistry ops;
  BackwardOptions options;
  TestProgram test;
};

TEST_F(Explain, AGradientStepByStep) {
  test.Op("t_tanh", {"h"}, "a");
  test.Op("t_mul", {"a", "w"}, "b");
  test.Loss("b");
  const ProgramDesc before = test.program;
  const GradientExplanation e = Of("loss");
  EXPECT_TRUE(test.program == before);
  EXPECT_EQ(e.gradient, "w@GRAD");
  EXPECT_TRUE(e.depends);
  ASSERT_EQ(e.path.size(), 2u) << "the shortest way is over b";
  EXPECT_EQ(e.path[0].from, "loss");
  EXPECT_EQ(e.path[0].to, "b");
  EXPECT_EQ(e.path[0].op, "t_sum_all, op 3 of block 0");
  EXPECT_EQ(e.path[1].from_slot, "Out");
  EXPECT_EQ(e.path[1].to_slot, "Y");
  EXPECT_EQ(e.contributions, (std::vector<std::string>{"t_mul, op 2 of block 0, Y",
                                                       "t_square, op 0 of block 0, X"}));
  ExpectIn(e.ToString(), "the gradient of 'loss' with respect to 'w' is 'w@GRAD'\n");
  ExpectIn(e.ToString(), "2 contributions are summed\n");
}

TEST_F(Explain, NamesForgeNoLines) {
  test.Op("t_tanh", {"h"}, "a\nthe gradient of 'w' is 'v'");
  test.Op("t_mul", {"a\nthe gradient of 'w' is 'v'", "w"}, "b");
  test.Loss("b");
  const std::string text = Of("loss").ToString();
  EXPECT_EQ(text.find("\nthe gradient of"), std::string::npos) << text;
}

TEST_F(Explain, StopGradientIsSet) {
  test.Op("t_tanh", {"h"}, "a");
  test.root().FindVar("h")->SetStopGradient(true);
  const GradientExplanation e = Of("a");
  EXPECT_EQ(e.gradient, "");
  EXPECT_TRUE(e.depends);
  EXPECT_EQ(e.reason, "stop_gradient is set on 'h', which is written by t_square, op 0 of block 0");
  ExpectIn(e.ToString(), "ends here");
  ExpectIn(Of("a", "h").reason, "stop_gradient is set on 'h'");
}

TEST_F(Explain, OtherObstacles) {
  Add("t_constant", "h", "c");
  Add("t_floor", "h", "f");
  Add("t_forbidden", "h", "p", {{"message", std::string("sampled")}});
  Add("t_index", "h", "i");
  Add("t_like", "h", "l");
  test.Op("t_tanh", {"h"}, "t");
  ExpectIn(Of("c").reason, "t_constant is not differentiable: it is a constant by decree");
  ExpectIn(Of("f").reason, "t_floor has no gradient");
  ExpectIn(Of("p").reason, "sampled");
  ExpectIn(Of("i").reason, "'i' holds int64");
  ExpectIn(Of("l").reason, "t_like reads only shapes");
  options.no_grad_set = {"h"};
  EXPECT_EQ(Of("t").reason, "'h' is in no_grad_set");
  options.no_grad_set = {};
  options.stop_gradients = {"h"};
  EXPECT_EQ(Of("t").reason, "'h' is in stop_gradients");
  EXPECT_EQ(Of("t", "h").gradient, "h@GRAD");
}

TEST_F(Explain, TheWayWithTheFewestObstacles) {
  Add("t_constant", "h", "c");
  test.Op("t_tanh", {"h"}, "t");
  test.Op("t_mul", {"c", "t"}, "y");
  const GradientExplanation e = Of("y");
  EXPECT_NE(e.gradient, "");
  for (const GradientStep& step : e.path) EXPECT_EQ(step.obstacle, "");
}

TEST_F(Explain, NothingLeadsThere) {
  test.Param("idle");
  test.Param("other");
  test.Op("t_tanh", {"other"}, "o");
  EXPECT_EQ(Of("h", "idle").reason, "'h' does not depend on 'idle': no op of block 0 reads it");
  ExpectIn(Of("h", "other").reason, "t_tanh, op 1 of block 0");
  EXPECT_FALSE(Of("h", "other").depends);
  try {
    Of("h", "othe");
    FAIL() << "no error";
  } catch (const Error& e) {
    ExpectIn(e.message(), "did you mean other");
  }
}

TEST_F(Explain, AnUpdate) {
  Add("assign", "h", "w", {{kOpRoleAttr, int32_t{kOptimize}}});
  test.Op("t_tanh", {"w"}, "after");
  const GradientExplanation e = Of("after", "h");
  EXPECT_EQ(e.gradient, "");
  ExpectIn(e.reason, "assign is an optimizer's op");
}

TEST_F(Explain, InsideASubBlock) {
  BlockDesc& body = test.program.AppendBlock(test.root());
  TestProgram::AppendTo(body, "t_tanh", {"h"}, "inner");
  InferOp(body, body.AppendOp("t_constant", {{"X", {"inner"}}}, {{"Out", {"h"}}}), ops);
  test.root().AppendOp("t_loop", {{"X", {"h"}}}, {{"Out", {"h"}}},
                       {{"sub_block", BlockRef{1}}, {"times", int32_t{1}}});
  test.Loss("h");
  const std::string text = Of("loss").ToString();
  ExpectIn(text, "through t_loop, op 1 of block 0");
  ExpectIn(text, "    h -> inner  through t_constant, op 1 of block 1");
  ExpectIn(text, "ends here: t_constant is not differentiable");
}

TEST_F(Explain, InsideABlockOfSeveral) {
  ops.Add(OpDef("t_switch")
              .Doc("test")
              .VariadicInput("X", "what the blocks read")
              .VariadicOutput("Out", "what they write")
              .Attr<std::vector<BlockRef>>("blocks", "one of them runs")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .Gradient([](GradientContext&) {}));
  BlockDesc& body = test.program.AppendBlock(test.root());
  test.root().Var("y").SetMeta(test.root().Var("h").meta());
  InferOp(body, body.AppendOp("t_constant", {{"X", {"h"}}}, {{"Out", {"y"}}}), ops);
  test.root().AppendOp("t_switch", {{"X", {"h"}}}, {{"Out", {"y"}}},
                       {{"blocks", std::vector<BlockRef>{{1}}}});
  test.Loss("y");
  const std::string text = Of("loss").ToString();
  ExpectIn(text, "through t_switch, op 1 of block 0");
  ExpectIn(text, "    y -> h  through t_constant, op 0 of block 1");
}

// Each step finds the block that its op runs.
TEST_F(Explain, ThousandsOfBlocks) {
  constexpr int kBlocks = 6000;
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y"})
    root.Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, {1}, 0});
  root.Var("c").SetMeta({VarType::kLoDTensor, DType::kBool, {1}, 0});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  for (int i = 0; i < kBlocks; ++i) {
    BlockDesc& inner = program.AppendBlock(root);
    inner.AppendOp("tanh", {{"X", {"y"}}}, {{"Out", {"y"}}});
    const std::string scope = "scope" + std::to_string(i);
    root.Var(scope).SetType(VarType::kStepScopes);
    root.AppendOp("conditional_block", {{"Cond", {"c"}}, {"Input", {"y"}}},
                  {{"Out", {"y"}}, {"Scope", {scope}}},
                  {{"sub_block", BlockRef{inner.idx()}}, {"is_scalar_condition", true}});
  }
  const GradientExplanation explained = ExplainGradient(program, "y", "x");
  EXPECT_TRUE(explained.depends);
  EXPECT_GE(explained.path.size(), static_cast<size_t>(kBlocks));
}

// A variable of thousands of values.
TEST_F(Explain, ThousandsOfOpsInPlace) {
  constexpr int kOps = 4000;
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y"})
    root.Var(name).SetMeta({VarType::kLoDTensor, DType::kFloat32, {1}, 0});
  root.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  for (int i = 0; i < kOps; ++i) root.AppendOp("tanh", {{"X", {"y"}}}, {{"Out", {"y"}}});
  const GradientExplanation explained = ExplainGradient(program, "y", "x");
  EXPECT_EQ(explained.gradient, "x@GRAD");
  EXPECT_EQ(explained.path.size(), static_cast<size_t>(kOps) + 1);
}

}  // namespace coracle::explain_test
