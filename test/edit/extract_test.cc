#include <coracle/backward/backward.h>
#include <coracle/edit/edit.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/edit/edit_programs.h>
#include <fmt/format.h>

namespace coracle::extract_test {

using Names = std::vector<std::string>;

constexpr const char* kNet = R"(
  data { name: "x" shape: [-1, 3] }
  data { name: "y" shape: [-1, 2] }
  layer { fc { input: "x" size: 4 output: "h" } }
  layer { relu { input: "h" output: "r" } }
  layer { fc { input: "r" size: 2 output: "z" } }
  layer { elementwise_sub { x: "z" y: "y" output: "d" } }
  layer { mean { input: "d" output: "loss" } }
)";

ExtractedProgram Extract(const ProgramDesc& program, Names inputs, Names outputs) {
  return ExtractProgram(program, {std::move(inputs), std::move(outputs)}, DefaultOps());
}

TEST(Extract, OpsVariablesAndParametersThatTheOutputNeeds) {
  const ProgramDesc net = ProgramOf(kNet);
  const ExtractedProgram part = Extract(net, {}, {"r"});
  EXPECT_EQ(part.inputs, Names{"x"});
  EXPECT_EQ(FeedNames(part.program), Names{"x"});
  EXPECT_EQ(FetchNames(part.program), Names{"r"});
  EXPECT_EQ(PersistableNames(part.program), (Names{"fc_0.b_0", "fc_0.w_0"}));
  EXPECT_EQ(part.program.Root().FindVar("y"), nullptr);
  EXPECT_EQ(part.program.Root().FindVar("z"), nullptr);
  EXPECT_TRUE(part.program.Root().FindVar("x")->need_check_feed());
  EXPECT_NO_THROW(VerifyOrThrow(part.program, DefaultOps()));
}

TEST(Extract, HalvesInTurnAreTheWhole) {
  Scope scope;
  const ProgramDesc net = ProgramOf(kNet, scope);
  const Tensor x = Tensor::Of<float>({2, 3}, {1, -2, 3, 0.5, 0, -1});
  const Tensor y = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  const auto whole = Executor().Run(net, scope, {{"x", x}, {"y", y}}, {"r", "loss"});
  const ExtractedProgram head = Extract(net, {"x"}, {"r"}),
                         tail = Extract(net, {"r", "y"}, {"loss"});
  EXPECT_EQ(PersistableNames(tail.program), (Names{"fc_1.b_0", "fc_1.w_0"}));
  const Tensor r = Executor().Run(head.program, scope, {{"x", x}}, {"r"})[0];
  EXPECT_EQ(Floats(r), Floats(whole[0]));
  const Tensor loss = Executor().Run(tail.program, scope, {{"r", r}, {"y", y}}, {"loss"})[0];
  EXPECT_EQ(Floats(loss), Floats(whole[1]));
}

TEST(Extract, AMissingInputIsNamedWithThePathFromIt) {
  const ProgramDesc net = ProgramOf(kNet);
  const std::string text = WhatIsThrown([&] { Extract(net, {"r"}, {"loss"}); });
  EXPECT_NE(text.find("extract: 'y' is missing among the inputs: no op computes it, and it is read "
                      "by block 0 op "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  'y' -> block 0 op "), std::string::npos) << text;
  EXPECT_NE(text.find(" (elementwise_sub) -> 'd'\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" (mean) -> 'loss'"), std::string::npos) << text;
}

TEST(Extract, WrongNamesAndKindsAreRefused) {
  const ProgramDesc net = ProgramOf(kNet);
  const auto refusal = [&](Names inputs, Names outputs) {
    return WhatIsThrown([&] { Extract(net, inputs, outputs); });
  };
  EXPECT_EQ(refusal({}, {"lost"}),
            "extract: outputs: the program has no var 'lost'; did you mean loss?");
  EXPECT_EQ(refusal({"xx"}, {"loss"}).find("extract: inputs: the program has no var 'xx'"), 0u);
  EXPECT_EQ(refusal({}, {}), "extract: no output is named");
  EXPECT_EQ(refusal({"x", "x"}, {"r"}), "extract: input 'x' is named twice");
  EXPECT_EQ(refusal({"x"}, {"r", "r"}), "extract: output 'r' is named twice");
  EXPECT_EQ(refusal({"x", "r"}, {"r"}), "extract: 'r' is an input and an output");
  EXPECT_EQ(refusal({}, {"x"}), "extract: no op computes the output 'x'");
}

TEST(Extract, AnInputThatNothingNeedsIsTold) {
  const ExtractedProgram part = Extract(ProgramOf(kNet), {"x", "y"}, {"r"});
  EXPECT_EQ(part.unused_inputs, Names{"y"});
  EXPECT_EQ(FeedNames(part.program), (Names{"x", "y"}));
}

TEST(Extract, AParameterMayBeFed) {
  Scope scope;
  const ProgramDesc net = ProgramOf(kNet, scope);
  const ExtractedProgram part = Extract(net, {"x", "fc_0.w_0"}, {"h"});
  EXPECT_EQ(PersistableNames(part.program), Names{"fc_0.b_0"});
  const Tensor h = Executor().Run(
      part.program, scope,
      {{"x", Tensor::Of<float>({1, 3}, {1, 2, 3})}, {"fc_0.w_0", Tensor::Full<float>({3, 4}, 1)}},
      {"h"})[0];
  EXPECT_EQ(Floats(h), (std::vector<float>{6, 6, 6, 6}));
}

// t = 2x; u = t + 1; t += 1 in place; v = 3t.
ProgramDesc InPlace() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "t", "u", "v"}) {
    root.Var(name).SetDType(DType::kFloat32);
    root.Var(name).SetShape({1});
  }
  root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"t"}}}, {{"scale", 2.0f}});
  root.AppendOp("scale", {{"X", {"t"}}}, {{"Out", {"u"}}}, {{"bias", 1.0f}});
  root.AppendOp("increment", {{"X", {"t"}}}, {{"Out", {"t"}}}, {{"step", 1.0f}});
  root.AppendOp("scale", {{"X", {"t"}}}, {{"Out", {"v"}}}, {{"scale", 3.0f}});
  return program;
}

