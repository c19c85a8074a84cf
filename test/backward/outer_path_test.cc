// Targets inside a sub-block: gradients whose path leaves it, and the traps around them.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/backward/message_of.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::outer_path_test {

class OuterPathTest : public ::testing::Test {
 protected:
  OuterPathTest() {
    x = net.Parameter("x", {1}, DType::kFloat64, {.name = "x"});
    scope.Set("x", Tensor::Full<double>({1}, 2));
    result = Number(-1);
    yes = net.Binary("less_than", Int(0), Int(1));
  }

  Variable Int(int64_t value) { return FillConstant(net, {1}, DType::kInt64, value); }
  Variable Number(double value) { return FillConstant(net, {1}, DType::kFloat64, value); }
  // The value of the variable `result` after a run.
  double Run() {
    for (const VerifyProblem& p : Verify(main, DefaultOps())) ADD_FAILURE() << p.ToString();
    return Executor().Run(main, scope, {}, {result.name()})[0].Item<double>();
  }
  // Appends d(target)/d(input) to the block where the builder is, and puts it into `result`.
  void Differentiate(const Variable& target, const Variable& input,
                     const BackwardOptions& options = {}) {
    const std::string gradient =
        Gradients({Variable::Of(net.block(), target.name())}, {input}, options)[0];
    ASSERT_NE(gradient, "");
    Assign(net, net.Var(gradient), result);
  }

  // Three rounds.
  void Loop(const std::function<void()>& body) {
    const Variable i = Int(0), n = Int(3), more = net.Binary("less_than", i, n);
    While(net, more, [&] {
      body();
      Increment(net, i);
      Assign(net, net.Binary("less_than", i, n), more);
    });
  }
  // The first thing wrong with the program, "" where nothing is.
  std::string Problem() const {
    const auto problems = Verify(main, DefaultOps());
    return problems.empty() ? "" : problems[0].ToString();
  }
  // That the verifier says what a gradient leaves out, of the loop at the end, which is removed.
  void ExpectMissed(const Variable& var) {
    const std::string problem = Problem();
    EXPECT_NE(problem.find("a gradient that was taken inside leaves out the path through '" +
                           var.name() + "'"),
              std::string::npos)
        << problem;
    main.Root().RemoveOp(main.Root().NumOps() - 1);
    EXPECT_EQ(Problem(), "");
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
  Scope scope;
  Variable x, result, yes;
};

TEST_F(OuterPathTest, ThroughWhatIsComputedOutside) {
  const Variable y = net.Mul(x, x);
  If(net, yes, [&] { Differentiate(net.Add(y, x), x); });
  EXPECT_EQ(Run(), 5);
}

TEST_F(OuterPathTest, OnlyThroughWhatIsComputedOutside) {
  const Variable y = net.Mul(x, x);
  If(net, yes, [&] { Differentiate(net.Scale(y, {.scale = 3.0f}), x); });
  EXPECT_EQ(Run(), 12);
}

// An op that only joins others has no gradient; those others have one.
TEST_F(OuterPathTest, ThroughAnOuterOpThatIsReplaced) {
  const auto gradient = [](const std::function<Variable(Builder&, const Variable&)>& norm) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    const Variable x = net.Data("x", {2, 4});
    x.desc().SetStopGradient(false);
    const Variable out = FillConstant(net, {2, 4}, DType::kFloat32, 0);
    const Variable yes = net.Binary("less_than", FillConstant(net, {1}, DType::kInt64, 0),
                                    FillConstant(net, {1}, DType::kInt64, 1));
    const Variable n = norm(net, x);
    If(net, yes, [&] {
      const Variable cube = net.Mul(net.Mul(n, n), n);
      Assign(net, net.Var(Gradients({Variable::Of(net.block(), cube.name())}, {x})[0]), out);
    });
    for (const VerifyProblem& p : Verify(main, DefaultOps())) ADD_FAILURE() << p.ToString();
    Scope scope;
    const Tensor value =
        Tensor::Of<float>({2, 4}, std::vector<float>{1, -2, 0.5f, 3, 0.25f, 4, -1, 2});
    return Executor().Run(main, scope, {{"x", value}}, {out.name()})[0];
  };
  const AttrList attrs = {{"epsilon", 0.125f}, {"begin_norm_axis", int32_t{1}}};
  const Tensor joined = gradient([&](Builder& net, const Variable& x) {
    return net.Make("skip_layernorm", {{"X", {x.name()}}, {"Y", {x.name()}}}, attrs);
  });
  const Tensor apart = gradient([&](Builder& net, const Variable& x) {
    const Writer w(net.block(), DefaultOps(), {});
    return w.Make("layer_norm", {{"X", {net.Add(x, x).name()}}}, attrs, "Y");
  });
  EXPECT_TRUE(BitEqual(joined, apart)) << joined.ToString();
  EXPECT_NE(apart.data<float>()[0], 0);
}

