#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace coracle::program_test {

std::vector<std::string> OpTypes(const BlockDesc& block) {
  std::vector<std::string> types;
  for (size_t i = 0; i < block.NumOps(); ++i) types.push_back(block.op(i).type());
  return types;
}

std::vector<std::string> VarNames(const BlockDesc& block) {
  std::vector<std::string> names;
  for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
  return names;
}

std::vector<OpDesc*> Ops(std::span<OpDesc* const> ops) { return {ops.begin(), ops.end()}; }

TEST(Op, SlotsAndAttrs) {
  OpDesc op("mul", {{"X", {"a"}}, {"Y", {}}}, {{"Out", {"c", "@EMPTY@"}}}, {{"axis", int32_t{1}}});
  EXPECT_TRUE(op.HasInput("X"));
  EXPECT_FALSE(op.HasInput("Y"));
  EXPECT_FALSE(op.HasInput("Z"));
  EXPECT_TRUE(op.Input("Z").empty());
  op.SetInput("Y", {"@EMPTY@"});
  EXPECT_FALSE(op.HasInput("Y"));
  op.SetInput("X", {"b", "b"});
  op.SetInput("New", {"n"});
  EXPECT_EQ(op.inputs().front().name, "X");
  EXPECT_EQ(op.inputs().back().name, "New");
  op.RenameInput("b", "d");
  EXPECT_EQ(op.Input("X"), (std::vector<std::string>{"d", "d"}));
  op.SetAttr("axis", int64_t{2});
  op.SetAttr("more", 0.5f);
  EXPECT_EQ(op.attrs().size(), 2u);
  EXPECT_EQ(op.GetAttr<int32_t>("axis", 0), 2);
  op.RemoveAttr("axis");
  EXPECT_EQ(op.GetAttr<int32_t>("axis", 9), 9);
  op.SetAttr(kOpCallstackAttr, std::vector<std::string>{"net.pbtxt:3:1"});
  EXPECT_EQ(op.creation_site(), "net.pbtxt:3:1");
  op.SetAttr(kOpCallstackAttr, std::vector<std::string>{"net.pbtxt:3:1", "i = 2"});
  EXPECT_EQ(op.creation_site(), "net.pbtxt:3:1");
  for (const char* line :
       {"  File \"net.py\", line 3, in main", "3:1x", ":1", "31", "", "a:1:", "a:1"}) {
    op.SetAttr(kOpCallstackAttr, std::vector<std::string>{line, "    main()"});
    EXPECT_EQ(op.creation_site(), "") << line;
  }
  op.SetAttr(kOpCallstackAttr, int32_t{1});
  EXPECT_EQ(op.creation_site(), "");
}