TEST(Extract, OfAVariableThatIsWrittenTwiceTheLastValueIsCut) {
  const ProgramDesc program = InPlace();
  Scope scope;
  const std::map<std::string, Tensor> x = {{"x", Tensor::Of<float>({1}, {5})}};
  EXPECT_EQ(Floats(Executor().Run(Extract(program, {}, {"v"}).program, scope, x, {"v"})[0]),
            (std::vector<float>{33}));
  EXPECT_EQ(OpTypes(Extract(program, {}, {"u"}).program.Root()),
            (Names{"feed", "scale", "scale", "fetch"}));
  const ExtractedProgram tail = Extract(program, {"t"}, {"v"});
  EXPECT_EQ(OpTypes(tail.program.Root()), (Names{"feed", "scale", "fetch"}));
  const std::map<std::string, Tensor> t = {{"t", Tensor::Of<float>({1}, {11})}};
  EXPECT_EQ(Floats(Executor().Run(tail.program, scope, t, {"v"})[0]), (std::vector<float>{33}));
  const std::string text = WhatIsThrown([&] { Extract(program, {"t"}, {"u"}); });
  EXPECT_EQ(text.find("extract: the input 't' means its value after block 0 op 2 (increment), "
                      "but block 0 op 1 (scale), which the outputs depend on, reads it before"),
            0u)
      << text;
}

TEST(Extract, AnInputThatIsUpdatedInPlaceStandsForWhatIsFed) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "y"}) {
    root.Var(name).SetDType(DType::kFloat32);
    root.Var(name).SetShape({1});
  }
  root.AppendOp("increment", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"step", 1.0f}});
  root.AppendOp("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"scale", 3.0f}});
  Scope scope;
  const std::map<std::string, Tensor> x = {{"x", Tensor::Of<float>({1}, {5})}};
  for (const Names& inputs : {Names{}, Names{"x"}}) {
    const ExtractedProgram part = Extract(program, inputs, {"y"});
    EXPECT_EQ(part.inputs, Names{"x"});
    EXPECT_EQ(Floats(Executor().Run(part.program, scope, x, {"y"})[0]), (std::vector<float>{18}));
  }
}

// An overwritten value is not computed: with it 'a' would be an input.
TEST(Extract, WhatIsOverwrittenBeforeItIsReadIsLeftOut) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"a", "b", "t", "y"}) {
    root.Var(name).SetDType(DType::kFloat32);
    root.Var(name).SetShape({1});
  }
  root.AppendOp("scale", {{"X", {"a"}}}, {{"Out", {"t"}}});
  root.AppendOp("scale", {{"X", {"b"}}}, {{"Out", {"t"}}});
  root.AppendOp("scale", {{"X", {"t"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Extract(program, {}, {"y"}).inputs, Names{"b"});
  EXPECT_EQ(Extract(program, {"b"}, {"y"}).program.Root().FindVar("a"), nullptr);
}

TEST(Extract, GradientsWithTheForwardOpsThatTheyRead) {
  Scope scope;
  ProgramDesc net = ProgramOf(kNet, scope);
  net.Root().FindVar("r")->SetErrorClip(ErrorClipByValue(0.1));
  AppendBackward(Variable::Of(net.Root(), "loss"));
  const std::map<std::string, Tensor> feeds = {{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})},
                                               {"y", Tensor::Of<float>({1, 2}, {1, 2})}};
  // The gradients of the first layer are not needed for the gradient of its result.
  EXPECT_EQ(Extract(net, {}, {"r@GRAD"}).program.Root().FindVar("fc_0.w_0@GRAD"), nullptr);
  const ExtractedProgram part = Extract(net, {}, {"fc_0.w_0@GRAD"});
  std::map<std::string, Tensor> own;
  for (const std::string& name : part.inputs) own[name] = feeds.at(name);
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, own, {"fc_0.w_0@GRAD"})[0]),
            Floats(Executor().Run(net, scope, feeds, {"fc_0.w_0@GRAD"})[0]));
}

