// Differences between programs whose ops run blocks.

#include <coracle/test/inspect/diff_programs.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace coracle::diff_blocks_test {

// x, while (c) { x = scale(x) }, with its block at an index.
ProgramDesc Loop(int index, float scale, const std::string& inner = "t") {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("c").SetDType(DType::kBool);
  for (const char* name : {"x", "scopes"}) root.Var(name);
  for (int b = 1; b < index; ++b) program.AppendBlock(root);
  BlockDesc& block = program.AppendBlock(root);
  Append(block, "scale", "x", inner, {{"scale", scale}});
  Append(block, "assign", inner, "x");
  root.AppendOp("while", {{"X", {"x"}}, {"Condition", {"c"}}},
                {{"Out", {"x"}}, {"StepScopes", {"scopes"}}}, {{"sub_block", BlockRef{index}}});
  return program;
}

TEST(Diff, BlocksOfTheSameOpAreCompared) {
  EXPECT_EQ(Text(Loop(1, 2), Loop(1, 3)),
            "block 1\n  ~ op 0  scale Out=t  attr scale: 2 -> 3\n1 op changed\n");
  EXPECT_EQ(Text(Loop(1, 2), Loop(1, 2, "u")), "block 1\n  ~ var t -> u\n1 variable renamed\n");
  EXPECT_EQ(Text(Loop(1, 2), Loop(2, 2)), "+ block 1 (0 ops)\n1 block added\n");
  ExpectPart(Text(Loop(1, 2), Chain({"relu"}, {"y"})), "- block 1 (2 ops)\n");
}

// A block reads a variable that the op running it does not name: the order still counts.
TEST(Diff, OpsMoveOverWhatBlocksRead) {
  const auto make = [](bool before) {
    ProgramDesc program = Loop(1, 2);
    BlockDesc& root = program.Root();
    Append(program.Block(1), "elementwise_add", "x", "t");
    program.Block(1).op(2).SetInput("Y", {"a"});
    root.Var("a").SetShape({1});
    root.InsertOp(before ? 0 : 1, OpDesc("increment", {{"X", {"a"}}}, {{"Out", {"a"}}}));
    return program;
  };
  const std::string text = Text(make(true), make(false));
  ExpectPart(text, "moved: ops see another value of a\n1 op moved\n");
  // And what it writes.
  const auto reader = [](bool before) {
    ProgramDesc program = Loop(1, 2);
    BlockDesc& root = program.Root();
    root.Var("s").SetShape({1});
    program.Block(1).AppendOp("increment", {{"X", {"s"}}}, {{"Out", {"s"}}});
    root.Var("r").SetShape({1});
    root.InsertOp(before ? 0 : 1, OpDesc("relu", {{"X", {"s"}}}, {{"Out", {"r"}}}));
    return program;
  };
  ExpectPart(Text(reader(true), reader(false)), "moved: ops see another value of s\n");
}

// Two branches whose blocks have changed places.
TEST(Diff, NumbersOfBlocksThatDraw) {
  const auto make = [](int first, int second, const char* random, bool is_test = false) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"c", "d"}) root.Var(name).SetDType(DType::kBool);
    for (const char* name : {"y", "z", "s"}) root.Var(name);
    program.AppendBlock(root);
    program.AppendBlock(root);
    Append(program.Block(first), random, "x", "t");
    if (is_test) program.Block(first).op(0).SetAttr("is_test", true);
    Append(program.Block(second), "tanh", "x", "u");
    for (const auto& [name, block] : {std::pair("c", first), std::pair("d", second)})
      root.AppendOp("conditional_block", {{"Cond", {name}}}, {{"Scope", {"s"}}},
                    {{"sub_block", BlockRef{block}}});
    return program;
  };
  EXPECT_EQ(Text(make(1, 2, "relu"), make(2, 1, "relu")), "");
  EXPECT_EQ(Text(make(1, 2, "dropout"), make(2, 1, "dropout")),
            "block 1 -> 2\n  ~ index: 1 -> 2 (random ops draw by it)\n1 block changed\n");
  EXPECT_EQ(Text(make(1, 2, "dropout", true), make(2, 1, "dropout", true)), "");
}

// A block's draws include the draws of blocks that its ops run, at any place: the first block calls
// a function, which comes last.
TEST(Diff, NumbersOfBlocksThatCallWhatDraws) {
  const auto make = [](int first, int second, const char* random) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    for (const char* name : {"c", "d"}) root.Var(name).SetDType(DType::kBool);
    for (int b = 1; b < 4; ++b) program.AppendBlock(root);
    Append(program.Block(3), random, "x", "t");
    program.Block(first).AppendOp("call", {}, {}, {{"sub_block", BlockRef{3}}});
    Append(program.Block(second), "tanh", "x", "u");
    for (const auto& [name, block] : {std::pair("c", first), std::pair("d", second)})
      root.AppendOp("conditional_block", {{"Cond", {name}}}, {}, {{"sub_block", BlockRef{block}}});
    return program;
  };
  EXPECT_EQ(Text(make(1, 2, "relu"), make(2, 1, "relu")), "");
  EXPECT_EQ(Text(make(1, 2, "dropout"), make(2, 1, "dropout")),
            "block 1 -> 2\n  ~ index: 1 -> 2 (random ops draw by it)\n1 block changed\n");
}

// The builder numbers the step scopes of branches by their order.
TEST(Diff, NamesOfStepScopesDoNotCount) {
  const auto make = [](int first, int second, VarType type) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("c").SetDType(DType::kBool);
    for (const char* name : {"y", "z"}) root.Var(name);
    for (const char* name : {"scope_0", "scope_1"}) root.Var(name).SetType(type);
    for (int b = 1; b < 3; ++b) program.AppendBlock(root);
    Append(program.Block(first), "tanh", "x", "y");
    Append(program.Block(second), "relu", "x", "z");
    const std::string y = "y", z = "z";
    for (const int block : {1, 2})
      root.AppendOp(
          "conditional_block", {{"Cond", {"c"}}},
          {{"Out", {block == first ? y : z}}, {"Scope", {block == 1 ? "scope_0" : "scope_1"}}},
          {{"sub_block", BlockRef{block}}});
    return program;
  };
  EXPECT_EQ(Text(make(1, 2, VarType::kStepScopes), make(2, 1, VarType::kStepScopes)), "");
  ExpectPart(Text(make(1, 2, VarType::kLoDTensor), make(2, 1, VarType::kLoDTensor)),
             "output Scope: scope_0 -> scope_1");
}

}  // namespace coracle::diff_blocks_test
