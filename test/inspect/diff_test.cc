// Differences between two programs. The expected differences follow from how the second program was
// made from the first.

#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/layers/builder.h>
#include <coracle/test/inspect/diff_programs.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace coracle::diff_test {

TEST(Diff, EqualPrograms) {
  const ProgramDesc program = Chain({"relu", "tanh"}, {"a", "b"});
  EXPECT_TRUE(Diff(program, program).empty());
  EXPECT_EQ(Text(program, program), "");
  EXPECT_EQ(DiffSummary(Diff(program, program)), "");
  EXPECT_EQ(FirstDifference(program, program, DefaultOps()), "");
}

TEST(Diff, RenamedTemporariesAreToldOnce) {
  const Strings types = {"relu", "relu", "tanh", "relu"};
  const ProgramDesc a = Chain(types, {"a", "b", "c", "d"}), b = Chain(types, {"e", "f", "g", "h"});
  const ProgramDiff diff = Diff(a, b);
  EXPECT_EQ(NumOps(diff), 0u);
  EXPECT_EQ(diff.renamed.size(), 4u);
  EXPECT_EQ(Text(a, b),
            "block 0\n  ~ var a -> e\n  ~ var b -> f\n  ~ var c -> g\n  ~ var d -> h\n"
            "4 variables renamed\n");
}

TEST(Diff, AnOpInFrontChangesOneReader) {
  ProgramDesc a = Chain({"relu", "tanh", "relu"}, {"a", "b", "c"});
  ProgramDesc b;
  Append(b.Root(), "sigmoid", "x", "new");
  Append(b.Root(), "relu", "new", "a");
  Append(b.Root(), "tanh", "a", "b");
  Append(b.Root(), "relu", "b", "c");
  EXPECT_EQ(Text(a, b),
            "block 0\n"
            "  + op 0  new:float32[-1,3] = sigmoid(X=x)\n"
            "  ~ op 0 -> 1  relu Out=a  input X: x -> new\n"
            "1 op added, 1 changed\n");
  EXPECT_EQ(Text(b, a),
            "block 0\n"
            "  - op 0  new:float32[-1,3] = sigmoid(X=x)\n"
            "  ~ op 1 -> 0  relu Out=a  input X: new -> x\n"
            "1 op removed, 1 changed\n");
}

// Names with running numbers increase by one after an op that was inserted in front.
TEST(Diff, ShiftedNumbersOfNames) {
  ProgramDesc a, b;
  Append(a.Root(), "tanh", "x", "tanh_0");
  Append(a.Root(), "relu", "tanh_0", "relu_0");
  Append(a.Root(), "sigmoid", "relu_0", "sigmoid_0");
  Append(a.Root(), "relu", "sigmoid_0", "relu_1");
  Append(b.Root(), "relu", "x", "relu_0");
  Append(b.Root(), "tanh", "relu_0", "tanh_0");
  Append(b.Root(), "relu", "tanh_0", "relu_1");
  Append(b.Root(), "sigmoid", "relu_1", "sigmoid_0");
  Append(b.Root(), "relu", "sigmoid_0", "relu_2");
  EXPECT_EQ(Text(a, b),
            "block 0\n"
            "  + op 0  relu_0:float32[-1,3] = relu(X=x)\n"
            "  ~ op 0 -> 1  tanh Out=tanh_0  input X: x -> relu_0\n"
            "  ~ op 1 -> 2  relu Out=relu_1  output Out: relu_0 -> relu_1\n"
            "  ~ op 3 -> 4  relu Out=relu_2  output Out: relu_1 -> relu_2\n"
            "1 op added, 3 changed\n");
}

TEST(Diff, AttrsWithTheirOldValues) {
  ProgramDesc a, b;
  Append(a.Root(), "scale", "x", "y", {{"scale", 2.0f}, {"bias", 0.0f}});
  Append(b.Root(), "scale", "x", "y", {{"scale", 3.0f}, {"bias_after_scale", false}});
  EXPECT_EQ(Text(a, b),
            "block 0\n"
            "  ~ op 0  scale Out=y\n"
            "      attr scale: 2 -> 3\n"
            "      attr bias_after_scale: none -> false\n"
            "1 op changed\n");
}