TEST(Extract, SparseGradientsAreFetchedAsDenseCopies) {
  Scope scope;
  ProgramDesc net = ProgramOf(R"(
    data { name: "ids" shape: [-1] dtype: INT64 }
    layer { embedding { input: "ids" num_embeddings: 4 embedding_dim: 2 is_sparse: true
                        param { name: "table" } output: "e" } }
    layer { mean { input: "e" output: "loss" } })",
                              scope);
  AppendBackward(Variable::Of(net.Root(), "loss"));
  const ExtractedProgram part = Extract(net, {}, {"table@GRAD"});
  ASSERT_EQ(part.outputs.size(), 1u);
  const Tensor gradient = Executor().Run(
      part.program, scope, {{"ids", Tensor::Of<int64_t>({2}, {3, 3})}}, {part.outputs})[0];
  EXPECT_EQ(Floats(gradient), (std::vector<float>{0, 0, 0, 0, 0, 0, 0.5, 0.5}));
}

// Two loops and a branch; the second loop draws random numbers.
constexpr const char* kLoops = R"(
  data { name: "n" shape: [1] dtype: INT64 }
  data { name: "x" shape: [2] }
  layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
  layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "j" } }
  layer { scale { input: "x" scale: 1 output: "h" } }
  layer { scale { input: "x" scale: 1 output: "g" } }
  layer { less_than { x: "i" y: "n" output: "more" } }
  layer { less_than { x: "j" y: "n" output: "more2" } }
  layer { while { condition: "more"
    layer { elementwise_add { x: "h" y: "x" output: "next" } }
    layer { assign_to { x: "next" var: "h" } }
    layer { increment_by { var: "i" } }
    layer { less_than { x: "i" y: "n" output: "again" } }
    layer { assign_to { x: "again" var: "more" } } } }
  layer { while { condition: "more2"
    layer { op { uniform_random { Out: ["drawn"] shape: [2] } } }
    layer { elementwise_add { x: "g" y: "drawn" output: "next2" } }
    layer { assign_to { x: "next2" var: "g" } }
    layer { increment_by { var: "j" } }
    layer { less_than { x: "j" y: "n" output: "again2" } }
    layer { assign_to { x: "again2" var: "more2" } } } }
)";

std::map<std::string, Tensor> LoopFeeds() {
  return {{"n", Tensor::Full<int64_t>({1}, 3)}, {"x", Tensor::Of<float>({2}, {1, -2})}};
}

TEST(Extract, BlocksThatNobodyRunsAreRemoved) {
  const ProgramDesc loops = ProgramOf(kLoops);
  ASSERT_EQ(loops.NumBlocks(), 3);
  const ExtractedProgram part = Extract(loops, {}, {"h"});
  EXPECT_EQ(part.program.NumBlocks(), 2);
  EXPECT_EQ(part.program.Root().FindVar("g"), nullptr);
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, LoopFeeds(), {"h"})[0]),
            (std::vector<float>{4, -8}));
}

TEST(Extract, RandomOpsInBlocksDrawWhatTheyDrew) {
  const ProgramDesc loops = ProgramOf(kLoops);
  const ExtractedProgram part = Extract(loops, {}, {"g"});
  EXPECT_EQ(part.program.NumBlocks(), 3);
  EXPECT_EQ(part.program.Block(1).NumOps(), 0u);
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, LoopFeeds(), {"g"})[0]),
            Floats(Executor().Run(loops, scope, LoopFeeds(), {"g"})[0]));
}

