// Variables that are overwritten on the path: gradients belong to values, not to names.

#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

namespace coracle::overwritten_test {

BackwardOptions Options() {
  BackwardOptions options;
  options.ops = &TestOps();
  return options;
}

void Check(TestProgram& test, const Variable& loss) {
  auto pairs = AppendBackward(loss, Options());
  VerifyOrThrow(test.program, TestOps());
  for (const ParamAndGrad& pair : pairs) EXPECT_NE(pair.grad, "") << pair.param;
  ExpectGradients(test, pairs);
}

TEST(Overwritten, ByHand) {
  // h = w^2; y = tanh(h); h = y + h (overwrites h); z = h * h
  // dz/dw = 2 h1 (1 + 1 - y^2) 2 w
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "h");
  test.Op("t_tanh", {"h"}, "y");
  test.Op("t_add", {"y", "h"}, "h");
  Variable loss = test.Loss(test.Op("t_mul", {"h", "h"}, "z"));
  GradToVar map;
  AppendBackward(loss, Options(), &map);
  EXPECT_EQ(map.at("h@GRAD"), "h");
  EXPECT_EQ(map.at("h@GRAD@1"), "h");
  VarValues env = test.Run(test.Inputs());
  auto w = Values(env, "w"), y = Values(env, "y"), h = Values(env, "h"), dw = Values(env, "w@GRAD");
  for (size_t i = 0; i < w.size(); ++i)
    EXPECT_NEAR(dw[i], 2 * h[i] * (2 - y[i] * y[i]) * 2 * w[i], 1e-13);
  auto dh = Values(env, "h@GRAD");  // of the last value
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(dh[i], 2 * h[i], 1e-14);
}

TEST(Overwritten, InPlaceReluNeedsNoCopy) {
  TestProgram test;
  test.Param("w");
  test.Op("t_shift", {"w"}, "h");
  test.Op("t_relu", {"h"}, "h");
  Variable loss = test.Loss(test.Op("t_tanh", {"h"}, "y"));
  Check(test, loss);
  EXPECT_EQ(test.Listing().find("@SAVED"), std::string::npos);
}

TEST(Overwritten, ValueThatARuleReadsIsSavedFirst) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  test.Op("t_square", {"h"}, "y");  // its rule reads h
  test.Op("t_shift", {"h"}, "h");   // in place
  test.Op("t_shift", {"h"}, "h");
  Variable loss = test.Loss(test.Op("t_mul", {"y", "h"}, "z"));
  Check(test, loss);
  const BlockDesc& root = test.root();
  ASSERT_EQ(root.op(2).type(), "assign") << test.Listing();
  EXPECT_EQ(root.op(2).Input("X")[0], "h");
  EXPECT_EQ(root.op(2).Output("Out")[0].substr(0, 7), "h@SAVED");
  EXPECT_EQ(root.op(2).role(), kForward);
  EXPECT_EQ(root.op(3).type(), "t_shift");
}

TEST(Overwritten, InPlaceWhereTheRuleReadsTheInput) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  test.Op("t_square", {"h"}, "h");  // reads the h before itself
  test.Op("t_mul", {"h", "h"}, "h");
  Check(test, test.Loss("h"));
}

TEST(Overwritten, ClipInPlace) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  OpDesc& clip = test.root().AppendOp("clip", {{"X", {"h"}}}, {{"Out", {"h"}}},
                                      {{"min", -0.4f}, {"max", 0.5f}});
  InferOp(test.root(), clip, TestOps());
  Check(test, test.Loss(test.Op("t_square", {"h"}, "y")));
}

TEST(Overwritten, ParameterInPlace) {
  // The gradient belongs to the value before the run.
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "a");
  test.Op("t_shift", {"w"}, "w");
  test.Op("t_mul", {"w", "a"}, "b");
  auto pairs = AppendBackward(test.Loss("b"), Options());
  EXPECT_EQ(pairs[0].grad, "w@GRAD");
  ExpectGradients(test, pairs);
}

TEST(Overwritten, ByAnUnrelatedValue) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Data("x");
  test.Op("t_square", {"w"}, "h");
  test.Op("t_tanh", {"h"}, "a");
  test.Op("t_mul", {"x", "v"}, "h");  // a new value, not a function of the old
  test.Op("t_square", {"h"}, "b");
  Variable loss = test.Loss(test.Op("t_add", {"a", "b"}, "ab"));
  Check(test, loss);
  EXPECT_EQ(test.CountOps("sum"), 0) << test.Listing();
}

TEST(Overwritten, ByAnotherShape) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "h");
  test.Op("t_square", {"h"}, "y");
  test.Op("t_flatten", {"h"}, "h");  // [2, 3] becomes [6]
  Variable loss = test.Loss(test.Op("t_mul", {test.Op("t_flatten", {"y"}, "y6"), "h"}, "z"));
  Check(test, loss);
  EXPECT_EQ(test.root().FindVar("h@GRAD")->shape(), Shape{6});
  EXPECT_EQ(test.root().FindVar("h@GRAD@1")->shape(), (Shape{2, 3}));
}

TEST(Overwritten, AfterTheLoss) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  Variable loss = test.Loss(test.Op("t_square", {"h"}, "y"));
  test.Op("t_shift", {"h"}, "h");  // the rules must not see this
  test.Op("t_shift", {"w"}, "w");
  Check(test, loss);
}

TEST(Overwritten, SecondBackwardSeesTheSameValues) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  test.Op("t_square", {"h"}, "y");
  test.Op("t_shift", {"h"}, "h");
  Variable loss = test.Loss(test.Op("t_mul", {"y", "h"}, "z"));
  auto first = AppendBackward(loss, Options());
  auto second = AppendBackward(loss, Options());
  EXPECT_NE(first[0].grad, second[0].grad);
  ExpectGradients(test, first);
  ExpectGradients(test, second);
}
}  // namespace coracle::overwritten_test
