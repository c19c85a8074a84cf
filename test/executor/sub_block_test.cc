// Ops that run a sub-block: what the frames of control flow must do, shown by a loop of a fixed
// number of rounds.
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <gtest/gtest.h>

namespace coracle::sub_block_test {

const OpRegistry& Ops() {
  static const OpRegistry* registry = [] {
    OpRegistry& ops = DefaultOps();
    ops.Add(OpDef("t_repeat")
                .Doc("Runs a block `times` times.")
                .OptionalVariadicInput("X", "what the block reads")
                .OptionalVariadicOutput("Out", "what the block writes")
                .Attr<BlockRef>("sub_block", "the block")
                .Attr<int32_t>("times", "rounds")
                .NoGradient("only for tests")
                .Reference([](const PrepareContext& ctx) -> Kernel {
                  const int32_t block = ctx.SubBlock("sub_block"),
                                times = ctx.Attr<int32_t>("times");
                  return [=](Workspace& ws) {
                    for (int32_t i = 0; i < times; ++i) ws.RunBlock(block);
                  };
                }));
    return &ops;
  }();
  return *registry;
}

struct Loop {
  ProgramDesc program;
  BlockDesc* body;

  explicit Loop(int times) {
    BlockDesc& root = program.Root();
    body = &program.AppendBlock(root);
    root.Var("x").SetShape({-1, 2});
    Add(root, "scale", "x", "acc", {{"scale", 1.0f}, {"bias", 0.0f}});
    Add(*body, "scale", "x", "step", {{"scale", 2.0f}});  // "step" lives in the body
    InferOp(
        *body,
        body->AppendOp("elementwise_add", {{"X", {"acc"}}, {"Y", {"step"}}}, {{"Out", {"acc"}}}),
        Ops());
    root.AppendOp("t_repeat", {{"X", {"x", "acc"}}}, {{"Out", {"acc"}}},
                  {{"sub_block", BlockRef{1}}, {"times", int32_t{times}}});
    Add(root, "scale", "acc", "y", {{"scale", 10.0f}});
  }
  static void Add(BlockDesc& block, const std::string& type, const std::string& x,
                  const std::string& out, AttrList attrs) {
    if (!block.FindVarRecursive(out)) block.Var(out);
    InferOp(block, block.AppendOp(type, {{"X", {x}}}, {{"Out", {out}}}, std::move(attrs)), Ops());
  }
};

std::vector<float> ValuesOf(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

TEST(SubBlock, UpdatesOuterVariablesInPlace) {
  Loop loop(3);
  Scope scope;
  auto run = Executor({}, Ops()).Prepare(loop.program, {"x"}, {"y", "acc", "x"});
  for (int i = 0; i < 2; ++i) {  // the second run starts afresh
    const auto& out = run.Run(scope, {Tensor::Of<float>({1, 2}, {1, -3})});
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{70, -210}));
    EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{7, -21}));
    EXPECT_EQ(ValuesOf(out[2]), (std::vector<float>{1, -3}));
  }
  EXPECT_EQ(run.Run(scope, {Tensor::Zeros(DType::kFloat32, {4, 2})})[0].shape().ToString(),
            "[4, 2]");
}

TEST(SubBlock, NoRounds) {
  Loop loop(0);
  Scope scope;
  auto out = Executor({}, Ops()).Run(loop.program, scope,
                                     {{"x", Tensor::Of<float>({1, 2}, {1, -3})}}, {"y"});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{10, -30}));
}

TEST(SubBlock, InterpreterAgrees) {
  Loop loop(5);
  VarValues env;
  env["x"] = Tensor::Of<float>({1, 2}, {1, -3});
  Interpret(loop.program.Root(), Ops(), env);
  Scope scope;
  auto out =
      Executor({}, Ops()).Run(loop.program, scope, {{"x", std::get<Tensor>(env["x"])}}, {"y"});
  EXPECT_TRUE(BitEqual(out[0], std::get<Tensor>(env["y"])));
}

