#include <coracle/executor/executor.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/passes.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace coracle::merge_updates_test {

// Parameters p<i> with gradients g<i> and velocities v<i>, all persistable, in a scope.
struct Parameters {
  ProgramDesc program;
  Scope scope;

  explicit Parameters(const std::vector<int64_t>& sizes) {
    Add("lr", Tensor(DType::kFloat32, {1}), 0.125f);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const float first = 0.25f * static_cast<float>(i + 1);
      Add(fmt::format("p{}", i), Tensor(DType::kFloat32, {sizes[i]}), first);
      Add(fmt::format("g{}", i), Tensor(DType::kFloat32, {sizes[i]}), first - 1);
      Add(fmt::format("v{}", i), Tensor(DType::kFloat32, {sizes[i]}), 0);
    }
  }
  void Add(const std::string& name, Tensor value, float first) {
    VarDesc& var = program.Root().Var(name);
    var.SetShape(value.shape());
    var.SetDType(value.dtype());
    var.SetPersistable(true);
    for (int64_t k = 0; k < value.numel(); ++k)
      value.data<float>()[k] = first + 0.001f * static_cast<float>(k % 1000);
    scope.Var(name) = std::move(value);
  }
  void Momentum(int i, float mu = 0.5f) {
    const std::string n = std::to_string(i);
    program.Root().AppendOp("momentum",
                            {{"Param", {"p" + n}},
                             {"Grad", {"g" + n}},
                             {"Velocity", {"v" + n}},
                             {"LearningRate", {"lr"}}},
                            {{"ParamOut", {"p" + n}}, {"VelocityOut", {"v" + n}}},
                            {{"mu", mu}, {kOpRoleAttr, int32_t{kOptimize}}});
  }
  std::vector<std::string> Merged() const {
    ProgramDesc copy = program;
    RunPasses(copy, PassContext{DefaultOps(), {}, {}}, {"merge_updates"});
    std::vector<std::string> ops;
    for (size_t i = 0; i < copy.Root().NumOps(); ++i) {
      const OpDesc& op = copy.Root().op(i);
      const auto& names = op.HasInput("Param") ? op.Input("Param") : op.Input("X");
      ops.push_back(fmt::format("{} {}", op.type(), fmt::join(names, " ")));
    }
    return ops;
  }
};

using Ops = std::vector<std::string>;

// An update in front of a block that reads the parameter stays there.
TEST(MergeUpdates, BlocksThatReadParameters) {
  Parameters net({3, 3});
  net.Momentum(0);
  BlockDesc& inner = net.program.AppendBlock(net.program.Root());
  inner.AppendOp("assign", {{"X", {"p0"}}}, {{"Out", {"kept"}}});
  for (const char* name : {"kept", "yes"}) net.program.Root().Var(name).SetShape({1});
  net.program.Root().FindVar("yes")->SetDType(DType::kBool);
  net.program.Root().AppendOp(
      "conditional_block", {{"Cond", {"yes"}}}, {{"Out", {"kept"}}, {"Scope", {}}},
      {{"sub_block", BlockRef{inner.idx()}}, {"is_scalar_condition", true}});
  net.Momentum(1);
  EXPECT_EQ(net.Merged(), (Ops{"momentum p0", "conditional_block ", "momentum p1"}));
}

TEST(MergeUpdates, OneOpForAllParameters) {
  Parameters net({3, 5, 2});
  for (int i : {0, 1, 2}) net.Momentum(i);
  EXPECT_EQ(Ops{"momentum p0 p1 p2"}, net.Merged());
}

// An error of the merged op may come from any of them.
TEST(MergeUpdates, ItHasTheOriginsOfAll) {
  Parameters net({3, 5, 2});
  for (int i : {0, 1, 2}) net.Momentum(i);
  SetOrigins(net.program);
  RunPasses(net.program, PassContext{DefaultOps(), {}, {}}, {"merge_updates"});
  ASSERT_EQ(net.program.Root().NumOps(), 1u);
  EXPECT_EQ(DescribePlaces(OriginsOf(net.program.Root().op(0))), "ops 0, 1 and 2 of block 0");
}

