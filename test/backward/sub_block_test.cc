// Gradients of ops that run a sub-block: gradient blocks, checked on a plain loop op.

#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/loop_ops.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace coracle::sub_block_test {

using Names = std::vector<std::string>;

BackwardOptions Options() {
  BackwardOptions options;
  options.ops = &LoopOps();
  return options;
}

class SubBlockTest : public ::testing::Test {
 protected:
  SubBlockTest() { test.Param("w"); }

  BlockDesc& Body(BlockDesc& parent) { return test.program.AppendBlock(parent); }
  BlockDesc& Body() { return Body(test.root()); }
  static void Op(BlockDesc& block, const std::string& type, const Names& in,
                 const std::string& out) {
    TestProgram::AppendTo(block, type, in, out);
  }
  static OpDesc& Loop(BlockDesc& parent, const BlockDesc& body, Names x, Names out, int times) {
    return parent.AppendOp("t_loop", {{"X", std::move(x)}}, {{"Out", std::move(out)}},
                           {{"sub_block", BlockRef{body.idx()}}, {"times", int32_t{times}}});
  }
  std::vector<ParamAndGrad> Check(const std::string& end,
                                  const BackwardOptions& options = Options()) {
    auto pairs = AppendBackward(test.Loss(end), options);
    for (const VerifyProblem& p : Verify(test.program, LoopOps())) ADD_FAILURE() << p.ToString();
    ExpectLoopGradients(test, pairs);
    return pairs;
  }
  TestProgram test;
};

TEST_F(SubBlockTest, CarriedAndCaptured) {
  for (int times : {0, 1, 3}) {
    TestProgram fresh;
    std::swap(test.program, fresh.program);
    test.Param("w");
    test.Op("t_square", {"w"}, "h");
    BlockDesc& body = Body();
    Op(body, "t_mul", {"h", "w"}, "hw");
    Op(body, "t_tanh", {"hw"}, "h");
    Loop(test.root(), body, {"h", "w"}, {"h"}, times);
    auto pairs = Check("h");
    EXPECT_EQ(pairs[0].grad, "w@GRAD");
    const BlockDesc& gradient = test.program.Block(2);
    EXPECT_EQ(gradient.forward_block_idx(), 1);
    EXPECT_EQ(gradient.parent_idx(), 0);
  }
}

