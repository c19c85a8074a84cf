// Gradients through loops, branches and recurrent nets: in double against central differences, with
// the executor; and one LSTM and one GRU written in several ways.
#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/test/backward/recurrent_ways.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coracle::control_flow_test {

constexpr DType kDouble = DType::kFloat64;

// A net in double with its parameters' values.
struct Net {
  ProgramDesc main, startup;
  Builder net{main, startup};
  Scope scope;
  std::map<std::string, Tensor> feeds;

  Variable Param(const std::string& name, const Shape& shape) {
    Variable p = net.Parameter(name, shape, kDouble, {.name = name});
    scope.Set(name, RandomTensor(shape, HashName(name)));
    return p;
  }
  Variable Feed(const std::string& name, const Tensor& value) {
    feeds[name] = value;
    return net.Data(name, value.shape(), value.dtype());
  }
  Variable Int(int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); }
  Variable Less(const Variable& a, const Variable& b) { return net.Binary("less_than", a, b); }
  void For(const Variable& n, const std::function<void(Variable)>& body) {
    Variable i = Int(0);
    Variable condition = Less(i, n);
    While(net, condition, [&] {
      body(i);
      Increment(net, i);
      Assign(net, Less(i, n), condition);
    });
  }
  Variable SumOfSquares(const Variable& x) {
    return net.Reshape(net.ReduceSum(net.Mul(x, x), {}), {1});
  }
  std::vector<Tensor> Run(const ProgramDesc& program, const std::vector<std::string>& fetches) {
    return Executor().Run(program, scope, feeds, fetches);
  }
  double LossAt(const ProgramDesc& program, const std::string& loss) {
    return Run(program, {loss})[0].Item<double>();
  }
};

// Appends backward and compares each gradient with differences along random directions. The
// gradients that are null are listed in `none`, those that must be zero in `zero`.
void ExpectGradients(Net& t, const Variable& loss, const std::vector<std::string>& params,
                     const std::vector<std::string>& zero = {},
                     const std::vector<std::string>& more_fetches = {}) {
  const ProgramDesc forward = t.main;
  auto pairs = AppendBackward(loss, WithRespectTo(params));
  std::vector<std::string> fetches = {loss.name()};
  for (const ParamAndGrad& pair : pairs) {
    ASSERT_NE(pair.grad, "") << pair.param;
    fetches.push_back(pair.grad);
  }
  fetches.insert(fetches.end(), more_fetches.begin(), more_fetches.end());
  const std::vector<Tensor> out = t.Run(t.main, fetches);
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Tensor& grad = out[i + 1];
    const std::string& name = pairs[i].param;
    double size = 0;
    for (double v : grad.span<double>()) size = std::max(size, std::abs(v));
    if (std::find(zero.begin(), zero.end(), name) != zero.end()) {
      EXPECT_EQ(size, 0) << name;
      continue;
    }
    EXPECT_GT(size, 1e-8) << name << " has no gradient to speak of";
    const Tensor at = t.scope.Get(name).Clone();
    for (uint64_t direction = 0; direction < 3; ++direction) {
      const Tensor d = RandomTensor(at.shape(), HashName(name) + direction + 1);
      double analytic = 0, moved[2];
      for (int64_t k = 0; k < d.numel(); ++k)
        analytic += d.data<double>()[k] * grad.data<double>()[k];
      for (int side : {0, 1}) {
        Tensor& x = t.scope.GetMutable(name);
        for (int64_t k = 0; k < d.numel(); ++k) {
          x.data<double>()[k] =
              at.data<double>()[k] + (side ? kStep : -kStep) * d.data<double>()[k];
        }
        moved[side] = t.LossAt(forward, loss.name());
      }
      t.scope.GetMutable(name).CopyFrom(at);
      const double numeric = (moved[1] - moved[0]) / (2 * kStep);
      EXPECT_NEAR(analytic, numeric, 2e-7 * std::max(1.0, std::abs(numeric))) << name;
    }
  }
}