TEST(MergeUpdates, OtherAttrsAreAnotherOp) {
  Parameters net({3, 5, 2});
  net.Momentum(0);
  net.Momentum(1, 0.25f);
  net.Momentum(2);
  EXPECT_EQ((Ops{"momentum p1", "momentum p0 p2"}), net.Merged());
}

TEST(MergeUpdates, AnOpBetweenThatReadsThem) {
  Parameters net({3, 3});
  net.Momentum(0);
  net.program.Root().AppendOp("relu", {{"X", {"p0"}}}, {{"Out", {"g1"}}});
  net.Momentum(1);
  EXPECT_EQ((Ops{"momentum p0", "relu p0", "momentum p1"}), net.Merged());
}

TEST(MergeUpdates, AnOpBetweenThatWritesWhatTheyRead) {
  Parameters net({3, 3});
  net.Momentum(0);
  net.program.Root().AppendOp("scale", {{"X", {"lr"}}}, {{"Out", {"lr"}}}, {{"scale", 0.5f}});
  net.Momentum(1);
  EXPECT_EQ((Ops{"momentum p0", "scale lr", "momentum p1"}), net.Merged());
}

TEST(MergeUpdates, TwoUpdatesOfOneParameterStayInOrder) {
  Parameters net({3, 3});
  net.Momentum(0);
  net.Momentum(1);
  net.Momentum(0);
  EXPECT_EQ((Ops{"momentum p0 p1", "momentum p0"}), net.Merged());
}

TEST(MergeUpdates, OnlyOpsOfTheUpdate) {
  Parameters net({3, 3});
  for (const char* name : {"p0", "p1"}) {
    net.program.Root().AppendOp("scale", {{"X", {name}}}, {{"Out", {std::string(name) + ".out"}}});
    net.program.Root().Var(std::string(name) + ".out").SetShape({3});
  }
  EXPECT_EQ((Ops{"scale p0", "scale p1"}), net.Merged());
}

// Sizes around the blocks of a sweep, none, one; the same bits with 1, 2 and 5 threads and
// without the pass.
TEST(MergeUpdates, SameBits) {
  const std::vector<int64_t> sizes = {4096, 1, 70001, 0, 4095, 8193, 3, 65536};
  const int threads = NumThreads();
  std::vector<Scope> scopes;
  for (int n : {0, 1, 2, 5}) {
    SetNumThreads(std::max(n, 1));
    Parameters net(sizes);
    for (int i = 0; i < static_cast<int>(sizes.size()); ++i) net.Momentum(i);
    CompileOptions options;
    options.optimize = n > 0;
    Executor executor(options);
    for (int step = 0; step < 3; ++step) executor.Run(net.program, net.scope);
    scopes.push_back(std::move(net.scope));
  }
  SetNumThreads(threads);
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (const char* kind : {"p", "v"}) {
      const std::string name = kind + std::to_string(i);
      const Tensor& expected = std::get<Tensor>(*scopes[0].Find(name));
      for (size_t k = 1; k < scopes.size(); ++k)
        EXPECT_TRUE(BitEqual(expected, std::get<Tensor>(*scopes[k].Find(name)))) << name;
    }
  }
}

TEST(MergeUpdates, ItemsThatDoNotFit) {
  Parameters net({3, 3});
  net.Momentum(0);
  OpDesc& op = net.program.Root().op(0);
  op.SetInput("Param", {"p0", "p1"});
  const auto message = [&] {
    const auto problems = Verify(net.program, DefaultOps());
    return problems.empty() ? std::string("none") : problems[0].ToString();
  };
  EXPECT_NE(message().find("Grad holds 1 variables where 2 are needed, one for each item"),
            std::string::npos)
      << message();
  op.SetInput("Grad", {"g0", "g1"});
  op.SetInput("Velocity", {"v0", "v1"});
  op.SetOutput("ParamOut", {"p0", "p1"});
  op.SetOutput("VelocityOut", {"v0", "v1"});
  EXPECT_EQ("none", message());
  net.program.Root().FindVar("p1")->SetDType(DType::kFloat64);
  EXPECT_NE(message().find("the items must be dense tensors of one dtype"), std::string::npos)
      << message();
}
}  // namespace coracle::merge_updates_test
