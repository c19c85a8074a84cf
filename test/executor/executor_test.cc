#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/error_of.h>
#include <coracle/test/executor/op_net.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <thread>
#include <tuple>

namespace coracle::executor_test {

using Net = OpNet;

Tensor Row(const std::vector<float>& values) {
  return Tensor::Of<float>({1, static_cast<int64_t>(values.size())}, values);
}

std::vector<float> ValuesOf(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

TEST(Executor, FetchesAnyVariable) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip(net.Clip("x", "a", -1, 1), "b", 0, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"a", "b", "x"});
  auto out = run.Run(scope, {Row({-3, 0.5f})});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{-1, 0.5f}));
  EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{0, 0.5f}));
  EXPECT_EQ(ValuesOf(out[2]), (std::vector<float>{-3, 0.5f}));
}

TEST(Executor, FeedsAreNotCopiedNorChanged) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip("x", "x", -1, 1);  // overwrites the name of the feed
  Scope scope;
  Tensor x = Row({-3, 3});
  auto run = Executor().Prepare(net.program, {"x"}, {"x"});
  EXPECT_EQ(ValuesOf(run.Run(scope, {x})[0]), (std::vector<float>{-1, 1}));
  EXPECT_EQ(ValuesOf(x), (std::vector<float>{-3, 3}));
}

TEST(Executor, BatchSizesChange) {
  Net net;
  net.Var("x", {-1, 2});
  net.Var("w", {2, 1}, true);
  net.Mul("x", "w", "y");
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 1}, {1, 10}));
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  for (int64_t n : {1, 3, 1, 2}) {
    Tensor x = Tensor::Full<float>({n, 2}, 1.0f);
    EXPECT_EQ(ValuesOf(run.Run(scope, {x})[0]), std::vector<float>(static_cast<size_t>(n), 11.0f));
  }
}

TEST(Executor, PersistablesAreUpdatedInPlace) {
  Net net;
  net.Var("w", {1, 2}, true);
  net.Clip("w", "w", -1, 1);
  Scope scope;
  scope.Set("w", Row({5, 0.25f}));
  const void* before = scope.Get("w").raw();
  Executor().Run(net.program, scope);
  EXPECT_EQ(ValuesOf(scope.Get("w")), (std::vector<float>{1, 0.25f}));
  EXPECT_EQ(scope.Get("w").raw(), before);
}

TEST(Executor, PersistableReadAndWrittenByAnOpThatCannotWorkInPlace) {
  Net net;
  net.Var("w", {2, 2}, true);
  net.Mul("w", "w", "w");
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 2}, {1, 1, 0, 1}));
  auto run = Executor().Prepare(net.program);
  run.Run(scope);
  run.Run(scope);
  EXPECT_EQ(ValuesOf(scope.Get("w")), (std::vector<float>{1, 4, 0, 1}));
}

// A feed in place of a persistable: what the program makes of it is neither the caller's tensor
// nor the scope's.
TEST(Executor, AFedPersistableIsWrittenNowhere) {
  Net net;
  net.Var("w", {1, 2}, true);
  net.Clip("w", "w", -1, 1);
  Scope scope;
  scope.Set("w", Row({7, 7}));
  const Tensor fed = Row({5, 0.25f});
  auto run = Executor().Prepare(net.program, {"w"}, {"w"});
  EXPECT_EQ(ValuesOf(run.Run(scope, {fed})[0]), (std::vector<float>{1, 0.25f}));
  EXPECT_EQ(ValuesOf(fed), (std::vector<float>{5, 0.25f}));
  EXPECT_EQ(ValuesOf(scope.Get("w")), (std::vector<float>{7, 7}));
}

TEST(Executor, ScopeTensorsMayBeReplacedBetweenRuns) {
  Net net;
  net.Var("x", {-1, 2});
  net.Var("w", {2, -1}, true);
  net.Mul("x", "w", "y");
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 1}, {1, 1}));
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({1, 2})})[0]), (std::vector<float>{3}));
  scope.Set("w", Tensor::Of<float>({2, 1}, {2, 2}));
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({1, 2})})[0]), (std::vector<float>{6}));
  scope.Set("w", Tensor::Of<float>({2, 2}, {1, 0, 0, 1}));
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({1, 2})})[0]), (std::vector<float>{1, 2}));
  scope.Erase("w");
  scope.Set("w", Tensor::Of<float>({2, 1}, {0, 1}));
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({1, 2})})[0]), (std::vector<float>{2}));
  Scope other;
  other.Set("w", Tensor::Of<float>({2, 1}, {5, 0}));
  EXPECT_EQ(ValuesOf(run.Run(other, {Row({1, 2})})[0]), (std::vector<float>{5}));
}

