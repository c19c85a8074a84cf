// Loops, branches and recurrent nets: what the executor makes of them, and that it agrees
// with the interpreter.
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/executor/control_flow_net.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace coracle::control_flow_test {

std::vector<float> ValuesOf(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

TEST(While, CountsAndCarries) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {2});
  Variable sum = t.net.Scale(x, {.scale = 0.0f});
  t.For(n, [&](Variable) { Assign(t.net, t.net.Add(sum, x), sum); });
  Variable twice = t.net.Scale(sum, {.scale = 2.0f});
  for (int64_t times : {5, 0, 1}) {
    auto out =
        t.Run({{"n", OneInt(times)}, {"x", Tensor::Of<float>({2}, {1, -3})}}, {twice.name(), "x"});
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{2.0f * times, -6.0f * times}));
    EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{1, -3}));
  }
}

// Results of StaticRnn and Cond can be used in formulas, inside a step and after it.
TEST(ControlFlow, ResultsInFormulas) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {3, 2}), h0 = net.Data("h0", {2});
  const Variable p = net.Data("p", {1}, DType::kBool);
  StaticRnn rnn(net);
  rnn.Step([&] {
    const Variable in = rnn.StepInput(x), h = rnn.Memory(h0);
    const Variable next = 0.5 * h + in;
    rnn.UpdateMemory(h, next);
    rnn.StepOutput(next);
  });
  const Variable sums = 2.0 * rnn.Outputs()[0] - 1.0;
  const Variable chosen = Cond(
      net, p, [&] { return std::vector<Variable>{x + 1.0}; },
      [&] { return std::vector<Variable>{x - 1.0}; })[0];
  const Variable both = sums * Square(chosen);
  EXPECT_EQ(&both.block(), &main.Root());
  Scope scope;
  const auto out = Executor().Run(main, scope,
                                  {{"x", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6})},
                                   {"h0", Tensor::Of<float>({2}, {2, 0})},
                                   {"p", Tensor::Of<bool>({1}, {true})}},
                                  {both.name()});
  // Sums 2, 4, 7 and 2, 5, 8.5.
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{3 * 4, 3 * 9, 7 * 16, 9 * 25, 13 * 36, 16 * 49}));
}

TEST(While, OnePlanServesAllCounts) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {2});
  Variable sum = t.net.Scale(x, {.scale = 0.0f});
  t.For(n, [&](Variable) { Assign(t.net, t.net.Add(sum, x), sum); });
  auto run = t.Prepare({"n", "x"}, {sum.name()});
  Scope scope;
  for (int64_t times : {3, 0, 7, 3}) {
    const auto& out = run.Run(scope, {OneInt(times), Tensor::Of<float>({2}, {1, -3})});
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{1.0f * times, -3.0f * times}));
  }
}

// The carried variable grows: each iteration has a shape of its own.
TEST(While, CarriedVariableChangesShape) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {1, 2});
  Variable all = t.net.Scale(x, {.scale = 1.0f});
  t.For(n, [&](Variable) { Assign(t.net, t.net.Concat({all, x}), all); });
  Variable sum = t.net.ReduceSum(all, {.dim = {0}});
  for (int64_t times : {4, 2, 0, 4}) {
    auto out = t.Run({{"n", OneInt(times)}, {"x", Tensor::Of<float>({1, 2}, {1, 10})}},
                     {all.name(), sum.name()});
    EXPECT_EQ(out[0].shape(), (Shape{times + 1, 2}));
    EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{1.0f * (times + 1), 10.0f * (times + 1)}));
  }
}

TEST(While, Arrays) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {2});
  Variable array = CreateArray(t.net, DType::kFloat32), zero = t.Int(0);
  ArrayWrite(t.net, x, zero, array);
  t.For(n, [&](Variable i) {
    Variable before = ArrayRead(t.net, array, i);
    Variable next = Increment(t.net, t.net.Scale(i, {.scale = 1.0f}));
    ArrayWrite(t.net, t.net.Scale(before, {.scale = 2.0f}), next, array);
  });
  Variable last = ArrayRead(t.net, array, n), length = ArrayLength(t.net, array);
  for (int64_t times : {3, 0, 5}) {
    auto out = t.Run({{"n", OneInt(times)}, {"x", Tensor::Of<float>({2}, {1, -1})}},
                     {last.name(), length.name()});
    const float power = static_cast<float>(1 << times);
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{power, -power}));
    EXPECT_EQ(out[1].Item<int64_t>(), times + 1);
  }
}

