// AppendBackward: what it appends, its errors, its callbacks.

#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace coracle::backward_test {

BackwardOptions Options() {
  BackwardOptions options;
  options.ops = &TestOps();
  return options;
}

template <class F>
void ExpectThrow(ErrorCode code, const std::vector<std::string>& texts, F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& text : texts)
      EXPECT_NE(e.message().find(text), std::string::npos) << e.message() << "\nlacks: " << text;
    return;
  }
  ADD_FAILURE() << "no error was thrown";
}

OpDesc& LastOp(TestProgram& test) { return test.root().op(test.root().NumOps() - 1); }

TEST(AppendBackward, ChainByHand) {
  TestProgram test;
  test.Param("w");
  test.Data("x");
  Variable loss = test.Loss(test.Op("t_square", {test.Op("t_mul", {"x", "w"}, "xw")}, "s"));
  GradToVar map;
  auto pairs = AppendBackward(loss, Options(), &map);
  EXPECT_EQ(pairs, (std::vector<ParamAndGrad>{{"w", "w@GRAD"}}));
  EXPECT_EQ(
      map, (GradToVar{{"loss@GRAD", "loss"}, {"s@GRAD", "s"}, {"xw@GRAD", "xw"}, {"w@GRAD", "w"}}));
  // d/dw sum (x w)^2 = 2 x^2 w
  VarValues env = test.Run(test.Inputs());
  auto x = Values(env, "x"), w = Values(env, "w"), dw = Values(env, "w@GRAD");
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(dw[i], 2 * x[i] * x[i] * w[i], 1e-14);
  VerifyOrThrow(test.program, TestOps());
}

TEST(AppendBackward, RolesAndSeed) {
  TestProgram test;
  test.Param("w");
  Variable loss = test.Loss(test.Op("t_square", {"w"}, "s"));
  AppendBackward(loss, Options());
  const BlockDesc& root = test.root();
  EXPECT_EQ(root.op(0).role(), kForward);
  EXPECT_EQ(root.op(1).role(), kForward | kLoss);
  const OpDesc& seed = root.op(2);
  EXPECT_EQ(seed.type(), "fill_constant");
  EXPECT_EQ(seed.role(), kBackward | kLoss);
  EXPECT_EQ(seed.GetAttr<std::vector<int64_t>>("shape", {}), std::vector<int64_t>{1});
  EXPECT_EQ(seed.GetAttr<float>("value", 0), 1);
  EXPECT_EQ(seed.GetAttr<int32_t>("dtype", 0), static_cast<int>(DType::kFloat64));
  EXPECT_EQ(root.op(3).role(), kBackward);
  EXPECT_FALSE(root.op(3).HasAttr(kOpRoleVarAttr));
  EXPECT_EQ(root.op(4).GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {}),
            (std::vector<std::string>{"w", "w@GRAD"}));
  const VarDesc& grad = *root.FindVar("w@GRAD");
  EXPECT_EQ(grad.shape(), (Shape{2, 3}));
  EXPECT_EQ(grad.dtype(), DType::kFloat64);
}

TEST(AppendBackward, ReadByThreeOps) {
  TestProgram test;
  test.Param("w");
  test.Op("t_add", {test.Op("t_square", {"w"}, "a"), test.Op("t_tanh", {"w"}, "b")}, "ab");
  Variable loss = test.Loss(test.Op("t_add", {"ab", test.Op("t_shift", {"w"}, "c")}, "abc"));
  GradToVar map;
  auto pairs = AppendBackward(loss, Options(), &map);
  EXPECT_EQ(test.CountOps("sum"), 1);
  const OpDesc& sum = LastOp(test);
  EXPECT_EQ(sum.type(), "sum");
  EXPECT_EQ(sum.Input("X"),
            (std::vector<std::string>{"w@GRAD@RENAME@block0@0", "w@GRAD@RENAME@block0@1",
                                      "w@GRAD@RENAME@block0@2"}));
  EXPECT_EQ(map.count("w@GRAD@RENAME@block0@0"), 0u);
  EXPECT_EQ(sum.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {}),
            (std::vector<std::string>{"w", "w@GRAD"}));
  EXPECT_EQ(test.CountOps("fill_zeros_like"), 0);
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, SumComesBeforeTheGradientIsRead) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "h");
  Variable loss = test.Loss(
      test.Op("t_add", {test.Op("t_tanh", {"h"}, "a"), test.Op("t_shift", {"h"}, "b")}, "ab"));
  auto pairs = AppendBackward(loss, Options());
  const BlockDesc& root = test.root();
  EXPECT_EQ(root.op(root.NumOps() - 2).type(), "sum");
  EXPECT_EQ(root.op(root.NumOps() - 1).type(), "t_square_grad");
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, OneVariableTwiceInOneOp) {
  TestProgram test;
  test.Param("w");
  auto pairs = AppendBackward(test.Loss(test.Op("t_mul", {"w", "w"}, "p")), Options());
  EXPECT_EQ(test.CountOps("sum"), 1);
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, OnlyWhatIsWanted) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Param("unused");
  test.Data("x");
  test.Op("t_square", {"v"}, "dead");  // not on the way to the loss
  Variable loss = test.Loss(test.Op("t_mul", {test.Op("t_mul", {"x", "w"}, "a"), "v"}, "b"));
  BackwardOptions options = Options();
  options.parameter_list = {"unused", "v"};
  EXPECT_EQ(AppendBackward(loss, options),
            (std::vector<ParamAndGrad>{{"unused", ""}, {"v", "v@GRAD"}}));
  EXPECT_EQ(test.root().FindVar("w@GRAD"), nullptr);
  EXPECT_EQ(test.root().FindVar("a@GRAD"), nullptr);
  EXPECT_EQ(test.root().FindVar("dead@GRAD"), nullptr);
  EXPECT_EQ(test.CountOps("t_square_grad"), 0);
}

