// `call` of functions with loops, branches and recurrent nets in them.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/passes/pass.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::function_blocks_test {

using Names = std::vector<std::string>;

class FunctionBlocks : public ::testing::Test {
 protected:
  struct Function {
    int block;
    std::string parameter, result;
  };
  using FunctionBody = std::function<Variable(Variable)>;

  // A block after all that there are, with one parameter, "p".
  Function Define(const Shape& shape, const FunctionBody& body) {
    BlockDesc& outer = net.block();
    BlockDesc& block = main.AppendBlock(main.Root());
    block.Var("p").SetShape(shape);
    net.SetBlock(block);
    const std::string result = body(net.Var("p")).name();
    net.SetBlock(outer);
    return {block.idx(), "p", result};
  }
  Variable Call(const Function& f, const Variable& x, const std::string& out) {
    BlockDesc& block = net.block();
    InferOp(block,
            block.AppendOp("call", {{"X", {x.name()}}}, {{"Out", {out}}},
                           {{"sub_block", BlockRef{f.block}},
                            {"parameters", Names{f.parameter}},
                            {"results", Names{f.result}}}),
            DefaultOps());
    return net.Var(out);
  }
  void Repeat(int64_t times, const std::function<void()>& body) {
    const Variable i = FillConstant(net, {1}, DType::kInt64, 0);
    const Variable n = FillConstant(net, {1}, DType::kInt64, static_cast<double>(times));
    const Variable more = net.Binary("less_than", i, n);
    While(net, more, [&] {
      body();
      Increment(net, i);
      Assign(net, net.Binary("less_than", i, n), more);
    });
  }
  Variable Copy(const Variable& x) { return net.Unary("assign", x); }
  Variable Mul(const Variable& a, const Variable& b) { return net.Mul(a, b); }

  std::vector<Tensor> Run(const std::map<std::string, Tensor>& feeds, const Names& fetches) {
    VerifyOrThrow(main, DefaultOps());
    Scope scope;
    return Executor().Run(main, scope, feeds, fetches);
  }
  // dy/dx, which must be what differences say, too.
  float Derivative(const Variable& y, const Variable& x, const Tensor& at) {
    const Variable loss = net.ReduceSum(y, {.dim = {0}, .keep_dim = true});
    CheckGradientOptions options;
    options.loss = loss.name();
    options.wrt = {x.name()};
    options.feeds = {{x.name(), at}};
    const CheckGradientReport report = CheckGradient(main, options);
    EXPECT_TRUE(report.passed()) << report.ToString();
    const Names gradients = Gradients({loss}, {x});
    return Run({{x.name(), at}}, gradients)[0].span<float>()[0];
  }
  static Tensor One(float value) { return Tensor::Of<float>({1}, {value}); }

  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x = net.Data("x", {1}, DType::kFloat32, {.stop_gradient = false});
};

// f(p) = p^3; y = f(f(x)) = x^9.
TEST_F(FunctionBlocks, ALoopThatIsCalledTwice) {
  const Function cube = Define({1}, [&](const Variable& p) {
    const Variable power = Copy(p);
    Repeat(2, [&] { Assign(net, Mul(power, p), power); });
    return power;
  });
  const Variable y = Call(cube, Call(cube, x, "once"), "y");
  EXPECT_EQ(Run({{"x", One(2)}}, {"once", "y"})[1].Item<float>(), 512);
  EXPECT_EQ(Derivative(y, x, One(2)), 9 * 256);
}

// f(p) = p < 2 ? p^2 : 3 p, three times: 1.5, 2.25, 6.75, 20.25.
TEST_F(FunctionBlocks, ABranchThatALoopCalls) {
  const FunctionBody branch = [&](const Variable& p) {
    const Variable two = FillConstant(net, {1}, DType::kFloat32, 2);
    return Cond(
        net, net.Binary("less_than", p, two), [&] { return std::vector<Variable>{Mul(p, p)}; },
        [&] { return std::vector<Variable>{net.Scale(p, {.scale = 3})}; })[0];
  };
  const Variable h = Copy(x);
  Repeat(3, [&] { Assign(net, Call(Define({1}, branch), h, "next"), h); });
  EXPECT_EQ(Run({{"x", One(1.5f)}}, {h.name()})[0].Item<float>(), 20.25f);
  EXPECT_EQ(Derivative(h, x, One(1.5f)), 3 * 3 * 3);
}

// In the sub-block of a recurrent net the name of a sequence means its step. With h' = h s + s over
// s = 2, 3 from h = 0: 2, 9; their sum 11; d/ds0 = 1 + 3.
TEST_F(FunctionBlocks, ARecurrentNetOverAParameter) {
  const Variable xs = net.Data("xs", {2, 1}, DType::kFloat32, {.stop_gradient = false});
  const Function f = Define({2, 1}, [&](const Variable& p) {
    const Variable zero = FillConstant(net, {1}, DType::kFloat32, 0);
    StaticRnn rnn(net);
    rnn.Step([&] {
      const Variable s = rnn.StepInput(p), h = rnn.Memory(zero);
      const Variable next = net.Add(Mul(h, s), s);
      rnn.UpdateMemory(h, next);
      rnn.StepOutput(next);
    });
    return rnn.Outputs()[0];
  });
  const Variable y = net.ReduceSum(Call(f, xs, "y"), {.dim = {1}});
  const Tensor at = Tensor::Of<float>({2, 1}, {2, 3});
  EXPECT_EQ(Run({{"x", One(0)}, {"xs", at}}, {"y"})[0].span<float>()[1], 9);
  EXPECT_EQ(Derivative(y, xs, at), 4);
}