TEST(Block, UsesFollowEdits) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  OpDesc& first = root.AppendOp("a", {{"X", {"x", "x"}}}, {{"Out", {"y"}}});
  OpDesc& second = root.AppendOp("b", {{"X", {"y"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Ops(root.Uses("x").readers), std::vector<OpDesc*>{&first});
  EXPECT_EQ(Ops(root.Uses("y").writers), (std::vector<OpDesc*>{&first, &second}));
  EXPECT_EQ(root.IndexOf(second), 1u);
  root.InsertOp(0, OpDesc("c", {{"X", {"y"}}}, {}, {}));
  EXPECT_EQ(root.IndexOf(second), 2u);
  EXPECT_EQ(root.Uses("y").readers.size(), 2u);
  second.SetInput("X", {"z"});
  EXPECT_EQ(Ops(root.Uses("z").readers), std::vector<OpDesc*>{&second});
  root.RemoveOp(1);
  EXPECT_TRUE(root.Uses("x").readers.empty());
  EXPECT_TRUE(root.Uses("nobody").writers.empty());
  auto ops = root.ReleaseOps();
  EXPECT_EQ(root.NumOps(), 0u);
  EXPECT_EQ(ops[0]->block(), nullptr);
  std::reverse(ops.begin(), ops.end());
  root.SetOps(std::move(ops));
  EXPECT_EQ(OpTypes(root), (std::vector<std::string>{"b", "c"}));
  EXPECT_THROW(root.IndexOf(OpDesc("stranger")), InternalError);
}

TEST(Block, VarsAreUniqueAndOrdered) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  VarDesc& a = root.Var("a");
  EXPECT_EQ(&root.Var("a"), &a);
  root.Var("b");
  root.Var("c");
  EXPECT_THROW(root.AppendVar(VarDesc("b")), Error);
  EXPECT_TRUE(root.RemoveVar("b"));
  EXPECT_FALSE(root.RemoveVar("b"));
  EXPECT_EQ(VarNames(root), (std::vector<std::string>{"a", "c"}));
  EXPECT_EQ(root.FindVar("b"), nullptr);
}

// Forward block first, then the parent, breadth first.
TEST(Block, LooksUpThroughForwardBlocksAndParents) {
  ProgramDesc program;
  BlockDesc& forward = program.AppendBlock(program.Root());
  BlockDesc& gradient = program.AppendBlock(program.Root());
  gradient.SetForwardBlockIdx(forward.idx());
  program.Root().Var("x");
  program.Root().Var("both");
  forward.Var("both");
  forward.Var("h");
  EXPECT_EQ(gradient.FindVarRecursive("both"), forward.FindVar("both"));
  EXPECT_EQ(gradient.FindVarRecursive("h"), forward.FindVar("h"));
  EXPECT_EQ(gradient.FindVarRecursive("x"), program.Root().FindVar("x"));
  EXPECT_EQ(forward.FindVarRecursive("nothing"), nullptr);
  EXPECT_EQ(program.Root().FindVarRecursive("h"), nullptr);
  EXPECT_EQ(Variable::Of(gradient, "h").name(), "h");
  EXPECT_THROW(Variable::Of(gradient, "none"), Error);
}

TEST(Block, LookUpEndsInCyclesAndDepths) {
  ProgramDesc program;
  program.AppendBlock(2);
  program.AppendBlock(1);
  program.Block(1).SetForwardBlockIdx(2);
  EXPECT_EQ(program.Block(1).FindVarRecursive("x"), nullptr);
  ProgramDesc deep;
  for (int i = 0; i < 20000; ++i) deep.AppendBlock(deep.NumBlocks() - 1);
  deep.Root().Var("x");
  EXPECT_EQ(deep.Block(20000).FindVarRecursive("x"), deep.Root().FindVar("x"));
}

ProgramDesc SmallProgram() {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"x", "h", "loss", "h@GRAD", "w", "lr", "unused"}) {
    root.Var(name).SetShape({1});
  }
  root.FindVar("w")->SetPersistable(true);
  root.FindVar("w")->SetErrorClip(ErrorClipByValue(5));
  root.FindVar("lr")->SetPersistable(true);
  root.AppendOp("fc", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"h"}}}, {{"is_test", false}});
  root.AppendOp("mean", {{"X", {"h"}}}, {{"Out", {"loss"}}}, {{kOpRoleAttr, int{kLoss}}});
  root.AppendOp("mean_grad", {{"X", {"h"}}}, {{"X@GRAD", {"h@GRAD"}}},
                {{kOpRoleAttr, int{kBackward}}});
  root.AppendOp("sgd", {{"Param", {"w"}}, {"LearningRate", {"lr"}}}, {{"ParamOut", {"w"}}},
                {{kOpRoleAttr, int{kOptimize}}});
  return program;
}

TEST(Program, CopiesAreDeepAndEqual) {
  ProgramDesc program = SmallProgram();
  program.AppendBlock(program.Root()).AppendOp("inner", {}, {});
  program.version = 2006000;
  ProgramDesc copy = program;
  EXPECT_EQ(copy, program);
  EXPECT_EQ(&copy.Root().program(), &copy);
  EXPECT_EQ(copy.Root().op(0).block(), &copy.Root());
  copy.Root().op(0).SetAttr("is_test", true);
  EXPECT_FALSE(copy == program);
  ProgramDesc third = program;
  third.Block(1).op(0).SetType("other");
  EXPECT_FALSE(third == program);
  ProgramDesc moved = std::move(copy);
  EXPECT_EQ(&moved.Root().program(), &moved);
  EXPECT_TRUE(moved.Root().op(0).GetAttr<bool>("is_test", false));
  ProgramDesc fourth = program;
  fourth.Root().FindVar("w")->SetErrorClip(ErrorClipByValue(6));
  EXPECT_FALSE(fourth == program);
}

TEST(Program, NamesOfSubBlocksAreTaken) {
  ProgramDesc program;
  for (int i = 0; i < 3; ++i) program.AppendBlock(0).Var("h");
  program.Block(2).Var("h_0");
  EXPECT_EQ(program.FreeName("x"), "x");
  EXPECT_EQ(program.FreeName("h"), "h_1");
  ProgramDesc copy = program;
  EXPECT_NE(copy.FreeName("h"), "h");
  copy.Block(3).RemoveVarsIf([](const VarDesc&) { return true; });
  EXPECT_NE(copy.FreeName("h"), "h");  // blocks 1 and 2 have it still
  copy.TruncateBlocks(1);
  EXPECT_EQ(copy.FreeName("h"), "h");
  const ProgramDesc moved = std::move(program);
  EXPECT_NE(ProgramDesc(moved).FreeName("h"), "h");
}