TEST(AppendBackward, StopGradientNoGradSetAndTrainable) {
  auto build = [](TestProgram& test) {
    test.Param("w");
    test.Param("v");
    test.Op("t_square", {"w"}, "h");
    return test.Loss(test.Op("t_mul", {"h", "v"}, "y"));
  };
  {
    TestProgram test;
    Variable loss = build(test);
    test.root().FindVar("h")->SetStopGradient(true);
    EXPECT_EQ(AppendBackward(loss, Options()),
              (std::vector<ParamAndGrad>{{"w", ""}, {"v", "v@GRAD"}}));
    EXPECT_EQ(test.root().FindVar("h@GRAD"), nullptr);
  }
  {
    TestProgram test;
    Variable loss = build(test);
    BackwardOptions options = Options();
    options.no_grad_set = {"h"};
    EXPECT_EQ(AppendBackward(loss, options)[0].grad, "");
  }
  {
    TestProgram test;
    Variable loss = build(test);
    test.root().FindVar("w")->MutableTraining().trainable = false;
    EXPECT_EQ(AppendBackward(loss, Options()), (std::vector<ParamAndGrad>{{"v", "v@GRAD"}}));
  }
}

TEST(AppendBackward, DataWhoseStopGradientIsCleared) {
  TestProgram test;
  test.Param("w");
  test.Data("x").SetStopGradient(false);
  test.Data("y");
  Variable loss = test.Loss(test.Op("t_mul", {test.Op("t_mul", {"x", "y"}, "xy"), "w"}, "out"));
  GradToVar map;
  EXPECT_EQ(AppendBackward(loss, Options(), &map), (std::vector<ParamAndGrad>{{"w", "w@GRAD"}}));
  EXPECT_EQ(map.count("x@GRAD"), 1u);
  EXPECT_EQ(map.count("y@GRAD"), 0u);
}

TEST(AppendBackward, IntegersEndThePath) {
  TestProgram test;
  test.Param("w");
  test.Op("t_index", {"w"}, "index");
  Variable loss = test.Loss(test.Op("t_square", {"w"}, "s"));
  EXPECT_EQ(AppendBackward(loss, Options())[0].grad, "w@GRAD");
  EXPECT_EQ(test.root().FindVar("index@GRAD"), nullptr);
}

TEST(AppendBackward, ShapeOnlyOpsAreConstants) {
  TestProgram test;
  test.Param("w");
  Variable loss = test.Loss(test.Op("t_mul", {test.Op("t_like", {"w"}, "zeros"), "w"}, "p"));
  auto pairs = AppendBackward(loss, Options());
  EXPECT_EQ(test.root().FindVar("zeros@GRAD"), nullptr);
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, AnOutputWithoutGradientIsZeroFilledForTheRule) {
  TestProgram test;
  test.Param("w");
  OpDesc& two = test.root().AppendOp("t_two", {{"X", {"w"}}}, {{"A", {"a"}}, {"B", {"b"}}});
  InferOp(test.root(), two, TestOps());
  auto pairs = AppendBackward(test.Loss("b"), Options());
  EXPECT_EQ(test.CountOps("fill_zeros_like"), 1);
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, ARuleThatYieldsNothing) {
  TestProgram test;
  test.Param("w");
  test.Op("t_add", {test.Op("t_silent", {"w"}, "a"), test.Op("t_square", {"w"}, "b")}, "ab");
  Variable loss = test.Loss("ab");
  GradToVar map;
  EXPECT_EQ(AppendBackward(loss, Options(), &map)[0].grad, "w@GRAD");
  VarValues env = test.Run(test.Inputs());
  auto w = Values(env, "w"), dw = Values(env, "w@GRAD");
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(dw[i], 2 * w[i], 1e-14);
  VerifyOrThrow(test.program, TestOps());

  TestProgram alone;
  alone.Param("w");
  EXPECT_EQ(AppendBackward(alone.Loss(alone.Op("t_silent", {"w"}, "a")), Options())[0].grad, "");
  EXPECT_EQ(alone.root().FindVar("w@GRAD"), nullptr);
}

