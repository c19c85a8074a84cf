// Random programs: that thousands of them hold, that all ops occur, and that a defect is found.

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/test/fuzz/hostile_run.h>
#include <coracle/test/fuzz/program_check.h>
#include <coracle/test/fuzz/quantized_case.h>
#include <gtest/gtest.h>

namespace coracle::random_programs_test {

class RandomPrograms : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    SetLogSink([](MessageLevel, const std::string&) {});
  }

  void CheckSeed(uint64_t seed, const std::vector<std::string>& types = {}) {
    const RandomCase made = MakeCase(seed, types);
    const auto finding = CheckProgram(made.program, made.plan, &counts_);
    if (!finding) return;
    ADD_FAILURE() << "random_programs --seed=" << seed << " --count=1"
                  << (types.empty() ? "" : " --types=" + Join(types, ",")) << "\n"
                  << finding->kind << "\n"
                  << finding->text << "\n"
                  << PrintProgram(Minimize(made.program, made.plan, finding->kind).program);
  }

  CheckCounts counts_;
};

TEST_F(RandomPrograms, ThousandsHold) {
  for (uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) CheckSeed(seed);
  // The programs are not trivial. The programs of a seed change with every new op; rare features
  // may take some more programs.
  const auto is_rare = [&] {
    return counts_.second_gradients <= 60 || counts_.inner_gradients <= 80 || counts_.saved < 8;
  };
  for (uint64_t seed = 3001; seed <= 6000 && is_rare() && !HasFailure(); ++seed) CheckSeed(seed);
  EXPECT_GT(counts_.ran, 2100u);
  EXPECT_GT(counts_.ran_backward, 1200u);
  EXPECT_GT(counts_.second_order, 200u);
  EXPECT_GT(counts_.compared, 1500u);
  EXPECT_GT(counts_.gradients, 400u);
  EXPECT_GT(counts_.second_gradients, 60u);
  EXPECT_GT(counts_.inner_gradients, 80u);
  EXPECT_GE(counts_.saved, 8u);
  EXPECT_GT(counts_.refused, 100u);
}

// Integer ops give what the ops that they replace give, and each of them occurs.
TEST_F(RandomPrograms, QuantizedOnesHold) {
  std::map<std::string, uint64_t> integer_ops;
  for (uint64_t seed = 1; seed <= 500 && !HasFailure(); ++seed) {
    Choices choose(seed);
    const QuantizedCase made = MakeQuantizedCase(choose);
    if (const auto finding = CheckQuantizedCase(made, choose, &integer_ops)) {
      ADD_FAILURE() << "random_programs --quantized --seed=" << seed << " --count=1\n"
                    << finding->kind << "\n"
                    << finding->text << "\n"
                    << PrintProgram(made.program);
    }
  }
  if (!IntegerProductsPay()) return;  // the products stay in floating point
  for (const char* type : {"conv2d", "matmul", "add", "mul", "concat", "pool2d", "lookup"})
    EXPECT_GT(integer_ops[std::string("quantized_") + type], 5u) << type;
}

TEST_F(RandomPrograms, HostileOnesEndWithAnErrorOrRun) {
  HostileCounts counts;
  for (uint64_t seed = 1; seed <= 3000 && !HasFailure(); ++seed) {
    Choices choose(seed);
    const HostileCase made = MakeHostileCase(choose);
    if (const auto finding = RunHostileCase(made, &counts)) {
      ADD_FAILURE() << "random_programs --hostile --seed=" << seed << " --count=1\n"
                    << finding->kind << "\n"
                    << finding->text << "\n"
                    << PrintProgram(made.program);
    }
  }
  EXPECT_GT(counts.ran, 500u);
  EXPECT_GT(counts.stopped, 200u);
  EXPECT_GT(counts.refused, 300u);
}

// Each gets programs of its own, until one of them runs.
TEST_F(RandomPrograms, EveryOpRuns) {
  // Ops removed by compilation; ops that read or write files; and the op of programs for several
  // ranks, which the tests of distribute run.
  const std::set<std::string> justified = {"feed", "fetch", "save", "save_combine", "load",
                                           "load_combine",
                                           // It only throws.
                                           "branch_error",
                                           // Random programs have no strings.
                                           "regex_full_match", "string_concat", "string_normalize",
                                           "string_split", "c_softmax_with_cross_entropy_grad"};
  for (const std::string& type : DefaultOps().Types()) {
    if (justified.count(type)) continue;
    std::string drawn = type;
    while (drawn.ends_with("_grad")) drawn.resize(drawn.size() - 5);
    for (uint64_t seed = 1; seed <= 400 && !counts_.ran_types.count(type); ++seed)
      CheckSeed(seed, {drawn, "tanh", "write_to_array"});
    EXPECT_TRUE(counts_.ran_types.count(type))
        << type
        << " never ran; its inputs want shapes in their docs, or it a line in op_hint_table.cc";
  }
}

TEST_F(RandomPrograms, AreTheSameForTheSameSeed) {
  for (uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const RandomCase a = MakeCase(seed), b = MakeCase(seed);
    EXPECT_EQ(ProgramToText(a.program.program), ProgramToText(b.program.program));
  }
}

// stop_gradient says that its output is a constant, which differences do not see.
TEST_F(RandomPrograms, AWrongGradientIsFoundAndReduced) {
  RandomProgram made;
  made.smooth = true;
  BlockDesc& root = made.program.Root();
  for (const char* name : {"x", "a", "b", "c", "d"}) root.Var(name).SetShape({3});
  root.Var("loss").SetShape({1});
  ProgramInput input;
  input.name = "x";
  input.meta.shape = {3};
  made.inputs.push_back(input);
  made.loss = "loss";
  root.AppendOp("tanh", {{"X", {"x"}}}, {{"Out", {"a"}}});
  root.AppendOp("stop_gradient", {{"X", {"x"}}}, {{"Out", {"b"}}});
  root.AppendOp("elementwise_mul", {{"X", {"x"}}, {"Y", {"b"}}}, {{"Out", {"c"}}});
  root.AppendOp("exp", {{"X", {"a"}}}, {{"Out", {"d"}}});
  root.AppendOp("mean", {{"X", {"c"}}}, {{"Out", {"loss"}}});
  CheckPlan plan;
  plan.inputs = {"x"};
  CheckCounts counts;
  const auto finding = CheckProgram(made, plan, &counts);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, "gradients are not what differences say");
  const RandomProgram small = Minimize(made, plan, finding->kind);
  EXPECT_EQ(small.program.Root().NumOps(), 3u) << PrintProgram(small.program);
  EXPECT_FALSE(small.program.Root().FindVar("d"));
}
}  // namespace coracle::random_programs_test