// Blocks after the last one that draws have no reason to stay.
TEST(Extract, OnlyBlocksBeforeRandomOpsAreLeftEmpty) {
  const std::string drawn = R"(op { uniform_random { Out: ["drawn"] shape: [2] } })";
  const std::string scaled = R"(scale { input: "x" scale: 1 output: "drawn" })";
  const std::string added = R"(elementwise_add { x: "h" y: "x" output: "next" })";
  std::string first = kLoops;  // the first loop draws, the second does not
  first.replace(first.find(drawn), drawn.size(), scaled);
  first.replace(first.find(added), added.size(),
                drawn + " } layer { elementwise_add { x: \"h\" y: \"drawn\" output: \"next\" }");
  const ProgramDesc loops = ProgramOf(first);
  const ExtractedProgram part = Extract(loops, {}, {"h"});
  EXPECT_EQ(part.program.NumBlocks(), 2);
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, LoopFeeds(), {"h"})[0]),
            Floats(Executor().Run(loops, scope, LoopFeeds(), {"h"})[0]));
  // With is_test, dropout draws nothing.
  for (const bool is_test : {false, true}) {
    std::string text = kLoops;
    text.replace(text.find(drawn), drawn.size(),
                 fmt::format(R"(op {{ dropout {{ X: ["x"] Out: ["drawn"] Mask: ["m"] {} }} }})",
                             is_test ? "is_test: true" : ""));
    EXPECT_EQ(Extract(ProgramOf(text), {}, {"g"}).program.NumBlocks(), is_test ? 2 : 3);
  }
}

// A call draws in a copy of its function's inner blocks, which comes after all blocks, so they keep
// their number.
TEST(Extract, BlocksStayWhereFunctionsDraw) {
  ProgramDesc program = ProgramOf(kLoops);
  AppendCallThatDraws(program);
  program.AppendBlock(0);  // nobody runs it
  const ExtractedProgram part = Extract(program, {}, {"q"});
  EXPECT_EQ(part.program.NumBlocks(), program.NumBlocks());
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, {{"x", Tensor::Of<float>({2}, {1, 2})}},
                                  {"q"})[0]),
            Floats(Executor().Run(program, scope, LoopFeeds(), {"q"})[0]));
}

TEST(Extract, BlocksAreRenumbered) {
  std::string text = kLoops;
  const std::string drawn = R"(op { uniform_random { Out: ["drawn"] shape: [2] } })";
  text.replace(text.find(drawn), drawn.size(), R"(scale { input: "x" scale: 1 output: "drawn" })");
  const ProgramDesc loops = ProgramOf(text);
  const ExtractedProgram part = Extract(loops, {}, {"g"});
  ASSERT_EQ(part.program.NumBlocks(), 2);
  part.program.Root().ForEachOp([&](const OpDesc& op) {
    if (op.HasSubBlock()) {
      EXPECT_EQ(op.SubBlocks(), std::vector<int>{1});
    }
  });
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, LoopFeeds(), {"g"})[0]),
            (std::vector<float>{4, -8}));
}

TEST(Extract, TheGradientOfALoopWithBothOfItsBlocks) {
  ProgramDesc loops = ProgramOf(kLoops);
  const Variable h = Variable::Of(loops.Root(), "h"), x = Variable::Of(loops.Root(), "x");
  x.desc().SetStopGradient(false);
  const Names grads = Gradients({h}, {x});
  ASSERT_EQ(grads.size(), 1u);
  const ExtractedProgram part = Extract(loops, {}, grads);
  EXPECT_EQ(loops.NumBlocks(), 4);
  EXPECT_EQ(part.program.NumBlocks(), 3);
  Scope scope;
  const auto feeds = LoopFeeds();
  EXPECT_EQ(Floats(Executor().Run(part.program, scope, feeds, grads)[0]),
            (std::vector<float>{4, 4}));  // h = 4 x
}

TEST(Extract, HostileBlocksAreRefused) {
  ProgramDesc program;
  program.Root().Var("x").SetShape({1});
  program.Root().Var("y").SetShape({1});
  BlockDesc& f = program.AppendBlock(0);
  f.AppendOp("call", {}, {}, {{"sub_block", BlockRef{2}}});
  program.AppendBlock(0).AppendOp("call", {}, {}, {{"sub_block", BlockRef{1}}});
  program.Root().AppendOp("call", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"sub_block", BlockRef{1}}});
  EXPECT_NE(WhatIsThrown([&] { Extract(program, {}, {"y"}); }).find("calls itself"),
            std::string::npos);
}

TEST(Extract, ALongChain) {
  const ProgramDesc chain = Chain(100000);
  const ExtractedProgram part = Extract(chain, {"v50000"}, {"v99999"});
  EXPECT_EQ(part.program.Root().NumOps(), 49999u + 2);
  const std::string text = WhatIsThrown([&] { Extract(chain, {"v3"}, {"v2"}); });
  EXPECT_EQ(text.find("extract: 'x' is missing among the inputs"), 0u) << text;
  ProgramDesc two = Chain(1000);
  two.Root().Var("other").SetShape({-1, 2});
  two.Root().op(0).SetInput("X", {"other"});
  const std::string cut = WhatIsThrown([&] { Extract(two, {"x"}, {"v1000"}); });
  EXPECT_NE(cut.find("  ... 990 more ops\n"), std::string::npos) << cut;
}
}  // namespace coracle::extract_test