TEST_F(OuterPathTest, AFinishedBlock) {
  const Variable y = net.Mul(x, x);
  Variable z;
  BlockDesc* inner = nullptr;
  If(net, yes, [&] {
    z = net.Mul(net.Add(y, x), x);
    inner = &net.block();
  });
  BlockDesc& around = net.block();
  net.SetBlock(*inner);
  const std::string gradient = Gradients({z}, {x})[0];
  net.SetBlock(around);
  OpDesc& branch = *main.Root().SubBlockOps().back();
  inner->AppendOp("assign", {{"X", {gradient}}}, {{"Out", {result.name()}}});
  branch.SetOutput("Out", {result.name()});
  EXPECT_EQ(Run(), 16) << "d(x^3 + x^2) / dx";
}

TEST_F(OuterPathTest, AppendBackwardToo) {
  const Variable y = net.Mul(x, x);
  If(net, yes, [&] {
    const Variable z = net.Add(y, x);
    const auto pairs = AppendBackward(z);
    ASSERT_EQ(pairs.size(), 1u);
    EXPECT_EQ(pairs[0].param, "x");
    Assign(net, net.Var(pairs[0].grad), result);
  });
  EXPECT_EQ(Run(), 5);
}

TEST_F(OuterPathTest, TwoBlocksOut) {
  const Variable y = net.Mul(x, x);
  If(net, yes, [&] {
    const Variable u = net.Mul(y, x);
    If(net, yes, [&] { Differentiate(net.Add(net.Mul(u, y), x), x); });
  });
  EXPECT_EQ(Run(), 81) << "d(x^5 + x) / dx";
}

// The block makes selected rows, which the ops around it do not accept.
TEST_F(OuterPathTest, ASparseGradientPassesOutside) {
  const Variable w = net.Parameter("w", {2, 1}, DType::kFloat64, {.name = "w"});
  scope.Set("w", Tensor::Of<double>({2, 1}, {2, 3}));
  const Variable table = net.Mul(w, w), sum = net.Scale(w, {.scale = 0.0f});
  If(net, yes, [&] {
    net.Append("lookup_table_v2", {{"W", {table.name()}}, {"Ids", {Int(1).name()}}},
               {{"Out", {net.block().Var("row").name()}}}, {{"is_sparse", true}});
    Assign(net, net.Var(Gradients({net.Var("row")}, {w})[0]), sum);
  });
  EXPECT_TRUE(Verify(main, DefaultOps()).empty());
  const Tensor gradient = Executor().Run(main, scope, {}, {sum.name()})[0];
  EXPECT_EQ(gradient.data<double>()[0], 0);
  EXPECT_EQ(gradient.data<double>()[1], 6);
}

TEST_F(OuterPathTest, ValuesThatAreOverwrittenAreSaved) {
  const Variable y = net.Tanh(x), c = net.Scale(x, {.scale = 1.0f});
  const Variable u = net.Mul(y, c);
  If(net, yes, [&] {
    const Variable z = net.Mul(u, u);
    for (const Variable& var : {y, c, u}) Assign(net, Number(7), var);
    Differentiate(z, x);
  });
  const double t = std::tanh(2.0);
  EXPECT_NEAR(Run(), 2 * (2 * t) * (t + 2 * (1 - t * t)), 1e-12);
}

TEST_F(OuterPathTest, AnInputThatIsItselfComputedOutside) {
  const Variable y = net.Mul(x, x), u = net.Mul(y, y);
  If(net, yes, [&] { Differentiate(net.Add(u, y), y); });
  EXPECT_EQ(Run(), 9) << "d(y^2 + y) / dy at 4";
}

