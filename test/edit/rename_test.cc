#include <coracle/backward/backward.h>
#include <coracle/edit/edit.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/test/edit/edit_programs.h>
#include <coracle/test/error_of.h>

#include <set>

namespace coracle::rename_test {

using Names = std::vector<std::string>;

constexpr const char* kNet = R"(
  data { name: "x" shape: [-1, 3] }
  layer { fc { input: "x" size: 2 output: "h" } }
  layer { dropout { input: "h" dropout_prob: 0.5 output: "r" } }
  layer { mean { input: "r" output: "loss" } }
)";

Renamed Rename(ProgramDesc& program, const NamePairs& names, const RenameOptions& options = {}) {
  return RenameVariables(program, names, DefaultOps(), options);
}

TEST(Rename, DeclarationsAndSlots) {
  Scope scope;
  ProgramDesc net = ProgramOf(kNet, scope);
  const std::map<std::string, Tensor> x = {{"x", Tensor::Of<float>({1, 3}, {1, 2, 3})}};
  const auto before = Floats(Executor().Run(net, scope, x, {"h"})[0]);
  const Renamed renamed = Rename(net, {{"h", "hidden"}, {"x", "image"}, {"fc_0.w_0", "weights"}});
  EXPECT_EQ(renamed.names, (NamePairs{{"x", "image"}, {"fc_0.w_0", "weights"}, {"h", "hidden"}}));
  EXPECT_TRUE(renamed.drawn.empty());
  RenameValues(renamed.names, scope);
  EXPECT_EQ(net.Root().FindVar("h"), nullptr);
  EXPECT_FALSE(scope.Has("fc_0.w_0"));
  EXPECT_EQ(Floats(Executor().Run(net, scope, {{"image", x.at("x")}}, {"hidden"})[0]), before);
}

TEST(Rename, NamesCanBeExchanged) {
  ProgramDesc chain = Chain(2);
  Rename(chain, {{"x", "v2"}, {"v2", "x"}});
  EXPECT_EQ(chain.Root().op(0).Input("X"), Names{"v2"});
  EXPECT_EQ(chain.Root().op(1).Output("Out"), Names{"x"});
  EXPECT_EQ(chain.Root().FindVar("x")->index(), 2u);
}

TEST(Rename, NamesInAttrs) {
  ProgramDesc program = Chain(2);
  OpDesc& op = program.Root().op(1);
  op.SetAttr(kOpRoleVarAttr, Names{"v1", "w"});
  op.SetAttr(kRecomputedFromAttr, Names{"v1"});
  op.SetAttr("axis_var", VarRef{"v1"});
  op.SetAttr("axis_vars", std::vector<VarRef>{{"x"}, {"v1"}});
  op.SetAttr("data_format", std::string("v1"));
  op.SetAttr(kOpCallstackAttr, Names{"v1"});
  op.SetAttr(kTrainingOfAttr, std::string("v1"));
  for (const auto& [before, after] : {std::pair{"scale(v1)", "scale(one)"},
                                      {"scale(v1#2)", "scale(one#2)"},
                                      {"v1(x)", "v1(x)"},
                                      {"no link", "no link"}}) {
    ProgramDesc copy = program;
    copy.Root().op(1).SetAttr(kForwardOpAttr, std::string(before));
    Rename(copy, {{"v1", "one"}});
    const OpDesc& renamed = copy.Root().op(1);
    EXPECT_EQ(renamed.GetAttr<std::string>(kForwardOpAttr, ""), after);
    EXPECT_EQ(renamed.GetAttr<Names>(kOpRoleVarAttr, {}), (Names{"one", "w"}));
    EXPECT_EQ(renamed.GetAttr<Names>(kRecomputedFromAttr, {}), Names{"one"});
    EXPECT_EQ(std::get<VarRef>(*renamed.FindAttr("axis_var")).name, "one");
    EXPECT_EQ(std::get<std::vector<VarRef>>(*renamed.FindAttr("axis_vars")),
              (std::vector<VarRef>{{"x"}, {"one"}}));
    EXPECT_EQ(renamed.GetAttr<std::string>("data_format", ""), "v1");
    EXPECT_EQ(renamed.GetAttr<Names>(kOpCallstackAttr, {}), Names{"v1"});
    EXPECT_EQ(renamed.GetAttr<std::string>(kTrainingOfAttr, ""), "one");
  }
}