// Feeds, constants and persistables written inside: only the last keep what was written.
TEST(SubBlock, WritesFeedsConstantsAndPersistables) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  BlockDesc& body = program.AppendBlock(root);
  root.Var("fed").SetShape({1});
  root.Var("kept").SetShape({1});
  root.Var("kept").SetPersistable(true);
  InferOp(
      root,
      root.AppendOp("fill_constant", {}, {{"Out", {"counter"}}},
                    {{"shape", std::vector<int64_t>{1}}, {"value", 5.0f}, {"dtype", int32_t{5}}}),
      Ops());
  for (const char* name : {"fed", "counter", "kept"}) {
    InferOp(body, body.AppendOp("increment", {{"X", {name}}}, {{"Out", {name}}}, {{"step", 1.0f}}),
            Ops());
  }
  std::vector<std::string> names = {"fed", "counter", "kept"};
  root.AppendOp("t_repeat", {{"X", names}}, {{"Out", names}},
                {{"sub_block", BlockRef{1}}, {"times", int32_t{4}}});
  Scope scope;
  scope.Set("kept", Tensor::Full<float>({1}, 100));
  Tensor fed = Tensor::Full<float>({1}, 1);
  auto run = Executor({}, Ops()).Prepare(program, {"fed"}, names);
  for (float kept : {104.0f, 108.0f}) {
    const auto& out = run.Run(scope, {fed});
    EXPECT_EQ(out[0].Item<float>(), 5);
    EXPECT_EQ(out[1].Item<float>(), 9);
    EXPECT_EQ(out[2].Item<float>(), kept);
  }
  EXPECT_EQ(fed.Item<float>(), 1);
  EXPECT_EQ(scope.Get("kept").Item<float>(), 108);
}

TEST(SubBlock, NestedLoops) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  BlockDesc& outer = program.AppendBlock(root);
  BlockDesc& inner = program.AppendBlock(outer);
  root.Var("x").SetShape({1});
  Loop::Add(root, "scale", "x", "n", {{"scale", 1.0f}});
  InferOp(inner, inner.AppendOp("increment", {{"X", {"n"}}}, {{"Out", {"n"}}}, {{"step", 1.0f}}),
          Ops());
  outer.AppendOp("t_repeat", {{"X", {"n"}}}, {{"Out", {"n"}}},
                 {{"sub_block", BlockRef{2}}, {"times", int32_t{3}}});
  root.AppendOp("t_repeat", {{"X", {"n"}}}, {{"Out", {"n"}}},
                {{"sub_block", BlockRef{1}}, {"times", int32_t{4}}});
  Scope scope;
  auto out =
      Executor({}, Ops()).Run(program, scope, {{"x", Tensor::Full<float>({1}, 0.5f)}}, {"n", "x"});
  EXPECT_EQ(out[0].Item<float>(), 12.5f);
  EXPECT_EQ(out[1].Item<float>(), 0.5f);
}

// The same memory in another shape is not what the plan was made for.
TEST(SubBlock, APersistableIsReshapedBetweenRuns) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("w").SetShape({-1, -1});
  root.Var("w").SetPersistable(true);
  Loop::Add(root, "scale", "w", "y", {{"scale", 2.0f}});
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  auto run = Executor({}, Ops()).Prepare(program, {}, {"y"});
  for (const Shape& shape : {Shape{2, 3}, Shape{3, 2}, Shape{1, 6}}) {
    scope.Set("w", scope.Get("w").Reshaped(shape));
    EXPECT_EQ(run.Run(scope)[0].shape(), shape);
  }
}

// An alias of a persistable shares its memory, not its shape.
TEST(SubBlock, ReadsAReshapedPersistable) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  BlockDesc& body = program.AppendBlock(root);
  root.Var("w").SetShape({2, 3});
  root.Var("w").SetPersistable(true);
  InferOp(root,
          root.AppendOp("reshape2", {{"X", {"w"}}}, {{"Out", {"flat"}}},
                        {{"shape", std::vector<int32_t>{6}}}),
          Ops());
  root.Var("y").SetShape({6});
  Loop::Add(root, "scale", "flat", "y", {{"scale", 1.0f}});
  Loop::Add(body, "scale", "flat", "y", {{"scale", 2.0f}});
  root.AppendOp("t_repeat", {{"X", {"flat"}}}, {{"Out", {"y"}}},
                {{"sub_block", BlockRef{1}}, {"times", int32_t{1}}});
  Scope scope;
  scope.Set("w", Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
  const Tensor y = Executor({}, Ops()).Run(program, scope, {}, {"y"})[0];
  EXPECT_EQ(y.shape(), Shape{6});
  EXPECT_EQ(ValuesOf(y), (std::vector<float>{2, 4, 6, 8, 10, 12}));
}
}  // namespace coracle::sub_block_test
