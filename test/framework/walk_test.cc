// The verbs that walk through a program: over an op's variables, sub-blocks, and ops of blocks.

#include <coracle/framework/ir/program.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

namespace coracle::walk_test {

using Names = std::vector<std::string>;
using Blocks = std::vector<BlockRef>;

OpDesc Sample() {
  return OpDesc("sum_grad", {{"X", {"a", "@EMPTY@", "b"}}, {"None", {}}, {"Y", {"a"}}},
                {{"Out", {"", "c"}}, {"Mask", {"b"}}});
}

TEST(ForEachInput, NamesWithSlotAndIndexInOrderWithoutAbsentOnes) {
  const OpDesc op = Sample();
  Names found;
  op.ForEachInput([&](const std::string& name, const std::string& slot, size_t index) {
    found.push_back(slot + "[" + std::to_string(index) + "]=" + name);
  });
  EXPECT_EQ(found, (Names{"X[0]=a", "X[2]=b", "Y[0]=a"}));
  found.clear();
  op.ForEachOutput([&](const std::string& name, const std::string& slot) {
    found.push_back(slot + "=" + name);
  });
  op.ForEachOutput([&](const std::string& name) { found.push_back(name); });
  EXPECT_EQ(found, (Names{"Out=c", "Mask=b", "c", "b"}));
}

TEST(ForEachInput, PositionsIncludeAbsentOnes) {
  Names found;
  ForEachPosition(Sample().inputs(), [&](const std::string& name) { found.push_back(name); });
  EXPECT_EQ(found, (Names{"a", "@EMPTY@", "b", "a"}));
}

TEST(AnyInput, StopsAtTheFirst) {
  const OpDesc op = Sample();
  int asked = 0;
  EXPECT_TRUE(op.AnyInput([&](const std::string& name) { return ++asked, name == "a"; }));
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(op.AnyOutput([](const std::string&, const std::string& s) { return s == "Mask"; }));
  EXPECT_FALSE(op.AnyOutput([](const std::string& name) { return name.empty(); }));
}

TEST(Reads, WhatTheSlotsHold) {
  const OpDesc op = Sample();
  EXPECT_TRUE(op.Reads("b"));
  EXPECT_FALSE(op.Reads("c"));
  EXPECT_FALSE(op.Reads(kEmptyVarName)) << "stands for no variable";
  EXPECT_TRUE(op.Writes("c"));
  EXPECT_FALSE(op.Writes("a"));
  EXPECT_FALSE(op.Writes(""));
}

TEST(RenameInputs, KeepsAbsentOnesAndTheIndexOfUses) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  OpDesc& op = root.AppendOp(Sample());
  EXPECT_EQ(root.Uses("a").readers.size(), 1u);
  op.RenameInputs([](const std::string& name, const std::string& slot) {
    return slot == "X" ? name + "2" : name;
  });
  EXPECT_EQ(op.Input("X"), (Names{"a2", "@EMPTY@", "b2"}));
  EXPECT_EQ(op.Input("Y"), Names{"a"});
  EXPECT_EQ(root.Uses("b2").readers.size(), 1u);
  EXPECT_TRUE(root.Uses("b").readers.empty());
  op.RenameOutputs([](const std::string& name) { return name + "3"; });
  EXPECT_EQ(op.Output("Out"), (Names{"", "c3"}));
  EXPECT_EQ(root.Uses("b3").writers.size(), 1u);
}

TEST(Uses, AbsentVariablesHaveNone) {
  ProgramDesc program;
  program.Root().AppendOp(Sample());
  EXPECT_TRUE(program.Root().Uses(kEmptyVarName).readers.empty());
  EXPECT_TRUE(program.Root().Uses("").writers.empty());
}

TEST(SubBlocks, OfBothAttrTypesInOrder) {
  OpDesc op("run", {}, {},
            {{"first", BlockRef{3}},
             {"n", int32_t{7}},
             {"more", Blocks{{2}, {-5}}},
             {"none", Blocks{}},
             {"last", BlockRef{900}}});
  EXPECT_EQ(op.SubBlocks(), (std::vector<int>{3, 2, -5, 900}));
  op.RenumberSubBlocks([](int idx) { return idx + 1; });
  EXPECT_EQ(op.SubBlocks(), (std::vector<int>{4, 3, -4, 901}));
  EXPECT_TRUE(Sample().SubBlocks().empty());
}

std::vector<int> IndicesOf(const std::vector<const BlockDesc*>& blocks) {
  std::vector<int> indices;
  for (const BlockDesc* block : blocks) indices.push_back(block->idx());
  return indices;
}

TEST(BlocksRunBy, EachOnceBreadthFirst) {
  ProgramDesc program;
  for (int i = 0; i < 4; ++i) program.AppendBlock(0);
  OpDesc& outer = program.Root().AppendOp("run", {}, {}, {{"blocks", Blocks{{1}, {2}}}});
  program.Block(1).AppendOp("run", {}, {}, {{"block", BlockRef{4}}});
  program.Block(2).AppendOp("run", {}, {}, {{"blocks", Blocks{{3}, {4}}}});
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(outer)), (std::vector<int>{1, 2, 4, 3}));
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(program.Block(2))), (std::vector<int>{3, 4}));
  EXPECT_TRUE(program.BlocksRunBy(program.Block(3)).empty());
  std::unordered_set<int> seen = {2};
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(outer, &seen)), (std::vector<int>{1, 4}));
  EXPECT_EQ(seen, (std::unordered_set<int>{1, 2, 4}));
}