TEST(WhileGradient, CapturedParametersAreSummedOverIterations) {
  for (int64_t times : {1, 4}) {
    Net t;
    Variable w = t.Param("w", {3, 3}), h0 = t.Param("h0", {2, 3}), b = t.Param("b", {3});
    Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, times));
    Variable h = t.net.Scale(h0, {.scale = 1.0f});
    t.For(n, [&](Variable) {
      Variable z = t.net.Add(t.net.Matmul(h, w), b);
      Assign(t.net, t.net.Tanh(z), h);
    });
    ExpectGradients(t, t.SumOfSquares(h), {"w", "h0", "b"});
  }
}

TEST(WhileGradient, NoIteration) {
  Net t;
  Variable w = t.Param("w", {3, 3}), h0 = t.Param("h0", {2, 3});
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 0));
  Variable h = t.net.Scale(h0, {.scale = 1.0f});
  t.For(n, [&](Variable) { Assign(t.net, t.net.Tanh(t.net.Matmul(h, w)), h); });
  ExpectGradients(t, t.SumOfSquares(h), {"w", "h0"}, {"w"});
}

// The same compiled program for other numbers of iterations, back and forth.
TEST(WhileGradient, AnyNumberOfIterations) {
  Net t;
  Variable w = t.Param("w", {1}), h0 = t.Param("h0", {1});
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 0));
  Variable h = t.net.Scale(h0, {.scale = 1.0f});
  t.For(n, [&](Variable) { Assign(t.net, t.net.Mul(h, w), h); });
  auto pairs = AppendBackward(h, WithRespectTo({"w", "h0"}));
  auto run = Executor().Prepare(t.main, {"n"}, {pairs[0].grad, pairs[1].grad});
  const double vw = t.scope.Get("w").Item<double>(), vh = t.scope.Get("h0").Item<double>();
  for (int64_t times : {2, 0, 5, 1, 5}) {  // h0 w^n
    const auto& out = run.Run(t.scope, {Tensor::Full<int64_t>({1}, times)});
    EXPECT_NEAR(out[0].Item<double>(),
                times ? vh * static_cast<double>(times) * std::pow(vw, times - 1) : 0, 1e-14);
    EXPECT_NEAR(out[1].Item<double>(), std::pow(vw, times), 1e-14);
  }
}

// A gradient op must not move the counter back: it holds n after backward too.
TEST(WhileGradient, CountersAreNotRewound) {
  Net t;
  Variable w = t.Param("w", {2});
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 3));
  Variable i = t.Int(0), condition = t.Less(i, n);
  Variable h = t.net.Scale(w, {.scale = 1.0f}), array = CreateArray(t.net, kDouble);
  While(t.net, condition, [&] {
    ArrayWrite(t.net, t.net.Mul(h, w), i, array);
    Assign(t.net, ArrayRead(t.net, array, i), h);
    Increment(t.net, i);
    Assign(t.net, t.Less(i, n), condition);
  });
  ExpectGradients(t, t.SumOfSquares(h), {"w"});
  EXPECT_EQ(t.Run(t.main, {i.name()})[0].Item<int64_t>(), 3);
}

TEST(WhileGradient, Arrays) {
  for (int64_t times : {3, 1}) {
    Net t;
    Variable w = t.Param("w", {2, 2}), h0 = t.Param("h0", {1, 2});
    Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, times));
    Variable array = CreateArray(t.net, kDouble);
    ArrayWrite(t.net, h0, t.Int(0), array);
    t.For(n, [&](Variable i) {
      Variable h = ArrayRead(t.net, array, i);
      Variable next = Increment(t.net, t.net.Scale(i, {.scale = 1.0f}));
      ArrayWrite(t.net, t.net.Tanh(t.net.Matmul(h, w)), next, array);
    });
    Variable total = FillConstant(t.net, {1}, kDouble, 0);
    total.desc().SetStopGradient(false);
    Variable length = ArrayLength(t.net, array);
    t.For(length, [&](Variable i) {  // each element is read twice
      Variable h = ArrayRead(t.net, array, i);
      Variable again = ArrayRead(t.net, array, i);
      Assign(t.net, t.net.Add(total, t.SumOfSquares(t.net.Add(h, t.net.Mul(again, again)))), total);
    });
    ExpectGradients(t, total, {"w", "h0"}, {}, {length.name()});
  }
}