// A text that happens to be a variable's name is still a text: pooling_type, say.
TEST(Diff, TextsAreNoNames) {
  const auto pool = [](const std::string& kind) {
    ProgramDesc program = Chain({"relu"}, {kind});
    Append(program.Root(), "my_op", kind, "y",
           {{"kind", kind}, {"kinds", Strings{kind, "x"}}, {"of", VarRef{kind}}});
    return program;
  };
  EXPECT_EQ(Text(pool("max"), pool("avg")),
            "block 0\n"
            "  ~ var max -> avg\n"
            "  ~ op 1  my_op Out=y\n"
            "      attr kind: \"max\" -> \"avg\"\n"
            "      attr kinds: [\"max\", \"x\"] -> [\"avg\", \"x\"]\n"
            "1 op changed; 1 variable renamed\n");
}

// An attr of the type VAR reads a variable, which may be another one under the same name.
TEST(Diff, NamesInAttrsAreVariables) {
  ProgramDesc a = Chain({"relu", "tanh"}, {"h", "g"}), b = Chain({"relu", "tanh"}, {"g", "h"});
  for (ProgramDesc* program : {&a, &b})
    Append(program->Root(), "my_op", "x", "y", {{"of", VarRef{"h"}}});
  ExpectPart(Text(a, b), "my_op Out=y  attr of: ");
}

// The attrs that Paddle writes into every op equal their absence.
TEST(Diff, UnsetAttrsOfEveryOpAreNoDifference) {
  ProgramDesc a, b, c;
  Append(a.Root(), "relu", "x", "y");
  Append(b.Root(), "relu", "x", "y",
         {{"op_role", int32_t{0}},
          {"op_role_var", Strings()},
          {"op_device", std::string()},
          {"op_namescope", std::string("/")},
          {"with_quant_attr", false}});
  EXPECT_TRUE(Diff(a, b).empty()) << Text(a, b);
  EXPECT_TRUE(Diff(b, a).empty()) << Text(b, a);
  Append(c.Root(), "relu", "x", "y", {{"op_role", int32_t{kBackward}}});
  ExpectPart(Text(a, c), "op_role");
}

TEST(Diff, DefaultsAndTypesOfNumbersAreNoDifference) {
  ProgramDesc a, b;
  Append(a.Root(), "scale", "x", "y", {{"scale", 1.0f}});
  Append(b.Root(), "scale", "x", "y",
         {{"bias", 0.0f},
          {kOpCallstackAttr, Strings{"here:1:1"}},
          {kOpNamescopeAttr, std::string("/b/")}});
  EXPECT_EQ(Text(a, b), "");
  a.Root().op(0).SetAttr("scale", int32_t{2});
  b.Root().op(0).SetAttr("scale", 2.0f);
  EXPECT_EQ(Text(a, b), "");
}

TEST(Diff, ANanIsItselfAndUnknownKindsAreComparedByTheirBytes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ProgramDesc a, b;
  Append(a.Root(), "my_op", "x", "y", {{"f", nan}, {"raw", RawAttr{"abc"}}});
  Append(b.Root(), "my_op", "x", "y", {{"f", nan}, {"raw", RawAttr{"abc"}}});
  EXPECT_EQ(Text(a, b), "");
  b.Root().op(0).SetAttr("raw", RawAttr{"abd"});
  EXPECT_EQ(NumOps(Diff(a, b)), 1u);
  // Long texts are shown cut, but compared whole.
  const std::string text(5000, 'a');
  a.Root().op(0).SetAttr("raw", text + "b");
  b.Root().op(0).SetAttr("raw", text + "c");
  EXPECT_EQ(NumOps(Diff(a, b)), 1u);
}

TEST(Diff, LongListsShowWhereTheyDiffer) {
  std::vector<int32_t> list(1000, 5);
  ProgramDesc a, b;
  Append(a.Root(), "my_op", "x", "y", {{"list", list}});
  list[700] = 7;
  Append(b.Root(), "my_op", "x", "y", {{"list", list}});
  const ProgramDiff diff = Diff(a, b);
  ASSERT_EQ(NumOps(diff), 1u);
  const DiffChange& change = diff.blocks[0].ops[0].changes.at(0);
  EXPECT_NE(change.before, change.after);
  ExpectPart(change.after, "7");
  EXPECT_LT(change.after.size(), 100u);
}

// Constants that change places: names say more than equal attrs do.
TEST(Diff, SwappedConstants) {
  ProgramDesc a, b;
  for (ProgramDesc* program : {&a, &b}) {
    for (const char* name : {"a", "b"}) {
      program->Root().Var(name).SetShape({1});
      const float value = (*name == 'a') == (program == &a) ? 1.0f : 2.0f;
      program->Root().AppendOp("fill_constant", {}, {{"Out", {name}}},
                               {{"shape", std::vector<int64_t>{1}}, {"value", value}});
    }
  }
  EXPECT_EQ(Text(a, b),
            "block 0\n"
            "  ~ op 0  fill_constant Out=a  attr value: 1 -> 2\n"
            "  ~ op 1  fill_constant Out=b  attr value: 2 -> 1\n"
            "2 ops changed\n");
}