TEST(Executor, FetchedValuesSurviveLaterOps) {
  Net net;
  net.Var("x", {-1, 4});
  std::string v = "x";
  std::vector<std::string> names;
  for (int i = 0; i < 6; ++i) {
    v = net.Clip(v, "v" + std::to_string(i), -6.0f + static_cast<float>(i),
                 6.0f - static_cast<float>(i));
    names.push_back(v);
  }
  Scope scope;
  auto out = Executor().Prepare(net.program, {"x"}, names).Run(scope, {Row({-9, 9, 3, -3})});
  for (int i = 0; i < 6; ++i) {
    float bound = 6.0f - static_cast<float>(i);
    EXPECT_EQ(ValuesOf(out[static_cast<size_t>(i)]),
              (std::vector<float>{-bound, bound, std::min(bound, 3.0f), std::max(-bound, -3.0f)}));
  }
}

TEST(Executor, ElementwiseChainUsesOneBuffer) {
  Net net;
  net.Var("x", {-1, 1024});
  std::string v = "x";
  for (int i = 0; i < 10; ++i) v = net.Clip(v, "v" + std::to_string(i), -1, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {v});
  run.Run(scope, {Tensor::Zeros(DType::kFloat32, {64, 1024})});
  EXPECT_LE(run.WorkspaceBytes(), 2 * 64 * 4096u);
}

// A reshape is a view, of a feed too: only the last result needs memory.
// An op whose output may take the memory of either input takes one: the other keeps its own.
TEST(Executor, TwoInputsThatMayShareWithTheOutput) {
  Net net;
  net.Var("x", {1, 4});
  net.Var("c", {1, 4}, false, DType::kBool);
  auto append = [&](const std::string& type, SlotList inputs, const std::string& out) {
    InferOp(net.program.Root(),
            net.program.Root().AppendOp(type, std::move(inputs), {{"Out", {out}}}), DefaultOps());
  };
  // a, b and d are live at the same time.
  append("square", {{"X", {"x"}}}, "a");
  append("exp", {{"X", {"x"}}}, "b");
  append("tanh", {{"X", {"x"}}}, "d");
  append("where", {{"Condition", {"c"}}, {"X", {"a"}}, {"Y", {"b"}}}, "ab");
  append("where", {{"Condition", {"c"}}, {"X", {"ab"}}, {"Y", {"d"}}}, "out");
  Scope scope;
  const auto out = Executor().Run(
      net.program, scope,
      {{"x", Row({1, 2, 3, 4})}, {"c", Tensor::Of<bool>({1, 4}, {true, false, true, false})}},
      {"out"});
  const std::vector<float> got = ValuesOf(out[0]);
  for (size_t i = 0; i < 4; ++i) {
    const double x = static_cast<double>(i + 1);
    EXPECT_NEAR(got[i], i % 2 == 0 ? x * x : std::tanh(x), 1e-4);
  }
}

TEST(Executor, ReshapesCostNothing) {
  Net net;
  net.Var("x", {-1, 1024});
  BlockDesc& root = net.program.Root();
  for (const auto& [from, to] : {std::pair("x", "a"), {"a", "b"}, {"b", "c"}}) {
    InferOp(root,
            root.AppendOp("reshape2", {{"X", {from}}}, {{"Out", {to}}},
                          {{"shape", std::vector<int32_t>{-1, 512}}}),
            DefaultOps());
  }
  net.Clip("c", "d", -1, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"d"});
  run.Run(scope, {Tensor::Zeros(DType::kFloat32, {4, 1024})});
  EXPECT_EQ(run.WorkspaceBytes(), 4 * 4096u);
}