TEST(Program, UniqueNamesStayUniqueAfterReload) {
  ProgramDesc program;
  EXPECT_EQ(program.UniqueName("fc"), "fc_0");
  program.Root().Var("fc_0");
  EXPECT_EQ(program.UniqueName("fc"), "fc_1");
  program.Root().Var("fc_1");
  program.AppendBlock(program.Root()).Var("fc_2");
  ProgramDesc reloaded = ParseProgram(SerializeProgram(program));
  EXPECT_EQ(reloaded.UniqueName("fc"), "fc_3");
  EXPECT_EQ(reloaded.FreeName("loss"), "loss");
  EXPECT_NE(reloaded.FreeName("fc_0"), "fc_0");
}

TEST(Program, ParametersAreInferredOnce) {
  ProgramDesc program = SmallProgram();
  EXPECT_TRUE(program.Parameters().empty());  // nothing says is_parameter
  program.InferParameters();
  EXPECT_EQ(program.Parameters(), std::vector<std::string>{"w"});  // that sgd writes; lr is a rate
  // Later definitions change nothing: a parameter with the mark, an op that writes the
  // old parameter.
  program.Root().Var("new").SetIsParameter(true);
  program.Root().AppendOp("scale", {{"X", {"w"}}}, {{"Out", {"w"}}});
  program.Root().RemoveOp(3);  // sgd
  EXPECT_EQ(program.Parameters(), (std::vector<std::string>{"w", "new"}));
  EXPECT_EQ(ProgramDesc(program).Parameters(), program.Parameters());
  program.Root().FindVar("w")->MutableTraining().trainable = false;
  EXPECT_EQ(program.Parameters(), std::vector<std::string>{"new"});
  program.Root().FindVar("new")->SetIsParameter(false);
  EXPECT_TRUE(program.Parameters().empty());
}

TEST(Program, ParametersAreReadAndNotWritten) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"w", "in_body", "mean", "moment", "rate", "idle", "fetched"}) {
    root.Var(name).SetShape({1});
    root.FindVar(name)->SetPersistable(true);
  }
  root.Var("counter").SetPersistable(true);
  root.FindVar("counter")->SetDType(DType::kInt64);
  BlockDesc& body = program.AppendBlock(root);
  body.Var("mean");  // another one, of the block itself
  body.AppendOp("mul", {{"X", {"in_body"}}}, {{"Out", {"mean"}}});
  root.AppendOp("batch_norm", {{"X", {"x"}}, {"Scale", {"w"}}, {"Mean", {"mean"}}},
                {{"MeanOut", {"mean"}}}, {{kOpRoleAttr, int{kNotSpecified}}});
  root.AppendOp("increment", {{"X", {"counter"}}}, {{"Out", {"count"}}});
  root.AppendOp("momentum", {{"LearningRate", {"rate"}}, {"Velocity", {"moment"}}},
                {{"VelocityOut", {"moment"}}}, {{kOpRoleAttr, int{kOptimize}}});
  root.AppendOp("fetch", {{"X", {"fetched", "rate"}}}, {});
  program.InferParameters();
  EXPECT_EQ(program.Parameters(), (std::vector<std::string>{"w", "in_body"}));
}

// A program made in memory has the same parameters after it was written and read.
TEST(Program, FilesKeepWhichVariablesAreParameters) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("w").SetShape({1});
  root.FindVar("w")->SetPersistable(true);
  root.Var("out");
  root.AppendOp("scale", {{"X", {"w"}}}, {{"Out", {"out"}}});
  EXPECT_TRUE(program.Parameters().empty());
  EXPECT_TRUE(ParseProgram(SerializeProgram(program)).Parameters().empty());
  root.FindVar("w")->SetIsParameter(true);
  EXPECT_EQ(ParseProgram(SerializeProgram(program)).Parameters(), program.Parameters());
}

TEST(Program, CloneForTestNamesTheOpWhoseRoleIsNoNumber) {
  ProgramDesc program;
  program.Root().AppendOp("copy", {{"X", {"x"}}}, {{"Out", {"y"}}},
                          {{kOpRoleAttr, std::string("backward")}});
  EXPECT_EQ(ErrorOf([&] { program.CloneForTest(); }),
            "op copy that writes 'y', block 0: attr op_role must be INT, got \"backward\"");
}

