// The rows T and D of the specification of tf.gradients, each by its name.
//
// Not here: T38 and T39 (sparse_test.cc); rows of control flow and functions (function_test.cc and
// the tests of the ops); T49 and the rows about eager mode: a program has one device, and it is
// always a graph.

#include <coracle/backward/backward.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

namespace coracle::tf_gradients_test {

using Names = std::vector<std::string>;

void RegisterRowOps(OpRegistry& ops) {
  RegisterTestOps(ops);
  // Out = X; its gradient must not be asked for.
  ops.Add(OpDef("t_poison")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .Gradient([](GradientContext&) { throw std::runtime_error("poison"); }));
  // A = X; N = numbers that say nothing of X.
  ops.Add(OpDef("t_mixed")
              .Doc("test")
              .Input("X", "x")
              .Output("A", "a float")
              .Output("N", "integers")
              .Infer([](InferContext& c) {
                c.SetOutput("A", c.Input("X"));
                c.SetOutput("N", DType::kInt64, c.InputShape("X"));
              })
              .Gradient([](GradientContext& g) {
                EXPECT_TRUE(g.HasOutputGrad("A"));
                EXPECT_FALSE(g.HasOutputGrad("N")) << "integers carry no gradient";
                g.Append("assign", {{"X", {g.OutputGrad("A")}}}, {{"Out", {g.InputGrad("X")}}});
              }));
  // Y = X; the gradient op has one gradient too many.
  ops.Add(OpDef("t_count")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .Gradient([](GradientContext& g) {
                g.Append("t_count_grad", {{"Out@GRAD", {g.OutputGrad("Out")}}},
                         {{"X@GRAD", {g.InputGrad("X"), g.Temp("extra")}}});
              }));
  ops.Add(OpDef("t_count_grad")
              .Doc("test")
              .Input("Out@GRAD", "dout")
              .VariadicOutput("X@GRAD", "dx")
              .NoGradient("test"));
  ops.Add(OpDef("t_stop")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .NotDifferentiable("a test of it"));
  ops.Add(OpDef("t_prevent")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .Attr<std::string>("message", "", "why")
              .Infer([](InferContext& c) { c.SetOutput("Out", c.Input("X")); })
              .ForbidGradient("a test of it"));
  ops.Add(OpDef("t_cast")
              .Doc("test")
              .Input("X", "x")
              .Output("Out", "out")
              .Attr<int32_t>("to", "dtype")
              .Infer([](InferContext& c) {
                c.SetOutput("Out", static_cast<DType>(c.Attr<int32_t>("to")), c.InputShape("X"));
              })
              .Gradient([](GradientContext& g) {
                g.Append("assign", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}});
              }));
}

const OpRegistry& RowOps() {
  static const OpRegistry* const ops = [] {
    auto* made = new OpRegistry();
    RegisterRowOps(*made);
    return made;
  }();
  return *ops;
}

class TfGradients : public ::testing::Test {
 protected:
  TfGradients() : test({1}) { options.ops = &RowOps(); }

  // A leaf with the value 1.
  Variable Leaf(const std::string& name) {
    test.Param(name);
    return test.Var(name);
  }
  Variable Op(const std::string& type, const Names& in, const std::string& out,
              AttrList attrs = {}) {
    SlotList inputs = {{"X", {in[0]}}};
    if (in.size() > 1) inputs.push_back({"Y", {in[1]}});
    InferOp(test.root(),
            test.root().AppendOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs)),
            RowOps());
    return test.Var(out);
  }
  Variable Times(double k, const std::string& in, const std::string& out) {
    const std::string constant = out + "_k";
    InferOp(test.root(),
            test.root().AppendOp("fill_constant", {}, {{"Out", {constant}}},
                                 {{"shape", std::vector<int64_t>{1}},
                                  {"value", static_cast<float>(k)},
                                  {"dtype", static_cast<int32_t>(DType::kFloat64)}}),
            RowOps());
    return Op("t_mul", {in, constant}, out);
  }
  Names Grad(const std::vector<Variable>& ys, const std::vector<Variable>& xs) {
    return Gradients(ys, xs, options);
  }
  // The first element of each gradient, of which all are equal; null for "".
  std::vector<std::optional<double>> Run(const Names& grads, VarValues env = {}) {
    const BlockDesc& root = test.root();
    for (size_t i = 0; i < root.NumVars(); ++i) {
      if (root.var(i).is_parameter() && !env.count(root.var(i).name()))
        env[root.var(i).name()] = Tensor::Full<double>(root.var(i).shape(), 1.0);
    }
    Interpret(root, RowOps(), env);
    std::vector<std::optional<double>> result;
    for (const std::string& grad : grads) {
      if (grad.empty())
        result.emplace_back();
      else
        result.emplace_back(Values(env, grad).at(0));
    }
    return result;
  }
  using Expected = std::vector<std::optional<double>>;
  template <class F>
  static void ExpectError(ErrorCode code, const Names& texts, F f) {
    try {
      f();
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& text : texts)
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
            << e.what() << "\nlacks: " << text;
    }
  }

  TestProgram test;
  GradientsOptions options;
};