TEST(AppendBackward, LossThatDependsOnNothing) {
  TestProgram test;
  test.Param("w");
  test.Data("x");
  Variable loss = test.Loss("x");
  const size_t ops = test.root().NumOps();
  EXPECT_EQ(AppendBackward(loss, Options()), (std::vector<ParamAndGrad>{{"w", ""}}));
  EXPECT_EQ(test.root().NumOps(), ops);
}

TEST(AppendBackward, TwiceOnOneProgram) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "s");
  Variable loss = test.Loss(test.Op("t_add", {"s", "w"}, "y"));
  Variable second = test.Var(test.Op("t_sum_all", {test.Op("t_tanh", {"s"}, "t")}, "loss2"));
  auto first_pairs = AppendBackward(loss, Options());
  auto second_pairs = AppendBackward(second, Options());
  EXPECT_EQ(first_pairs[0].grad, "w@GRAD");
  EXPECT_EQ(second_pairs[0].grad, "w@GRAD_0");
  ExpectGradients(test, first_pairs, "loss");
  ExpectGradients(test, second_pairs, "loss2");
  VerifyOrThrow(test.program, TestOps());
}

TEST(AppendBackward, AfterAnUpdateOfTheParameter) {
  TestProgram test;
  test.Param("w");
  Variable loss = test.Loss(test.Op("t_square", {"w"}, "s"));
  AppendBackward(loss, Options());
  test.root().AppendOp("assign", {{"X", {"w@GRAD"}}}, {{"Out", {"w"}}},
                       {{kOpRoleAttr, int32_t{kOptimize}}});
  auto pairs = AppendBackward(loss, Options());  // of the w before the update
  EXPECT_EQ(pairs[0].grad, "w@GRAD_0");
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, Callbacks) {
  TestProgram test;
  test.Param("w");
  test.Op("t_add", {test.Op("t_square", {"w"}, "a"), test.Op("t_tanh", {"w"}, "b")}, "ab");
  Variable loss = test.Loss("ab");
  BackwardOptions options = Options();
  std::vector<std::string> seen;
  size_t next = test.root().NumOps();
  options.callbacks.push_back([&](BlockDesc& block, const GradToVar& map) {
    ASSERT_EQ(block.NumOps(), next + 1) << "one op since the last call";
    const OpDesc& op = block.op(next);
    const std::string out = op.outputs()[0].args[0];
    seen.push_back(op.type() + (map.count(out) ? ":" + map.at(out) : ""));
    block.AppendOp("clip", {{"X", {out}}}, {{"Out", {out}}}, {{"min", -9.f}, {"max", 9.f}});
    next = block.NumOps();
  });
  auto pairs = AppendBackward(loss, options);
  // t_add's rule appends two ops; b is read last, so it is differentiated first.
  EXPECT_EQ(seen, (std::vector<std::string>{"fill_constant:loss", "t_sum_all_grad:ab", "assign:a",
                                            "assign:b", "t_tanh_grad", "t_square_grad", "sum:w"}));
  // op_role_var goes to the last op that writes the gradient: the callback's clip.
  EXPECT_EQ(LastOp(test).type(), "clip");
  EXPECT_TRUE(LastOp(test).HasAttr(kOpRoleVarAttr));
  ExpectGradients(test, pairs);
}

TEST(AppendBackward, LossOfAnotherSizeOrType) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "s");
  test.Op("t_index", {"w"}, "index");
  test.root().Var("open").SetShape({-1, 1});
  ExpectThrow(ErrorCode::kInvalidArgument, {"loss 's' must hold one element", "[2, 3]", "mean"},
              [&] { AppendBackward(test.Var("s"), Options()); });
  ExpectThrow(ErrorCode::kInvalidArgument, {"'open'", "[-1, 1]", "mean"},
              [&] { AppendBackward(test.Var("open"), Options()); });
  ExpectThrow(ErrorCode::kInvalidArgument, {"'index'", "int64", "floating-point"},
              [&] { AppendBackward(test.Var("index"), Options()); });
  ExpectThrow(ErrorCode::kInvalidArgument, {"empty Variable"},
              [&] { AppendBackward(Variable(), Options()); });
  Variable loss = test.Loss("s");
  loss.desc().SetStopGradient(true);
  ExpectThrow(ErrorCode::kInvalidArgument, {"stop_gradient"},
              [&] { AppendBackward(loss, Options()); });
}

