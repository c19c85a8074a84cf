// The compiled program, saved and run, gives the same numbers as the original.

#include <coracle/backward/backward.h>
#include <coracle/edit/edit.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/passes/pass.h>
#include <coracle/test/error_of.h>
#include <coracle/test/real_models.h>

#include <set>

namespace coracle::optimize_test {

using Strings = std::vector<std::string>;

std::set<std::string> TypesOf(const ProgramDesc& program) {
  std::set<std::string> types;
  program.ForEachOp([&](const OpDesc& op) { types.insert(op.type()); });
  return types;
}

// Relative to the largest element. Far below 0, the relative error of sigmoid(x) is the absolute
// error of x. ch_PP-OCRv3_det ends in such a sigmoid: for a drawn image its arguments are -56 to
// -20.01, and the largest result is 2.05e-9. A difference of 1.5e-6 of 56 before the sigmoid
// becomes 1.5e-5 after it.
void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].ToString(), want[k].ToString());
    EXPECT_EQ(got[k].lod(), want[k].lod());
    const Tensor a = got[k].Cast(DType::kFloat64), b = want[k].Cast(DType::kFloat64);
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < a.numel(); ++i) {
      largest = std::max(largest, std::abs(b.data<double>()[i]));
      difference = std::max(difference, std::abs(a.data<double>()[i] - b.data<double>()[i]));
    }
    const double tail = largest < 1e-6 ? std::max(1.0, -std::log(largest)) : 1.0;
    EXPECT_LE(difference, tolerance * tail * largest);
  }
}

// The model as two files, read again.
struct SavedAgain {
  SavedAgain(const OptimizedProgram& optimized, const TemporaryDirectory& directory) {
    const std::string file = directory.File("m.pdmodel"),
                      parameters = directory.File("m.pdiparams");
    SaveCombined(optimized.parameters, PersistableNames(optimized.program), parameters);
    WriteProgram(optimized.program, file);
    program = ReadProgram(file);
    LoadParameters(program, parameters, scope);
  }
  ProgramDesc program;
  Scope scope;
};

Strings FeedNames(const DrawnModel& model) {
  Strings names;
  for (const auto& [name, value] : model.feeds) names.push_back(name);
  return names;
}

// As it was saved, it gives the same numbers on its own, compiled again, and optimised and saved a
// second time.
TEST(Optimize, RealModelsKeepTheirNumbers) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(64, [](DrawnModel& model) {
    const CompileOptions plain{.optimize = false};
    const auto want = Executor(plain).Run(model.program, model.scope, model.feeds, model.fetches);
    const TemporaryDirectory directory;
    SavedAgain saved(OptimizeProgram(model.program, model.scope), directory);
    EXPECT_LT(saved.program.Root().NumOps(), model.program.Root().NumOps());
    // By its own feed and fetch ops.
    EXPECT_EQ(Executor().Prepare(saved.program).fetch_names(), model.fetches);
    ExpectSame(Executor(plain).Run(saved.program, saved.scope, model.feeds, model.fetches), want,
               1e-5);
    ExpectSame(Executor().Run(saved.program, saved.scope, model.feeds, model.fetches), want, 1e-5);
    SavedAgain twice(OptimizeProgram(saved.program, saved.scope), directory);
    EXPECT_LE(twice.program.Root().NumOps(), saved.program.Root().NumOps());
    std::vector<Tensor> fed;
    for (const auto& [name, value] : model.feeds) fed.push_back(value);
    ExpectSame(Executor()
                   .PrepareFrozen(twice.program, twice.scope, FeedNames(model), model.fetches)
                   .Run(twice.scope, fed),
               want, 1e-5);
  });
}

TEST(Optimize, WithoutFreezingParametersStay) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(32, [](DrawnModel& model) {
    const auto want =
        Executor({.optimize = false}).Run(model.program, model.scope, model.feeds, model.fetches);
    const OptimizedProgram optimized =
        OptimizeProgram(model.program, Scope(), {}, {}, {.freeze_parameters = false});
    EXPECT_EQ(PersistableNames(optimized.program), PersistableNames(model.program));
    EXPECT_TRUE(optimized.parameters.LocalNames().empty());
    const ProgramDesc again = ParseProgram(SerializeProgram(optimized.program));
    ExpectSame(Executor().Run(again, model.scope, model.feeds, model.fetches), want, 1e-5);
  });
}