TEST(Executor, FeedErrors) {
  Net net;
  net.Var("x", {-1, 2});
  net.program.Root().FindVar("x")->SetNeedCheckFeed(true);
  net.Clip("x", "y", 0, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  ExpectMessage([&] { run.Run(scope); }, "takes 1 feeds (x), got 0");
  ExpectMessage(
      [&] {
        run.Run(scope, {Tensor::Zeros(DType::kInt64, {1, 2})});
      },
      "feed 'x' must have the dtype float32, got int64");
  ExpectMessage(
      [&] {
        run.Run(scope, {Tensor::Zeros(DType::kInt64, {1, 3})});
      },
      "feed 'x' must be float32[-1, 2], got int64[1, 3]");
  ExpectMessage(
      [&] {
        run.Run(scope, {Tensor::Zeros(DType::kFloat32, {1, 3})});
      },
      "feed 'x' must have the shape [-1, 2], got [1, 3]");
  ExpectMessage([&] { Executor().Prepare(net.program, {"xx"}, {"y"}); }, "cannot feed 'xx'");
  ExpectMessage([&] { Executor().Prepare(net.program, {"x"}, {"z"}); }, "cannot fetch 'z'");
}

// Programs of old exports declare the shape that they were made with.
TEST(Executor, FeedsOfAnotherShapeWhereTheFileDoesNotInsist) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip("x", "y", 0, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x"}, {"y"});
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({-1, 0.5f, 2})})[0]), (std::vector<float>{0, 0.5f, 1}));
}

TEST(Executor, MissingValues) {
  Net net;
  net.Var("x", {-1, 2});
  net.Var("w", {2, 1}, true);
  net.Mul("x", "w", "y");
  Scope scope;
  ExpectMessage(
      [&] {
        Executor().Prepare(net.program, {"x"}, {"y"}).Run(scope, {Row({1, 2})});
      },
      "the scope has no value for the persistable var 'w'");
  scope.Set("w", Tensor::Zeros(DType::kFloat32, {3, 1}));
  ExpectMessage(
      [&] {
        Executor().Prepare(net.program, {"x"}, {"y"}).Run(scope, {Row({1, 2})});
      },
      "mul.C3");
  ExpectMessage([&] { Executor().Prepare(net.program, {}, {"y"}).Run(scope); },
                "the var 'x' has no value");
}

TEST(Executor, MemoryLimit) {
  Net net;
  net.Var("x", {-1, 1000});
  net.Var("w", {1000, 1000}, true);
  net.Mul(net.Mul("x", "w", "a"), "w", "b");
  Scope scope;
  scope.Set("w", Tensor::Zeros(DType::kFloat32, {1000, 1000}));
  CompileOptions options;
  options.memory_limit = 100000;
  auto run = Executor(options).Prepare(net.program, {"x"}, {"b"});
  run.Run(scope, {Tensor::Zeros(DType::kFloat32, {2, 1000})});
  ExpectMessage(
      [&] {
        run.Run(scope, {Tensor::Zeros(DType::kFloat32, {1000, 1000})});
      },
      "memory limit of 97.7 KiB");
}

TEST(Executor, CheckNanInfNamesOpVarAndIndex) {
  Net net;
  net.Var("x", {-1, 3});
  net.Clip(net.Clip("x", "a", -10, 10), "b", -1, 1);
  Scope scope;
  CompileOptions options;
  options.check_nan_inf = true;
  auto run = Executor(options).Prepare(net.program, {"x"}, {"b"});
  run.Run(scope, {Row({1, 2, 3})});
  ExpectMessage(
      [&] {
        run.Run(scope, {Row({1, std::nanf(""), 3})});
      },
      "clip: output var 'a' float32[1, 3] has a nan or inf at index 1");
}

TEST(Executor, ProfileCountsEveryOp) {
  Net net;
  net.Var("x", {-1, 3});
  net.Clip(net.Clip("x", "a", -10, 10), "b", -1, 1);
  Scope scope;
  CompileOptions options;
  options.profile = true;
  options.optimize = false;  // else the two are one
  auto run = Executor(options).Prepare(net.program, {"x"}, {"b"});
  for (int i = 0; i < 3; ++i) run.Run(scope, {Row({1, 2, 3})});
  auto times = run.Profile();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].output, "a");
  EXPECT_EQ(times[1].runs, 3u);
  EXPECT_NE(run.ProfileTable().find("clip"), std::string::npos);
}

