// Which layer ops belong to, in programs of texts and in others.

#include <coracle/coracle.h>
#include <coracle/inspect/op_layers.h>
#include <gtest/gtest.h>

namespace coracle::op_layers_test {

// "TYPE: LAYER" of each op of the root block, with the round in brackets.
std::vector<std::string> LayersOf(const ProgramDesc& program) {
  const OpLayers layers(program);
  std::vector<std::string> lines;
  program.Root().ForEachOp([&](const OpDesc& op) {
    const ModelLayer* layer = layers.Find(op);
    std::string line = op.type() + ":";
    if (layer) line += " " + layer->name;
    if (layer && !layer->round.empty()) line += " [" + layer->round + "]";
    lines.push_back(line);
  });
  return lines;
}

TEST(OpLayers, OfAModelText) {
  BuiltModel model = ParseModelText(R"(
    data { name: "x" shape: [-1, 4] }
    layer { repeat { times: 2 layer { fc { input: "x" size: 4 output: "y$i" } } } }
    layer { fc { name: "last" input: "y1" size: 3 act: "relu" } }
    layer { mean { input: "last.tmp_2" output: "loss" } })",
                                    "net.pbtxt");
  AppendBackward(Variable::Of(model.main.Root(), "loss"), {.parameter_list = {"last.w_0"}});
  const std::vector<std::string> expected = {"mul: y0 [i = 0]",     "elementwise_add: y0 [i = 0]",
                                             "mul: y1 [i = 1]",     "elementwise_add: y1 [i = 1]",
                                             "mul: last",           "elementwise_add: last",
                                             "relu: last",          "mean: loss",
                                             "fill_constant: loss", "mean_grad: loss",
                                             "relu_grad: last",     "elementwise_add_grad: last",
                                             "mul_grad: last"};
  EXPECT_EQ(LayersOf(model.main), expected);
  const OpLayers layers(model.main);
  EXPECT_EQ(layers.layers().size(), 4u);
  EXPECT_EQ(layers.Find(model.main.Root().op(0))->origin, "net.pbtxt:3:39");
}

// A program of Paddle has no places; the names of temporaries reveal the layers.
TEST(OpLayers, OfAProgramOfPaddle) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"conv2d_0.w_0", "bn_0.w_1"}) {
    root.Var(name).SetPersistable(true);
    root.Var(name).SetIsParameter(true);
  }
  const std::vector<std::string> stack = {"File \"train.py\", line 3, in <module>"};
  root.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"conv2d_0.w_0"}}},
                {{"Output", {"conv2d_0.tmp_0"}}}, {{"op_callstack", stack}});
  root.AppendOp("elementwise_add", {{"X", {"conv2d_0.tmp_0"}}}, {{"Out", {"conv2d_0.tmp_1"}}});
  root.AppendOp("batch_norm", {{"X", {"conv2d_0.tmp_1"}}, {"Mean", {"bn_0.w_1"}}},
                {{"MeanOut", {"bn_0.w_1"}}, {"Y", {"bn_0.tmp_2"}}});
  root.AppendOp("mean", {{"X", {"bn_0.tmp_2"}}}, {{"Out", {"loss"}}});
  root.AppendOp("conv2d_grad", {}, {{"Filter@GRAD", {"conv2d_0.w_0@GRAD"}}},
                {{"op_role", int32_t{kBackward}}});
  root.AppendOp("sgd", {{"Param", {"conv2d_0.w_0"}}, {"Grad", {"conv2d_0.w_0@GRAD"}}},
                {{"ParamOut", {"conv2d_0.w_0"}}}, {{"op_role", int32_t{kOptimize}}});
  root.AppendOp("merged_momentum", {{"Param", {"conv2d_0.w_0", "bn_0.w_1"}}}, {},
                {{"op_role", int32_t{kOptimize}}});
  const std::vector<std::string> expected = {"conv2d: conv2d_0",      "elementwise_add: conv2d_0",
                                             "batch_norm: bn_0",      "mean:",
                                             "conv2d_grad: conv2d_0", "sgd: conv2d_0",
                                             "merged_momentum:"};
  EXPECT_EQ(LayersOf(program), expected);
}
}  // namespace coracle::op_layers_test
