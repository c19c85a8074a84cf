// Feeds, and parameters, of other shapes than are declared; feeds that the run overwrites.

#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/test/executor/op_net.h>
#include <gtest/gtest.h>

namespace coracle::feeds_test {

using Net = OpNet;

// A file declares the shape of its export: another one is run, with one warning for each feed.
TEST(Executor, FeedsOfAnotherShapeAreWarnedOfOnce) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip("x", "y", 0, 1);
  std::vector<std::string> lines;
  LogSink before =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  run.Run(scope, {Tensor::Zeros(DType::kFloat32, {4, 2})});
  EXPECT_EQ(lines.size(), 0u);
  for (const Shape& shape : {Shape{1, 3}, Shape{1, 3}, Shape{7, 5}})
    run.Run(scope, {Tensor::Zeros(DType::kFloat32, shape)});
  SetLogSink(before);
  EXPECT_EQ(lines,
            std::vector<std::string>{"feed 'x' has the shape [1, 3], but the program declares "
                                     "[-1, 2]; it runs with the actual shape"});
}

// Once for each Executor, however often it compiles; an option turns warnings off.
TEST(Executor, OneWarningForEachVariableOfAnExecutor) {
  Net net;
  net.Var("x", {-1, 2});
  net.Var("w", {2, 2}, true);
  net.Mul("x", "w", "y");
  std::vector<std::string> lines;
  LogSink before =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  Scope scope;
  scope.Set("w", Tensor::Zeros(DType::kFloat32, {3, 2}));
  const Tensor x = Tensor::Zeros(DType::kFloat32, {4, 3});
  const Executor executor;
  for (int i = 0; i < 3; ++i) {
    executor.Run(net.program, scope, {{"x", x}}, {"y"});
    executor.PrepareFrozen(net.program, scope, {"x"}, {"y"}).Run(scope, {x});
  }
  EXPECT_EQ(lines.size(), 2u);
  lines.clear();
  CompileOptions quiet;
  quiet.shape_warnings = false;
  Executor(quiet).Run(net.program, scope, {{"x", x}}, {"y"});
  EXPECT_EQ(lines.size(), 0u);
  SetLogSink(before);
}

TEST(Executor, PersistablesOfAnotherShapeAreWarnedOfOnce) {
  Net net;
  net.Var("w", {2, 2}, true);
  net.Clip("w", "y", 0, 1);
  std::vector<std::string> lines;
  LogSink before =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  auto run = Executor().Prepare(net.program, {}, {"y"});
  for (const Shape& shape : {Shape{2, 2}, Shape{3, 2}, Shape{4, 2}}) {
    Scope scope;
    scope.Set("w", Tensor::Zeros(DType::kFloat32, shape));
    run.Run(scope, std::vector<Tensor>());
  }
  SetLogSink(before);
  EXPECT_EQ(lines,
            std::vector<std::string>{"variable 'w' has the shape [3, 2], but the program declares "
                                     "[2, 2]; it runs with the actual shape"});
}

// Passes go by what is declared, and may join ops into one that takes only that.
TEST(Executor, ErrorsOfOtherShapesSayWhatPassesRelyOn) {
  Net net;
  net.Var("x", {-1, 4});
  net.Var("w", {4, 8}, true);
  net.Var("b", {8}, true);
  for (const char* name : {"m", "y"}) net.Var(name, {-1, 8});
  BlockDesc& block = net.program.Root();
  block.AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"m"}}});
  block.AppendOp("elementwise_add", {{"X", {"m"}}, {"Y", {"b"}}}, {{"Out", {"y"}}}, {{"axis", 1}});
  Scope scope;
  scope.Set("w", Tensor::Full<float>({4, 8}, 1));
  scope.Set("b", Tensor::Full<float>({1}, 1));
  const Tensor x = Tensor::Full<float>({2, 4}, 1);
  std::vector<std::string> lines;
  LogSink before =
      SetLogSink([&](MessageLevel, const std::string& line) { lines.push_back(line); });
  CompileOptions plain;
  plain.optimize = false;
  EXPECT_EQ(Executor(plain).Prepare(net.program, {"x"}, {"y"}).Run(scope, {x})[0].data<float>()[0],
            5);
  // The passes know the values of frozen parameters.
  EXPECT_EQ(Executor()
                .PrepareFrozen(net.program, scope, {"x"}, {"y"})
                .Run(scope, {x})[0]
                .data<float>()[0],
            5);
  ExpectMessage([&] { Executor().Prepare(net.program, {"x"}, {"y"}).Run(scope, {x}); },
                "run without passes");
  SetLogSink(before);
  EXPECT_EQ(lines.size(), 3u);
}

// A run first copies the feeds that it would overwrite while its ops read them: results of the last
// run, and variables that the program writes.
TEST(Executor, ResultsMayBeFedBack) {
  Net net;
  for (const char* name : {"h", "twice", "sum", "soft", "out"}) net.Var(name, {4});
  BlockDesc& block = net.program.Root();
  block.AppendOp("scale", {{"X", {"h"}}}, {{"Out", {"twice"}}}, {{"scale", 2.f}});
  block.AppendOp("elementwise_add", {{"X", {"twice"}}, {"Y", {"h"}}}, {{"Out", {"sum"}}});
  block.AppendOp("softmax", {{"X", {"sum"}}}, {{"Out", {"soft"}}});
  block.AppendOp("elementwise_add", {{"X", {"soft"}}, {"Y", {"h"}}}, {{"Out", {"out"}}});
  const auto run = [&](bool clone) {
    Scope scope;
    auto prepared = Executor().Prepare(net.program, {"h"}, {"twice", "out", "h"});
    Tensor h = Tensor::Of<float>({4}, {1, 2, 3, 4}), out, fed;
    for (int i = 0; i < 3; ++i) {
      const std::vector<Tensor>& results = prepared.Run(scope, {h});
      out = results[1].Clone();
      fed = results[2].Clone();
      h = clone ? results[0].Clone() : results[0];
    }
    EXPECT_EQ(fed.data<float>()[0], 4);
    return out;
  };
  EXPECT_TRUE(BitEqual(run(false), run(true)));
}

TEST(Executor, AParameterMayBeFedToTheProgramThatUpdatesIt) {
  Net net;
  net.Var("x", {4});
  net.Var("w", {4}, true);
  net.Var("out", {4});
  BlockDesc& block = net.program.Root();
  block.AppendOp("scale", {{"X", {"w"}}}, {{"Out", {"w"}}}, {{"scale", 2.f}});
  block.AppendOp("elementwise_add", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"out"}}});
  Scope scope;
  scope.Set("w", Tensor::Full<float>({4}, 1));
  auto prepared = Executor().Prepare(net.program, {"x"}, {"out"});
  for (float want : {3.f, 6.f})
    EXPECT_EQ(prepared.Run(scope, {scope.Get("w")})[0].data<float>()[0], want);
}

// Who listens to messages may run the program that they are about.
TEST(Executor, AListenerMayRunTheProgramThatWarns) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip("x", "y", 0, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  auto other = run;
  int lines = 0;
  LogSink before = SetLogSink([&](MessageLevel, const std::string&) {
    if (lines++ == 0) other.Run(scope, {Tensor::Zeros(DType::kFloat32, {4, 2})});
  });
  run.Run(scope, {Tensor::Zeros(DType::kFloat32, {1, 3})});
  SetLogSink(before);
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(other.step(), 1u);
}

}  // namespace coracle::feeds_test