TEST(BlocksRunBy, IndicesThatNameNoBlockAndCircles) {
  ProgramDesc program;
  program.AppendBlock(0);
  program.AppendBlock(1);
  const OpDesc& root_op = program.Root().AppendOp(
      "run", {}, {}, {{"blocks", Blocks{{-1}, {0}, {INT32_MIN}, {INT32_MAX}, {3}, {1}}}});
  const OpDesc& inner_op =
      program.Block(1).AppendOp("run", {}, {}, {{"blocks", Blocks{{1}, {2}, {0}}}});
  program.Block(2).AppendOp("run", {}, {}, {{"block", BlockRef{1}}});
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(root_op)), (std::vector<int>{1, 2}));
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(inner_op)), std::vector<int>{2});
  EXPECT_EQ(IndicesOf(program.BlocksRunBy(program.Block(2))), std::vector<int>{1});
}

TEST(SubBlockOps, FollowsAttrs) {
  ProgramDesc program;
  program.AppendBlock(0);
  BlockDesc& root = program.Root();
  OpDesc& op = root.AppendOp("run", {}, {}, {{"block", BlockRef{1}}, {"flag", true}});
  ASSERT_EQ(root.SubBlockOps().size(), 1u);
  op.RemoveAttr("block");
  EXPECT_TRUE(root.SubBlockOps().empty()) << "removed";
  op.SetAttr("blocks", Blocks{{1}});
  EXPECT_EQ(root.SubBlockOps().size(), 1u) << "added";
  op.SetAttr("blocks", std::string("none"));
  EXPECT_TRUE(root.SubBlockOps().empty()) << "replaced by something else";
  op.SetAttr("flag", BlockRef{1});
  EXPECT_EQ(root.SubBlockOps().size(), 1u) << "put in the place of something else";
}

TEST(ForEachOp, OfAllBlocksInOrder) {
  ProgramDesc program;
  program.AppendBlock(0);
  program.Root().AppendOp("a", {}, {});
  program.Block(1).AppendOp("c", {}, {});
  program.Root().AppendOp("b", {}, {});
  Names types;
  program.ForEachOp([&](OpDesc& op) {
    op.SetType(op.type() + op.type());
    types.push_back(op.type());
  });
  const ProgramDesc& same = program;
  same.ForEachOp([&](const OpDesc& op) { types.push_back(op.type()); });
  EXPECT_EQ(types, (Names{"aa", "bb", "cc", "aa", "bb", "cc"}));
}

template <class Block>
using ParentOf = decltype(std::declval<Block&>().parent());
template <class Block>
using ForwardOf = decltype(std::declval<Block&>().forward_block());
template <class Block>
using VarOf = decltype(std::declval<Block&>().FindVar(""));
template <class Block>
using SeenVarOf = decltype(std::declval<Block&>().FindVarRecursive(""));
template <class Block>
using WriterOf = decltype(std::declval<Block&>().Uses("").writers[0]);
template <class Block>
using RunnerOf = decltype(std::declval<Block&>().SubBlockOps()[0]);

TEST(Const, GivesConst) {
  using Const = const BlockDesc;
  EXPECT_TRUE((std::is_same_v<ParentOf<Const>, Const*>));
  EXPECT_TRUE((std::is_same_v<ForwardOf<Const>, Const*>));
  EXPECT_TRUE((std::is_same_v<VarOf<Const>, const VarDesc*>));
  EXPECT_TRUE((std::is_same_v<SeenVarOf<Const>, const VarDesc*>));
  EXPECT_TRUE((std::is_same_v<WriterOf<Const>, const OpDesc* const&>));
  EXPECT_TRUE((std::is_same_v<RunnerOf<Const>, const OpDesc* const&>));
  EXPECT_TRUE((std::is_same_v<decltype(std::declval<const OpDesc&>().block()), Const*>));
  EXPECT_TRUE((std::is_same_v<ParentOf<BlockDesc>, BlockDesc*>));
  EXPECT_TRUE((std::is_same_v<VarOf<BlockDesc>, VarDesc*>));
  EXPECT_TRUE((std::is_same_v<WriterOf<BlockDesc>, OpDesc* const&>));
}

TEST(FindVarRecursive, ForwardBlockBeforeParentAndCirclesEnd) {
  ProgramDesc program;
  BlockDesc& forward = program.AppendBlock(0);
  BlockDesc& gradient = program.AppendBlock(0);
  gradient.SetForwardBlockIdx(1);
  forward.SetForwardBlockIdx(2);
  VarDesc& of_root = program.Root().Var("x");
  const BlockDesc& seen = gradient;
  EXPECT_EQ(seen.FindVarRecursive("x"), &of_root);
  VarDesc& of_forward = forward.Var("x");
  EXPECT_EQ(seen.FindVarRecursive("x"), &of_forward);
  EXPECT_EQ(gradient.FindVarRecursive("x"), &of_forward);
  EXPECT_EQ(seen.FindVarRecursive("y"), nullptr);
}
}  // namespace coracle::walk_test
