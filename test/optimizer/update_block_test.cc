// Guarded updates: what a step without its guard leaves alone, and that the other steps do what a
// program without guard does, bit for bit.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>

namespace coracle::update_block_test {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

// A table with sparse gradients and a layer with settings of its own; inputs `go`
// and `ready` guard.
struct Net {
  ProgramDesc main, startup;
  Variable loss;
  std::string rate;

  explicit Net(Optimizer& optimizer) {
    Builder net(main, startup);
    net.Data("go", {1}, DType::kBool);
    net.Data("ready", {1}, DType::kBool);
    Variable ids = net.Data("ids", {-1}, DType::kInt64);
    EmbeddingOptions table = {.num_embeddings = 20, .embedding_dim = 4, .is_sparse = true};
    table.param_attr = {.name = "table", .initializer = UniformInitializer(-1, 1)};
    FcOptions fc = {.size = 3};
    fc.param_attr = {.name = "w",
                     .initializer = UniformInitializer(-1, 1),
                     .learning_rate = 0.5,
                     .regularizer = L2DecayRegularizer(0.1)};
    loss = net.Mean(net.Unary("square", net.Fc(net.Embedding(ids, table), fc)));
    optimizer.SetGradientClip(ClipGradByGlobalNorm(0.1));
    optimizer.SetSchedule(InvRate({0.1, 0.5, 0.75}));
    optimizer.Minimize(loss, startup);
    rate = optimizer.learning_rate_var();
    VerifyOrThrow(main, DefaultOps());
    VerifyOrThrow(startup, DefaultOps());
  }
};

Tensor Ids(int update) {
  std::vector<int64_t> ids(6);
  for (size_t i = 0; i < 6; ++i) ids[i] = static_cast<int64_t>(i * i + 3) * (update + 1) % 20;
  return Tensor::Of<int64_t>({6}, ids);
}

std::map<std::string, Tensor> State(const ProgramDesc& program, const Scope& scope) {
  std::map<std::string, Tensor> state;
  for (size_t i = 0; i < program.Root().NumVars(); ++i) {
    const VarDesc& var = program.Root().var(i);
    if (var.persistable()) state[var.name()] = scope.Get(var.name()).Clone();
  }
  return state;
}

// By value, whatever the names of counters and rates are.
void ExpectSameBits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.dtype(), b.dtype()) << what;
  ASSERT_EQ(a.shape(), b.shape()) << what;
  EXPECT_EQ(0, std::memcmp(a.raw(), b.raw(), a.nbytes())) << what;
}

const std::vector<std::pair<const char*, MakeOptimizer>>& Optimizers() {
  static const std::vector<std::pair<const char*, MakeOptimizer>> all = {
      {"sgd", [] { return std::make_unique<Sgd>(SgdOptions{}); }},
      {"momentum", [] { return std::make_unique<Momentum>(MomentumOptions{}); }},
      {"adagrad", [] { return std::make_unique<Adagrad>(AdagradOptions{}); }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{}); }},
      {"lazy adam", [] { return std::make_unique<Adam>(AdamOptions{.lazy_mode = true}); }},
  };
  return all;
}

TEST(UpdateBlock, StepsWithoutGuardLeaveNoTrace) {
  for (const auto& [name, make] : Optimizers()) {
    SCOPED_TRACE(name);
    const auto plain = make(), guarded = make();
    guarded->AddGuard("go");
    guarded->AddGuard("ready");
    Net flat(*plain), net(*guarded);
    for (size_t i = 0; i < flat.main.Root().NumOps(); ++i)
      EXPECT_NE(flat.main.Root().op(i).type(), "conditional_block");
    EXPECT_EQ(net.main.NumBlocks(), 2);
    Scope expected, scope;
    Executor exe({.seed = 9});
    exe.Run(flat.startup, expected);
    exe.Run(net.startup, scope);
    PreparedProgram flat_step = exe.Prepare(flat.main, {"ids"}, {flat.loss.name(), flat.rate});
    PreparedProgram step =
        exe.Prepare(net.main, {"ids", "go", "ready"}, {net.loss.name(), net.rate});
    int updates = 0;
    for (int run = 0; run < 12; ++run) {
      const bool go = run % 3 != 1, ready = run % 4 != 2;
      const auto before = State(net.main, scope);
      const std::vector<Tensor>& out = step.Run(
          scope, {Ids(updates), Tensor::Of<bool>({1}, {go}), Tensor::Of<bool>({1}, {ready})});
      if (!go || !ready) {
        for (const auto& [var, value] : before)
          ExpectSameBits(scope.Get(var), value, var + " after a skipped step");
        continue;
      }
      const std::vector<Tensor>& flat_out = flat_step.Run(expected, {Ids(updates)});
      ++updates;
      ExpectSameBits(out[0], flat_out[0], "loss");
      ExpectSameBits(out[1], flat_out[1], "learning rate");
      for (const auto& [var, value] : State(flat.main, expected))
        ExpectSameBits(scope.Get(var), value, var);
    }
    EXPECT_EQ(updates, 6);
  }
}