TEST(Optimize, PaddleOnlyAddsNoTypes) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(32, [](DrawnModel& model) {
    const auto want =
        Executor({.optimize = false}).Run(model.program, model.scope, model.feeds, model.fetches);
    const OptimizedProgram optimized =
        OptimizeProgram(model.program, model.scope, {}, {}, {.paddle_only = true});
    const std::set<std::string> before = TypesOf(model.program);
    for (const std::string& type : TypesOf(optimized.program))
      EXPECT_TRUE(before.count(type) || type == "scale") << type;
    optimized.program.ForEachOp([](const OpDesc& op) {
      const bool convolution = op.type() == "conv2d" || op.type() == "depthwise_conv2d";
      EXPECT_FALSE(convolution && op.HasInput("Bias"));
    });
    Scope scope = optimized.parameters.Clone();
    ExpectSame(
        Executor({.optimize = false}).Run(optimized.program, scope, model.feeds, model.fetches),
        want, 1e-5);
  });
}

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
  Variable x, h, loss;
  Net() {
    x = b.Data("x", {-1, 4});
    h = b.Fc(x, {.size = 8, .act = "relu"});
    loss = b.Mean(b.Fc(h, {.size = 3}));
  }
};

// A training step of a saved, optimised program updates as the original does.
TEST(Optimize, TrainingStepsUpdateTheSame) {
  Net net;
  Momentum({.learning_rate = 0.1, .momentum = 0.9}).Minimize(net.loss, net.startup);
  Scope one;
  Executor().Run(net.startup, one);
  Scope other = one.Clone();
  const OptimizedProgram optimized =
      OptimizeProgram(net.main, one, {"x"}, {net.loss.name()}, {.freeze_parameters = false});
  const ProgramDesc saved = ParseProgram(SerializeProgram(optimized.program));
  EXPECT_LT(saved.Root().NumOps(), net.main.Root().NumOps());
  Tensor x(DType::kFloat32, {5, 4});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 7) - 3;
  for (int step = 0; step < 3; ++step) {
    const auto want =
        Executor({.optimize = false}).Run(net.main, one, {{"x", x}}, {net.loss.name()});
    ExpectSame(Executor().Run(saved, other, {{"x", x}}, {net.loss.name()}), want, 1e-5);
  }
  for (const std::string& name : PersistableNames(saved))
    ExpectSame({other.Get(name)}, {one.Get(name)}, 1e-5);
}

TEST(Optimize, OnlyTheChosenPasses) {
  Net net;
  Scope scope;
  Executor().Run(net.startup, scope);
  Strings ran;
  const auto note = [&](const PassRun& run) { ran.push_back(run.pass.name); };
  const auto optimize = [&](const OptimizeOptions& options) {
    ran.clear();
    return OptimizeProgram(net.main, scope, {"x"}, {net.loss.name()}, options, note);
  };
  EXPECT_TRUE(TypesOf(optimize({.passes = {"fuse_fc"}}).program).count("fc"));
  EXPECT_EQ(ran, Strings{"fuse_fc"});
  EXPECT_FALSE(TypesOf(optimize({.passes = {"dead_code"}}).program).count("fc"));
  EXPECT_FALSE(TypesOf(optimize({.paddle_only = true}).program).count("fc"));
  optimize({.passes = {"dead_code", "fuse_fc"}, .compile = {.disabled_passes = {"fuse_fc"}}});
  EXPECT_EQ(ran, Strings{"dead_code"});
  const std::string error = ErrorOf([&] { optimize({.passes = {"fuse_cf"}}); });
  EXPECT_NE(error.find("unknown pass 'fuse_cf'; did you mean fuse_fc?"), std::string::npos)
      << error;
}

// Parameters that were folded need no file any more; results of passes are in it.
TEST(Optimize, FoldedParametersAreSaved) {
  ProgramDesc program, startup;
  Builder b(program, startup);
  const std::string w = b.Fc(b.Data("x", {-1, 4}), {.size = 8}).name();
  // The weight is made of two parameters by an op on constants alone.
  BlockDesc& root = program.Root();
  root.Var("half").SetMeta(root.FindVar("fc_0.w_0")->meta());
  root.Var("half").SetPersistable(true);
  root.Var("whole").SetMeta(root.FindVar("fc_0.w_0")->meta());
  root.ForEachOp([](OpDesc& op) { op.RenameInput("fc_0.w_0", "whole"); });
  root.InsertOp(0, OpDesc("elementwise_add", {{"X", {"half"}}, {"Y", {"fc_0.w_0"}}},
                          {{"Out", {"whole"}}}, {}));
  Scope scope;
  Executor().Run(startup, scope);
  scope.Set("half", scope.Get("fc_0.w_0"));
  Tensor in(DType::kFloat32, {2, 4});
  for (float& v : in.span<float>()) v = 1;
  const auto want = Executor({.optimize = false}).Run(program, scope, {{"x", in}}, {w});
  const OptimizedProgram optimized = OptimizeProgram(program, scope, {"x"}, {w});
  const Strings names = PersistableNames(optimized.program);
  EXPECT_EQ(std::count(names.begin(), names.end(), "half"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "fc_0.w_0"), 0);
  EXPECT_EQ(names.size(), 2u);  // the sum and the bias
  const TemporaryDirectory directory;
  SavedAgain saved(optimized, directory);
  ExpectSame(Executor().Run(saved.program, saved.scope, {{"x", in}}, {w}), want, 1e-6);
}
}  // namespace coracle::optimize_test