TEST_F(TfGradients, T1_OneOpForOneOperandOfAProduct) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (auto [name, shape] : {std::pair{"in", Shape{32, 100}}, {"w", {100, 10}}, {"b", {10}}})
    root.Var(name).SetShape(shape);
  auto op = [&](const char* type, const char* x, const char* y, const char* out) {
    InferOp(root, root.AppendOp(type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}), DefaultOps());
  };
  op("matmul", "in", "w", "xw");
  op("elementwise_add", "xw", "b", "h");
  const auto grads = Gradients({Variable::Of(root, "h")}, {Variable::Of(root, "w")});
  int products = 0;
  for (size_t i = 2; i < root.NumOps(); ++i) {
    if (root.op(i).type() != "matmul_grad") continue;
    ++products;
    EXPECT_EQ(FindForwardOp(root.op(i)), &root.op(0));
    EXPECT_FALSE(root.op(i).HasOutput("X@GRAD")) << "in's gradient is not wanted";
    EXPECT_EQ(root.op(i).Output("Y@GRAD"), Names{grads[0]});
  }
  EXPECT_EQ(products, 1);
  VarValues env;
  env["in"] = Tensor::Full<float>({32, 100}, 1.f);
  env["w"] = Tensor::Full<float>({100, 10}, 1.f);
  env["b"] = Tensor::Full<float>({10}, 1.f);
  Interpret(root, DefaultOps(), env);
  EXPECT_EQ(Values(env, grads[0]), std::vector<double>(1000, 32.0));
}

TEST_F(TfGradients, T3_AnInputsOwnProducerIsNotDifferentiated) {
  Leaf("c");
  Variable x = Op("t_poison", {"c"}, "x");
  Op("t_shift", {"x"}, "y");
  const Names grads = Grad({Op("t_shift", {"y"}, "z")}, {x});
  ASSERT_EQ(grads.size(), 1u);
  EXPECT_EQ(grads[0], "x@GRAD");  // the rule was not called, or it had thrown
}

TEST_F(TfGradients, T4_InputThatFeedsAnInput) {
  Variable x = Leaf("x"), y = Times(2, "x", "y"), z = Times(3, "y", "z");
  EXPECT_EQ(Run(Grad({z}, {x, y})), (Expected{6, 3}));
}

TEST_F(TfGradients, T5_T6_T7_Aggregation) {
  for (Aggregation aggregation : {Aggregation::kSum, Aggregation::kRunning}) {
    TestProgram fresh({1});
    std::swap(test.program, fresh.program);
    options.aggregation = aggregation;
    Variable x = Leaf("x"), y = Times(2, "x", "y"), z = y;
    for (int i = 0; i < 9; ++i) z = Op("t_add", {z.name(), "y"}, "z" + std::to_string(i));
    const size_t forward = test.root().NumOps();
    const Names grads = Grad({z}, {x, y});
    EXPECT_EQ(Run(grads), (Expected{20, 10}));
    size_t widest = 0, sums = 0;
    for (size_t i = forward; i < test.root().NumOps(); ++i) {
      if (test.root().op(i).type() != "sum") continue;
      ++sums;
      widest = std::max(widest, test.root().op(i).Input("X").size());
    }
    EXPECT_EQ(widest, aggregation == Aggregation::kSum ? 10u : 2u);
    EXPECT_EQ(sums, aggregation == Aggregation::kSum ? 1u : 9u);
    VerifyOrThrow(test.program, RowOps());
  }
}

TEST_F(TfGradients, T8_OutputsThatCarryNoGradient) {
  Variable c = Leaf("c");
  InferOp(test.root(),
          test.root().AppendOp("t_mixed", {{"X", {"c"}}}, {{"A", {"a"}}, {"N", {"n"}}}), RowOps());
  Variable z = Times(2, "a", "z"), w = Times(3, "z", "w");
  EXPECT_NE(Grad({z}, {c})[0], "");
  EXPECT_NE(Grad({w}, {c})[0], "");
}

