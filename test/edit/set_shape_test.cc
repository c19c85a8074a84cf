#include <coracle/edit/edit.h>
#include <coracle/test/edit/edit_programs.h>

namespace coracle::set_shape_test {

constexpr const char* kNet = R"(
  data { name: "x" shape: [-1, 3, 8, 8] }
  layer { conv2d { input: "x" num_filters: 4 filter_size: 3 output: "c" } }
  layer { pool2d { input: "c" pool_size: 2 pool_stride: 2 output: "p" } }
  layer { mean { input: "p" output: "loss" } }
)";

void Set(ProgramDesc& program, const InputShapes& shapes) {
  DeclareShapes(program, shapes, DefaultOps());
}

std::string ShapeOf(const ProgramDesc& program, const std::string& name) {
  return program.Root().FindVar(name)->shape().ToString();
}

TEST(SetShape, EverythingIsInferredAgain) {
  ProgramDesc net = ProgramOf(kNet);
  EXPECT_EQ(ShapeOf(net, "p"), "[-1, 4, 3, 3]");
  Set(net, {{"x", {2, 3, 12, -1}}});
  EXPECT_EQ(ShapeOf(net, "x"), "[2, 3, 12, -1]");
  EXPECT_EQ(ShapeOf(net, "c"), "[2, 4, 10, -1]");
  EXPECT_EQ(ShapeOf(net, "p"), "[2, 4, 5, -1]");
  Set(net, {{"x", {-1, 3, 8, 8}}});
  EXPECT_TRUE(net == ProgramOf(kNet));
}

TEST(SetShape, AContradictionIsTheOpsMessage) {
  ProgramDesc net = ProgramOf(kNet);
  const std::string text = WhatIsThrown([&] { Set(net, {{"x", {2, 4, 8, 8}}}); });
  EXPECT_EQ(text.find("block 0 op 0 (conv2d): conv2d: "), 0u) << text;
  EXPECT_NE(text.find("'x' float32[2, 4, 8, 8]"), std::string::npos) << text;
}

TEST(SetShape, OnlyInputsHaveShapesOfTheirOwn) {
  ProgramDesc net = ProgramOf(kNet);
  const auto refusal = [&](const std::string& name) {
    return WhatIsThrown([&] { Set(net, {{name, {1}}}); });
  };
  EXPECT_EQ(refusal("y").find("shape: the program has no var 'y'"), 0u) << refusal("y");
  EXPECT_EQ(refusal("p").find("shape: 'p' is not an input: block 0 op "), 0u) << refusal("p");
  EXPECT_EQ(refusal("conv2d_0.w_0"),
            "shape: 'conv2d_0.w_0' is persistable: its value determines its shape");
}

// Variables that the block of a loop makes of variables around it, and values that differ from
// round to round.
TEST(SetShape, Loops) {
  const std::string text = R"(
    data { name: "n" shape: [1] dtype: INT64 }
    data { name: "x" shape: [2, 3] }
    layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
    layer { scale { input: "x" scale: 1 output: "h" } }
    layer { scale { input: "x" scale: 1 output: "grows" } }
    layer { less_than { x: "i" y: "n" output: "more" } }
    layer { while { condition: "more"
      layer { scale { input: "h" scale: 2 output: "twice" } }
      layer { assign_to { x: "twice" var: "h" } }
      layer { concat { input: "grows" input: "x" axis: 0 output: "longer" } }
      layer { assign_to { x: "longer" var: "grows" } }
      layer { increment_by { var: "i" } }
      layer { less_than { x: "i" y: "n" output: "again" } }
      layer { assign_to { x: "again" var: "more" } } } }
    layer { scale { input: "h" scale: 1 output: "out" } }
    layer { scale { input: "grows" scale: 1 output: "long" } })";
  ProgramDesc net = ProgramOf(text);
  Set(net, {{"x", {5, 4}}});
  EXPECT_EQ(ShapeOf(net, "out"), "[5, 4]");
  EXPECT_EQ(ShapeOf(net, "long"), "[-1, 4]");
  EXPECT_EQ(net.Block(1).FindVar("twice")->shape().ToString(), "[5, 4]");
  EXPECT_EQ(net.Block(1).FindVar("longer")->shape().ToString(), "[-1, 4]");
}