TEST(AppendBackward, UnknownNames) {
  TestProgram test;
  test.Param("fc_0.w_0");
  Variable loss = test.Loss("fc_0.w_0");
  BackwardOptions options = Options();
  options.parameter_list = {"fc_0.w_1"};
  ExpectThrow(ErrorCode::kNotFound, {"parameter_list", "'fc_0.w_1'", "did you mean fc_0.w_0"},
              [&] { AppendBackward(loss, options); });
  options.parameter_list = {};
  options.no_grad_set = {"fc_0.w"};
  ExpectThrow(ErrorCode::kNotFound, {"no_grad_set", "'fc_0.w'"},
              [&] { AppendBackward(loss, options); });
}

TEST(AppendBackward, OpWithoutGradientOnThePath) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Data("x");
  test.Op("t_mul", {test.Op("t_floor", {test.Op("t_square", {"w"}, "s")}, "f"), "v"}, "y");
  Variable loss = test.Loss("y");
  const std::string before = test.Listing();
  const size_t vars = test.root().NumVars();
  ExpectThrow(ErrorCode::kUnimplemented,
              {"t_floor", "'s'", "'f'", "it is constant almost everywhere"},
              [&] { AppendBackward(loss, Options()); });
  EXPECT_EQ(test.Listing(), before);
  EXPECT_EQ(test.root().NumVars(), vars);
  // No requested gradient flows through it.
  BackwardOptions options = Options();
  options.parameter_list = {"v"};
  EXPECT_EQ(AppendBackward(loss, options)[0].grad, "v@GRAD");
}

TEST(AppendBackward, OpWithoutGradientOffThePath) {
  TestProgram test;
  test.Param("w");
  test.Data("x");
  test.Op("t_floor", {"w"}, "beside");
  Variable loss = test.Loss(test.Op("t_mul", {test.Op("t_floor", {"x"}, "f"), "w"}, "y"));
  ExpectGradients(test, AppendBackward(loss, Options()));
}

TEST(AppendBackward, UnknownOpType) {
  TestProgram test;
  test.Param("w");
  test.root().AppendOp("t_squar", {{"X", {"w"}}}, {{"Out", {"s"}}});
  test.root().Var("s").SetMeta(test.root().Var("w").meta());
  ExpectThrow(ErrorCode::kNotFound, {"'t_squar'", "did you mean t_square"},
              [&] { AppendBackward(test.Loss("s"), Options()); });
}

TEST(AppendBackward, SubBlockOfAnOpThatDoesNotListWhatItWrites) {
  TestProgram test;
  test.Param("w");
  BlockDesc& inner = test.program.AppendBlock(test.root());
  inner.AppendOp("t_square", {{"X", {"w"}}}, {{"Out", {"s"}}});
  test.root().Var("s").SetMeta(test.root().Var("w").meta());
  test.root().AppendOp("t_silent", {{"X", {"w"}}}, {{"Out", {"w"}}}, {{"sub_block", BlockRef{1}}});
  ExpectThrow(ErrorCode::kInvalidArgument, {"t_silent writes 's' in its sub-block"},
              [&] { AppendBackward(test.Loss("s"), Options()); });
}

TEST(AppendBackward, GradientOfAWrongShape) {
  TestProgram test;
  test.Param("w");
  Variable loss = test.Loss(test.Op("t_wrong", {"w"}, "y"));
  const std::string before = test.Listing();
  const size_t vars = test.root().NumVars();
  ExpectThrow(ErrorCode::kInternal, {"t_wrong", "input X", "'w'", "float64[1]", "float64[2, 3]"},
              [&] { AppendBackward(loss, Options()); });
  EXPECT_EQ(test.Listing(), before) << "what was appended is taken back";
  EXPECT_EQ(test.root().NumVars(), vars);
}

TEST(AppendBackward, LossInASubBlock) {
  TestProgram test;
  test.Param("w");
  BlockDesc& inner = test.program.AppendBlock(test.root());
  InferOp(inner, inner.AppendOp("t_square", {{"X", {"w"}}}, {{"Out", {"s"}}}), TestOps());
  InferOp(inner, inner.AppendOp("t_sum_all", {{"X", {"s"}}}, {{"Out", {"l"}}}), TestOps());
  auto pairs = AppendBackward(Variable::Of(inner, "l"), Options());
  EXPECT_EQ(pairs[0].grad, "w@GRAD");
  EXPECT_NE(inner.FindVar("w@GRAD"), nullptr);
  EXPECT_EQ(inner.NumOps(), 5u);
  // A handle that was looked up from the sub-block, of a loss of the root.
  test.Loss("w");
  EXPECT_EQ(AppendBackward(Variable::Of(inner, "loss"), Options())[0].grad, "w@GRAD_0");
  EXPECT_NE(test.root().FindVar("w@GRAD_0"), nullptr);
}
}  // namespace coracle::backward_test
