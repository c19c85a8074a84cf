#include <coracle/edit/edit.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/edit/edit_programs.h>

namespace coracle::merge_test {

using Names = std::vector<std::string>;

MergedProgram Merge(const ProgramDesc& a, const ProgramDesc& b, const MergeOptions& options = {}) {
  return MergePrograms(a, b, DefaultOps(), options);
}

ProgramDesc WithEnds(ProgramDesc program, const Names& feeds, const Names& fetches) {
  SetFeedsAndFetches(program, feeds, fetches);
  return program;
}

constexpr const char* kFirst = R"(
  data { name: "x" shape: [-1, 3] }
  layer { fc { input: "x" size: 2 output: "h" } })";
constexpr const char* kSecond = R"(
  data { name: "x" shape: [-1, 2] }
  layer { fc { input: "x" size: 4 output: "y" } })";

TEST(Merge, ByOrderWithAPrefixForNamesThatCollide) {
  Scope a_scope, b_scope;
  const ProgramDesc a = ProgramOf(kFirst, a_scope), b = ProgramOf(kSecond, b_scope);
  const std::map<std::string, Tensor> x = {{"x", Tensor::Of<float>({1, 3}, {1, -2, 3})}};
  const Tensor h = Executor().Run(a, a_scope, x, {"h"})[0].Clone();
  const auto y = Floats(Executor().Run(b, b_scope, {{"x", h}}, {"y"})[0]);

  const MergedProgram merged = Merge(a, b);
  EXPECT_EQ(merged.connections, (NamePairs{{"h", "x"}}));
  EXPECT_EQ(merged.prefix, "b.");
  EXPECT_EQ(merged.inputs, Names{"x"});
  EXPECT_EQ(merged.outputs, Names{"y"});
  EXPECT_NE(merged.program.Root().FindVar("b.fc_0.w_0"), nullptr);
  RenameValues(merged.renamed, b_scope);
  for (const std::string& name : b_scope.LocalNames()) a_scope.Set(name, b_scope.Get(name).Clone());
  EXPECT_EQ(Floats(Executor().Run(merged.program, a_scope, x, {"y"})[0]), y);
}

TEST(Merge, ByNameThoughTheOrderIsAnother) {
  ProgramDesc a = ProgramOf(R"(
    data { name: "x" shape: [2] }
    layer { scale { input: "x" scale: 2 output: "p" } }
    layer { scale { input: "x" scale: 3 output: "q" } })");
  ProgramDesc b = ProgramOf(R"(
    data { name: "q" shape: [2] }
    data { name: "p" shape: [2] }
    layer { elementwise_sub { x: "p" y: "q" output: "z" } })");
  const MergedProgram merged = Merge(a, b);
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(merged.program, scope, {{"x", Tensor::Of<float>({2}, {1, 10})}},
                                  {"z"})[0]),
            (std::vector<float>{-1, -10}));
  EXPECT_EQ(merged.prefix, "");
}

TEST(Merge, ConnectionsThatAreNotClearAreAskedFor) {
  const ProgramDesc a = ProgramOf(R"(
    data { name: "x" shape: [2] }
    layer { scale { input: "x" scale: 2 output: "p" } }
    layer { scale { input: "x" scale: 3 output: "q" } })");
  const ProgramDesc b = ProgramOf(R"(
    data { name: "in" shape: [2] }
    layer { scale { input: "in" scale: 10 output: "z" } })");
  const std::string text = WhatIsThrown([&] { Merge(a, b); });
  EXPECT_NE(text.find("--connect=OUTPUT:INPUT"), std::string::npos) << text;
  EXPECT_NE(text.find("outputs of the first: 'p' float32[2], 'q' float32[2]\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("inputs of the second: 'in' float32[2]"), std::string::npos) << text;
  const MergedProgram merged = Merge(a, b, {.connections = {{"q", "in"}}});
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(merged.program, scope, {{"x", Tensor::Of<float>({2}, {1, 10})}},
                                  {"z"})[0]),
            (std::vector<float>{30, 300}));
  EXPECT_EQ(merged.outputs, Names{"z"});
  const MergedProgram fetched =
      Merge(WithEnds(a, {"x"}, {"p", "q"}), b, {.connections = {{"q", "in"}}});
  EXPECT_EQ(fetched.outputs, (Names{"p", "z"}));
}

TEST(Merge, WrongConnectionsAreRefused) {
  const ProgramDesc a = ProgramOf(kFirst), b = ProgramOf(kSecond);
  const auto refusal = [&](const NamePairs& connections) {
    return WhatIsThrown([&] { Merge(a, b, {.connections = connections}); });
  };
  EXPECT_EQ(refusal({{"hh", "x"}}).find("merge: the first program: the program has no var 'hh'"),
            0u);
  EXPECT_EQ(refusal({{"h", "xx"}}).find("merge: the second program: the program has no var 'xx'"),
            0u);
  EXPECT_EQ(refusal({{"h", "y"}}),
            "merge: 'y' is not an input of the second program; it has 'x' float32[-1, 2]");
  EXPECT_EQ(refusal({{"h", "x"}, {"x", "x"}}), "merge: the input 'x' is connected twice");
  EXPECT_EQ(refusal({{"x", "x"}}),
            "merge: 'x' of the first program is float32[-1, 3], and the input 'x' of the second "
            "takes float32[-1, 2]");
  EXPECT_EQ(WhatIsThrown([&] { Merge(a, b, {.prefix = ""}); }),
            "merge: both programs have a variable 'fc_0.b_0'; give a prefix");
}

