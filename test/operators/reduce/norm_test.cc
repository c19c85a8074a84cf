#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <tuple>

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
  for (const double x : {5e-324, 1e-310}) {
    OpTest("norm")
        .Attr("axis", 0)
        .Attr("epsilon", 0.f)
        .TensorInput("X", Tensor::Full<double>({2}, x))
        .Expect("Out", {2}, std::vector<double>(2, std::sqrt(0.5)), 1e-14);
  }
}

// The norm is more than float64 holds; its quotients are not.
TEST(Norm, NormBeyondTheLargestNumber) {
  OpTest("norm")
      .Attr("axis", 0)
      .TensorInput("X", Tensor::Full<double>({4}, 1.7e308))
      .Expect("Out", {4}, std::vector<double>(4, 0.5), 1e-14);
}

// The gradient of y = x / n by x, of y[0] times seed[0].
Tensor GradientOfFirst(const Tensor& x, const Tensor& seed, double epsilon, bool with_norm) {
  ProgramDesc program;
  const Writer writer{program.Root(), DefaultOps()};
  for (const char* name : {"x", "seed"}) {
    VarDesc& var = program.Root().Var(name);
    var.SetShape(x.shape());
    var.SetDType(x.dtype());
  }
  SlotList outputs = {{"Out", {"y"}}};
  if (with_norm) outputs.push_back({"Norm", {"n"}});
  writer.Append("norm", {{"X", {"x"}}}, outputs,
                {{"axis", int32_t{0}}, {"epsilon", static_cast<float>(epsilon)}});
  const Variable loss = Sum(writer.Var("y") * writer.Var("seed"));
  const std::string dx = Gradients({loss}, {writer.Var("x")}).at(0);
  VarValues values = {{"x", x}, {"seed", seed}};
  Interpret(program.Root(), DefaultOps(), values);
  return std::get<Tensor>(values.at(dx));
}

// With y = x / n: dx = (d - y sum(y d)) / n.
TEST(Norm, GradientsOfExtremeNumbers) {
  struct Case {
    DType dtype;
    double size, seed, tolerance;
  };
  for (const Case& c :
       {Case{DType::kFloat32, 1e25, 1e20, 1e-6}, Case{DType::kFloat32, 3e38, 1e30, 1e-6},
        Case{DType::kFloat32, 1e-30, 1e-20, 1e-6}, Case{DType::kFloat32, 2.8e-45, 1e-30, 1e-6},
        Case{DType::kFloat16, 60000, 60000, 2e-3}, Case{DType::kFloat16, 1e-4, 1e-4, 2e-3},
        Case{DType::kFloat64, 1e200, 1e180, 1e-13}, Case{DType::kFloat64, 1.7e308, 1e300, 1e-13},
        Case{DType::kFloat64, 1.7e308, 1.7e308, 1e-13},
        Case{DType::kFloat64, 1e-200, 1e-180, 1e-13},
        Case{DType::kFloat64, 1e-323, 1e-30, 1e-13}}) {
    for (const bool with_norm : {true, false}) {
      SCOPED_TRACE(testing::Message() << ToString(c.dtype) << " " << c.size << " " << with_norm);
      const double epsilon = c.size < 1 ? 0 : 1e-10;
      const Tensor x = Tensor::Of<double>({3}, {c.size, -c.size, c.size / 2}).Cast(c.dtype);
      const Tensor seed = Tensor::Of<double>({3}, {c.seed, 0, 0}).Cast(c.dtype);
      const std::vector<double> got = NumbersOf(GradientOfFirst(x, seed, epsilon, with_norm));
      const std::vector<double> of_x = NumbersOf(x), d = NumbersOf(seed);
      const double largest = std::abs(of_x[0]), scale = d[0] / largest / 1.5;
      for (size_t i = 0; i < 3; ++i) {
        const double expected =
            (d[i] / d[0] - of_x[i] / largest / 1.5 * (of_x[0] / largest / 1.5)) * scale;
        EXPECT_NEAR(got[i], expected, c.tolerance * scale) << i;
      }
    }
  }
}

// Many gradients near the largest number: their sum along y is none.
TEST(Norm, GradientsBeyondTheLargestNumber) {
  const Tensor x = Tensor::Of<double>({4}, {1, 1, 1, 3});
  const Tensor seed = Tensor::Full<double>({4}, 1.7e308);
  const std::vector<double> got = NumbersOf(GradientOfFirst(x, seed, 0, true));
  const double n = std::sqrt(12), y[] = {1 / n, 1 / n, 1 / n, 3 / n};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i] / 1.7e308, (1 - y[i] * 6 / n) / n, 1e-14);
}