// outer(p) runs twice: h = inner(h); inner(u) = u^2 three times over: x^(8^2).
TEST_F(FunctionBlocks, AFunctionWhoseLoopCallsAnother) {
  Function inner;
  const Function outer = Define({1}, [&](const Variable& p) {
    const Variable h = Copy(p);
    Repeat(2, [&] {
      inner = Define({1}, [&](const Variable& u) {
        const Variable square = Copy(u);
        Repeat(3, [&] { Assign(net, Mul(square, square), square); });
        return square;
      });
      Assign(net, Call(inner, h, "inner_out"), h);
    });
    return h;
  });
  const Variable y = Call(outer, x, "y");
  const double base = 1.03125;
  EXPECT_NEAR(Run({{"x", One(1.03125f)}}, {"y"})[0].Item<float>(), std::pow(base, 64), 1e-5);
  EXPECT_NEAR(Derivative(y, x, One(1.03125f)), 64 * std::pow(base, 63), 1e-3);
}

// A gradient that the function itself computes, of a function with a loop: f(p) = p^3, and
// g(p) = f'(p) = 3 p^2.
TEST_F(FunctionBlocks, AFunctionThatDifferentiatesAnother) {
  const Function g = Define({1}, [&](const Variable& p) {
    const Variable cube = Call(Define({1},
                                      [&](const Variable& u) {
                                        const Variable power = Copy(u);
                                        Repeat(2, [&] { Assign(net, Mul(power, u), power); });
                                        return power;
                                      }),
                               p, "cube");
    return Variable::Of(net.block(), Gradients({cube}, {p})[0]);
  });
  Call(g, x, "y");
  EXPECT_EQ(Run({{"x", One(5)}}, {"y"})[0].Item<float>(), 75);
}

// The gradient of the call is inside a loop, and reads what the branch in the function made.
TEST_F(FunctionBlocks, ABranchThatIsDifferentiatedInALoop) {
  const Function f = Define({1}, [&](const Variable& p) {
    const Variable h = Copy(p);
    const Variable yes = net.Binary("less_than", p, FillConstant(net, {1}, DType::kFloat32, 9));
    If(net, yes, [&] { Assign(net, Mul(net.Tanh(Mul(p, p)), p), h); });
    return h;
  });
  const Variable y = Call(f, x, "y"), result = FillConstant(net, {1}, DType::kFloat32, -1);
  Repeat(2, [&] {
    const std::string gradient = Gradients({Mul(y, y)}, {x})[0];
    Assign(net, net.Var(gradient), result);
  });
  const float t = std::tanh(0.25f);
  EXPECT_NEAR(Run({{"x", One(0.5f)}}, {result.name()})[0].Item<float>(),
              2 * t * 0.5f * (t + 0.5f * (1 - t * t)), 1e-6);
}

// f(p) = c ? p w : p, where the condition and the factor are not arguments.
TEST_F(FunctionBlocks, AFunctionThatReadsWhatIsAroundIt) {
  const Variable c = net.Data("c", {1}, DType::kBool), w = net.Data("w", {1});
  const Function f = Define({1}, [&](const Variable& p) {
    const Variable result = Copy(p);
    If(net, c, [&] { Assign(net, Mul(p, w), result); });
    return result;
  });
  const Variable loss = net.Mul(Call(f, x, "y"), x);
  Tensor yes = Tensor::Zeros(DType::kBool, {1});
  yes.data<bool>()[0] = true;
  CheckGradientOptions options;
  options.loss = loss.name();
  options.feeds = {{"x", One(3)}, {"c", yes}, {"w", One(5)}};
  options.wrt = {"x"};
  const CheckGradientReport report = CheckGradient(main, options);
  EXPECT_TRUE(report.passed()) << report.ToString();
  EXPECT_NEAR(report.loss, 3 * 5 * 3, 1e-9);
  EXPECT_NE(report.checks.at(0).by_gradient, 0);
}

// The copies of a loop draw differently, and the same with backward appended.
TEST_F(FunctionBlocks, RandomOps) {
  const Function f = Define({1}, [&](const Variable& p) {
    const Variable sum = Copy(p);
    Repeat(2, [&] {
      const Variable noise = net.Make(
          "uniform_random", {}, {{"shape", std::vector<int64_t>{1}}, {"dtype", 5}, {"min", 0.0f}});
      Assign(net, net.Add(sum, noise), sum);
    });
    return sum;
  });
  const Variable a = Call(f, x, "a"), b = Call(f, x, "b");
  const Variable loss = net.Mul(a, b);
  const auto run = [&] { return Run({{"x", One(0)}}, {"a", "b"}); };
  const std::vector<Tensor> before = run();
  EXPECT_NE(before[0].Item<float>(), before[1].Item<float>());
  Gradients({loss}, {x});
  const std::vector<Tensor> after = run();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(after[i].Item<float>(), before[i].Item<float>());
}