TEST(Executor, TwoThreadsRunOneCompiledProgram) {
  Net net;
  net.Var("x", {-1, 8});
  net.Var("w", {8, 8}, true);
  net.Clip(net.Mul(net.Mul("x", "w", "a"), "w", "b"), "c", -100, 100);
  Scope scope;
  Tensor w(DType::kFloat32, {8, 8});
  for (int i = 0; i < 64; ++i) w.data<float>()[i] = static_cast<float>(i % 7) * 0.1f;
  scope.Set("w", w);
  auto first = Executor().Prepare(net.program, {"x"}, {"c"});
  auto work = [&](PreparedProgram run, int64_t batch, std::vector<float>* out) {
    Tensor x = Tensor::Full<float>({batch, 8}, static_cast<float>(batch));
    for (int i = 0; i < 200; ++i) *out = ValuesOf(run.Run(scope, {x})[0]);
  };
  std::vector<float> alone[2], together[2];
  work(first, 1, &alone[0]);
  work(first, 2, &alone[1]);
  std::thread a(work, PreparedProgram(first), 1, &together[0]),
      b(work, PreparedProgram(first), 2, &together[1]);
  a.join();
  b.join();
  EXPECT_EQ(alone[0], together[0]);
  EXPECT_EQ(alone[1], together[1]);
}

TEST(Executor, DeadOpsAreNotRun) {
  Net net;
  net.Var("x", {-1, 3});
  net.Clip("x", "unused", -10, 10);
  net.Clip("x", "b", -1, 1);
  EXPECT_EQ(Executor().Prepare(net.program, {"x"}, {"b"}).program().Root().NumOps(), 1u);
  CompileOptions options;
  options.optimize = false;
  EXPECT_EQ(Executor(options).Prepare(net.program, {"x"}, {"b"}).program().Root().NumOps(), 2u);
}

// A shape that depends on the value of a fed, computed or persistable tensor.
TEST(Executor, ShapesFromRunTimeValues) {
  Net net;
  net.Var("x", {-1, 2});
  net.Var("shape", {2}, false, DType::kInt64);
  BlockDesc& root = net.program.Root();
  net.Clip("x", "a", -5, 5);
  InferOp(root, root.AppendOp("assign", {{"X", {"shape"}}}, {{"Out", {"s"}}}), DefaultOps());
  InferOp(root, root.AppendOp("reshape2", {{"X", {"a"}}, {"Shape", {"s"}}}, {{"Out", {"r"}}}),
          DefaultOps());
  net.Clip("r", "b", -1, 1);
  Scope scope;
  auto run = Executor().Prepare(net.program, {"x", "shape"}, {"b", "a"});
  Tensor x = Tensor::Of<float>({3, 2}, {0, 1, 2, -3, -9, 5});
  for (const Shape& shape : {Shape{2, 3}, Shape{6, 1}, Shape{2, 3}, Shape{1, 6}}) {
    Tensor dims = Tensor::Of<int64_t>({2}, shape.ToVector());
    const auto& out = run.Run(scope, {x, dims});
    EXPECT_EQ(out[0].shape().ToString(), shape.ToString());
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{0, 1, 1, -1, -1, 1}));
    EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{0, 1, 2, -3, -5, 5}));
  }
  ExpectMessage([&] { run.Run(scope, {x, Tensor::Of<int64_t>({2}, {4, 4})}); }, "reshape2");
}