TEST(While, ArrayElementsOfDifferentShapes) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {1, 2});
  Variable array = CreateArray(t.net, DType::kFloat32);
  Variable all = t.net.Scale(x, {.scale = 1.0f});
  t.For(n, [&](Variable i) {
    ArrayWrite(t.net, all, i, array);
    Assign(t.net, t.net.Concat({all, x}), all);
  });
  Variable total = FillConstant(t.net, {2}, DType::kFloat32, 0);
  t.For(n, [&](Variable i) {
    Variable rows = ArrayRead(t.net, array, i);
    Assign(t.net, t.net.Add(total, t.net.ReduceSum(rows, {.dim = {0}})), total);
  });
  auto out = t.Run({{"n", OneInt(4)}, {"x", Tensor::Of<float>({1, 2}, {1, -1})}}, {total.name()});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{10, -10}));  // 1 + 2 + 3 + 4 rows
}

TEST(While, NestedThreeDeep) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {1});
  Variable sum = t.net.Scale(x, {.scale = 0.0f});
  t.For(n, [&](Variable i) {
    t.For(i,
          [&](Variable j) { t.For(j, [&](Variable) { Assign(t.net, t.net.Add(sum, x), sum); }); });
  });
  auto out = t.Run({{"n", OneInt(6)}, {"x", Tensor::Full<float>({1}, 0.5f)}}, {sum.name()});
  EXPECT_EQ(out[0].Item<float>(), 0.5f * 20);  // 6 choose 3
}

// A variable and an array of the body begin each iteration without value.
TEST(While, InnerVariablesAreMadeAfresh) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64);
  Variable lengths = t.Int(0);
  t.For(n, [&](Variable i) {
    Variable array = CreateArray(t.net, DType::kInt64);
    ArrayWrite(t.net, i, ArrayLength(t.net, array), array);
    ArrayWrite(t.net, i, ArrayLength(t.net, array), array);
    Assign(t.net, t.net.Add(lengths, ArrayLength(t.net, array)), lengths);
  });
  EXPECT_EQ(t.Run({{"n", OneInt(3)}}, {lengths.name()})[0].Item<int64_t>(), 6);
}

TEST(While, ShapesThatDependOnTheIterationsValues) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64);
  Variable zero = t.Int(0), one = t.Int(1), total = t.Int(0);
  t.For(n, [&](Variable i) {
    Variable numbers = t.net.Make(
        "range", {{"Start", {zero.name()}}, {"End", {i.name()}}, {"Step", {one.name()}}});
    Variable sum = t.net.ReduceSum(t.net.Concat({numbers, i}), {});
    Assign(t.net, t.net.Add(total, t.net.Reshape(sum, {1})), total);
  });
  // sum over i of (0 + ... + i) for i < 5
  EXPECT_EQ(t.Run({{"n", OneInt(5)}}, {total.name()})[0].Item<int64_t>(), 20);
}

TEST(While, PersistablesAreUpdatedInTheScope) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64);
  VarDesc& kept = t.main.Root().Var("kept");
  kept.SetShape({1});
  kept.SetPersistable(true);
  t.For(n, [&](Variable) { Increment(t.net, t.net.Var("kept"), 0.5f); });
  Scope scope;
  scope.Set("kept", Tensor::Full<float>({1}, 1));
  auto run = t.Prepare({"n"}, {"kept"});
  EXPECT_EQ(run.Run(scope, {OneInt(4)})[0].Item<float>(), 3);
  EXPECT_EQ(run.Run(scope, {OneInt(2)})[0].Item<float>(), 4);
  EXPECT_EQ(scope.Get("kept").Item<float>(), 4);
}

