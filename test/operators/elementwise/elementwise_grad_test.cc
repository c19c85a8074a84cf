#include <coracle/framework/op/check/run_rules.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::elementwise_grad_test {

const char* const kOps[] = {"elementwise_add", "elementwise_sub", "elementwise_mul",
                            "elementwise_div", "elementwise_max", "elementwise_min"};

struct Case {
  Shape x, y;
  int axis;
};
const Case kCases[] = {{{2, 3}, {2, 3}, -1},    {{2, 3}, {3}, -1},        {{2, 3}, {2}, 0},
                       {{2, 3, 2, 2}, {3}, 1},  {{1}, {2, 3}, -1},        {{2}, {2, 3}, 0},
                       {{2, 1}, {1, 3}, -1},    {{2, 3}, {3, 1}, 1},      {{}, {2}, -1},
                       {{4, 1, 3}, {5, 1}, -1}, {{2, 3, 2, 2}, {3, 2}, 1}};

TEST(ElementwiseGrad, FiniteDifferences) {
  for (const Case& c : kCases) {
    for (const char* type : kOps) {
      SCOPED_TRACE(std::string(type) + c.x.ToString() + c.y.ToString());
      const auto test = [&] {
        OpTest t(type);
        t.Attr("axis", c.axis).RandomInput("X", c.x, 0.2, 1).RandomInput("Y", c.y, 1.2, 2);
        return t;
      };
      const bool chooses = std::string(type).find("_m") != std::string::npos &&
                           std::string(type) != "elementwise_mul";
      // One of the two gradients of max and min is zero here: check the other.
      if (chooses) {
        test().CheckGradient({std::string(type) == "elementwise_max" ? "Y" : "X"});
        test().CheckGradient({"X", "Y"});
        continue;
      }
      test().CheckGradient({"X", "Y"}).CheckGradient({"X"}).CheckGradient({"Y"});
      test().CheckSecondGradient({"X", "Y"}).CheckSecondGradient({"X"}).CheckSecondGradient({"Y"});
    }
  }
}

TEST(ElementwiseGrad, MaxAndMinChoose) {
  for (const char* type : {"elementwise_max", "elementwise_min"}) {
    OpTest(type)
        .Input("X", {2, 2}, {1, 5, -3, 2})
        .Input("Y", {2}, {2, 3})
        .CheckGradient({"X", "Y"})
        .CheckSecondGradient({"X", "Y"})
        .CheckSecondGradient({"Y"});
  }
  // Ties go to Y.
  OpTest("elementwise_max_grad")
      .Input("X", {2}, {1, 2})
      .Input("Y", {2}, {1, 1})
      .Input("Out@GRAD", {2}, {3, 4})
      .Expect("X@GRAD", {2}, {0, 4})
      .Expect("Y@GRAD", {2}, {3, 0});
}

TEST(ElementwiseGrad, HandComputed) {
  OpTest("elementwise_mul_grad")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2}, {10, 20})
      .Input("Out@GRAD", {2, 2}, {1, 1, 2, 2})
      .Expect("X@GRAD", {2, 2}, {10, 20, 20, 40})
      .Expect("Y@GRAD", {2}, {7, 10});
  OpTest("elementwise_sub_grad")
      .Input("Y", {2}, {0, 0})
      .Input("Out@GRAD", {2, 2}, {1, 2, 3, 4})
      .InPlace("Out@GRAD", "X@GRAD")
      .Expect("X@GRAD", {2, 2}, {1, 2, 3, 4})
      .Expect("Y@GRAD", {2}, {-4, -6});
  OpTest("elementwise_div_grad")
      .Input("Y", {1}, {2})
      .Input("Out", {2}, {3, 4})
      .Input("Out@GRAD", {2}, {1, 2})
      .Expect("X@GRAD", {2}, {0.5, 1})
      .Expect("Y@GRAD", {1}, {-5.5});
}

