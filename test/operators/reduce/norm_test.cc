#include <cmath>

#include "../../op_test.h"
#include "../gradient_of.h"

namespace coracle::norm_test {

OpTest Along(int32_t axis) {
  OpTest test("norm");
  test.Attr("axis", axis);
  return test;
}

TEST(Norm, Values) {
  const std::vector<double> x = {3, 4, 6, -8};
  Along(1)
      .Input("X", {2, 2}, x)
      .Expect("Out", {2, 2}, {0.6, 0.8, 0.6, -0.8})
      .Expect("Norm", {2, 1}, {5, 10});
  Along(-2).Input("X", {2, 2}, x).Expect("Norm", {1, 2}, {std::sqrt(45), std::sqrt(80)});
  Along(0).NoOutput("Norm").Input("X", {2}, {3, 4}).Expect("Out", {2}, {0.6, 0.8});
  Along(0).Attr("epsilon", 9.f).Input("X", {1}, {4}).Expect("Out", {1}, {0.8});
}

TEST(Norm, Edges) {
  Along(0).Input("X", {2}, {0, 0}).Expect("Out", {2}, {0, 0}).Expect("Norm", {1}, {1e-5});
  Along(1).Input("X", {2, 0}, {}).Expect("Out", {2, 0}, {}).Expect("Norm", {2, 1}, {1e-5, 1e-5});
  Along(1).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {}).Expect("Norm", {0, 1}, {});
}

TEST(Norm, Gradients) {
  for (int32_t axis : {0, 1, -1}) {
    Along(axis).RandomInput("X", {2, 3, 2}).CheckGradient({"X"});
    Along(axis).NoOutput("Norm").RandomInput("X", {2, 3, 2}).CheckGradient({"X"});
  }
  Along(1).RandomInput("X", {2, 3}).CheckHigherGradients();
}

TEST(Norm, AllFiniteNumbers) {
  for (const double x : {1e-200, 1e-100, 1e160, 1e200}) {
    OpTest("norm")
        .Attr("axis", 0)
        .Attr("epsilon", 0.f)
        .TensorInput("X", Tensor::Of<double>({2}, {3 * x, 4 * x}))
        .Expect("Out", {2}, {0.6, 0.8}, 1e-14);
  }
}

// The norm is more than float64 holds; its quotients are not.
TEST(Norm, NormBeyondTheLargestNumber) {
  OpTest("norm")
      .Attr("axis", 0)
      .TensorInput("X", Tensor::Full<double>({4}, 1.7e308))
      .Expect("Out", {4}, std::vector<double>(4, 0.5), 1e-14);
}

// With y = x / n: dx = (d - y sum(y d)) / n, here of the gradient of y[0] times `seed`.
TEST(Norm, GradientsWithoutNorm) {
  struct Case {
    DType dtype;
    double size, seed, tolerance;
  };
  for (const Case& c :
       {Case{DType::kFloat32, 1e25, 1e20, 1e-6}, Case{DType::kFloat32, 3e38, 1e30, 1e-6},
        Case{DType::kFloat32, 1e-30, 1e-20, 1e-6}, Case{DType::kFloat16, 60000, 60000, 2e-3},
        Case{DType::kFloat16, 1e-4, 1e-4, 2e-3}, Case{DType::kFloat64, 1e200, 1e180, 1e-13},
        Case{DType::kFloat64, 1e-200, 1e-180, 1e-13}}) {
    SCOPED_TRACE(testing::Message() << ToString(c.dtype) << " " << c.size);
    const double epsilon = c.size < 1 ? 0 : 1e-10;
    const Tensor x = Tensor::Of<double>({3}, {c.size, -c.size, c.size / 2}).Cast(c.dtype);
    const Tensor seed = Tensor::Of<double>({3}, {c.seed, 0, 0}).Cast(c.dtype);
    ProgramDesc program;
    const Writer writer{program.Root(), DefaultOps()};
    for (const char* name : {"x", "seed"}) {
      VarDesc& var = program.Root().Var(name);
      var.SetShape({3});
      var.SetDType(c.dtype);
    }
    const Variable y = writer.Make(
        "norm", {{"X", {"x"}}}, {{"axis", int32_t{0}}, {"epsilon", static_cast<float>(epsilon)}});
    const Variable loss = Sum(y * writer.Var("seed"));
    const std::string dx = Gradients({loss}, {writer.Var("x")}).at(0);
    VarValues values = {{"x", x}, {"seed", seed}};
    Interpret(program.Root(), DefaultOps(), values);
    const std::vector<double> got = NumbersOf(std::get<Tensor>(values.at(dx)));
    const std::vector<double> of_x = NumbersOf(x), d = NumbersOf(seed);
    const double n = 1.5 * std::abs(of_x[0]), scale = d[0] / n;
    for (size_t i = 0; i < 3; ++i) {
      const double expected = (d[i] / d[0] - of_x[i] / n * (of_x[0] / n)) * scale;
      EXPECT_NEAR(got[i], expected, c.tolerance * scale) << i;
    }
  }
}

TEST(Norm, C1_Axis) {
  Along(2).RandomInput("X", {2, 3}).ExpectError("norm.C1");
  Along(0).RandomInput("X", {}).ExpectError("norm.C1");
}

}  // namespace coracle::norm_test