TEST(Merge, OneOutputFeedsSeveralInputsAndOneThatIsUpdatedInPlace) {
  const ProgramDesc a = ProgramOf(R"(
    data { name: "x" shape: [1] }
    layer { scale { input: "x" scale: 2 output: "h" } })");
  ProgramDesc b;
  for (const char* name : {"p", "q", "z"}) {
    b.Root().Var(name).SetDType(DType::kFloat32);
    b.Root().Var(name).SetShape({1});
  }
  b.Root().AppendOp("increment", {{"X", {"p"}}}, {{"Out", {"p"}}}, {{"step", 1.0f}});
  b.Root().AppendOp("elementwise_mul", {{"X", {"p"}}, {"Y", {"q"}}}, {{"Out", {"z"}}});
  const MergedProgram merged =
      Merge(WithEnds(a, {"x"}, {"h"}), b, {.connections = {{"h", "p"}, {"h", "q"}}});
  Scope scope;
  const auto results =
      Executor().Run(merged.program, scope, {{"x", Tensor::Of<float>({1}, {3})}}, {"z", "h"});
  EXPECT_EQ(Floats(results[0]), (std::vector<float>{42}));  // 7 * 6
  EXPECT_EQ(Floats(results[1]), (std::vector<float>{6}));
}

constexpr const char* kLoop = R"(
  data { name: "n" shape: [1] dtype: INT64 }
  data { name: "x" shape: [2] }
  layer { fill_constant { shape: [1] dtype: INT64 value: 0 output: "i" } }
  layer { scale { input: "x" scale: 1 output: "h" } }
  layer { less_than { x: "i" y: "n" output: "more" } }
  layer { while { condition: "more"
    layer { elementwise_add { x: "h" y: "x" output: "next" } }
    layer { assign_to { x: "next" var: "h" } }
    layer { increment_by { var: "i" } }
    layer { less_than { x: "i" y: "n" output: "again" } }
    layer { assign_to { x: "again" var: "more" } } } }
)";

TEST(Merge, BlocksOfBoth) {
  const ProgramDesc loop = ProgramOf(kLoop);
  const MergedProgram merged = Merge(loop, loop, {.connections = {{"h", "x"}, {"n", "n"}}});
  EXPECT_EQ(merged.program.NumBlocks(), 3);
  EXPECT_EQ(merged.inputs, (Names{"x", "n"}));
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(
                merged.program, scope,
                {{"n", Tensor::Full<int64_t>({1}, 3)}, {"x", Tensor::Of<float>({2}, {1, -2})}},
                {"b.h"})[0]),
            (std::vector<float>{16, -32}));
}

TEST(Merge, AProgramWithItselfAgainAndAgain) {
  const ProgramDesc once = Chain(1);
  MergedProgram merged = Merge(once, once, {.connections = {{"v1", "x"}}});
  merged = Merge(merged.program, once, {.connections = {{"b.v1", "x"}}});
  EXPECT_EQ(merged.prefix, "b.b.");
  Scope scope;
  EXPECT_EQ(Floats(Executor().Run(merged.program, scope, {{"x", Tensor::Of<float>({1, 2}, {1, 2})}},
                                  {"b.b.v1"})[0]),
            (std::vector<float>{8, 16}));
}

TEST(Merge, RandomOpsThatDrawOtherNumbersAreTold) {
  const ProgramDesc a = ProgramOf(R"(
    data { name: "x" shape: [2] }
    layer { dropout { input: "x" dropout_prob: 0.5 output: "r" } })");
  ProgramDesc b = a;
  b.random_seed = 7;
  const MergedProgram merged = Merge(a, b, {.connections = {{"r", "x"}}});
  ASSERT_EQ(merged.notes.size(), 2u);
  EXPECT_NE(merged.notes[0].find("draw by the names of their outputs"), std::string::npos);
  EXPECT_NE(merged.notes[1].find("the random seeds 0 and 7"), std::string::npos);
  b.Root().op(b.Root().NumOps() - 1).SetAttr("is_test", true);
  EXPECT_EQ(Merge(a, b, {.connections = {{"r", "x"}}}).notes, std::vector<std::string>());
}

TEST(Merge, FunctionsThatDrawOtherNumbersAreTold) {
  ProgramDesc a = ProgramOf(R"(
    data { name: "x" shape: [2] }
    layer { scale { input: "x" scale: 1 output: "y" } })");
  AppendCallThatDraws(a);
  const auto drawn = [](const ProgramDesc& program) {
    std::map<std::string, Tensor> feeds = {{"x", Tensor::Of<float>({2}, {1, 2})}};
    if (program.Root().FindVar("when")) feeds.emplace("when", Tensor::Full<bool>({1}, true));
    Scope scope;
    return Floats(Executor().Run(program, scope, feeds, {"q"})[0]);
  };
  const std::string head = R"(
    data { name: "when" shape: [1] dtype: BOOL }
    data { name: "z" shape: [2] }
    layer { scale { input: "z" scale: 1 output: "u" } })";
  const std::string branch = R"(
    layer { if { condition: "when"
      layer { scale { input: "z" scale: 9 output: "m" } }
      layer { assign_to { x: "m" var: "u" } } } })";
  for (const bool has_block : {false, true}) {
    const ProgramDesc b = ProgramOf(head + (has_block ? branch : ""));
    const MergedProgram merged = Merge(a, b, {.connections = {{"y", "z"}}});
    EXPECT_EQ(drawn(merged.program) == drawn(a), !has_block);
    ASSERT_EQ(merged.notes.size(), has_block ? 1u : 0u);
    if (has_block) {
      EXPECT_NE(merged.notes[0].find("the first program's functions"), std::string::npos);
    }
  }
}

TEST(Merge, LongChains) {
  const MergedProgram merged =
      Merge(Chain(50000), Chain(50000), {.connections = {{"v50000", "x"}}});
  EXPECT_EQ(merged.program.Root().NumOps(), 100000u + 2);
}
}  // namespace coracle::merge_test