TEST_F(OuterPathTest, ThroughACallOutside) {
  BlockDesc& root = net.block();
  BlockDesc& function = main.AppendBlock(root);
  function.Var("p").SetMeta(x.desc().meta());
  net.SetBlock(function);
  const Variable p = net.Var("p"), square = net.Mul(p, p);
  net.SetBlock(root);
  InferOp(root,
          root.AppendOp("call", {{"X", {"x"}}}, {{"Out", {"y"}}},
                        {{"sub_block", BlockRef{function.idx()}},
                         {"parameters", std::vector<std::string>{"p"}},
                         {"results", std::vector<std::string>{square.name()}}}),
          DefaultOps());
  If(net, yes, [&] { Differentiate(net.Add(net.Var("y"), x), x); });
  EXPECT_EQ(Run(), 5);
}

TEST_F(OuterPathTest, AStoppedPathIsNone) {
  const Variable y = net.Mul(x, x);
  If(net, yes, [&] { Differentiate(net.Add(y, x), x, {.stop_gradients = {y.name()}}); });
  EXPECT_EQ(Run(), 1);
}

TEST_F(OuterPathTest, EachRoundOfALoopPassesOutside) {
  const Variable y = net.Mul(x, x), sum = Number(0);
  Loop([&] {
    const std::string gradient = Gradients({net.Add(y, x)}, {x})[0];
    Assign(net, net.Add(sum, net.Var(gradient)), sum);
  });
  Assign(net, sum, result);
  EXPECT_EQ(Run(), 15);
}

// One round knows nothing of those before it.
TEST_F(OuterPathTest, ThroughFormerRoundsOfALoopIsRefused) {
  const Variable h = net.Mul(x, x);
  Variable z;
  Loop([&] {
    z = net.Mul(h, x);
    Assign(net, z, h);
  });
  const ProgramDesc before = main;
  const std::string message = MessageOf([&] { Gradients({z}, {x}); });
  EXPECT_EQ(message.find("gradients: the gradient of 'x' would pass through '" + h.name() +
                         "', which other runs of this while's block, or the while itself, compute"),
            0u)
      << message;
  EXPECT_TRUE(main == before);
  BackwardOptions one_round;
  one_round.stop_gradients = {h.name()};
  EXPECT_NE(Gradients({z}, {x}, one_round)[0], "");
}

// The loop is not there yet when the gradient is taken.
TEST_F(OuterPathTest, ALoopThatOverwritesWhatThePathLeavesThroughIsRefused) {
  const Variable h = net.Mul(x, x);
  Loop([&] {
    const Variable z = net.Mul(h, x);
    Gradients({z}, {x});
    Assign(net, z, h);
  });
  ExpectMissed(h);
}

// The gradient is taken before the body overwrites what the target reads.
TEST_F(OuterPathTest, ALoopThatMakesWhatTheTargetReadsIsRefused) {
  const Variable y = net.Parameter("y", {1}, DType::kFloat64, {.name = "y"});
  scope.Set("y", Tensor::Full<double>({1}, 3));
  using Change = std::function<void(const Variable& state, const Variable& other)>;
  const auto loop = [&](const Change& change, bool one_round = false) {
    const Variable state = net.Scale(y, {.scale = 1.0f}), other = net.Scale(y, {.scale = 1.0f});
    Loop([&] {
      BackwardOptions options;
      if (one_round) options.stop_gradients = {state.name()};
      Differentiate(net.Mul(state, x), x, options);
      change(state, other);
    });
    return state;
  };
  loop([&](const Variable& state, const Variable&) { Assign(net, net.Mul(state, y), state); });
  EXPECT_EQ(Run(), 27);
  const Change from_x = [&](const Variable& state, const Variable&) {
    Assign(net, net.Mul(state, x), state);
  };
  loop(from_x, true);
  EXPECT_EQ(Run(), 12);
  ExpectMissed(loop(from_x));
  // Made of x after two rounds, and perhaps overwritten.
  ExpectMissed(loop([&](const Variable& state, const Variable& other) {
    Assign(net, other, state);
    Assign(net, net.Mul(x, x), other);
  }));
  ExpectMissed(loop([&](const Variable& state, const Variable&) {
    Assign(net, net.Mul(x, x), state);
    If(net, yes, [&] { Assign(net, y, state); });
  }));
  // Made of what is computed around the loop.
  const Variable t = net.Scale(x, {.scale = 2.0f});
  ExpectMissed(
      loop([&](const Variable& state, const Variable&) { Assign(net, net.Add(state, t), state); }));
}