TEST(SetShape, RecurrentNetsAndBranches) {
  const std::string text = R"(
    data { name: "x" shape: [7, 2, 1] }
    data { name: "h0" shape: [2, 1] }
    data { name: "p" shape: [1] dtype: BOOL }
    layer { static_rnn {
      step_input: "x"
      memory { name: "h" init: "h0" next: "sum" }
      layer { elementwise_add { x: "h" y: "x" output: "sum" } }
      step_output { var: "sum" output: "sums" } } }
    layer { cond { pred: "p" output: "z"
      then { layer { scale { input: "sums" scale: 2 output: "a" } } result: "a" }
      otherwise { layer { scale { input: "sums" scale: 3 output: "b" } } result: "b" } } })";
  ProgramDesc net = ProgramOf(text);
  Set(net, {{"x", {9, 5, 1}}, {"h0", {5, 1}}});
  EXPECT_EQ(ShapeOf(net, "sums"), "[9, 5, 1]");
  EXPECT_EQ(ShapeOf(net, "z"), "[9, 5, 1]");
  EXPECT_EQ(net.Block(1).FindVar("sum")->shape().ToString(), "[5, 1]");
  const std::string wrong = WhatIsThrown([&] { Set(net, {{"x", {9, 4, 1}}}); });
  EXPECT_EQ(wrong.find("block 1 op 0 (elementwise_add): elementwise_add: "), 0u) << wrong;
}

// The sum has the rows of x, and is what the next round reads as h.
TEST(SetShape, StateThatGrowsInTheFirstRound) {
  ProgramDesc net = ProgramOf(R"(
    data { name: "x" shape: [7, 2, 3] }
    data { name: "h0" shape: [2, 3] }
    layer { static_rnn {
      step_input: "x"
      memory { name: "h" init: "h0" next: "sum" }
      layer { elementwise_add { x: "x" y: "h" output: "sum" } }
      step_output { var: "sum" output: "sums" } } })");
  Set(net, {{"x", {7, 5, 3}}, {"h0", {1, 3}}});
  EXPECT_EQ(net.Block(1).FindVar("h")->shape().ToString(), "[-1, 3]");
}

TEST(SetShape, InputsThatAreUpdatedInPlace) {
  ProgramDesc program = Chain(1);
  program.Root().InsertOp(0, OpDesc("increment", {{"X", {"x"}}}, {{"Out", {"x"}}}));
  EXPECT_NE(WhatIsThrown([&] { Set(program, {{"v1", {1}}}); }), "");
  program.Root().FindVar("x")->SetShape({1});
  program.Root().FindVar("v1")->SetShape({1});
  EXPECT_EQ(WhatIsThrown([&] { Set(program, {{"x", {1}}}); }), "");
}

TEST(SetShape, WhatAFeedIsCheckedAgainst) {
  ProgramDesc net = ProgramOf(kNet);
  EXPECT_EQ(WhatIsThrown([&] {
              SetShapes(net, {{"x", {2, 3, 9, 8}}}, DefaultOps());
            }),
            "'x' is declared float32[-1, 3, 8, 8], so it cannot be [2, 3, 9, 8]");
  SetShapes(net, {{"x", {2, 3, 8, 8}}}, DefaultOps());
  EXPECT_EQ(ShapeOf(net, "p"), "[2, 4, 3, 3]");
}

TEST(SetShape, ALongChain) {
  ProgramDesc chain = Chain(100000);
  Set(chain, {{"x", {3, 4}}});
  EXPECT_EQ(ShapeOf(chain, "v100000"), "[3, 4]");
}
}  // namespace coracle::set_shape_test