TEST(While, RandomOpsDrawAnewInEachIteration) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64);
  Variable array = CreateArray(t.net, DType::kFloat32);
  t.For(n, [&](Variable i) {
    Variable draw =
        t.net.Make("uniform_random", {}, {{"shape", std::vector<int64_t>{1}}, {"dtype", 5}});
    ArrayWrite(t.net, draw, i, array);
  });
  std::vector<std::string> names;
  for (int k = 0; k < 3; ++k) names.push_back(ArrayRead(t.net, array, t.Int(k)).name());
  auto out = t.Run({{"n", OneInt(3)}}, names);
  EXPECT_NE(out[0].Item<float>(), out[1].Item<float>());
  EXPECT_NE(out[1].Item<float>(), out[2].Item<float>());
  auto again = t.Run({{"n", OneInt(3)}}, names);
  for (int k = 0; k < 3; ++k) EXPECT_TRUE(BitEqual(out[k], again[k]));
}

// The second of two loops is planned before or after what the first one holds.
TEST(While, RandomOpsDrawTheSameWhateverRanBefore) {
  LoopNet t;
  Variable m = t.net.Data("m", {1}, DType::kInt64), n = t.net.Data("n", {1}, DType::kInt64);
  const auto draw = [&](const Variable& sum) {
    Variable noise =
        t.net.Make("uniform_random", {}, {{"shape", std::vector<int64_t>{1}}, {"dtype", 5}});
    Assign(t.net, t.net.Add(sum, noise), sum);
  };
  Variable a = FillConstant(t.net, {1}, DType::kFloat32, 0), b = t.net.Scale(a, {.scale = 1});
  t.For(m, [&](Variable) { t.For(n, [&](Variable) { draw(a); }); });
  t.For(n, [&](Variable) { draw(b); });
  std::vector<Tensor> second[2];
  for (int64_t first : {0, 1}) {
    Scope scope;
    auto run = t.Prepare({"m", "n"}, {a.name(), b.name()});
    run.Run(scope, {OneInt(first), OneInt(2)});
    for (const Tensor& sum : run.Run(scope, {OneInt(2), OneInt(2)}))
      second[first].push_back(sum.Clone());
  }
  EXPECT_NE(second[0][0].Item<float>(), 0.0f);
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(BitEqual(second[0][k], second[1][k]));
}

TEST(While, Limits) {
  LoopNet t;
  Variable x = t.net.Data("x", {1000});
  Variable always = t.Less(t.Int(0), t.Int(1)), i = t.Int(0);
  Variable array = CreateArray(t.net, DType::kFloat32);
  While(t.net, always, [&] {
    ArrayWrite(t.net, x, i, array);
    Increment(t.net, i);
    Assign(t.net, t.Less(t.Int(0), t.Int(1)), always);
  });
  Scope scope;
  const std::vector<Tensor> feeds = {Tensor::Zeros(DType::kFloat32, {1000})};
  CompileOptions few;
  few.memory_limit = 1 << 20;
  EXPECT_NE(ErrorOf([&] {
              t.Prepare({"x"}, {i.name()}, few).Run(scope, feeds);
            }).find("memory limit of 1"),
            std::string::npos);
}

TEST(While, AnEndlessLoopIsEnded) {
  LoopNet t;
  Variable always = t.Less(t.Int(0), t.Int(1)), i = t.Int(0);
  While(t.net, always, [&] {
    Increment(t.net, i);
    Assign(t.net, t.Less(t.Int(0), t.Int(1)), always);
  });
  Scope scope;
  CompileOptions timed;
  timed.time_limit = 0.05;
  EXPECT_NE(ErrorOf([&] { t.Prepare({}, {i.name()}, timed).Run(scope); }).find("time limit"),
            std::string::npos);
  CompileOptions stopped;
  std::atomic<int> asked{0};
  stopped.stop = [&] { return ++asked > 100; };
  try {
    t.Prepare({}, {i.name()}, stopped).Run(scope);
    FAIL() << "the loop ended";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  }
}