// More neighbouring lines than are summed at a time, in two groups, some with extreme numbers: each
// gradient is the gradient of its vector alone.
TEST(NormGrad, LinesOfAllSizes) {
  const std::vector<double> sizes = {1, 1e-200, 3e160, 2, 1e-300};
  const AttrList along = {{"axis", int32_t{1}}, {"epsilon", 0.f}};
  const AttrList whole = {{"axis", int32_t{0}}, {"epsilon", 0.f}};
  for (const bool ordinary : {true, false}) {
    std::vector<double> x, d, expected(2 * 3 * 150);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double number = std::sin(static_cast<double>(i) + 1);
      x.push_back(ordinary ? number : number * sizes[i % 150 % sizes.size()]);
      d.push_back(std::cos(static_cast<double>(i)));
    }
    const auto gradient = [](const AttrList& attrs, const Tensor& of_x, const Tensor& of_out) {
      return ValueOf("norm_grad", attrs, {{"X", of_x}, {"Out@GRAD", of_out}}, "X@GRAD");
    };
    for (size_t line = 0; line < 300; ++line) {
      const size_t at = line / 150 * 450 + line % 150;
      const std::vector<double> dx =
          NumbersOf(gradient(whole, Tensor::Of<double>({3}, {x[at], x[at + 150], x[at + 300]}),
                             Tensor::Of<double>({3}, {d[at], d[at + 150], d[at + 300]})));
      for (size_t i = 0; i < 3; ++i) expected[at + i * 150] = dx[i];
    }
    ExpectSameNumbers(
        gradient(along, Tensor::Of<double>({2, 3, 150}, x), Tensor::Of<double>({2, 3, 150}, d)),
        expected, 1e-10);
  }
}

TEST(NormGrad, GradientOfNorm) {
  const Tensor x = Tensor::Of<float>({2}, {3, 4}), zeros = Tensor::Zeros(DType::kFloat32, {2});
  const Tensor of_norm = Tensor::Of<float>({1}, {5});
  ExpectSameNumbers(ValueOf("norm_grad", {{"axis", int32_t{0}}},
                            {{"X", x}, {"Out@GRAD", zeros}, {"Norm@GRAD", of_norm}}, "X@GRAD"),
                    {3, 4}, 1e-6);
  OpTest("norm_grad")
      .Attr("axis", 1)
      .RandomInput("X", {2, 3})
      .RandomInput("Out@GRAD", {2, 3})
      .RandomInput("Norm@GRAD", {2, 1})
      .CheckHigherGradients();
}

// Squares of X leave its dtype. The gradient of the sum of X@GRAD by X goes with Out@GRAD / X^2.
TEST(NormGrad, HigherGradientsOfExtremeNumbers) {
  const auto gradient = [](DType dtype, double x, double d, float epsilon) {
    return NumbersOf(GradientOf("norm_grad", {{"axis", int32_t{0}}, {"epsilon", epsilon}},
                                {{"X", Tensor::Of<double>({2}, {3 * x, 4 * x}).Cast(dtype)},
                                 {"Out@GRAD", Tensor::Of<double>({2}, {d, 5 * d}).Cast(dtype)}},
                                "X", "X@GRAD"));
  };
  const std::vector<double> one = gradient(DType::kFloat64, 1, 1, 0);
  EXPECT_NEAR(one[0], 0.0797, 1e-4);
  EXPECT_NEAR(one[1], -0.0378, 1e-4);
  for (const auto& [dtype, x, d, tolerance] : {std::tuple(DType::kFloat32, 1e20, 1e30, 1e-6),
                                               std::tuple(DType::kFloat32, 1e-20, 1e-30, 1e-6),
                                               std::tuple(DType::kFloat64, 1e160, 1e300, 1e-12),
                                               std::tuple(DType::kFloat64, 1e-170, 1e-60, 1e-12)}) {
    const std::vector<double> got = gradient(dtype, x, d, 0);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[i] / (d / x / x), one[i], tolerance) << x;
  }
}

TEST(NormGrad, LargeGradientOfNorm) {
  const Tensor x = Tensor::Of<double>({2}, {3e-26, 4e-26});
  const Tensor ones = Tensor::Of<double>({2}, {1, 1}), of_norm = Tensor::Of<double>({1}, {1e300});
  ExpectSameNumbers(ValueOf("norm_grad", {{"axis", int32_t{0}}, {"epsilon", 0.f}},
                            {{"X", x}, {"Out@GRAD", ones}, {"Norm@GRAD", of_norm}}, "X@GRAD"),
                    {6e299, 8e299}, 1e-12);
}

TEST(NormGrad, Constraints) {
  const auto test = [](int32_t axis) {
    OpTest made("norm_grad");
    made.Attr("axis", axis).RandomInput("X", {2, 3});
    return made;
  };
  test(2).RandomInput("Out@GRAD", {2, 3}).ExpectError("norm_grad.C1");
  test(1).RandomInput("Out@GRAD", {2, 2}).ExpectError("norm_grad.C2");
  test(1)
      .RandomInput("Out@GRAD", {2, 3})
      .RandomInput("Norm@GRAD", {2, 3})
      .ExpectError("norm_grad.C3");
}

TEST(Norm, C1_Axis) {
  Along(2).RandomInput("X", {2, 3}).ExpectError("norm.C1");
  Along(0).RandomInput("X", {}).ExpectError("norm.C1");
}

}  // namespace coracle::norm_test
