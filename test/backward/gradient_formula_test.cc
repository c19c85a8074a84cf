// Gradient rules that are formulas on Variables: which ops come of them, and what these are called.

#include <coracle/backward/backward.h>
#include <coracle/clip/clip.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

#include <functional>

namespace coracle::gradient_formula_test {

using Names = std::vector<std::string>;

class GradientFormula : public ::testing::Test {
 protected:
  GradientFormula() {
    x = net.Data("x", {2, 3}, DType::kFloat32, {.stop_gradient = false});
    y = net.Data("y", {2, 3}, DType::kFloat32, {.stop_gradient = false});
  }
  // The gradient ops of Mean(op(x, y)), whose rule this is, without the loss's own.
  std::vector<const OpDesc*> OpsOf(const std::string& type, GradientFn rule,
                                   std::vector<BackwardCallback> callbacks = {}) {
    const Variable out = net.Binary(type, x, y, {}, {.output = "out"});
    const Variable loss = net.Mean(out, {.output = "loss"});
    const size_t forward = main.Root().NumOps();
    BackwardOptions options;
    options.overrides.push_back({type, std::move(rule), ""});
    options.callbacks = std::move(callbacks);
    gradients = Gradients({loss}, {x, y}, options);
    std::vector<const OpDesc*> ops;
    for (size_t i = forward; i < main.Root().NumOps(); ++i) {
      const OpDesc& op = main.Root().op(i);
      if (op.type() != "fill_constant" && op.type() != "mean_grad") ops.push_back(&op);
    }
    return ops;
  }
  static Names Types(const std::vector<const OpDesc*>& ops) {
    Names types;
    for (const OpDesc* op : ops) types.push_back(op->type());
    return types;
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
  Variable x, y;
  Names gradients;
};

TEST_F(GradientFormula, TheLastOpWritesTheGradient) {
  const auto ops = OpsOf("elementwise_mul", [](GradientContext& g) {
    const Variable twice = 2.0 * g.Grad("Out");  // first: C++ leaves the order of operands open
    g.Set("X", twice * (g.In("X") - g.In("Y")));
  });
  EXPECT_EQ(Types(ops), Names({"scale", "elementwise_sub", "elementwise_mul"}));
  EXPECT_EQ(ops[0]->Output("Out"), Names{"x@TERM"});
  EXPECT_EQ(ops[1]->Output("Out"), Names{"x@TERM_0"});
  EXPECT_EQ(ops[2]->Input("X"), Names{"x@TERM"});
  EXPECT_EQ(ops[2]->Input("Y"), Names{"x@TERM_0"});
  EXPECT_EQ(ops[2]->Output("Out"), Names{"x@GRAD"});
  EXPECT_EQ(gradients, Names({"x@GRAD", ""}));
  EXPECT_EQ(main.Root().FindVar("x@TERM")->shape(), Shape({2, 3}));
  EXPECT_EQ(main.Root().FindVar("x@TERM_1"), nullptr);
  EXPECT_EQ(ops[0]->role(), kBackward);
  EXPECT_EQ(ops[0]->GetAttr<std::string>(kForwardOpAttr, ""), "elementwise_mul(out)");
}

// Temp and a formula that want one name.
TEST_F(GradientFormula, TempsAndTermsAreTwo) {
  const auto ops = OpsOf("elementwise_mul", [](GradientContext& g) {
    const Variable twice = 2.0 * g.Grad("Out");
    const std::string temp = g.Temp("x@TERM");
    g.Append("scale", {{"X", {g.Input("Y")}}}, {{"Out", {temp}}}, {{"scale", 3.0f}});
    g.Append("elementwise_add", {{"X", {twice.name()}}, {"Y", {temp}}},
             {{"Out", {g.InputGrad("X")}}});
  });
  EXPECT_EQ(Types(ops), Names({"scale", "scale", "elementwise_add"}));
  EXPECT_NE(ops[0]->Output("Out"), ops[1]->Output("Out"));
  EXPECT_EQ(ops[2]->Input("X"), ops[0]->Output("Out"));
  EXPECT_EQ(ops[2]->Input("Y"), ops[1]->Output("Out"));
}

TEST_F(GradientFormula, AnErrorInAFormulaSaysWhose) {
  const GradientFn rule = [](GradientContext& g) {
    g.Set("X", g.Make("concat", {{"X", {}}}) * g.Grad("Out"));
  };
  try {
    OpsOf("elementwise_mul", rule);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("block -1"), std::string::npos) << e.what();
    EXPECT_EQ(e.details().find("block -1"), std::string::npos) << e.details();
  }
}

TEST_F(GradientFormula, WhatNobodyNeedsIsNotAppended) {
  x.desc().SetStopGradient(true);
  const auto ops = OpsOf("elementwise_mul", [](GradientContext& g) {
    const Variable unused = Exp(g.In("X"));
    g.Set("X", g.Grad("Out") * g.In("Y"));
    g.Set("Y", g.Named("named", g.Grad("Out") + 1.0) * g.In("X"));
    Sqrt(unused);
  });
  EXPECT_EQ(Types(ops), Names({"scale", "elementwise_mul"}));
  EXPECT_EQ(ops[0]->Output("Out"), Names{"named"});
  EXPECT_EQ(ops[1]->Output("Out"), Names{"y@GRAD"});
  EXPECT_EQ(main.Root().FindVar("x@TERM"), nullptr);
}

TEST_F(GradientFormula, WhatTheRuleDidNotMakeIsAssigned) {
  const auto ops = OpsOf("elementwise_add", [](GradientContext& g) {
    g.Set("X", g.Grad("Out"));
    g.Set("Y", g.In("X"));
  });
  EXPECT_EQ(Types(ops), Names({"assign", "assign"}));
  EXPECT_EQ(ops[0]->Input("X"), Names{"out@GRAD"});
  EXPECT_EQ(ops[0]->Output("Out"), Names{"x@GRAD"});
  EXPECT_EQ(ops[1]->Input("X"), Names{"x"});
  EXPECT_EQ(ops[1]->Output("Out"), Names{"y@GRAD"});
}

// An error clip changes x@GRAD as soon as it is there; -dx means what it was before.
TEST_F(GradientFormula, AGradientThatIsReadOnIsACopy) {
  x.desc().SetErrorClip(ErrorClipByValue(0.01));
  const auto ops = OpsOf("elementwise_sub",
                         [](GradientContext& g) {
                           const Variable dx = 1.0 * g.Grad("Out");
                           g.Set("X", dx);
                           g.Set("Y", -dx);
                         },
                         {ErrorClipCallback});
  EXPECT_EQ(Types(ops), Names({"scale", "scale", "assign", "clip"}));
  EXPECT_EQ(ops[0]->Output("Out"), Names{"x@TERM"});
  EXPECT_EQ(ops[1]->Input("X"), Names{"x@TERM"});
  EXPECT_EQ(ops[1]->Output("Out"), Names{"y@GRAD"});
  EXPECT_EQ(ops[2]->Output("Out"), Names{"x@GRAD"});
}

TEST_F(GradientFormula, TwoGradientsOfOneVariable) {
  const auto ops = OpsOf("elementwise_add", [](GradientContext& g) {
    const Variable both = 1.0 * g.Grad("Out");
    g.Set("X", both);
    g.Set("Y", both);
  });
  EXPECT_EQ(Types(ops), Names({"scale", "assign", "assign"}));
  EXPECT_EQ(ops[1]->Input("X"), ops[0]->Output("Out"));
  EXPECT_EQ(ops[2]->Input("X"), ops[0]->Output("Out"));
}

TEST_F(GradientFormula, OpsOfFormulasAreChecked) {
  const std::vector<std::pair<GradientFn, std::string>> wrong = {
      {[](GradientContext& g) { g.Set("X", g.In("X") * Cast(g.In("Y"), DType::kFloat64)); },
       "[elementwise_mul.C"},
      {[](GradientContext& g) {
         g.Set("X", g.Make("relu", {{"Z", {g.Input("X")}}}));
       },
       "relu: has no input 'Z'"}};
  for (const auto& [rule, what] : wrong) {
    ProgramDesc program, unused;
    Builder other(program, unused);
    const Variable in = other.Data("x", {2}, DType::kFloat32, {.stop_gradient = false});
    const Variable loss = Mean(in * in);
    try {
      Gradients({loss}, {in}, {.overrides = {{"elementwise_mul", rule, ""}}});
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
      EXPECT_NE(error.details().find("in the gradient of elementwise_mul"), std::string::npos)
          << error.details();
    }
  }
}

// If an input of a formula may be overwritten later, the formula reads a copy.
TEST_F(GradientFormula, OverwrittenValues) {
  const Variable h = net.Unary("tanh", x, {}, {.output = "h"});
  const Variable product = net.Unary("squared_l2_norm", h, {}, {.output = "product"});
  net.Append("scale", {{"X", {"h"}}}, {{"Out", {"h"}}}, {{"scale", 3.0f}});
  const Variable loss = product + Mean(h);
  const CheckGradientReport report = CheckGradient(main, {.loss = loss.name(), .wrt = {"x"}});
  EXPECT_TRUE(report.passed()) << report.ToString();
}
}  // namespace coracle::gradient_formula_test