// The profile's times do not overlap: an op's time excludes the ops of its sub-block.
TEST(While, ProfileCountsTheOpsOfABlockOnce) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {1000, 1000});
  Variable sum = t.net.Scale(x, {.scale = 0.0f});
  t.For(n, [&](Variable) {
    t.For(n, [&](Variable) { Assign(t.net, t.net.Unary("exp", t.net.Add(sum, x)), sum); });
  });
  CompileOptions options;
  options.profile = true;
  PreparedProgram run = t.Prepare({"n", "x"}, {sum.name()}, options);
  Scope scope;
  const std::vector<Tensor> feeds = {OneInt(3), Tensor::Full<float>({1000, 1000}, -1)};
  const auto begin = std::chrono::steady_clock::now();
  run.Run(scope, feeds);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  double all = 0, loops = 0, inner = 0;
  uint64_t runs = 0;
  for (const OpTime& time : run.Profile()) {
    EXPECT_GE(time.seconds, 0) << time.op_type;
    all += time.seconds;
    (time.op_type == "while" ? loops : inner) += time.seconds;
    if (time.op_type == "exp") runs += time.runs;
  }
  EXPECT_EQ(runs, 9u);
  EXPECT_GT(inner, 0);
  EXPECT_GT(loops, 0);
  EXPECT_LE(all, passed.count());
}

TEST(While, ClearErrors) {
  LoopNet t;
  Variable x = t.net.Data("x", {2});
  EXPECT_EQ(ErrorOf([&] { While(t.net, x, [] {}); }).substr(0, 36),
            "while: condition must hold one bool,");
  LoopNet u;
  Variable condition = u.Less(u.Int(0), u.Int(1));
  EXPECT_NE(ErrorOf([&] { While(u.net, condition, [] {}); }).find("never writes its condition"),
            std::string::npos);
  LoopNet v;
  Variable array = CreateArray(v.net, DType::kFloat32), one = v.Int(1);
  Variable y = v.net.Data("y", {2});
  ArrayWrite(v.net, y, one, array);
  Variable read = ArrayRead(v.net, array, v.Int(0));
  Scope scope;
  EXPECT_EQ(
      ErrorOf([&] {
        Executor().Run(v.main, scope, {{"y", Tensor::Zeros(DType::kFloat32, {2})}}, {read.name()});
      }),
      "read_from_array: I is 0, but the array of 2 elements has no such element");
}

// The condition is checked when the program is verified, whoever wrote it.
TEST(While, ConditionOfAnotherType) {
  ProgramDesc program;
  program.AppendBlock(program.Root());
  program.Root().Var("c").SetShape({1});
  program.Root().AppendOp("while", {{"Condition", {"c"}}}, {}, {{"sub_block", BlockRef{1}}});
  Scope scope;
  EXPECT_NE(ErrorOf([&] { Executor().Prepare(program); }).find("while.C1"), std::string::npos);
}

TEST(Cond, RunsOneBranch) {
  LoopNet t;
  Variable p = t.net.Data("p", {1}, DType::kBool), x = t.net.Data("x", {2});
  Variable y = Cond(
      t.net, p, [&] { return std::vector{t.net.Scale(x, {.scale = 2.0f})}; },
      [&] { return std::vector{t.net.Scale(x, {.scale = 3.0f})}; })[0];
  Variable z = t.net.Scale(y, {.scale = 10.0f});
  for (bool taken : {true, false}) {
    auto out = t.Run({{"p", Tensor::Full<bool>({1}, taken)}, {"x", Tensor::Of<float>({2}, {1, 2})}},
                     {z.name()});
    EXPECT_EQ(ValuesOf(out[0]),
              taken ? (std::vector<float>{20, 40}) : (std::vector<float>{30, 60}));
  }
}