// Only the last of several writes to one place counts.
TEST(WhileGradient, AnElementWrittenAgain) {
  Net t;
  Variable a = t.Param("a", {2}), b = t.Param("b", {2});
  Variable array = CreateArray(t.net, kDouble), zero = t.Int(0);
  ArrayWrite(t.net, a, zero, array);
  Variable x = ArrayRead(t.net, array, zero);
  ArrayWrite(t.net, t.net.Mul(b, x), zero, array);
  ArrayWrite(t.net, b, t.Int(1), array);
  Variable y = ArrayRead(t.net, array, zero), z = ArrayRead(t.net, array, t.Int(1));
  ExpectGradients(t, t.SumOfSquares(t.net.Add(y, t.net.Mul(z, z))), {"a", "b"});
}

TEST(WhileGradient, Nested) {
  Net t;
  Variable w = t.Param("w", {2, 2}), u = t.Param("u", {2}), h0 = t.Param("h0", {1, 2});
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 3));
  Variable h = t.net.Scale(h0, {.scale = 1.0f});
  t.For(n, [&](Variable i) {
    Variable g = t.net.Add(h, u);
    t.For(i, [&](Variable) { Assign(t.net, t.net.Tanh(t.net.Matmul(g, w)), g); });
    Assign(t.net, t.net.Add(h, t.net.Mul(g, u)), h);
  });
  ExpectGradients(t, t.SumOfSquares(h), {"w", "u", "h0"});
}

TEST(WhileGradient, BranchInALoop) {
  Net t;
  Variable w = t.Param("w", {2}), u = t.Param("u", {2}), v = t.Param("v", {2});
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 4));
  Variable two = t.Int(2), h = t.net.Scale(u, {.scale = 1.0f});
  t.For(n, [&](Variable i) {
    Variable next = Cond(
        t.net, t.Less(i, two), [&] { return std::vector{t.net.Mul(h, w)}; },
        [&] { return std::vector{t.net.Add(t.net.Mul(h, h), v)}; })[0];
    Assign(t.net, next, h);
  });
  ExpectGradients(t, t.SumOfSquares(h), {"w", "u", "v"});
}

TEST(CondGradient, ABranchNotTakenGivesZeros) {
  for (bool taken : {true, false}) {
    Net t;
    Variable a = t.Param("a", {2}), b = t.Param("b", {2});
    Variable p = t.Feed("p", Tensor::Full<bool>({1}, taken));
    Variable y = Cond(
        t.net, p, [&] { return std::vector{t.net.Mul(a, a)}; },
        [&] { return std::vector{t.net.Tanh(b)}; })[0];
    ExpectGradients(t, t.SumOfSquares(y), {"a", "b"}, {taken ? "b" : "a"});
  }
}

// A variable that the block changes or leaves.
TEST(CondGradient, TheFormerValuePassesWhereTheBlockDidNotRun) {
  for (bool taken : {true, false}) {
    Net t;
    Variable a = t.Param("a", {2}), b = t.Param("b", {2});
    Variable p = t.Feed("p", Tensor::Full<bool>({1}, taken));
    Variable y = t.net.Mul(a, a);
    If(t.net, p, [&] { Assign(t.net, t.net.Mul(y, b), y); });
    ExpectGradients(t, t.SumOfSquares(y), {"a", "b"},
                    taken ? std::vector<std::string>() : std::vector<std::string>{"b"});
  }
}