// sgd on selected rows that the scope holds, as read from a file.
struct SparseStep : Net {
  Scope scope;
  SparseStep() {
    Var("w", {3, 2}, true);
    Var("lr", {1}, true);
    Var("g", {3, 2}, true);
    program.Root().FindVar("g")->SetType(VarType::kSelectedRows);
    program.Root().AppendOp("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"lr"}}},
                            {{"ParamOut", {"w"}}});
    scope.Set("w", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
    scope.Set("lr", Tensor::Of<float>({1}, {1}));
    scope.Var("g") = SelectedRows{{2, 2}, 3, Tensor::Of<float>({2, 2}, {1, 2, 3, 4})};
  }
};

TEST(Executor, SelectedRowsInTheScope) {
  SparseStep net;
  PreparedProgram step = Executor().Prepare(net.program, {}, {"w"});
  EXPECT_EQ(ValuesOf(step.Run(net.scope)[0]), (std::vector<float>{1, 2, 3, 4, 1, 0}));
  net.scope.Var("g") = SelectedRows{{0}, 3, Tensor::Of<float>({1, 2}, {1, 1})};
  EXPECT_EQ(ValuesOf(step.Run(net.scope)[0]), (std::vector<float>{0, 1, 3, 4, 1, 0}));
}

TEST(Executor, SelectedRowsThatDoNotFit) {
  const auto run = [](SelectedRows rows) {
    SparseStep net;
    net.scope.Var("g") = std::move(rows);
    Executor().Run(net.program, net.scope, {}, {"w"});
  };
  ExpectMessage(
      [&] {
        run({{3}, 3, Tensor::Of<float>({1, 2}, {1, 1})});
      },
      "sgd: Grad holds the row 3 at 0, outside [0, 3)");
  ExpectMessage(
      [&] {
        run({{0, 1}, 3, Tensor::Of<float>({1, 2}, {1, 1})});
      },
      "sgd: Grad holds 2 rows of 3 as float32[1, 2], but the program declares float32[3, 2]");
  ExpectMessage(
      [&] {
        run({{0}, -2, Tensor::Of<float>({1, 2}, {1, 1})});
      },
      "the persistable var 'g' in the scope has selected rows of height -2");
  ExpectMessage([&] { run({{0}, 4, Tensor::Of<float>({1, 2}, {1, 1})}); }, "sgd.C1");
  ExpectMessage([&] { run({{0}, 3, Tensor::Of<double>({1, 2}, {1, 1})}); }, "sgd.C1");
}

// Planned for one type; the scope then holds another.
TEST(Executor, SelectedRowsThatChangeTheirType) {
  SparseStep net;
  PreparedProgram step = Executor().Prepare(net.program, {}, {"w"});
  step.Run(net.scope);
  net.scope.Var("g") = Tensor::Of<float>({3, 2}, {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(ValuesOf(step.Run(net.scope)[0]), (std::vector<float>{0, 1, 2, 3, 0, -1}));
  net.scope.Var("g") = SelectedRows{{0}, 4, Tensor::Of<float>({1, 2}, {1, 1})};
  ExpectMessage([&] { step.Run(net.scope); }, "sgd.C1");
}

TEST(Executor, FetchOfSelectedRowsSaysWhatToFetch) {
  SparseStep net;
  ExpectMessage([&] { Executor().Run(net.program, net.scope, {}, {"g"}); },
                "cannot fetch the var 'g', which holds SELECTED_ROWS float32[3, 2]; fetch the "
                "output of get_tensor_from_selected_rows, a dense tensor made of it");
}

TEST(Executor, CheckNanInfLooksIntoSelectedRows) {
  SparseStep net;
  net.Var("h", {3, 2});
  InferOp(
      net.program.Root(),
      net.program.Root().AppendOp("scale", {{"X", {"g"}}}, {{"Out", {"h"}}}, {{"scale", 1e30f}}),
      DefaultOps());
  net.Var("n", {1});
  InferOp(net.program.Root(),
          net.program.Root().AppendOp("squared_l2_norm", {{"X", {"h"}}}, {{"Out", {"n"}}}),
          DefaultOps());
  net.scope.Var("g") = SelectedRows{{2, 2}, 3, Tensor::Of<float>({2, 2}, {1, 2, 1e20f, 4})};
  ExpectMessage([&] { Executor({.check_nan_inf = true}).Run(net.program, net.scope, {}, {"n"}); },
                "scale: output var 'h' SELECTED_ROWS float32[3, 2] has a nan or inf at index 2");
}

TEST(Executor, VerifiesBeforeRunning) {
  Net net;
  net.Var("x", {-1, 3});
  net.program.Root().AppendOp("clip", {{"X", {"x"}}}, {{"Out", {"y"}}});
  ExpectMessage([&] { Executor().Prepare(net.program, {"x"}, {}); }, "attr min is required");
}

// A program may name any file; none is touched unless the one who runs it says where.
TEST(Executor, ProgramsTouchFilesOnlyWhereAllowed) {
  TemporaryDirectory directory;
  Net net;
  net.Var("w", {2}, true);
  net.program.Root().AppendOp("save", {{"X", {"w"}}}, {}, {{"file_path", std::string("kept/w")}});
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2}, {1, 2}));
  for (bool optimize : {false, true}) {
    const Executor executor({.optimize = optimize});
    ExpectMessage([&] { executor.Prepare(net.program); },
                  "save: the program names the file 'kept/w', and may touch none");
    ExpectMessage([&] { executor.Run(net.program, scope); }, "may touch none");
  }
  // Nor in a block that no op runs.
  ProgramDesc inner;
  inner.AppendBlock(inner.Root()).Var("v").SetShape({1});
  inner.Block(1).AppendOp("load", {}, {{"Out", {"v"}}}, {{"file_path", std::string("x")}});
  ExpectMessage([&] { Executor().Prepare(inner); }, "load: the program names the file 'x'");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));

  const Executor allowed({.allow_files = directory.path()});
  PreparedProgram prepared = allowed.Prepare(net.program);
  PreparedProgram(prepared).Run(scope);
  EXPECT_TRUE(std::filesystem::exists(directory.File("kept/w")));
  net.Var("again", {2});
  net.program.Root().AppendOp("load", {}, {{"Out", {"again"}}},
                              {{"file_path", std::string("kept/w")}});
  EXPECT_EQ(ValuesOf(allowed.Run(net.program, scope, {}, {"again"})[0]),
            (std::vector<float>{1, 2}));
  net.program.Root().AppendOp("save", {{"X", {"w"}}}, {},
                              {{"file_path", std::string("../stolen")}});
  ExpectMessage([&] { allowed.Run(net.program, scope); }, "\"..\" may lead out");
}