TEST(UpdateBlock, TheInterpreterAgrees) {
  Adam adam({});
  adam.AddGuard("go");
  Net net(adam);
  VarValues env;
  Interpret(net.startup.Root(), DefaultOps(), env);
  env["ready"] = Tensor::Of<bool>({1}, {true});
  env["ids"] = Ids(0);
  env["go"] = Tensor::Of<bool>({1}, {false});
  const Tensor before = std::get<Tensor>(env.at("w")).Clone();
  Interpret(net.main.Root(), DefaultOps(), env);
  ExpectSameBits(std::get<Tensor>(env.at("w")), before, "w");
  EXPECT_EQ(std::get<Tensor>(env.at(kStepCounter)).Item<int64_t>(), -1);
  env["go"] = Tensor::Of<bool>({1}, {true});
  Interpret(net.main.Root(), DefaultOps(), env);
  EXPECT_NE(0, std::memcmp(std::get<Tensor>(env.at("w")).raw(), before.raw(), before.nbytes()));
  EXPECT_EQ(std::get<Tensor>(env.at(kStepCounter)).Item<int64_t>(), 0);
}

// Two optimizers, each with a schedule and a guard of its own: each counts its own updates.
TEST(UpdateBlock, OptimizersSkipEachForItself) {
  ProgramDesc main, startup;
  for (const char* name : {"a", "b", "g"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetShape({1});
    var.SetPersistable(true);
    var.SetIsParameter(name[0] != 'g');
  }
  for (const char* name : {"go_a", "go_b"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetDType(DType::kBool);
    var.SetShape({1});
  }
  for (const char* name : {"a", "b"}) {
    Sgd sgd({});
    sgd.SetSchedule(StepRate({1, 0.5, 1}));
    sgd.AddGuard(std::string("go_") + name);
    sgd.ApplyGradients(main.Root(), startup, {{name, "g"}});
  }
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  for (const char* name : {"a", "b"}) scope.Set(name, Tensor::Of<float>({1}, {8}));
  scope.Set("g", Tensor::Of<float>({1}, {1}));
  PreparedProgram step = exe.Prepare(main, {"go_a", "go_b"}, {});
  const auto flag = [](bool value) { return Tensor::Of<bool>({1}, {value}); };
  for (auto [go_a, go_b, a, b] : {std::tuple{true, false, 7.0f, 8.0f},
                                  {true, true, 6.5f, 7.0f},
                                  {false, true, 6.5f, 6.5f},
                                  {true, false, 6.25f, 6.5f}}) {
    step.Run(scope, {flag(go_a), flag(go_b)});
    EXPECT_EQ(scope.Get("a").Item<float>(), a);
    EXPECT_EQ(scope.Get("b").Item<float>(), b);
  }
}

// Noise of an update in a block is drawn again at each step.
TEST(UpdateBlock, DrawsDifferFromStepToStep) {
  ProgramDesc main, startup;
  for (const char* name : {"w", "g"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetShape({1});
    var.SetPersistable(true);
    var.SetIsParameter(name[0] == 'w');
  }
  VarDesc& go = main.Root().Var("go");
  go.SetDType(DType::kBool);
  go.SetShape({1});
  Dpsgd dpsgd({.learning_rate = 1, .clip = 1, .batch_size = 1, .sigma = 1});
  dpsgd.AddGuard("go");
  dpsgd.ApplyGradients(main.Root(), startup, {{"w", "g"}});
  Scope scope;
  Executor exe({.seed = 4});
  exe.Run(startup, scope);
  scope.Set("w", Tensor::Of<float>({1}, {0}));
  scope.Set("g", Tensor::Of<float>({1}, {0}));
  PreparedProgram step = exe.Prepare(main, {"go"}, {});
  std::set<float> draws;
  for (int i = 0; i < 10; ++i) {
    const float before = scope.Get("w").Item<float>();
    step.Run(scope, {Tensor::Of<bool>({1}, {true})});
    draws.insert(scope.Get("w").Item<float>() - before);
  }
  EXPECT_EQ(draws.size(), 10u);
}

TEST(UpdateBlock, IsNotPartOfATestProgramAndIsSaved) {
  Adam adam({});
  adam.AddGuard("go");
  Net net(adam);
  const ProgramDesc test = net.main.CloneForTest();
  for (size_t i = 0; i < test.Root().NumOps(); ++i)
    EXPECT_NE(test.Root().op(i).type(), "conditional_block");
  EXPECT_EQ(test.Root().FindVar("w_moment1_0"), nullptr);
  const ProgramDesc again = ParseProgram(SerializeProgram(net.main));
  EXPECT_TRUE(again == net.main);
}

TEST(UpdateBlock, Errors) {
  Adam adam({});
  adam.AddGuard("ids");
  try {
    Net net(adam);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("the guard 'ids' must be bool[1], it is int64[-1]"),
              std::string::npos)
        << e.message();
  }
  Sgd sgd({});
  sgd.AddGuard("nowhere");
  EXPECT_THROW(Net net(sgd), Error);
}
}  // namespace coracle::update_block_test