TEST(Diff, OrderMattersOnlyForWhatIsRead) {
  const auto make = [](const std::vector<int>& order) {
    ProgramDesc program;
    for (const int i : order) {
      if (i == 0) Append(program.Root(), "relu", "x", "a");
      if (i == 1) Append(program.Root(), "tanh", "x", "b");
      if (i == 2) Append(program.Root(), "increment", "a", "a");
      if (i == 3) Append(program.Root(), "sigmoid", "a", "c");
    }
    return program;
  };
  const ProgramDesc a = make({0, 1, 2, 3});
  const ProgramDiff harmless = Diff(a, make({1, 0, 2, 3}));
  EXPECT_TRUE(harmless.empty());
  EXPECT_EQ(harmless.reordered, 1u);
  const ProgramDesc b = make({0, 1, 3, 2});
  const ProgramDiff diff = Diff(a, b);
  ASSERT_EQ(NumOps(diff), 1u) << Text(a, b);
  EXPECT_EQ(diff.blocks[0].ops[0].moved_over, "a");
  ExpectPart(Text(a, b), "moved: ops see another value of a\n1 op moved\n");
}

TEST(Diff, AnOpInPlaceIsOneLine) {
  ProgramDesc a, b;
  Append(a.Root(), "relu", "x", "h");
  Append(a.Root(), "tanh", "h", "y");
  Append(b.Root(), "relu", "x", "h");
  Append(b.Root(), "scale", "h", "h", {{"scale", 2.0f}});
  Append(b.Root(), "tanh", "h", "y");
  EXPECT_EQ(Text(a, b), "block 0\n  + op 1  h:float32[-1,3] = scale(X=h) {scale=2}\n1 op added\n");
}

TEST(Diff, TypesAndSettingsOfVariables) {
  const ProgramDesc a = Chain({"relu", "tanh"}, {"h", "y"});
  ProgramDesc b = a;
  VarDesc& h = *b.Root().FindVar("h");
  h.SetErrorClip(ErrorClipByValue(1));
  h.SetStopGradient(true);
  for (const char* name : {"x", "y"}) b.Root().FindVar(name)->SetDType(DType::kFloat64);
  EXPECT_EQ(Text(a, b),
            "block 0\n"
            "  ~ vars x, y: dtype: float32 -> float64\n"
            "  ~ var h: stop_gradient: false -> true; error_clip: none -> by_value(max=1, min=-1)\n"
            "3 variables changed\n");
  EXPECT_EQ(FirstDifference(a, b, DefaultOps()), "vars x, y: dtype: float32 -> float64");
}

TEST(Diff, ParametersAreKnownByNameOrByTheirOnlyReader) {
  ProgramDesc program, startup;
  Builder b(program, startup);
  b.Fc(b.Fc(b.Data("x", {-1, 3}), {.size = 2}), {.size = 4});
  ProgramDesc renamed = program;
  BlockDesc& root = renamed.Root();
  root.RenameVar(*root.FindVar("fc_0.w_0"), "first");
  root.ForEachOp([](OpDesc& op) { op.RenameInput("fc_0.w_0", "first"); });
  EXPECT_EQ(Text(program, renamed), "block 0\n  ~ var fc_0.w_0 -> first\n1 variable renamed\n");
  // Another shape: another parameter.
  root.FindVar("first")->SetShape({5, 2});
  ExpectPart(Text(program, renamed), "input Y: fc_0.w_0 -> first");
}

TEST(Diff, ManyParametersShareALine) {
  ProgramDesc a, b;
  const auto add = [](ProgramDesc& program, int count) {
    for (int i = 0; i < count; ++i) {
      VarDesc& var = program.Root().Var("w" + std::to_string(i));
      var.SetShape({3});
      var.SetPersistable(true);
    }
  };
  add(b, 2);
  EXPECT_EQ(Text(a, b),
            "block 0\n  + var w0 float32[3] persistable\n  + var w1 float32[3] persistable\n"
            "2 variables added\n");
  add(b, 20);
  const std::string text = Text(b, a);
  ExpectPart(text, "  - vars w0 float32[3] persistable, w1 ");
  ExpectPart(text, ", and 16 more\n20 variables removed\n");
}