TEST(Program, CloneForTestDropsTraining) {
  ProgramDesc program = SmallProgram();
  ProgramDesc test = program.CloneForTest();
  EXPECT_EQ(OpTypes(test.Root()), (std::vector<std::string>{"fc", "mean"}));
  EXPECT_EQ(VarNames(test.Root()), (std::vector<std::string>{"x", "h", "loss", "w", "unused"}));
  EXPECT_TRUE(test.Root().op(0).GetAttr<bool>("is_test", false));
  EXPECT_FALSE(test.Root().op(1).HasAttr("is_test"));
  EXPECT_EQ(program.Root().NumOps(), 4u);
}

TEST(Program, PruneKeepsWhatTheTargetsNeed) {
  ProgramDesc program = SmallProgram();
  program.Root().AppendOp("print", {{"X", {"x"}}}, {}).SetIsTarget(true);
  program.Prune({"h"});
  EXPECT_EQ(OpTypes(program.Root()), (std::vector<std::string>{"fc", "print"}));
  EXPECT_EQ(VarNames(program.Root()), (std::vector<std::string>{"x", "h", "w"}));
  try {
    program.Prune({"H1"});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  }
}

TEST(Program, PruneKeepsInPlaceUpdatesAndStopsAtFeeds) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"a", "b", "c"}) root.Var(name);
  root.AppendOp("read", {}, {{"Out", {"a"}}});
  root.AppendOp("relu", {{"X", {"a"}}}, {{"Out", {"b"}}});
  root.AppendOp("increment", {{"X", {"b"}}}, {{"Out", {"b"}}});
  root.AppendOp("scale", {{"X", {"b"}}}, {{"Out", {"c"}}});
  ProgramDesc all = program;
  all.Prune({"b"});
  EXPECT_EQ(OpTypes(all.Root()), (std::vector<std::string>{"read", "relu", "increment"}));
  program.Prune({"c"}, {"a"});
  EXPECT_EQ(OpTypes(program.Root()), (std::vector<std::string>{"relu", "increment", "scale"}));
}

TEST(Program, PruneLooksIntoSubBlocks) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"a", "b", "out"}) root.Var(name);
  BlockDesc& body = program.AppendBlock(root);
  body.Var("inner");
  body.AppendOp("add", {{"X", {"b"}}}, {{"Out", {"inner"}}});
  root.AppendOp("make_a", {}, {{"Out", {"a"}}});
  root.AppendOp("make_b", {}, {{"Out", {"b"}}});
  root.AppendOp("while", {}, {{"Out", {"out"}}}, {{"sub_block", BlockRef{1}}});
  program.Prune({"out"});
  EXPECT_EQ(OpTypes(root), (std::vector<std::string>{"make_b", "while"}));
  EXPECT_EQ(VarNames(root), (std::vector<std::string>{"b", "out"}));
  EXPECT_NE(body.FindVar("inner"), nullptr);
}

// Many ops that run one large block: each pass looks at the block once.
TEST(Program, PassesAreLinearInSharedSubBlocks) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  BlockDesc& body = program.AppendBlock(root);
  root.Var("x");
  for (int i = 0; i < 20000; ++i) {
    body.AppendOp("add", {{"X", {"x"}}}, {});
    root.AppendOp("run", {}, {{"Out", {"x"}}}, {{"sub_block", BlockRef{1}}});
  }
  ProgramDesc test = program.CloneForTest();
  program.Prune({"x"});
  EXPECT_EQ(program.Root().NumOps(), 20000u);
}

TEST(ErrorClip, RefusesSenselessBounds) {
  EXPECT_THROW(ErrorClipByValue(1, 2), Error);
  EXPECT_THROW(ErrorClipByNorm(0), Error);
  EXPECT_THROW(ErrorClipByNorm(-1), Error);
  EXPECT_EQ(ErrorClipByValue(3).min(), -3);
}

class OwnClip : public BaseErrorClipAttr {
 public:
  void AppendClipOp(BlockDesc&, const std::string&) const override {}
  std::optional<Setting> Save() const override { return Setting{"own_clip", {}}; }
  static ErrorClipPtr Load(const Setting&) { return std::make_shared<OwnClip>(); }
};