TEST_F(TfGradients, T11_ReadOfAVariable) {
  Variable v = Leaf("v");
  EXPECT_NE(Grad({Op("assign", {"v"}, "read")}, {v})[0], "");
  EXPECT_NE(Grad({v}, {v})[0], "");
}

TEST_F(TfGradients, T12_ZerosHaveTheVariablesDType) {
  options.unconnected = Unconnected::kZero;
  for (DType dtype : {DType::kFloat32, DType::kFloat64}) {
    TestProgram fresh({2, 3}, dtype);
    fresh.Param("v");
    fresh.Param("other");
    fresh.Op("t_square", {"other"}, "y");
    const Names grads = Gradients({fresh.Var("y")}, {fresh.Var("v")}, options);
    EXPECT_EQ(fresh.root().FindVar(grads.at(0))->dtype(), dtype);
    VarValues env = fresh.Run(fresh.Inputs());
    EXPECT_EQ(std::get<Tensor>(env.at(grads[0])).dtype(), dtype);
    EXPECT_EQ(Values(env, grads[0]), std::vector<double>(6, 0.0));
  }
}

TEST_F(TfGradients, T16_PartialDerivatives) {
  Variable x = Leaf("x"), y = Times(2, "x", "y"), z = Op("t_add", {"x", "y"}, "z");
  EXPECT_EQ(Run(Grad({z}, {x, y})), (Expected{3, 1}));
}

TEST_F(TfGradients, T17_StopGradients) {
  Variable x = Leaf("x"), y = Times(2, "x", "y"), z = Op("t_add", {"x", "y"}, "z");
  options.stop_gradients = {"x", "y"};
  EXPECT_EQ(Run(Grad({z}, {x, y})), (Expected{1, 1}));
}

TEST_F(TfGradients, T18s_StopGradientsInAGraph) {
  Variable a = Leaf("a"), b = Times(2, "a", "b");
  Times(3, "a", "a3");
  Times(5, "b", "b5");
  Variable c = Op("t_add", {"a3", "b5"}, "c");
  Times(7, "b", "b7");
  Times(11, "c", "c11");
  Variable d = Op("t_add", {"b7", "c11"}, "d");
  struct Row {
    Names stop;
    Expected expected;
  };
  for (const Row& row : {Row{{}, {157, 62, 11}}, Row{{"b"}, {33, 62, 11}}, Row{{"c"}, {14, 7, 11}},
                         Row{{"b", "c"}, {std::nullopt, 7, 11}}}) {
    options.stop_gradients = row.stop;
    EXPECT_EQ(Run(Grad({d}, {a, b, c})), row.expected) << row.stop.size();
  }
}

TEST_F(TfGradients, T19_Unconnected) {
  for (Unconnected unconnected : {Unconnected::kNone, Unconnected::kZero}) {
    TestProgram fresh({2, 2});
    fresh.Param("x");
    fresh.root().Var("y").SetMeta({VarType::kLoDTensor, DType::kFloat64, {3, 1}});
    options.unconnected = unconnected;
    const Names grads = Gradients({fresh.Var("y")}, {fresh.Var("x")}, options);
    if (unconnected == Unconnected::kNone) {
      EXPECT_EQ(grads, Names{""});
      continue;
    }
    VarValues env = fresh.Run(fresh.Inputs());
    EXPECT_EQ(std::get<Tensor>(env.at(grads.at(0))).shape(), (Shape{2, 2}));
    EXPECT_EQ(Values(env, grads[0]), std::vector<double>(4, 0.0));
  }
}

TEST_F(TfGradients, T20_ConnectedWithZero) {
  Variable x = Leaf("x"), y = Times(3, "x", "y");
  options.unconnected = Unconnected::kZero;
  EXPECT_EQ(Run(Grad({y}, {x})), (Expected{3}));
}

TEST_F(TfGradients, T21_UnknownValue) {
  ExpectError(ErrorCode::kInvalidArgument, {"unconnected", "'nonsense'", "none, zero"},
              [] { UnconnectedFromText("nonsense"); });
  EXPECT_EQ(UnconnectedFromText("zero"), Unconnected::kZero);
}