TEST(Rename, HoldersOfFeedsAndFetchesStay) {
  ProgramDesc net = ProgramOf(kNet);
  SetFeedsAndFetches(net, {"x"}, {"loss"});
  EXPECT_EQ(ErrorOf([&] {
              Rename(net, {{"feed", "food"}});
            }),
            "rename: 'feed' holds what is fed or fetched, and readers know it by that name");
  EXPECT_EQ(ErrorOf([&] { PairsByRegex(net, "^fe(ed|tch)$", "f"); }),
            "rename: no variable's name matches '^fe(ed|tch)$'");
  Rename(net, PairsByRegex(net, "^", "my_"));
  EXPECT_EQ(FeedNames(net), Names{"my_x"});
  EXPECT_EQ(FetchNames(net), Names{"my_loss"});
  EXPECT_NE(net.Root().FindVar("feed"), nullptr);
  EXPECT_NE(net.Root().FindVar("fetch"), nullptr);
}

TEST(Rename, GradientsFollowWhereAsked) {
  ProgramDesc net = ProgramOf(kNet);
  AppendBackward(Variable::Of(net.Root(), "loss"));
  ProgramDesc with = net, without = net;
  Rename(without, {{"h", "hidden"}});
  EXPECT_NE(without.Root().FindVar("h@GRAD"), nullptr);
  Rename(with, {{"h", "hidden"}}, {.derived = true});
  EXPECT_EQ(with.Root().FindVar("h@GRAD"), nullptr);
  EXPECT_NE(with.Root().FindVar("hidden@GRAD"), nullptr);
  EXPECT_NE(with.Root().FindVar("r@GRAD"), nullptr);
  for (ProgramDesc* renamed : {&with, &without}) {
    EXPECT_NO_THROW(VerifyOrThrow(*renamed, DefaultOps()));
    const OpDesc* gradient =
        renamed->Root().Uses(renamed == &with ? "hidden@GRAD" : "h@GRAD").writers[0];
    ASSERT_NE(FindForwardOp(*gradient), nullptr);
    EXPECT_EQ(FindForwardOp(*gradient)->type(), "dropout");
  }
}

// The gradient of a gradient follows the gradient, if that has a new name of its own.
TEST(Rename, TheLongestNameIsFollowed) {
  ProgramDesc net;
  for (const char* name : {"h", "h@GRAD", "h@GRAD@GRAD", "h@OTHER@GRAD"}) net.Root().Var(name);
  const Renamed renamed = Rename(net, {{"h", "hidden"}, {"h@GRAD", "slope"}}, {.derived = true});
  EXPECT_EQ(renamed.names, (NamePairs{{"h", "hidden"},
                                      {"h@GRAD", "slope"},
                                      {"h@GRAD@GRAD", "slope@GRAD"},
                                      {"h@OTHER@GRAD", "hidden@OTHER@GRAD"}}));
}

