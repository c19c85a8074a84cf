// Layers that hold layers, in model text: what they compute.
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

namespace coracle::control_flow_text_test {

std::vector<float> Outcome(const std::string& text, const std::map<std::string, Tensor>& feeds,
                           const std::string& fetch) {
  const BuiltModel model = ParseModelText(text);
  Scope scope;
  Executor().Run(model.startup, scope);
  const Tensor out = Executor().Run(model.main, scope, feeds, {fetch})[0].Cast(DType::kFloat32);
  return {out.span<float>().begin(), out.span<float>().end()};
}

std::string ErrorOf(const std::string& text) {
  return coracle::ErrorOf([&] { ParseModelText(text); });
}

constexpr const char* kLoop = R"(
  data { name: "n" shape: [1] dtype: INT64 }
  data { name: "x" shape: [2] }
  layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
  layer { less_than { x: "i" y: "n" output: "more" } }
  layer { scale { input: "x" scale: 1 output: "h" } }
  layer { create_array { dtype: FP32 output: "all" } }
  layer {
    while {
      condition: "more"
      layer { elementwise_add { x: "h" y: "x" output: "next" } }
      layer { array_write { x: "next" i: "i" array: "all" } }
      layer { assign_to { x: "next" var: "h" } }
      layer { increment_by { var: "i" } }
      layer { less_than { x: "i" y: "n" output: "again" } }
      layer { assign_to { x: "again" var: "more" } }
    }
  }
  layer { array_length { array: "all" output: "length" } }
)";

std::map<std::string, Tensor> LoopFeeds(int64_t n) {
  return {{"n", Tensor::Full<int64_t>({1}, n)}, {"x", Tensor::Of<float>({2}, {1, -2})}};
}

TEST(ControlFlowText, While) {
  EXPECT_EQ(Outcome(kLoop, LoopFeeds(3), "h"), (std::vector<float>{4, -8}));
  EXPECT_EQ(Outcome(kLoop, LoopFeeds(3), "length"), (std::vector<float>{3}));
  EXPECT_EQ(Outcome(kLoop, LoopFeeds(0), "h"), (std::vector<float>{1, -2}));
}

TEST(ControlFlowText, DumpIndentsBlocks) {
  const std::string dump = PrintProgram(ParseModelText(kLoop).main);
  EXPECT_NE(dump.find("\n  block 1, parent 0\n"), std::string::npos) << dump;
  EXPECT_NE(dump.find("\n    ops\n"), std::string::npos) << dump;
}

TEST(ControlFlowText, IfAndCond) {
  const std::string text = R"(
    data { name: "p" shape: [1] dtype: BOOL }
    data { name: "x" shape: [2] }
    layer { scale { input: "x" scale: 1 output: "y" } }
    layer { if { condition: "p"
      layer { scale { input: "x" scale: 10 output: "ten" } }
      layer { assign_to { x: "ten" var: "y" } } } }
    layer { cond { pred: "p" output: "z"
      then { layer { scale { input: "y" scale: 2 output: "a" } } result: "a" }
      otherwise { layer { scale { input: "y" scale: 3 output: "b" } } result: "b" } } }
    layer { scale { input: "z" scale: 1 output: "out" } }
  )";
  const Tensor x = Tensor::Of<float>({2}, {1, -2});
  EXPECT_EQ(Outcome(text, {{"p", Tensor::Full<bool>({1}, true)}, {"x", x}}, "out"),
            (std::vector<float>{20, -40}));
  EXPECT_EQ(Outcome(text, {{"p", Tensor::Full<bool>({1}, false)}, {"x", x}}, "out"),
            (std::vector<float>{3, -6}));
}

TEST(ControlFlowText, Switch) {
  const std::string text = R"(
    data { name: "step" shape: [1] }
    layer { fill_constant { shape: [1] value: 0 output: "rate" } }
    layer { fill_constant { shape: [1] value: 10 output: "ten" } }
    layer { fill_constant { shape: [1] value: 20 output: "twenty" } }
    layer { less_than { x: "step" y: "ten" output: "early" } }
    layer { less_than { x: "step" y: "twenty" output: "middle" } }
    layer { switch {
      case { condition: "early" layer { assign_to { x: "ten" var: "rate" } } }
      case { condition: "middle" layer { assign_to { x: "twenty" var: "rate" } } }
      default { layer { assign_to { x: "step" var: "rate" } } } } }
  )";
  for (auto [step, rate] : {std::pair{5.0f, 10.0f}, {15.0f, 20.0f}, {25.0f, 25.0f}})
    EXPECT_EQ(Outcome(text, {{"step", Tensor::Full<float>({1}, step)}}, "rate"),
              (std::vector<float>{rate}));
}

TEST(ControlFlowText, StaticRnn) {
  const std::string text = R"(
    data { name: "x" shape: [-1, 2, 1] }
    data { name: "h0" shape: [2, 1] }
    data { name: "lengths" shape: [2] dtype: INT64 }
    layer { static_rnn {
      step_input: "x" lengths: "lengths"
      memory { name: "h" init: "h0" next: "sum" }
      layer { elementwise_add { x: "h" y: "x" output: "sum" } }
      step_output { var: "sum" output: "sums" } } }
  )";
  EXPECT_EQ(Outcome(text,
                    {{"x", Tensor::Of<float>({3, 2, 1}, {1, 10, 2, 20, 3, 30})},
                     {"h0", Tensor::Zeros(DType::kFloat32, {2, 1})},
                     {"lengths", Tensor::Of<int64_t>({2}, {3, 1})}},
                    "sums"),
            (std::vector<float>{1, 10, 3, 0, 6, 0}));
}

TEST(ControlFlowText, Errors) {
  EXPECT_NE(ErrorOf("layer { while { condition: \"c\" } }").find("no variable 'c'"),
            std::string::npos);
  EXPECT_NE(ErrorOf("layer { if { } }").find("condition is required"), std::string::npos);
  EXPECT_NE(ErrorOf("layer { while { conditon: \"c\" } }").find("did you mean condition"),
            std::string::npos);
  EXPECT_NE(ErrorOf("data { name: \"x\" shape: [1] } layer { while { condition: \"x\" } }")
                .find("while: condition must hold one bool"),
            std::string::npos);
  EXPECT_NE(ErrorOf("data { name: \"x\" shape: [3, 2] } layer { static_rnn { step_input: \"x\" "
                    "memory { name: \"h\" init: \"x\" next: \"none\" } } }")
                .find("no variable 'none'"),
            std::string::npos);
  std::string deep = "data { name: \"p\" shape: [1] dtype: BOOL }";
  for (int i = 0; i < 80; ++i) deep += "layer { if { condition: \"p\" ";
  for (int i = 0; i < 80; ++i) deep += "} }";
  EXPECT_NE(ErrorOf(deep).find("nested"), std::string::npos) << ErrorOf(deep);
}
}  // namespace coracle::control_flow_text_test