TEST_F(TfGradients, F23_UnknownAggregation) {
  ExpectError(ErrorCode::kInvalidArgument, {"aggregation", "'tree'", "sum, running"},
              [] { AggregationFromText("tree"); });
  EXPECT_EQ(AggregationFromText("running"), Aggregation::kRunning);
}

TEST_F(TfGradients, F28_ASiblingOutputThatAloneGotAGradient) {
  // Where the producer of the input has gradients, but not at this output: zeros all the same.
  Leaf("c");
  InferOp(test.root(), test.root().AppendOp("t_two", {{"X", {"c"}}}, {{"A", {"a"}}, {"B", {"b"}}}),
          RowOps());
  Variable y = Times(5, "b", "y");
  options.unconnected = Unconnected::kZero;
  EXPECT_EQ(Run(Grad({y}, {test.Var("a"), test.Var("b")})), (Expected{0, 5}));
}

TEST_F(TfGradients, T27_T28_T30_SubBlocks) {
  Variable x = Leaf("x"), y = Times(2, "x", "y");
  BlockDesc& inner = test.program.AppendBlock(test.root());
  auto in_block = [&](const char* in, const char* out) {
    TestProgram::AppendTo(inner, "t_add", {in, in}, out);
    return Variable::Of(inner, out);
  };
  Variable t27 = in_block("x", "twice");
  auto value = [&](const Names& grads, const BlockDesc& block) {
    VarValues env;
    env["x"] = Tensor::Full<double>({1}, 1.0);
    Interpret(test.root(), RowOps(), env);
    Interpret(inner, RowOps(), env);
    EXPECT_NE(block.FindVar(grads.at(0)), nullptr);
    return Values(env, grads[0]).at(0);
  };
  EXPECT_EQ(value(Grad({t27}, {x}), inner), 2);
  // Both from outside, asked for from the block.
  EXPECT_EQ(value(Grad({Variable::Of(inner, "y")}, {Variable::Of(inner, "x")}), test.root()), 2);
  Variable t30 = in_block("y", "y2");
  TestProgram::AppendTo(inner, "t_add", {"y2", "y"}, "z");  // 3 y
  EXPECT_EQ(value(Grad({Variable::Of(inner, "z")}, {y}), inner), 3);
  (void)t30;
}

TEST_F(TfGradients, T32_StopGradientOp) {
  Variable x = Leaf("x");
  EXPECT_EQ(Grad({Op("t_stop", {"x"}, "out")}, {x}), Names{""});
}

TEST_F(TfGradients, T33_PreventGradientOp) {
  Variable x = Leaf("x"), out = Op("t_prevent", {"x"}, "out", {{"message", std::string("why")}});
  ExpectError(ErrorCode::kInvalidArgument, {"t_prevent", "explicitly disabled", "why"},
              [&] { Grad({out}, {x}); });
}

TEST_F(TfGradients, T37_HessianOfAVector) {
  TestProgram fresh({10, 10});
  fresh.Param("x");
  HessianOptions hessian;
  hessian.ops = &RowOps();
  ExpectError(ErrorCode::kInvalidArgument, {"'x'"},
              [&] { Hessian(fresh.Var("x"), {fresh.Var("x")}, hessian); });
  TestProgram open({-1});
  open.Param("x");
  ExpectError(ErrorCode::kInvalidArgument, {"'x'"},
              [&] { Hessian(open.Var("x"), {open.Var("x")}, hessian); });
}

TEST_F(TfGradients, T40_ComplexTargetWithoutSeed) {
  Variable x = Leaf("x");
  Leaf("y").desc().SetDType(DType::kComplex64);
  ExpectError(ErrorCode::kInvalidArgument, {"target 'y'", "must be a floating-point tensor"},
              [&] { Grad({test.Var("y")}, {x}); });
}

TEST_F(TfGradients, T44_ARuleThatThrows) {
  Variable x = Leaf("x"), y = Op("t_square", {"x"}, "y");
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  options.overrides = {{"t_square", [](GradientContext&) { throw Mine("my own"); }, ""}};
  const ProgramDesc before = test.program;
  EXPECT_THROW(Grad({y}, {x}), Mine);
  EXPECT_TRUE(test.program == before);
}

TEST_F(TfGradients, T46_AnUpdateIsNotAFunctionOfWhatIsWritten) {
  // `assign` is the identity here; what updates a variable has the role of an optimizer's op.
  Leaf("x");
  Variable z = Leaf("z");
  Op("t_square", {"z"}, "z2");
  Op("assign", {"z2"}, "x", {{kOpRoleAttr, int32_t{kOptimize}}});
  EXPECT_EQ(Grad({Op("assign", {"x"}, "y")}, {z}), Names{""});
}