TEST(Cond, BranchesOfDifferentShapes) {
  LoopNet t;
  Variable p = t.net.Data("p", {1}, DType::kBool), x = t.net.Data("x", {1, 2});
  Variable y = Cond(
      t.net, p,
      [&] {
        return std::vector{t.net.Concat({x, x})};
      },
      [&] { return std::vector{t.net.Scale(x, {.scale = 3.0f})}; })[0];
  Variable z = t.net.ReduceSum(y, {.dim = {0}});
  for (bool taken : {true, false, true}) {
    auto out =
        t.Run({{"p", Tensor::Full<bool>({1}, taken)}, {"x", Tensor::Of<float>({1, 2}, {1, 2})}},
              {y.name(), z.name()});
    EXPECT_EQ(out[0].shape(), (Shape{taken ? 2 : 1, 2}));
    EXPECT_EQ(ValuesOf(out[1]), taken ? (std::vector<float>{2, 4}) : (std::vector<float>{3, 6}));
  }
}

TEST(Cond, WithoutAValue) {
  LoopNet t;
  Variable p = t.net.Data("p", {1}, DType::kBool), x = t.net.Data("x", {2});
  VarDesc& y = t.main.Root().Var("y");
  y.SetShape({2});
  If(t.net, p, [&] { Assign(t.net, x, t.net.Var("y")); });
  Variable z = t.net.Scale(t.net.Var("y"), {.scale = 10.0f});
  Scope scope;
  auto run = t.Prepare({"p", "x"}, {z.name()});
  const Tensor two = Tensor::Of<float>({2}, {1, 2});
  EXPECT_EQ(ValuesOf(run.Run(scope, {Tensor::Full<bool>({1}, true), two})[0]),
            (std::vector<float>{10, 20}));
  EXPECT_EQ(ErrorOf([&] {
              run.Run(scope, {Tensor::Full<bool>({1}, false), two});
            }),
            "scale: the var 'y' has no value: nothing before the op writes it, and no sub-block "
            "that ran did; feed it or make it persistable");
}

TEST(Switch, FirstThatHolds) {
  LoopNet t;
  Variable x = t.net.Data("x", {1});
  Variable y = FillConstant(t.net, {1}, DType::kFloat32, 0);
  auto set = [&](double value) {
    return [&t, &y, value] { Assign(t.net, FillConstant(t.net, {1}, DType::kFloat32, value), y); };
  };
  auto less = [&](double value) {
    return t.Less(x, FillConstant(t.net, {1}, DType::kFloat32, value));
  };
  Switch(t.net).Case(less(1), set(10)).Case(less(2), set(20)).Default(set(30));
  for (auto [value, expected] : {std::pair{0.5f, 10.0f}, {1.5f, 20.0f}, {2.5f, 30.0f}}) {
    EXPECT_EQ(t.Run({{"x", Tensor::Full<float>({1}, value)}}, {y.name()})[0].Item<float>(),
              expected);
  }
}

TEST(StaticRnn, SumsOverSteps) {
  for (bool reverse : {false, true}) {
    LoopNet t;
    Variable x = t.net.Data("x", {-1, 2}), h0 = t.net.Data("h0", {2});
    StaticRnn rnn(t.net, {.reverse = reverse});
    rnn.Step([&] {
      Variable step = rnn.StepInput(x), h = rnn.Memory(h0);
      Variable next = t.net.Add(t.net.Scale(h, {.scale = 10.0f}), step);
      rnn.UpdateMemory(h, next);
      rnn.StepOutput(next);
    });
    Variable y = rnn.Outputs()[0];
    EXPECT_EQ(y.shape(), (Shape{-1, 2}));
    auto out = t.Run({{"x", Tensor::Of<float>({3, 2}, {1, 4, 2, 5, 3, 6})},
                      {"h0", Tensor::Of<float>({2}, {7, 8})}},
                     {y.name()});
    EXPECT_EQ(ValuesOf(out[0]), reverse ? (std::vector<float>{7321, 8654, 732, 865, 73, 86})
                                        : (std::vector<float>{71, 84, 712, 845, 7123, 8456}));
  }
}