// A loop, a recurrent net and a branch name variables in their blocks and in attrs.
TEST(Rename, EveryNameOfAProgramWithBlocks) {
  const std::string text = R"(
    data { name: "x" shape: [-1, 2, 1] }
    data { name: "h0" shape: [2, 1] }
    data { name: "p" shape: [1] dtype: BOOL }
    layer { static_rnn {
      step_input: "x"
      memory { name: "h" init: "h0" next: "sum" }
      layer { elementwise_add { x: "h" y: "x" output: "sum" } }
      step_output { var: "sum" output: "sums" } } }
    layer { cond { pred: "p" output: "z"
      then { layer { scale { input: "sums" scale: 2 output: "a" } } result: "a" }
      otherwise { layer { scale { input: "sums" scale: 3 output: "b" } } result: "b" } } }
    layer { mean { input: "z" output: "loss" } })";
  ProgramDesc net = ProgramOf(text);
  net.Root().FindVar("h0")->SetStopGradient(false);
  const auto grads =
      Gradients({Variable::Of(net.Root(), "loss")}, {Variable::Of(net.Root(), "h0")});
  ProgramDesc other = net;
  const Renamed renamed = Rename(other, PairsByRegex(other, "^", "my_"));
  size_t vars = 0;
  std::set<std::string> names;
  for (int b = 0; b < net.NumBlocks(); ++b) {
    for (size_t i = 0; i < net.Block(b).NumVars(); ++i) names.insert(net.Block(b).var(i).name());
  }
  vars = names.size();
  EXPECT_EQ(renamed.names.size(), vars);
  const auto feeds = [&](const std::string& prefix) {
    return std::map<std::string, Tensor>{{prefix + "x", Tensor::Of<float>({2, 2, 1}, {1, 2, 3, 4})},
                                         {prefix + "h0", Tensor::Of<float>({2, 1}, {1, 1})},
                                         {prefix + "p", Tensor::Full<bool>({1}, true)}};
  };
  Scope scope;
  const auto before = Executor().Run(net, scope, feeds(""), {"z", grads[0]});
  const auto after = Executor().Run(other, scope, feeds("my_"), {"my_z", "my_" + grads[0]});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Floats(before[i]), Floats(after[i]));
}

TEST(Rename, RandomOpsThatDrawOtherNumbersAreTold) {
  ProgramDesc net = ProgramOf(kNet);
  EXPECT_EQ(Rename(net, {{"r", "dropped"}}).drawn, Names{"dropped"});
  net.ForEachOp([](OpDesc& op) {
    if (op.type() == "dropout") op.SetAttr("is_test", true);
  });
  EXPECT_EQ(Rename(net, {{"dropped", "r"}}).drawn, Names());
}

TEST(Rename, CollisionsAndUnknownNamesAreRefusedBeforeAnythingChanges) {
  ProgramDesc net = ProgramOf(kNet);
  const ProgramDesc before = net;
  const auto refusal = [&](const NamePairs& names) {
    return WhatIsThrown([&] { Rename(net, names); });
  };
  EXPECT_EQ(refusal({{"los", "l"}}), "rename: the program has no var 'los'; did you mean loss?");
  EXPECT_EQ(refusal({{"h", "r"}}),
            "rename: 'h' cannot become 'r', which is the name of another variable");
  EXPECT_EQ(refusal({{"h", "q"}, {"r", "q"}}), "rename: 'r' cannot become 'q', as 'h' does");
  EXPECT_EQ(refusal({{"h", "q"}, {"h", "p"}}), "rename: two new names are given for 'h'");
  EXPECT_EQ(refusal({{"h", ""}}), "rename: 'h' cannot be called ''");
  EXPECT_EQ(refusal({{"h", "@EMPTY@"}}), "rename: 'h' cannot be called '@EMPTY@'");
  EXPECT_TRUE(net == before);
}

TEST(Rename, ByRegularExpression) {
  ProgramDesc chain = Chain(12);
  const NamePairs pairs = PairsByRegex(chain, "^v(\\d\\d)$", "w\\1_\\0");
  EXPECT_EQ(pairs, (NamePairs{{"v10", "w10_v10"}, {"v11", "w11_v11"}, {"v12", "w12_v12"}}));
  EXPECT_EQ(WhatIsThrown([&] { PairsByRegex(chain, "^z", "y"); }),
            "rename: no variable's name matches '^z'");
  EXPECT_NE(WhatIsThrown([&] { PairsByRegex(chain, "(", "y"); }).find("not a regular expression"),
            std::string::npos);
  EXPECT_NE(
      WhatIsThrown([&] { PairsByRegex(chain, "v", "\\1"); }).find("is not a valid replacement"),
      std::string::npos);
}

TEST(Rename, ALongChain) {
  ProgramDesc chain = Chain(100000);
  const NamePairs pairs = PairsByRegex(chain, "^v", "value_");
  EXPECT_EQ(Rename(chain, pairs).names.size(), 100000u);
  EXPECT_EQ(chain.Root().op(99999).Output("Out"), Names{"value_100000"});
}
}  // namespace coracle::rename_test