TEST(ElementwiseGrad, EmptyTensors) {
  OpTest("elementwise_add_grad")
      .Input("Y", {3}, {1, 2, 3})
      .Input("Out@GRAD", {0, 3}, {})
      .Expect("X@GRAD", {0, 3}, {})
      .Expect("Y@GRAD", {3}, {0, 0, 0});
  OpTest("elementwise_mul_grad")
      .Input("X", {2, 0}, {})
      .Input("Y", {2, 1}, {1, 2})
      .Input("Out@GRAD", {2, 0}, {})
      .Expect("Y@GRAD", {2, 1}, {0, 0});
}

TEST(ElementwiseGrad, PowFiniteDifferences) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.x.ToString() + c.y.ToString());
    OpTest("elementwise_pow")
        .Attr("axis", c.axis)
        .RandomInput("X", c.x, 0.5, 2)
        .RandomInput("Y", c.y, 0.5, 2)
        .CheckGradient({"X", "Y"});
  }
}

// Sizes at which the sums are split into blocks and tiles.
TEST(ElementwiseGrad, FastAgainstReference) {
  for (const Case& c :
       {Case{{900, 130}, {130}, -1}, Case{{5000, 20}, {20}, -1}, Case{{3000, 20}, {3000}, 0},
        Case{{70, 6, 31, 7}, {6}, 1}, Case{{20, 30, 170}, {30}, 1}, Case{{3, 2500}, {2500}, -1},
        Case{{90000}, {1}, -1}, Case{{1}, {90000}, -1}, Case{{7, 1}, {1, 9}, -1}}) {
    for (const char* type : kOps) {
      SCOPED_TRACE(std::string(type) + c.x.ToString() + c.y.ToString());
      OpTest(type)
          .Attr("axis", c.axis)
          .RandomInput("X", c.x, 0.2, 1)
          .RandomInput("Y", c.y, 0.5, 2)
          .CheckFast(2e-4);
    }
  }
}

// An operand of Out's shape whose elements do not matter is not kept for the gradient.
TEST(ElementwiseGrad, AddKeepsOnlyTheStretchedOperand) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape({-1, 3});
  block.Var("y").SetShape({3});
  const OpDesc& add =
      block.AppendOp("elementwise_add", {{"X", {"x"}}, {"Y", {"y"}}}, {{"Out", {"o"}}});
  InferOp(block, add, DefaultOps());
  GradientContext::Request request;
  request.op = &add;
  request.block = &block;
  request.output_grads = {"o@GRAD"};
  request.input_grads = {"x@GRAD", "y@GRAD"};
  GradientContext context(DefaultOps(), request);
  RunGradient(DefaultOps().Get("elementwise_add"), context);
  auto ops = context.ReleaseOps();
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0]->type(), "elementwise_add_grad");
  EXPECT_FALSE(ops[0]->HasInput("X"));
  EXPECT_TRUE(ops[0]->HasInput("Y"));
}

TEST(ElementwiseGrad, Constraints) {
  for (const char* name : kOps) {
    const std::string type = std::string(name) + "_grad";
    const auto test = [&](int axis, const Shape& x, const Shape& y, const Shape& out,
                          const std::string& id) {
      OpTest t(type);
      t.Attr("axis", axis).RandomInput("X", x).RandomInput("Y", y).RandomInput("Out@GRAD", out);
      if (std::string(name) == "elementwise_div") t.RandomInput("Out", out);
      t.ExpectError(std::string(type).append(".").append(id));
    };
    test(3, {2, 2}, {2}, {2, 2}, "C1");
    test(2, {2, 2}, {2, 2, 2}, {2, 2, 2}, "C2");
    test(-1, {2, 3}, {2}, {2, 3}, "C3");
    test(-1, {2, 3}, {3}, {2, 2}, "C5");
    OpTest t(type);
    t.RandomInput("X", {2}).IntInput("Y", {2}, {1, 2}).RandomInput("Out@GRAD", {2});
    if (std::string(name) == "elementwise_div") t.RandomInput("Out", {2});
    t.ExpectError(type + ".C4");
  }
}

}  // namespace coracle::elementwise_grad_test