TEST_F(TfGradients, D2_DuplicatesAndTheVariableItself) {
  Variable x = Leaf("x"), y = Times(3, "x", "y");
  EXPECT_EQ(Run(Grad({y, y}, {x})), (Expected{6}));
  const Names both = Grad({y}, {x, x});
  EXPECT_EQ(both[0], both[1]);
  EXPECT_EQ(Run(both), (Expected{3, 3}));
  EXPECT_EQ(Run(Grad({x}, {x})), (Expected{1}));
}

TEST_F(TfGradients, D3_TargetGradients) {
  TestProgram two({2});
  two.Param("x");
  two.Data("seed");
  two.Op("t_add", {"x", "x"}, "xx");
  two.Op("t_add", {"xx", "x"}, "y");
  Variable x = two.Var("x"), y = two.Var("y");
  options.target_gradients = {"seed"};
  const Names given = Gradients({y}, {x}, options);
  options.target_gradients = {""};
  const Names ones = Gradients({y}, {x}, options);
  options.target_gradients = {"seed", "seed"};
  ExpectError(ErrorCode::kInvalidArgument, {"2 target gradients for 1 targets"},
              [&] { Gradients({y}, {x}, options); });
  VarValues env = two.Inputs();
  env["seed"] = Tensor::Of<double>({2}, {1, 2});
  env = two.Run(env);
  EXPECT_EQ(Values(env, given[0]), (std::vector<double>{3, 6}));
  EXPECT_EQ(Values(env, ones[0]), (std::vector<double>{3, 3}));
}

TEST_F(TfGradients, D4_AnOpWithoutRule) {
  Variable x = Leaf("x");
  Op("t_floor", {"x"}, "off");
  Variable y = Times(2, "x", "y");
  EXPECT_EQ(Run(Grad({y}, {x})), (Expected{2}));
  Variable z = Op("t_floor", {"y"}, "z");
  ExpectError(ErrorCode::kUnimplemented, {"t_floor has no gradient", "'z'", "'y'", "op "},
              [&] { Grad({z}, {x}); });
}

TEST_F(TfGradients, D5_ContractsOfARule) {
  Variable x = Leaf("x");
  Variable count = Op("t_count", {"x"}, "a");
  ExpectError(ErrorCode::kInternal, {"t_count", "2 gradients for the 1 variables of input X"},
              [&] { Grad({count}, {x}); });
  TestProgram wide({2, 3});
  wide.Param("x");
  wide.Op("t_square", {"x"}, "y");
  auto rule = [](const char* type) {
    return [type](GradientContext& g) {
      g.Append(type, {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}},
               {{"to", static_cast<int32_t>(DType::kFloat32)}});
    };
  };
  options.overrides = {{"t_square", rule("t_sum_all"), ""}};
  ExpectError(ErrorCode::kInvalidArgument,
              {"t_square", "input X 'x'", "float64[1]", "float64[2, 3]", "op 0 of block 0"},
              [&] { Gradients({wide.Var("y")}, {wide.Var("x")}, options); });
  options.overrides = {{"t_square", rule("t_cast"), ""}};
  ExpectError(ErrorCode::kInvalidArgument, {"float32[2, 3]", "float64[2, 3]"},
              [&] { Gradients({wide.Var("y")}, {wide.Var("x")}, options); });
}

TEST_F(TfGradients, D6_APathThroughIntegers) {
  for (Unconnected unconnected : {Unconnected::kNone, Unconnected::kZero}) {
    TestProgram fresh({2});
    std::swap(test.program, fresh.program);
    Variable x = Leaf("x");
    x.desc().SetShape({2});
    Op("t_cast", {"x"}, "i", {{"to", static_cast<int32_t>(DType::kInt32)}});
    Variable y = Op("t_cast", {"i"}, "y", {{"to", static_cast<int32_t>(DType::kFloat64)}});
    options.unconnected = unconnected;
    const Names grads = Grad({y}, {x});
    if (unconnected == Unconnected::kNone) {
      EXPECT_EQ(grads, Names{""});
      EXPECT_EQ(Grad({test.Var("i")}, {x}), Names{""});  // integers as target
    } else {
      EXPECT_EQ(test.root().op(test.root().NumOps() - 1).type(), "fill_zeros_like");
    }
  }
}