TEST_F(OuterPathTest, ABranchInALoopThatMakesWhatTheTargetReadsIsRefused) {
  const Variable state = Number(1), carried = Number(1);
  Variable y, z;
  Loop([&] {
    const Variable doubled = net.Scale(carried, {.scale = 2.0f});
    If(net, yes, [&] { y = net.Mul(state, x); });
    If(net, yes, [&] { z = net.Mul(doubled, x); });
    Assign(net, net.Scale(x, {.scale = 2.0f}), state);
    Assign(net, net.Mul(x, x), carried);
  });
  for (const Variable& target : {y, z}) {
    const std::string message = MessageOf([&] { Gradients({target}, {x}); });
    EXPECT_NE(message.find("which other runs of this while"), std::string::npos) << message;
  }
}

// The same, where the gradient is there before the loop.
TEST_F(OuterPathTest, AGradientInABranchOfALoopIsLookedAtToo) {
  const Variable state = Number(1), carried = Number(1);
  Loop([&] {
    If(net, yes, [&] { Differentiate(net.Mul(state, x), x); });
    Assign(net, net.Scale(x, {.scale = 2.0f}), state);
  });
  ExpectMissed(state);
  Loop([&] {
    const Variable doubled = net.Scale(carried, {.scale = 2.0f});
    If(net, yes, [&] { Differentiate(net.Mul(doubled, x), x); });
    Assign(net, net.Mul(x, x), carried);
  });
  ExpectMissed(carried);
}

TEST_F(OuterPathTest, WhatIsMadeInTwoRoundsIsRefusedAtOnce) {
  const Variable state = Number(1), next = Number(1);
  Variable y;
  Loop([&] {
    y = net.Mul(state, x);
    Assign(net, next, state);
    Assign(net, net.Scale(x, {.scale = 2.0f}), next);
  });
  const std::string message = MessageOf([&] { Gradients({y}, {x}); });
  EXPECT_NE(message.find("'" + state.name() + "'"), std::string::npos) << message;
}

// Each gradient is looked at by itself: one is by y, which the loop leaves alone.
TEST_F(OuterPathTest, TwoGradientsInOneLoop) {
  const Variable y = net.Parameter("y", {1}, DType::kFloat64, {.name = "y"});
  scope.Set("y", Tensor::Full<double>({1}, 3));
  const Variable state = net.Scale(x, {.scale = 1.0f});
  Loop([&] {
    Differentiate(net.Mul(state, y), y);
    Gradients({net.Mul(y, x)}, {x});
    Assign(net, net.Mul(state, x), state);
  });
  EXPECT_EQ(Run(), 8) << "the state before the third round";
}

// The value that the op gives to the block of a function, or to a step of a sequence, may depend on
// the input.
TEST_F(OuterPathTest, ArgumentsThatAreMadeOfTheInputAreRefused) {
  BlockDesc& root = net.block();
  const Variable one = Number(1), twice = net.Scale(x, {.scale = 2.0f});
  for (const bool inside : {false, true}) {
    BlockDesc& function = main.AppendBlock(root);
    const std::string name = "p" + std::to_string(function.idx());
    function.Var(name).SetMeta(x.desc().meta());
    net.SetBlock(function);
    const Variable y = net.Mul(net.Var(name), x);
    net.SetBlock(root);
    const auto call = [&](const Variable& argument) {
      BlockDesc& caller = net.block();
      const std::string out = net.Mul(one, one).name();
      InferOp(caller,
              caller.AppendOp("call", {{"X", {argument.name()}}}, {{"Out", {out}}},
                              {{"sub_block", BlockRef{function.idx()}},
                               {"parameters", std::vector<std::string>{name}},
                               {"results", std::vector<std::string>{y.name()}}}),
              DefaultOps());
    };
    const auto gradient = [&] { return Gradients({Variable::Of(function, y.name())}, {x})[0]; };
    if (inside) {
      If(net, yes, [&] { call(net.Scale(x, {.scale = 3.0f})); });
      EXPECT_NE(MessageOf(gradient).find("'" + name + "'"), std::string::npos);
      continue;
    }
    call(one);
    EXPECT_NE(gradient(), "") << "a constant argument";
    EXPECT_EQ(Problem(), "");
    call(twice);
    EXPECT_NE(Problem().find("'" + name + "'"), std::string::npos) << Problem();
  }
}