TEST(ErrorClip, UsersClassesAreSavedOnceRegistered) {
  ProgramDesc program;
  program.Root().Var("x").SetErrorClip(OwnClip());
  EXPECT_THROW(SerializeProgram(program), Error);
  RegisterErrorClip("own_clip", OwnClip::Load);
  EXPECT_THROW(RegisterErrorClip("own_clip", OwnClip::Load), Error);
  ProgramDesc again = ParseProgram(SerializeProgram(program));
  EXPECT_NE(dynamic_cast<const OwnClip*>(again.Root().FindVar("x")->error_clip().get()), nullptr);
}

// --- wrong calls ---

TEST(Misuse, AProgramThatWasMovedFrom) {
  ProgramDesc program;
  program.Root().Var("x");
  const ProgramDesc moved = std::move(program);
  const std::string error =
      "a program without blocks was used: it was moved from, or its blocks cleared";
  const ProgramDesc& from = program;  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(ErrorOf([&] { program.Root(); }), error);
  EXPECT_EQ(ErrorOf([&] { from.Root(); }), error);
  EXPECT_EQ(ErrorOf([&] { from.Block(0); }), error);
  EXPECT_EQ(ErrorOf([&] { from.Parameters(); }), error);
  EXPECT_EQ(ErrorOf([&] { program.UniqueName("x"); }), error);
  EXPECT_EQ(ErrorOf([&] { SerializeProgram(from); }), error);
  EXPECT_EQ(ErrorOf([&] { PrintProgram(from); }), error);
  program = moved;  // may be assigned
  EXPECT_NE(program.Root().FindVar("x"), nullptr);
}

TEST(Misuse, IndicesPastTheEnd) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.AppendOp("relu", {}, {});
  EXPECT_EQ(ErrorOf([&] { program.Block(1); }), "the program has no block 1; it has 1");
  EXPECT_EQ(ErrorOf([&] { program.Block(-1); }), "the program has no block -1; it has 1");
  EXPECT_EQ(ErrorOf([&] { root.op(1); }), "block 0 has no op 1; it has 1");
  EXPECT_EQ(ErrorOf([&] { root.var(0); }), "block 0 has no var 0; it has 0");
  EXPECT_EQ(ErrorOf([&] { root.RemoveOp(1); }), "block 0 has no op 1; it has 1");
  EXPECT_EQ(ErrorOf([&] { root.InsertOp(2, OpDesc("relu")); }), "block 0 has no op 2; it has 1");
  EXPECT_EQ(ErrorOf([&] { root.AppendOp(std::unique_ptr<OpDesc>()); }),
            "a null op was appended to a block");
  program.TruncateBlocks(-1);
  EXPECT_EQ(program.NumBlocks(), 1);
}

TEST(Misuse, AnEmptyVariable) {
  const Variable none;
  const std::string error =
      "an empty Variable was used: it is the handle of no variable until it is assigned one";
  EXPECT_EQ(ErrorOf([&] { none.name(); }), error);
  EXPECT_EQ(ErrorOf([&] { none.shape(); }), error);
  EXPECT_EQ(ErrorOf([&] { none.dtype(); }), error);
  EXPECT_EQ(ErrorOf([&] { none.desc(); }), error);
  EXPECT_EQ(ErrorOf([&] { none.block(); }), error);
  EXPECT_EQ(ErrorOf([&] { none.program(); }), error);
  ProgramDesc program;
  Variable x(&program.Root(), &program.Root().Var("x"));
  const Variable y = std::move(x);
  EXPECT_EQ(x.name(), "x");  // NOLINT(bugprone-use-after-move): moves are copies
  EXPECT_EQ(y.name(), "x");
}

// A name that blocks around one another look up: thousands deep, and with forward blocks.
TEST(Block, NamesAreFoundThroughThousandsOfBlocks) {
  ProgramDesc program;
  program.Root().Var("outer");
  VarDesc& first = program.AppendBlock(program.Root()).Var("first");
  constexpr int kBlocks = 9000;
  for (int b = 2; b <= kBlocks; ++b) {
    BlockDesc& block = program.AppendBlock(program.Block(b - 1));
    if (b % 2 == 0) block.SetForwardBlockIdx(b - 2);
  }
  const BlockDesc& last = program.Block(kBlocks);
  EXPECT_EQ(last.FindVarRecursive("first"), &first);
  for (int b = 0; b <= kBlocks; ++b) {
    ASSERT_NE(program.Block(b).FindVarRecursive("outer"), nullptr);
    ASSERT_EQ(program.Block(b).FindVarRecursive("nowhere"), nullptr);
  }
}

}  // namespace coracle::program_test