TEST_F(TfGradients, D10_NoInputs) {
  Leaf("x");
  EXPECT_TRUE(Grad({Times(2, "x", "y")}, {}).empty());
}

TEST_F(TfGradients, D11_LongChains) {
  Variable x = Leaf("x");
  std::string last = "x";
  for (int i = 0; i < 10'000; ++i) last = Op("t_shift", {last}, "h" + std::to_string(i)).name();
  EXPECT_EQ(Run(Grad({test.Var(last)}, {x})), (Expected{1}));
}

TEST_F(TfGradients, F9_UnreachableTargetsAreIgnored) {
  Variable x = Leaf("x"), u = Leaf("u"), y = Times(2, "x", "y"), v = Times(3, "u", "v");
  EXPECT_EQ(Run(Grad({v, y}, {x})), (Expected{2}));
  (void)u;
}

TEST_F(TfGradients, F14_AllNullOutputGradientsCallNoRule) {
  // t_silent yields nothing, so that the rule of what feeds it has no gradient to work with.
  Leaf("c");
  Op("t_poison", {"c"}, "p");
  Variable y = Op("t_silent", {"p"}, "y");
  EXPECT_EQ(Grad({y}, {test.Var("c")}), Names{""});
}

TEST_F(TfGradients, F26_Gates) {
  // t_mul's rule appends two ops: with gates the sum of x's gradient waits for the second.
  for (bool gate : {false, true}) {
    TestProgram fresh({1});
    std::swap(test.program, fresh.program);
    Variable x = Leaf("x"), w = Leaf("w");
    Op("t_mul", {"x", "w"}, "m");
    Variable y = Op("t_add", {"m", "x"}, "y");
    options.gate_gradients = gate;
    const size_t forward = test.root().NumOps();
    EXPECT_EQ(Run(Grad({y}, {x, w})), (Expected{2, 1}));
    Names order;
    for (size_t i = forward; i < test.root().NumOps(); ++i)
      order.push_back(test.root().op(i).type());
    const Names start = {"fill_constant", "assign", "assign", "t_mul"};
    Names expected = start;
    for (const char* type :
         gate ? std::vector<const char*>{"t_mul", "sum"} : std::vector<const char*>{"sum", "t_mul"})
      expected.push_back(type);
    EXPECT_EQ(order, expected);
  }
}

TEST_F(TfGradients, F31_NamesAndLinks) {
  Variable x = Leaf("x"), y = Op("t_square", {"x"}, "y");
  const Names first = Grad({y}, {x}), second = Grad({y}, {x});
  EXPECT_EQ(first, Names{"x@GRAD"});
  EXPECT_EQ(second, Names{"x@GRAD_0"});
  options.gradient_prefix = "second/";
  EXPECT_EQ(Grad({y}, {x}), Names{"second/x@GRAD"});
  int linked = 0;
  for (size_t i = 1; i < test.root().NumOps(); ++i) {
    const OpDesc& op = test.root().op(i);
    if (op.type() != "t_square_grad") continue;
    ++linked;
    EXPECT_EQ(FindForwardOp(op), &test.root().op(0));
  }
  EXPECT_EQ(linked, 3);
}

TEST_F(TfGradients, OverrideInAScope) {
  Variable x = Leaf("x");
  Op("t_square", {"x"}, "y", {{kOpNamescopeAttr, std::string("/encoder/")}});
  Variable z = Op("t_square", {"y"}, "z", {{kOpNamescopeAttr, std::string("/decoder/")}});
  auto ten = [](GradientContext& g) {
    const std::string ten = g.Temp("ten");
    g.Append("fill_constant", {}, {{"Out", {ten}}},
             {{"shape", std::vector<int64_t>{1}},
              {"value", 10.f},
              {"dtype", static_cast<int32_t>(DType::kFloat64)}});
    g.Append("t_mul", {{"X", {g.OutputGrad("Out")}}, {"Y", {ten}}}, {{"Out", {g.InputGrad("X")}}});
  };
  options.overrides = {{"t_square", ten, "/decoder"}};
  EXPECT_EQ(Run(Grad({z}, {x})), (Expected{20}));
  options.overrides = {{"t_square", ten, ""}};
  EXPECT_EQ(Run(Grad({z}, {x})), (Expected{100}));
  options.overrides = {};
  EXPECT_EQ(Run(Grad({z}, {x})), (Expected{4}));
}
}  // namespace coracle::tf_gradients_test