TEST_F(OuterPathTest, MemoriesAndStepsAreLookedAt) {
  const Variable sequence = net.Data("sequence", {4, 1}, DType::kFloat64);
  const Variable of_x = net.Mul(sequence, x), zero = Number(0);
  const auto rnn = [&](const Variable& steps, bool remembers) {
    StaticRnn net_of_steps(net);
    net_of_steps.Step([&] {
      const Variable step = net_of_steps.StepInput(steps);
      const Variable before = net_of_steps.Memory(zero);
      const Variable y = net.Mul(remembers ? before : step, x);
      Gradients({y}, {x});
      net_of_steps.UpdateMemory(before, net.Add(y, step));
      net_of_steps.StepOutput(y);
    });
  };
  rnn(sequence, false);
  EXPECT_EQ(Problem(), "");
  const size_t good = main.Root().NumOps();
  rnn(of_x, false);
  EXPECT_NE(Problem().find("'" + of_x.name() + "'"), std::string::npos) << Problem();
  main.Root().TruncateOps(good);
  rnn(sequence, true);
  EXPECT_NE(Problem().find("leaves out the path through"), std::string::npos) << Problem();
}

// A file may mark a temporary of the enclosing block as passing gradients: it is not a feed.
TEST_F(OuterPathTest, TemporariesAroundTheBlockAreNoFeeds) {
  const Variable state = net.Mul(x, x);
  net.block().FindVar(state.name())->SetStopGradient(false);
  Loop([&] {
    const Variable z = net.Mul(state, x);
    AppendBackward(z);
    Assign(net, z, state);
  });
  ExpectMissed(state);
}

// A step of a gradient descent: x is the round's own.
TEST_F(OuterPathTest, DescentInALoop) {
  const Variable p = net.Scale(x, {.scale = 1.0f}), i = Int(0), n = Int(2);
  const Variable more = net.Binary("less_than", i, n);
  While(net, more, [&] {
    const std::string gradient = Gradients({net.Mul(p, p)}, {p})[0];
    Assign(net, net.Sub(p, net.Scale(net.Var(gradient), {.scale = 0.25f})), p);
    Increment(net, i);
    Assign(net, net.Binary("less_than", i, n), more);
  });
  Assign(net, p, result);
  EXPECT_EQ(Run(), 0.5);
}

TEST_F(OuterPathTest, ATargetThatTheBlockOverwritesMeansWhatTheBlockMakes) {
  const Variable h = net.Mul(x, x);
  If(net, yes, [&] {
    Assign(net, net.Mul(h, x), h);
    Differentiate(h, x);
  });
  EXPECT_EQ(Run(), 12) << "d(x^3) / dx, not d(x^2) / dx";
}

TEST_F(OuterPathTest, NoGradSetNamesAVariableOfASubBlock) {
  Variable inside;
  const Variable h = net.Scale(x, {.scale = 1.0f});
  If(net, yes, [&] {
    inside = net.Mul(h, h);
    Assign(net, net.Add(inside, h), h);
  });
  BackwardOptions options;
  options.no_grad_set = {inside.name()};
  const std::string gradient = Gradients({h}, {x}, options)[0];
  Assign(net, net.Var(gradient), result);
  EXPECT_EQ(Run(), 1);
}

TEST_F(OuterPathTest, MessagesOfGradientsSaySo) {
  const std::string message =
      MessageOf([&] { Gradients({net.Mul(x, x)}, {x}, {.no_grad_set = {"nobody"}}); });
  EXPECT_EQ(message.find("gradients: no_grad_set names the var 'nobody'"), 0u) << message;
}

TEST_F(OuterPathTest, AnInputWithStopGradientIsToldOf) {
  std::vector<std::string> warnings;
  SetLogSink([&](MessageLevel, const std::string& text) { warnings.push_back(text); });
  const Variable data = net.Data("data", {1}, DType::kFloat64);
  EXPECT_EQ(Gradients({net.Mul(data, x)}, {data}), std::vector<std::string>{""});
  SetLogSink(nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'data' has stop_gradient set"), std::string::npos) << warnings[0];
}
}  // namespace coracle::outer_path_test