TEST(Executor, APreparedProgramThatWasMovedFrom) {
  Net net;
  net.Var("x", {-1, 2});
  net.Clip("x", "a", -1, 1);
  Scope scope;
  PreparedProgram run = Executor().Prepare(net.program, {"x"}, {"a"});
  PreparedProgram other = std::move(run);
  const std::string error = "a PreparedProgram was used that has been moved from; prepare another";
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(ErrorOf([&] { run.Run(scope, {Row({1, 2})}); }), error);
  EXPECT_EQ(ErrorOf([&] { run.feed_names(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.fetch_names(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.frozen_names(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.program(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.comm(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.SetCommunicator(nullptr); }), error);
  EXPECT_EQ(ErrorOf([&] { run.step(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.SetStep(1); }), error);
  EXPECT_EQ(ErrorOf([&] { run.Profile(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.ProfileTable(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.WorkspaceBytes(); }), error);
  EXPECT_EQ(ErrorOf([&] { run.compiled(); }), error);
  EXPECT_EQ(ErrorOf([&] { PreparedProgram copy = run; }), error);
  EXPECT_EQ(ErrorOf([&] { other = run; }), error);
  run = other;  // may be assigned
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_EQ(ValuesOf(run.Run(scope, {Row({-3, 0.5f})})[0]), (std::vector<float>{-1, 0.5f}));
}

TEST(Executor, TimeLimitsThatAreNoneAreRefused) {
  Net net;
  net.Var("x", {-1, 2});
  for (const double seconds : {-1.0, std::nan("")}) {
    EXPECT_NE(ErrorOf([&] {
                Executor({.time_limit = seconds}).Prepare(net.program);
              }).find("time_limit must not be negative"),
              std::string::npos);
  }
}

// The ops become one, with a block.
TEST(Executor, AFusedOpWithoutItsFeed) {
  Net net;
  net.Var("x", {-1, 2});
  for (const auto& [type, in, out] : {std::tuple{"exp", "x", "a"}, std::tuple{"tanh", "a", "b"}}) {
    InferOp(net.program.Root(), net.program.Root().AppendOp(type, {{"X", {in}}}, {{"Out", {out}}}),
            DefaultOps());
  }
  Scope scope;
  ExpectMessage([&] { Executor().Run(net.program, scope, {}, {"b"}); },
                "the var 'x' has no value: nothing before the op writes it");
}

}  // namespace coracle::executor_test