TEST(RecurrentGradient, StatesInputsAndParameters) {
  for (bool reverse : {false, true}) {
    Net t;
    Variable w = t.Param("w", {2, 3}), u = t.Param("u", {3, 3}), b = t.Param("b", {3});
    Variable x = t.Param("x", {4, 2, 2}), h0 = t.Param("h0", {2, 3});
    StaticRnn rnn(t.net, {.reverse = reverse});
    rnn.Step([&] {
      Variable step = rnn.StepInput(x), h = rnn.Memory(h0);
      Variable next =
          t.net.Tanh(t.net.Add(t.net.Add(t.net.Matmul(step, w), t.net.Matmul(h, u)), b));
      rnn.UpdateMemory(h, next);
      rnn.StepOutput(t.net.Mul(next, next));
      rnn.StepOutput(next);
    });
    Variable loss = t.net.Add(t.SumOfSquares(rnn.Outputs()[0]),
                              t.net.Reshape(t.net.ReduceSum(rnn.Outputs()[1], {}), {1}));
    ExpectGradients(t, loss, {"w", "u", "b", "x", "h0"});
  }
}

TEST(RecurrentGradient, MaskByLength) {
  Net t;
  Variable u = t.Param("u", {2, 2}), x = t.Param("x", {4, 3, 2}), h0 = t.Param("h0", {3, 2});
  Variable lengths = t.Feed("lengths", Tensor::Of<int64_t>({3}, {4, 0, 2}));
  StaticRnn rnn(t.net, {.lengths = lengths});
  rnn.Step([&] {
    Variable step = rnn.StepInput(x), h = rnn.Memory(h0);
    Variable next = t.net.Tanh(t.net.Add(step, t.net.Matmul(h, u)));
    rnn.UpdateMemory(h, next);
    rnn.StepOutput(next);
  });
  const Variable loss = t.SumOfSquares(rnn.Outputs()[0]);
  ExpectGradients(t, loss, {"u", "x", "h0"});
}

// Sequences of a LoD tensor, sorted by length, the batch shrinking as they end.
TEST(WhileGradient, ShrinkingBatch) {
  Net t;
  Tensor fed = RandomTensor({6, 2}, 5);
  fed.lod() = {{0, 2, 5, 6}};
  Variable x = t.Feed("x", fed), w = t.Param("w", {2, 2}), h0 = t.Param("h0", {3, 2});
  t.main.Root().Var("table").SetType(VarType::kLoDRankTable);
  t.net.Append("lod_rank_table", {{"X", {"x"}}}, {{"Out", {"table"}}}, {{"level", 0}});
  Variable longest = t.net.Make("max_sequence_len", {{"RankTable", {"table"}}});
  Variable steps = CreateArray(t.net, kDouble), states = CreateArray(t.net, kDouble);
  Variable projected = t.net.Matmul(x, w);
  t.net.Append("lod_tensor_to_array", {{"X", {projected.name()}}, {"RankTable", {"table"}}},
               {{"Out", {steps.name()}}});
  Variable h = t.net.Scale(h0, {.scale = 1.0f});
  t.For(longest, [&](Variable i) {
    Variable live = t.net.Make("shrink_rnn_memory",
                               {{"X", {h.name()}}, {"RankTable", {"table"}}, {"I", {i.name()}}});
    Assign(t.net, t.net.Tanh(t.net.Add(live, ArrayRead(t.net, steps, i))), h);
    ArrayWrite(t.net, h, i, states);
  });
  t.main.Root().Var("y").SetMeta({VarType::kLoDTensor, kDouble, {-1, 2}, 1});
  t.net.Append("array_to_lod_tensor", {{"X", {states.name()}}, {"RankTable", {"table"}}},
               {{"Out", {"y"}}});
  ExpectGradients(t, t.SumOfSquares(t.net.Var("y")), {"w", "h0"});
}

// --- rows of the table of tf.gradients ---

double RunOne(Net& t, const std::string& fetch) { return t.Run(t.main, {fetch})[0].Item<double>(); }

TEST(TfGradientsInBlocks, T10_IntegerPathInALoop) {
  Net t;
  Variable v = t.Param("v", {1}), target = FillConstant(t.net, {1}, kDouble, 0);
  Variable n = t.Feed("n", Tensor::Full<int64_t>({1}, 2));
  t.For(n, [&](Variable) {
    Variable whole = t.net.Cast(t.net.Cast(v, DType::kInt64), kDouble);
    Assign(t.net, t.net.Add(target, whole), target);
  });
  EXPECT_EQ(Gradients({target}, {v})[0], "");
}