TEST(StaticRnn, MaskByLength) {
  LoopNet t;
  Variable x = t.net.Data("x", {-1, 2, 1}), h0 = t.net.Data("h0", {2, 1});
  Variable lengths = t.net.Data("lengths", {2}, DType::kInt64);
  StaticRnn rnn(t.net, {.lengths = lengths});
  rnn.Step([&] {
    Variable step = rnn.StepInput(x), h = rnn.Memory(h0);
    Variable next = t.net.Add(h, step);
    rnn.UpdateMemory(h, next);
    rnn.StepOutput(next);
  });
  auto out = t.Run({{"x", Tensor::Of<float>({3, 2, 1}, {1, 10, 2, 20, 3, 30})},
                    {"h0", Tensor::Of<float>({2, 1}, {0, 0})},
                    {"lengths", Tensor::Of<int64_t>({2}, {3, 1})}},
                   {rnn.Outputs()[0].name()});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{1, 10, 3, 0, 6, 0}));
}

// Sequences of lengths 2, 3, 1 as a LoD tensor, step by step, sorted by length.
TEST(Lod, RankTableAndArrays) {
  LoopNet t;
  Variable x = t.net.Data("x", {-1, 1});
  Variable copy = t.net.Scale(x, {.scale = 1.0f});  // the LoD passes through
  VarDesc& table = t.main.Root().Var("table");
  table.SetType(VarType::kLoDRankTable);
  t.net.Append("lod_rank_table", {{"X", {copy.name()}}}, {{"Out", {"table"}}}, {{"level", 0}});
  Variable longest = t.net.Make("max_sequence_len", {{"RankTable", {"table"}}});
  Variable steps = CreateArray(t.net, DType::kFloat32), sums = CreateArray(t.net, DType::kFloat32);
  t.net.Append("lod_tensor_to_array", {{"X", {x.name()}}, {"RankTable", {"table"}}},
               {{"Out", {steps.name()}}});
  Variable state = FillConstant(t.net, {3, 1}, DType::kFloat32, 0);
  t.For(longest, [&](Variable i) {
    Variable step = ArrayRead(t.net, steps, i);
    Variable live = t.net.Make(
        "shrink_rnn_memory", {{"X", {state.name()}}, {"RankTable", {"table"}}, {"I", {i.name()}}});
    Assign(t.net, t.net.Add(live, step), state);
    ArrayWrite(t.net, state, i, sums);
  });
  t.net.Append("array_to_lod_tensor", {{"X", {sums.name()}}, {"RankTable", {"table"}}},
               {{"Out", {"y"}}});
  Tensor fed = Tensor::Of<float>({6, 1}, {1, 2, 10, 20, 30, 100});
  fed.lod() = {{0, 2, 5, 6}};
  Scope scope;
  auto run = t.Prepare({"x"}, {"y", longest.name()});
  for (int again = 0; again < 2; ++again) {
    const auto& out = run.Run(scope, {fed});
    EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{1, 3, 10, 30, 60, 100}));
    EXPECT_EQ(out[0].lod(), fed.lod());
    EXPECT_EQ(out[1].Item<int64_t>(), 3);
  }
}

TEST(While, TwoThreadsWithOneCompiledProgram) {
  LoopNet t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {1, 2});
  Variable all = t.net.Scale(x, {.scale = 1.0f});
  Variable array = CreateArray(t.net, DType::kFloat32);
  t.For(n, [&](Variable i) {
    ArrayWrite(t.net, all, i, array);
    Assign(t.net, t.net.Concat({all, x}), all);
  });
  Variable sum = t.net.ReduceSum(all, {.dim = {0}});
  const PreparedProgram prepared = t.Prepare({"n", "x"}, {sum.name()});
  std::atomic<int> wrong{0};
  auto work = [&](int64_t first) {
    PreparedProgram mine = prepared;
    Scope scope;
    for (int64_t k = 0; k < 50; ++k) {
      const int64_t times = (first + k) % 7;
      const auto& out = mine.Run(scope, {OneInt(times), Tensor::Of<float>({1, 2}, {1, 2})});
      wrong += ValuesOf(out[0]) != std::vector<float>{1.0f * (times + 1), 2.0f * (times + 1)};
    }
  };
  std::thread other(work, 3);
  work(0);
  other.join();
  EXPECT_EQ(wrong, 0);
}
}  // namespace coracle::control_flow_test