TEST_F(SubBlockTest, AnOverwrittenNameInsideIsSavedInTheForwardBlock) {
  test.Op("t_tanh", {"w"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_square", {"h"}, "a");  // its rule reads h
  Op(body, "t_mul", {"a", "w"}, "a");
  Op(body, "t_tanh", {"a"}, "h");
  Loop(test.root(), body, {"h", "w"}, {"h"}, 3);
  Check("h");
  int copies = 0;
  for (size_t i = 0; i < body.NumOps(); ++i) copies += body.op(i).type() == "assign";
  EXPECT_EQ(copies, 2) << "h as it was read, and the first a";
}

TEST_F(SubBlockTest, AStateThatOnlyLaterRunsPassOn) {
  // b reaches the end over a, a over h, in three runs: the wanted and the arriving sets are closed.
  test.Op("t_tanh", {"w"}, "b");
  test.Op("t_square", {"w"}, "a");
  test.Op("t_shift", {"w"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_add", {"h", "a"}, "h");
  Op(body, "t_mul", {"a", "b"}, "a");
  Op(body, "t_tanh", {"b"}, "b");
  Loop(test.root(), body, {"h", "a", "b"}, {"h", "a", "b"}, 4);
  Check("h");
}

TEST_F(SubBlockTest, AConstantStartThatTheParameterReachesLater) {
  test.Data("zero");
  test.Op("assign", {"zero"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_add", {"h", "w"}, "s");
  Op(body, "t_tanh", {"s"}, "h");
  Loop(test.root(), body, {"h", "w"}, {"h"}, 3);
  Check("h");
}

TEST_F(SubBlockTest, OutputThatIsWrittenButNotRead) {
  for (int times : {0, 2}) {
    TestProgram fresh;
    std::swap(test.program, fresh.program);
    test.Param("w");
    test.Op("t_square", {"w"}, "y");  // what y is when the loop runs zero times
    BlockDesc& body = Body();
    Op(body, "t_tanh", {"w"}, "y");
    Loop(test.root(), body, {"w"}, {"y"}, times);
    Check("y");
  }
}

TEST_F(SubBlockTest, Nested) {
  test.Op("t_square", {"w"}, "h");
  BlockDesc& outer = Body();
  Op(outer, "t_shift", {"h"}, "u");
  BlockDesc& inner = Body(outer);
  Op(inner, "t_mul", {"u", "w"}, "uw");
  Op(inner, "t_tanh", {"uw"}, "u");
  Loop(outer, inner, {"u", "w"}, {"u"}, 2);
  Op(outer, "t_mul", {"u", "h"}, "h");
  Loop(test.root(), outer, {"h", "w"}, {"h"}, 3);
  Check("h");
}

TEST_F(SubBlockTest, DeepNesting) {
  test.Op("t_square", {"w"}, "h");
  std::vector<BlockDesc*> blocks = {&test.root()};
  for (int depth = 0; depth < 20; ++depth) blocks.push_back(&Body(*blocks.back()));
  Op(*blocks.back(), "t_mul", {"h", "w"}, "m");
  Op(*blocks.back(), "t_tanh", {"m"}, "h");
  for (size_t d = blocks.size() - 1; d > 0; --d)
    Loop(*blocks[d - 1], *blocks[d], {"h", "w"}, {"h"}, d % 9 == 0 ? 2 : 1);
  Check("h");
}

TEST_F(SubBlockTest, CapturedVariableThatIsOverwrittenAfterTheLoop) {
  test.Op("t_tanh", {"w"}, "c");
  test.Op("t_square", {"w"}, "h");
  BlockDesc& outer = Body();
  BlockDesc& inner = Body(outer);
  Op(inner, "t_mul", {"h", "c"}, "hc");
  Op(inner, "t_tanh", {"hc"}, "h");
  Loop(outer, inner, {"h", "c"}, {"h"}, 2);
  Loop(test.root(), outer, {"h", "c"}, {"h"}, 2);
  test.Op("t_shift", {"c"}, "c");  // the gradient blocks must not see this
  test.Op("t_mul", {"h", "c"}, "y");
  Check("y");
}

TEST_F(SubBlockTest, OnlyOpsOnThePathGetGradients) {
  test.Op("t_square", {"w"}, "h");
  test.Data("x");
  BlockDesc& body = Body();
  Op(body, "t_square", {"x"}, "aside");
  Op(body, "t_floor", {"aside"}, "floored");  // has no rule, and needs none
  Op(body, "t_tanh", {"h"}, "h");
  Loop(test.root(), body, {"h", "x"}, {"h"}, 2);
  Check("h");
  const BlockDesc& gradient = test.program.Block(2);
  EXPECT_EQ(gradient.NumOps(), 1u);
  EXPECT_EQ(gradient.op(0).type(), "t_tanh_grad");
  EXPECT_EQ(FindForwardOp(gradient.op(0)), &body.op(2));
}

TEST_F(SubBlockTest, AnOpWithoutRuleInsideIsAnErrorOnThePathOnly) {
  test.Op("t_square", {"w"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_floor", {"h"}, "h");
  Loop(test.root(), body, {"h"}, {"h"}, 2);
  Variable loss = test.Loss("h");
  const ProgramDesc before = test.program;
  try {
    AppendBackward(loss, Options());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnimplemented);
    EXPECT_NE(e.message().find("t_floor has no gradient"), std::string::npos) << e.what();
    EXPECT_NE(e.details().find("op 0 of block 1"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(test.program == before) << "what was appended is taken back";
}

TEST_F(SubBlockTest, CapturedVariableThatNoSlotLists) {
  test.Op("t_square", {"w"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_mul", {"h", "w"}, "h");
  Loop(test.root(), body, {"h"}, {"h"}, 2);
  Variable loss = test.Loss("h");
  try {
    AppendBackward(loss, Options());
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("t_loop reads 'w' in its sub-block"), std::string::npos) << e.what();
  }
}

TEST_F(SubBlockTest, ErrorClipActsOnInnerAndCapturedVariables) {
  test.Op("t_square", {"w"}, "h");
  BlockDesc& body = Body();
  Op(body, "t_mul", {"h", "w"}, "m");
  Op(body, "t_tanh", {"m"}, "h");
  body.FindVar("m")->SetErrorClip(ErrorClipByValue(1e-3));
  test.root().FindVar("w")->SetErrorClip(ErrorClipByValue(1e-2));
  Loop(test.root(), body, {"h", "w"}, {"h"}, 2);
  BackwardOptions options = Options();
  options.callbacks = {ErrorClipCallback};
  options.no_grad_set = {"h"};
  options.no_grad_set.clear();
  AppendBackward(test.Loss("h"), options);
  auto clipped = [](const BlockDesc& block) {
    Names names;
    for (size_t i = 0; i < block.NumOps(); ++i) {
      if (block.op(i).type() == "clip") names.push_back(block.op(i).Output("Out")[0]);
    }
    return names;
  };
  EXPECT_EQ(clipped(test.program.Block(2)), Names{"m@GRAD"});
  // The share of one run is not the gradient of w: the sum outside is.
  EXPECT_EQ(clipped(test.root()), Names{"w@GRAD"});
}

TEST_F(SubBlockTest, RandomLoops) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    uint32_t state = seed * 7919 + 1;
    auto pick = [&](size_t n) {
      state = state * 1664525u + 1013904223u;
      return (state >> 16) % n;
    };
    TestProgram fresh;
    std::swap(test.program, fresh.program);
    for (const char* name : {"w", "v"}) test.Param(name);
    test.Data("x");
    const Names states = {"a", "b", "c"};
    test.Op("t_tanh", {"w"}, "a");
    test.Op("t_mul", {"w", "v"}, "b");
    test.Op("t_shift", {"x"}, "c");
    auto fill = [&](BlockDesc& block, const std::string& prefix) {
      Names live = {"a", "b", "c", "w", "v", "x"};
      for (int i = 0; i < 5; ++i) {
        const std::string out = pick(2) ? states[pick(3)] : fmt::format("{}{}", prefix, pick(3));
        const std::string in = live[pick(live.size())], other = live[pick(live.size())];
        if (pick(2))
          Op(block, pick(2) ? "t_add" : "t_mul", {in, other}, out);
        else
          Op(block, "t_tanh", {in}, out);
        live.push_back(out);
      }
    };
    BlockDesc& outer = Body();
    fill(outer, "o");
    BlockDesc& inner = Body(outer);
    fill(inner, "i");
    const Names x = {"a", "b", "c", "w", "v", "x"};
    Loop(outer, inner, x, states, static_cast<int>(pick(3)));
    fill(outer, "p");
    Loop(test.root(), outer, x, states, static_cast<int>(pick(4)));
    test.Op("t_add", {"a", "b"}, "ab");
    test.Op("t_mul", {"ab", "c"}, "abc");
    test.Op("t_tanh", {"abc"}, "end");
    Check("end");
    if (HasFailure()) return;
  }
}

// An op that runs one of its blocks, the first here; its gradient op lists nothing of
// what they read.
void RegisterSwitch(OpRegistry& ops) {
  ops.Add(OpDef("t_switch")
              .Doc("test")
              .VariadicInput("X", "what the blocks read")
              .Output("Out", "what they write")
              .Attr<std::vector<BlockRef>>("blocks", "one of them runs")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .Gradient([](GradientContext& g) {
                GradientBlockRequest request;
                request.forward_block = g.op().SubBlocks()[0];
                request.outputs = {g.forward_op().Output("Out")[0]};
                request.inputs = {g.forward_op().Input("X")[0]};
                const GradientBlock block = g.AppendGradientBlock(request);
                g.Append("t_switch_grad", {{"Out@GRAD", {g.OutputGrad("Out")}}},
                         {{"X@GRAD", g.InputGrads("X")}},
                         {{"blocks", std::vector<BlockRef>{BlockRef{block.idx}}}});
              }));
  ops.Add(OpDef("t_switch_grad")
              .Doc("test")
              .Input("Out@GRAD", "dout")
              .VariadicOutput("X@GRAD", "dx")
              .Attr<std::vector<BlockRef>>("blocks", "gradient blocks")
              .Infer([](InferContext& c) { c.SetOutput("X@GRAD", c.Input("Out@GRAD")); })
              .NoGradient("first order only"));
}

TEST_F(SubBlockTest, WhatAGradientBlockReadsThroughOneOfSeveralBlocks) {
  OpRegistry ops;
  RegisterTestOps(ops);
  RegisterLoop(ops);
  RegisterSwitch(ops);
  test.Data("d");
  test.Op("t_square", {"w"}, "h");
  BlockDesc& outer = Body();
  BlockDesc& inner = Body(outer);
  Op(outer, "t_shift", {"h"}, "u");
  Op(inner, "t_mul", {"u", "d"}, "y");  // its gradient reads d
  outer.Var("y").SetMeta(test.root().Var("h").meta());
  inner.RemoveVar("y");
  outer.AppendOp("t_switch", {{"X", {"u", "d"}}}, {{"Out", {"y"}}},
                 {{"blocks", std::vector<BlockRef>{{inner.idx()}}}});
  Op(outer, "t_tanh", {"y"}, "h");
  Loop(test.root(), outer, {"h", "d"}, {"h"}, 1);
  Names reads;
  BackwardOptions options;
  options.ops = &ops;
  options.overrides = {
      {"t_loop", [&](GradientContext& g) {
         const GradientBlock block = g.AppendGradientBlock({outer.idx(), {"h"}, {"h"}, {}});
         reads = block.outer_reads;
         g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
       }}};
  AppendBackward(test.Loss("h"), options);
  EXPECT_EQ(std::count(reads.begin(), reads.end(), "d"), 1);
}
}  // namespace coracle::sub_block_test