TEST_F(FunctionBlocks, BlocksThatAreNestedTooDeeply) {
  constexpr int kDepth = 140;
  for (int b = 1; b <= kDepth; ++b) main.AppendBlock(main.Root());
  for (int b = 1; b < kDepth; ++b) {
    main.Block(b).AppendOp("conditional_block", {{"Cond", {"c"}}}, {},
                           {{"sub_block", BlockRef{b + 1}}});
  }
  main.Root().AppendOp("call", {}, {}, {{"sub_block", BlockRef{1}}, {"results", Names{}}});
  try {
    InlineCalls(main);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "call: more than 128 sub-blocks are nested");
  }
}

TEST_F(FunctionBlocks, InlinedProgramsAreValid) {
  const Function f = Define({1}, [&](const Variable& p) {
    const Variable power = Copy(p);
    Repeat(2, [&] { Assign(net, Mul(power, p), power); });
    return power;
  });
  const Variable y = Call(f, x, "y");
  Gradients({y}, {x});
  ProgramDesc inlined = main;
  EXPECT_TRUE(InlineCalls(inlined));
  EXPECT_NO_THROW(VerifyOrThrow(inlined, DefaultOps()));
  bool gradient = false;
  for (int b = 1; b < inlined.NumBlocks(); ++b) {
    const bool is_gradient = inlined.Block(b).forward_block_idx() >= 0;
    EXPECT_TRUE(is_gradient || !gradient) << "block " << b;
    gradient |= is_gradient;
  }
  EXPECT_TRUE(gradient);
  EXPECT_FALSE(InlineCalls(inlined));
}

// The function's block comes before the blocks of the loops, one of which calls it from the
// body's body.
TEST_F(FunctionBlocks, AFunctionThatStandsBeforeItsCallers) {
  const Function f = Define({1}, [&](const Variable& p) {
    const Variable power = Copy(p);
    Repeat(2, [&] { Assign(net, Mul(power, p), power); });
    return power;
  });
  const Variable h = Copy(x);
  Repeat(1, [&] { Repeat(2, [&] { Assign(net, Call(f, h, "cube"), h); }); });
  EXPECT_EQ(Run({{"x", One(2)}}, {h.name()})[0].Item<float>(), 512);
  EXPECT_EQ(Derivative(h, x, One(2)), 9 * 256);
}

TEST_F(FunctionBlocks, FunctionsThatCallEachOther) {
  const FunctionBody copy = [&](const Variable& p) { return Copy(p); };
  const Function f = Define({1}, copy), g = Define({1}, copy);
  for (const auto& [from, to] : {std::pair{f, g}, {g, f}}) {
    main.Block(from.block)
        .AppendOp("call", {{"X", {"p"}}}, {{"Out", {from.result}}},
                  {{"sub_block", BlockRef{to.block}},
                   {"parameters", Names{"p"}},
                   {"results", Names{to.result}}});
  }
  Call(f, x, "y");
  const std::vector<VerifyProblem> problems = Verify(main, DefaultOps());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].message, "the function of block 1 calls itself, over block 2");
  EXPECT_THROW(InlineCalls(main), Error);
}

// A variable that a branch or a loop overwrites is not a constant of its second derivative.
TEST_F(FunctionBlocks, SecondDerivativesThroughABlockThatOverwritesWhatItReads) {
  const Variable yes = net.Binary("less_than", FillConstant(net, {1}, DType::kInt64, 0),
                                  FillConstant(net, {1}, DType::kInt64, 1));
  for (bool loop : {false, true}) {
    const Variable h = Copy(x);
    const auto cube = [&] { Assign(net, Mul(Mul(h, h), h), h); };
    loop ? Repeat(1, cube) : If(net, yes, cube);
    const Variable first = net.Var(Gradients({h}, {x})[0]);
    const Variable penalty = net.ReduceSum(Mul(first, first), {.dim = {0}, .keep_dim = true});
    const ProgramDesc before = main;
    const std::string runner = loop ? "while" : "conditional_block";
    for (const auto& differentiate : std::vector<std::function<void()>>{
             [&] { Gradients({first}, {x}); }, [&] { Gradients({penalty}, {x}); },
             [&] { AppendBackward(penalty); }, [&] { Hessian(h, {x}); },
             [&] { HessianVectorProduct(h, {x}, {x}); }}) {
      try {
        differentiate();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kUnimplemented);
        EXPECT_NE(error.message().find(runner + "_grad has no gradient"), std::string::npos)
            << error.message();
      }
      EXPECT_TRUE(main == before);
    }
  }
}
}  // namespace coracle::function_blocks_test
