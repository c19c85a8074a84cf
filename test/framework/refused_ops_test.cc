#include <coracle/coracle.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <gtest/gtest.h>

namespace coracle::refused_ops_test {

TEST(RefusedOps, HaveAReasonAndNoOp) {
  EXPECT_GT(RefusedOps().size(), 50u);
  for (const RefusedOp& op : RefusedOps()) {
    EXPECT_EQ(FindRefusedOp(op.type), &op);
    EXPECT_FALSE(op.reason.empty()) << op.type;
    EXPECT_FALSE(DefaultOps().Find(op.type))
        << op.type << " is registered: take it out of framework/op/check/refused_ops.cc";
  }
  EXPECT_FALSE(FindRefusedOp("relu"));
  EXPECT_FALSE(FindRefusedOp(""));
  EXPECT_FALSE(FindRefusedOp("zzz"));
}

TEST(RefusedOps, AreNamedWhereverAnOpIsSought) {
  const std::string reason = "op type 'send' is refused: needs other processes (parameter server)";
  try {
    DefaultOps().Get("send");
    ADD_FAILURE() << "send is registered";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), reason);
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
  }
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({1});
  root.Var("y").SetShape({1});
  root.AppendOp("send", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const std::vector<VerifyProblem> problems = Verify(program, DefaultOps());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].rule, "unknown_op");
  EXPECT_EQ(problems[0].message, reason);
  EXPECT_EQ(DescribeMissingOp("clipp", {"clip"}), "unknown op type 'clipp'; did you mean clip?");
  EXPECT_EQ(DescribeMissingOp("clipp"), "unknown op type 'clipp'");
}

// A build of a few ops says which option left the others out.
TEST(RefusedOps, LeftOutOpsNameTheOption) {
  static constexpr std::string_view kLeftOut[] = {"conv3d", "lstm_of_a_slim_build"};
  SetLeftOutOps(kLeftOut);
  EXPECT_TRUE(IsLeftOutOp("conv3d"));
  EXPECT_FALSE(IsLeftOutOp("relu"));
  const std::string message = DescribeMissingOp("lstm_of_a_slim_build");
  EXPECT_TRUE(message.starts_with("op type 'lstm_of_a_slim_build' is left out of this build"))
      << message;
  EXPECT_NE(message.find("CORACLE_OPS_FROM"), std::string::npos) << message;
  ProgramDesc program;
  program.Root().AppendOp("lstm_of_a_slim_build", {}, {});
  const std::vector<VerifyProblem> problems = Verify(program, DefaultOps());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, message);
  EXPECT_EQ(DescribeMissingOp("send").find("left out"), std::string::npos);
  SetLeftOutOps({});
  EXPECT_FALSE(IsLeftOutOp("conv3d"));
}

// One of a program's own is an op as any other.
TEST(RefusedOps, MayBeRegistered) {
  OpRegistry ops;
  ops.Add(OpDef("py_func").Doc("Out = nothing.").NotDifferentiable("an example"));
  ProgramDesc program;
  program.Root().AppendOp("py_func", {}, {});
  EXPECT_TRUE(Verify(program, ops).empty());
}
}  // namespace coracle::refused_ops_test