TEST(Diff, FeedsFetchesAndSeed) {
  ProgramDesc a = Chain({"relu", "tanh"}, {"h", "y"}), b = a;
  const auto feed = [](ProgramDesc& program, const std::string& fetched) {
    program.Root().InsertOp(0, OpDesc("feed", {{"X", {"feed"}}}, {{"Out", {"x"}}}, {{"col", 0}}));
    program.Root().AppendOp("fetch", {{"X", {fetched}}}, {{"Out", {"fetch"}}}, {{"col", 0}});
  };
  feed(a, "y");
  feed(b, "h");
  b.random_seed = 7;
  EXPECT_EQ(Text(a, b), "program\n  ~ fetches: [y] -> [h]\n  ~ random_seed: 0 -> 7\n");
  const ProgramDesc c = Chain({"relu", "tanh"}, {"h", "y"});
  EXPECT_EQ(Text(a, c), "program\n  ~ feeds: [x] -> none\n  ~ fetches: [y] -> none\n");
  b = a;
  b.random_seed = 7;
  EXPECT_FALSE(Diff(a, b).empty());
  EXPECT_EQ(FirstDifference(a, b, DefaultOps()), "");
}

// LeNet's way: the clip of a gradient is one op and one setting.
TEST(Diff, AnErrorClipIsOneOpAndOneSetting) {
  const auto make = [](bool clip) {
    ProgramDesc program, startup;
    Builder b(program, startup);
    const Variable x = b.Data("x", {-1, 4}), label = b.Data("label", {-1, 1}, DType::kInt64);
    const Variable h = b.Fc(x, {.size = 8, .act = "relu"});
    if (clip) h.desc().SetErrorClip(ErrorClipByValue(1));
    const Variable loss = b.Mean(b.SoftmaxWithCrossEntropy(b.Fc(h, {.size = 3}), label));
    BackwardOptions options;
    options.callbacks = {ErrorClipCallback};
    AppendBackward(loss, options);
    return program;
  };
  const ProgramDesc a = make(false), b = make(true);
  const ProgramDiff diff = Diff(a, b);
  ASSERT_EQ(NumOps(diff), 1u) << Text(a, b);
  const OpDiff& op = diff.blocks[0].ops[0];
  EXPECT_EQ(op.before, -1);
  EXPECT_EQ(b.Root().op(static_cast<size_t>(op.after)).type(), "clip");
  ASSERT_EQ(diff.blocks[0].vars.size(), 1u);
  EXPECT_EQ(diff.blocks[0].vars[0].changes.at(0).what, "error_clip");
  EXPECT_EQ(DiffSummary(diff), "1 op added; 1 variable changed");
}

TEST(Diff, NamesForgeNoLines) {
  const ProgramDesc a = Chain({"relu"}, {"h"}), b = Chain({"relu"}, {"h\n  - op 7  forged"});
  EXPECT_EQ(Text(a, b).find("\n  - op 7"), std::string::npos) << Text(a, b);
}

// Invalid programs: the differ must neither crash nor hang.
TEST(Diff, BrokenPrograms) {
  ProgramDesc a;
  a.AppendBlock(7);
  a.Root().AppendOp(
      "while", {{"X", {"no", "@EMPTY@", ""}}}, {},
      {{"sub_block", BlockRef{1}}, {"other", std::vector<BlockRef>{{0}, {-3}, {99}}}});
  a.Block(1).AppendOp("while", {{"X", {"no"}}}, {{"Out", {"no"}}}, {{"sub_block", BlockRef{1}}});
  ProgramDesc b = a;
  EXPECT_TRUE(Diff(a, b).empty()) << Text(a, b);
  b.Block(1).op(0).SetAttr("x", std::string("y"));
  EXPECT_EQ(NumOps(Diff(a, b)), 1u);
  b.TruncateBlocks(1);
  ExpectPart(Text(a, b), "- block 1 (1 ops)");
}

TEST(Diff, JsonHasTheSame) {
  const ProgramDesc a = Chain({"relu", "tanh"}, {"h", "y"}), b = Chain({"relu"}, {"g"});
  const std::string json = DiffJson(Diff(a, b), a, b);
  ExpectPart(json, "\"format\": \"coracle.diff\"");
  ExpectPart(json, "\"equal\": false");
  ExpectPart(json, "\"type\": \"tanh\"");
  ExpectPart(DiffJson(Diff(a, a), a, a), "\"equal\": true");
  const ProgramDesc c = Chain({"relu"}, {"\xff"});  // not UTF-8
  ExpectPart(DiffJson(Diff(a, c), a, c), R"("after": "\\xff")");
}
}  // namespace coracle::diff_test