TEST(TfGradientsInBlocks, T27_GradientInsideASubBlock) {
  Net t;
  Variable x = t.Param("x", {1}), p = t.Feed("p", Tensor::Full<bool>({1}, true));
  Variable result = FillConstant(t.net, {1}, kDouble, -1);
  If(t.net, p, [&] {
    Variable y = t.net.Scale(x, {.scale = 2.0f});
    const std::string grad = Gradients({y}, {x})[0];
    Assign(t.net, t.net.Var(grad), result);
  });
  EXPECT_EQ(RunOne(t, result.name()), 2);
}

TEST(TfGradientsInBlocks, T28_GradientOfOuterValuesAskedInside) {
  Net t;
  Variable x = t.Param("x", {1}), p = t.Feed("p", Tensor::Full<bool>({1}, true));
  Variable y = t.net.Scale(x, {.scale = 2.0f}), result = FillConstant(t.net, {1}, kDouble, -1);
  If(t.net, p, [&] { Assign(t.net, t.net.Var(Gradients({y}, {x})[0]), result); });
  EXPECT_EQ(RunOne(t, result.name()), 2);
}

TEST(TfGradientsInBlocks, T30_GradientUpToAnOuterValue) {
  Net t;
  Variable x = t.Param("x", {1}), p = t.Feed("p", Tensor::Full<bool>({1}, true));
  Variable y = t.net.Scale(x, {.scale = 2.0f}), result = FillConstant(t.net, {1}, kDouble, -1);
  If(t.net, p, [&] {
    Variable z = t.net.Scale(y, {.scale = 3.0f});
    Assign(t.net, t.net.Var(Gradients({z}, {y})[0]), result);
  });
  EXPECT_EQ(RunOne(t, result.name()), 3);
}

TEST(TfGradientsInBlocks, T41_Cond) {
  for (bool taken : {true, false}) {
    Net t;
    Variable alpha = t.Param("alpha", {1}), p = t.Feed("p", Tensor::Full<bool>({1}, taken));
    Variable out = Cond(
        t.net, p, [&] { return std::vector{t.net.Scale(alpha, {.scale = 2.0f})}; },
        [&] { return std::vector{t.net.Scale(alpha, {.scale = 3.0f})}; })[0];
    EXPECT_EQ(RunOne(t, Gradients({out}, {alpha})[0]), taken ? 2 : 3);
  }
}

// --- one recurrent net, several ways ---

void ExpectSameWays(const char* cell, DType dtype, double tolerance) {
  const std::vector<Tensor> expected = RunRecurrentWay(cell, RecurrentWays()[0], dtype);
  for (const RecurrentWay& way : RecurrentWays()) {
    SCOPED_TRACE(way.name);
    const std::vector<Tensor> got = RunRecurrentWay(cell, way, dtype);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor a = expected[i].Cast(kDouble), b = got[i].Cast(kDouble);
      ASSERT_EQ(a.shape(), b.shape());
      double size = 0;
      for (double v : a.span<double>()) size = std::max(size, std::abs(v));
      EXPECT_GT(size, 1e-4) << "result " << i;
      for (int64_t k = 0; k < a.numel(); ++k)
        EXPECT_NEAR(a.data<double>()[k], b.data<double>()[k], tolerance * std::max(1.0, size)) << i;
    }
  }
}

TEST(RecurrentWays, LstmInDouble) { ExpectSameWays("lstm", kDouble, 1e-12); }
TEST(RecurrentWays, LstmInFloat) { ExpectSameWays("lstm", DType::kFloat32, 1e-6); }
TEST(RecurrentWays, GruInDouble) { ExpectSameWays("gru", kDouble, 1e-12); }
TEST(RecurrentWays, GruInFloat) { ExpectSameWays("gru", DType::kFloat32, 1e-6); }
}  // namespace coracle::control_flow_test
