#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <functional>
#include <limits>

namespace coracle::activation_test {

const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// The expected result of each row, written independently of the library's formula.
struct Row {
  const char* type;
  std::function<double(double)> value;
  double low = -3, high = 3, gap = 0.05;  // where gradients are checked, off the kinks
  bool curved = true;                     // has a second derivative
  bool fast = false;
};

double Normal(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }

std::vector<Row> Rows() {
  const auto clamp = [](double x, double low, double high) {
    return std::min(std::max(x, low), high);
  };
  return {
      {"relu", [](double x) { return std::max(x, 0.0); }, -3, 3, 0.05, false, true},
      {"leaky_relu", [](double x) { return x > 0 ? x : double(0.02f) * x; }, -3, 3, 0.05, false,
       true},
      {"relu6", [=](double x) { return clamp(x, 0, 6); }, -3, 5, 0.05, false, true},
      {"elu", [](double x) { return x > 0 ? x : std::exp(x) - 1; }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -3, 3, 0, true, true},
      {"logsigmoid", [](double x) { return std::log(1 / (1 + std::exp(-x))); }},
      {"tanh", [](double x) { return std::tanh(x); }, -3, 3, 0, true, true},
      {"exp", [](double x) { return std::exp(x); }, -3, 3, 0, true, true},
      {"log", [](double x) { return std::log(x); }, 0.3, 3},
      {"sqrt", [](double x) { return std::sqrt(x); }, 0.3, 3, 0, true, true},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0.3, 3},
      {"square", [](double x) { return x * x; }, -3, 3, 0, true, true},
      {"abs", [](double x) { return std::fabs(x); }, -3, 3, 0.05, false, true},
      {"reciprocal", [](double x) { return 1 / x; }, 0.3, 3},
      {"sin", [](double x) { return std::sin(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"softplus", [](double x) { return std::log(1 + std::exp(x)); }},
      {"softsign", [](double x) { return x / (1 + std::fabs(x)); }},
      {"hard_sigmoid", [=](double x) { return clamp(double(0.2f) * x + 0.5, 0, 1); }, -2, 2, 0,
       false, true},
      {"hard_swish", [=](double x) { return x * clamp(x + 3, 0, 6) / 6; }, -2.9, 2.9, 0, true,
       true},
      {"hard_shrink", [](double x) { return x < -0.5 || x > 0.5 ? x : 0; }, -3, 3, 0.55, false},
      {"swish", [](double x) { return x / (1 + std::exp(-x)); }, -3, 3, 0, true, true},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }, -3, 3, 0, true, true},
      {"mish", [](double x) { return x * std::tanh(std::log(1 + std::exp(x))); }},
      {"gelu", [](double x) { return x * Normal(x); }, -3, 3, 0, true, true},
      {"acos", [](double x) { return std::acos(x); }, -0.9, 0.9},
      {"asin", [](double x) { return std::asin(x); }, -0.9, 0.9},
      {"atan", [](double x) { return std::atan(x); }},
      {"cosh", [](double x) { return (std::exp(x) + std::exp(-x)) / 2; }},
      {"sinh", [](double x) { return (std::exp(x) - std::exp(-x)) / 2; }},
      {"tan", [](double x) { return std::sin(x) / std::cos(x); }, -1.2, 1.2},
      {"erf", [](double x) { return 2 * Normal(std::sqrt(2.0) * x) - 1; }},
      {"log2", [](double x) { return std::log(x) / std::log(2.0); }, 0.3, 3},
      {"log10", [](double x) { return std::log(x) / std::log(10.0); }, 0.3, 3},
      {"log1p", [](double x) { return std::log(1 + x); }, -0.7, 3},
      {"expm1", [](double x) { return std::exp(x) - 1; }},
      {"lgamma", [](double x) { return std::log(std::tgamma(x)); }, 0.3, 6},
      {"selu",
       [](double x) {
         const double scale = double(1.0507009873554805f), alpha = double(1.6732632423543773f);
         return scale * (x > 0 ? x : alpha * (std::exp(x) - 1));
       }},
      {"brelu", [=](double x) { return clamp(x, 0, 24); }, -3, 3, 0.05, false},
      {"softshrink", [=](double x) { return x - clamp(x, -0.5, 0.5); }, -3, 3, 0.55, false},
      {"soft_relu", [](double x) { return std::log(1 + std::exp(x)); }},
      {"stanh", [](double x) { return double(1.7159f) * std::tanh(double(0.67f) * x); }},
      {"tanh_shrink", [](double x) { return x - std::tanh(x); }},
      {"thresholded_relu", [](double x) { return x > 1 ? x : 0; }, -3, 3, 1.05, false},
  };
}

TEST(Activation, Values) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    std::vector<double> x, y;
    for (double t = 0; t <= 1; t += 0.0625)
      x.push_back(double(float(row.low + (row.high - row.low) * t)));
    for (double v : x) y.push_back(row.value(v));
    OpTest(row.type)
        .Input("X", {static_cast<int64_t>(x.size())}, x)
        .Expect("Out", {static_cast<int64_t>(x.size())}, y, 2e-6);
  }
}

TEST(Activation, Gradients) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    OpTest test(row.type);
    test.RandomInput("X", {3, 7}, row.low, row.high, row.gap);
    test.CheckGradient({"X"});
    test.CheckSecondGradient({"X"}, {1e-5, 2e-6, 6});
  }
}

TEST(Activation, FastAgainstReference) {
  for (const Row& row : Rows()) {
    if (!row.fast) continue;
    SCOPED_TRACE(row.type);
    for (int64_t n : {1, 5, 16, 31, 1000, 40003}) {
      const bool positive = row.low > 0;
      OpTest(row.type).RandomInput("X", {n}, positive ? 0.01 : -12, 12).CheckFast(1e-5);
    }
  }
  OpTest("gelu").Attr("approximate", true).RandomInput("X", {1001}, -12, 12).CheckFast(1e-5);
}

TEST(Activation, EdgeShapesAndInPlace) {
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.type);
    OpTest(row.type).Input("X", {}, {1.5}).Expect("Out", {}, {row.value(1.5)});
    OpTest(row.type).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
    OpTest(row.type)
        .Input("X", {2}, {1.5, 2})
        .InPlace("X", "Out")
        .Expect("Out", {2}, {row.value(1.5), row.value(2)});
  }
}

TEST(Activation, ExtremeValues) {
  OpTest("relu").Input("X", {3}, {-kInf, kInf, kNan}).Expect("Out", {3}, {0, kInf, kNan});
  OpTest("sigmoid").Input("X", {4}, {-1e4, 1e4, kInf, kNan}).Expect("Out", {4}, {0, 1, 1, kNan});
  OpTest("tanh").Input("X", {4}, {-1e4, 1e4, -kInf, kNan}).Expect("Out", {4}, {-1, 1, -1, kNan});
  OpTest("exp").Input("X", {4}, {-1e4, 1e4, -kInf, kNan}).Expect("Out", {4}, {0, kInf, 0, kNan});
  OpTest("gelu").Input("X", {3}, {-1e3, 1e3, kNan}).Expect("Out", {3}, {0, 1e3, kNan});
  OpTest("swish").Input("X", {3}, {-1e3, 1e3, kNan}).Expect("Out", {3}, {0, 1e3, kNan});
  // A mask's -1e38 times the smallest gate would not be 0.
  for (const char* type : {"swish", "silu"})
    OpTest(type).Input("X", {2}, {-1e38, -200}).Expect("Out", {2}, {0, 0});
  OpTest("softplus").Input("X", {2}, {-1e3, 1e3}).Expect("Out", {2}, {0, 1e3});
  OpTest("logsigmoid").Input("X", {2}, {-1e3, 1e3}).Expect("Out", {2}, {-1e3, 0});
  OpTest("log").Input("X", {3}, {0, -1, kInf}).Expect("Out", {3}, {-kInf, kNan, kInf});
  OpTest("sqrt").Input("X", {3}, {0, -1, kInf}).Expect("Out", {3}, {0, kNan, kInf});
  OpTest("hard_swish").Input("X", {3}, {-1e3, 1e3, kNan}).Expect("Out", {3}, {0, 1e3, kNan});
  OpTest("hard_sigmoid").Input("X", {3}, {-1e3, 1e3, kNan}).Expect("Out", {3}, {0, 1, kNan});
  OpTest("acos").Input("X", {3}, {-1, 1, 2}).Expect("Out", {3}, {std::acos(-1), 0, kNan});
  OpTest("erf").Input("X", {4}, {-1e3, 1e3, kInf, kNan}).Expect("Out", {4}, {-1, 1, 1, kNan});
  OpTest("lgamma")
      .Input("X", {4}, {1, -0.5, 0, kInf})
      .Expect("Out", {4}, {0, std::log(2 * std::sqrt(std::acos(-1))), kInf, kInf});
  OpTest("selu").Input("X", {2}, {-1e3, kNan}).Expect("Out", {2}, {-1.7580993, kNan});
  for (const char* type : {"brelu", "softshrink", "thresholded_relu"})
    OpTest(type).Input("X", {1}, {kNan}).Expect("Out", {1}, {kNan});
}

// Up to the largest argument whose exponential is a float.
TEST(Activation, LargestExponentials) {
  std::vector<double> x, y;
  for (double v = 88.65625; v < 88.7228; v += 0.0078125) x.push_back(v);
  x.push_back(double(88.72283f));
  for (double v : x) y.push_back(std::exp(v));
  const auto n = static_cast<int64_t>(x.size());
  OpTest("exp").Input("X", {n}, x).Expect("Out", {n}, y, 2e-6);
  for (KernelMode kernels : {KernelMode::kReference, KernelMode::kAuto}) {
    OpTest above("exp");
    above.Input("X", {1}, {88.7228394});
    EXPECT_EQ(above.Output("Out", kernels).span<float>()[0], HUGE_VALF);
  }
}

// Exactly 0 of -inf, so that x sigmoid(x) is 0 at -1e38, too.
TEST(Activation, SigmoidEndsAtZero) {
  for (KernelMode kernels : {KernelMode::kReference, KernelMode::kAuto}) {
    OpTest op("sigmoid");
    op.Input("X", {3}, {-kInf, -1e38, -110});
    const Tensor out = op.Output("Out", kernels);
    for (float v : out.span<float>()) EXPECT_EQ(v, 0);
  }
}

// A gate that is 0 or 1 keeps an infinite X from making a nan.
TEST(Activation, GatesOfInfinities) {
  for (const char* type : {"swish", "silu", "mish", "hard_swish"}) {
    const std::string name = type;
    OpTest(name).Input("X", {3}, {-kInf, kInf, kNan}).Expect("Out", {3}, {0, kInf, kNan});
    OpTest(name + "_grad")
        .Input("X", {5}, {-kInf, -1e30, 1e30, kInf, kNan})
        .Input("Out@GRAD", {5}, {2, 2, 2, 2, 2})
        .Expect("X@GRAD", {5}, {0, 0, 2, 2, kNan});
    OpTest(name + "_grad_grad")
        .Input("X", {4}, {-kInf, -1e30, 1e30, kInf})
        .Input("DOut", {4}, {2, 2, 2, 2})
        .Input("DDX", {4}, {1, 1, 1, 1})
        .Expect("DV", {4}, {0, 0, 0, 0});
  }
  OpTest("softsign").Input("X", {2}, {-kInf, kInf}).Expect("Out", {2}, {-1, 1});
  OpTest("hard_swish").Input("X", {1}, {1e38}).Expect("Out", {1}, {1e38});
}

// Second derivatives of numbers whose squares and cubes overflow.
TEST(Activation, CurvaturesOfLargeNumbers) {
  const auto expect = [](const char* type, double x, double want) {
    OpTest(std::string(type) + "_grad_grad")
        .Input("X", {1}, {x})
        .Input("DOut", {1}, {1e20})
        .Input("DDX", {1}, {1e15})
        .Expect("DV", {1}, {want * 1e35});
  };
  expect("atan", 1e10, -2e-30);
  expect("atan", kInf, 0);
  expect("softsign", -1e13, 2e-39);
  expect("log", 1e19, -1e-38);
  expect("erf", kInf, 0);
}

// Paddle's softplus has straight and exponential parts beyond a positive threshold.
TEST(Activation, MishBeyondItsThreshold) {
  const std::vector<double> x = {-8, -5.5, -4.5, -1e-3, 0.7, 4.5, 5.5, 8};
  std::vector<double> cut, whole;
  for (const double v : x) {
    const double s = std::log1p(std::exp(v));
    whole.push_back(v * std::tanh(s));
    cut.push_back(v * std::tanh(v > 5 ? v : v < -5 ? std::exp(v) : s));
  }
  OpTest("mish")
      .Attr("threshold", 5.f)
      .Input("X", {8}, x)
      .Expect("Out", {8}, cut, 1e-6)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("mish").Attr("threshold", 0.f).Input("X", {8}, x).Expect("Out", {8}, whole, 1e-6);
}

// Without steepness a swish is half of X.
TEST(Activation, SwishWithoutSteepness) {
  OpTest("swish")
      .Attr("beta", 0.f)
      .Input("X", {5}, {-kInf, -1e30, 3, kInf, kNan})
      .Expect("Out", {5}, {-kInf, -5e29, 1.5, kInf, kNan});
  OpTest("swish_grad")
      .Attr("beta", 0.f)
      .Input("X", {4}, {-kInf, -1e30, 3, kInf})
      .Input("Out@GRAD", {4}, {2, 2, 2, 2})
      .Expect("X@GRAD", {4}, {1, 1, 1, 1});
  OpTest("swish_grad_grad")
      .Attr("beta", 0.f)
      .Input("X", {4}, {-kInf, -1e30, 3, kInf})
      .Input("DOut", {4}, {2, 2, 2, 2})
      .Input("DDX", {4}, {1, 1, 1, 1})
      .Expect("DV", {4}, {0, 0, 0, 0});
}

TEST(Activation, GeluOfInfinities) {
  for (const bool approximate : {false, true}) {
    OpTest("gelu")
        .Attr("approximate", approximate)
        .Input("X", {4}, {-kInf, -1e30, kInf, kNan})
        .Expect("Out", {4}, {0, 0, kInf, kNan});
    OpTest("gelu_grad")
        .Attr("approximate", approximate)
        .Input("X", {5}, {-kInf, -1e30, 1e30, kInf, kNan})
        .Input("Out@GRAD", {5}, {2, 2, 2, 2, 2})
        .Expect("X@GRAD", {5}, {0, 0, 2, 2, kNan});
    OpTest("gelu_grad_grad")
        .Attr("approximate", approximate)
        .Input("X", {4}, {-kInf, -1e30, 1e30, kInf})
        .Input("DOut", {4}, {2, 2, 2, 2})
        .Input("DDX", {4}, {1, 1, 1, 1})
        .Expect("DV", {4}, {0, 0, 0, 0});
  }
}

// Where a value was cut off, no gradient passes, whatever it is; a nan was not cut off.
TEST(Activation, GradientsWhereValuesAreCutOff) {
  struct Cut {
    const char *type, *reads;
    std::vector<double> at;
    double of_nan;  // the gradient at a nan, where 2 arrives
  };
  const std::vector<Cut> cuts = {{"relu", "Out", {0}, 2},
                                 {"relu6", "Out", {0, 6}, 2},
                                 {"hard_sigmoid", "Out", {0, 1}, double(0.2f) * 2},
                                 {"hard_swish", "X", {-3, -9, -kInf, -1.5}, kNan},
                                 {"abs", "X", {0}, 2},
                                 {"hard_shrink", "X", {0.5, 0, -0.25}, 2},
                                 {"brelu", "X", {0, -1, 24, kInf}, 2},
                                 {"softshrink", "X", {0.5, 0, -0.25}, 2},
                                 {"soft_relu", "Out", {0, 40}, kNan},
                                 {"thresholded_relu", "X", {1, -kInf}, 2}};
  for (const Cut& cut : cuts) {
    SCOPED_TRACE(cut.type);
    std::vector<double> v, d, expected;
    for (double at : cut.at) {
      for (double gradient : {kNan, kInf, -kInf, 3.0}) {
        v.push_back(at);
        d.push_back(gradient);
        expected.push_back(0);
      }
    }
    v.push_back(kNan);
    d.push_back(2);
    expected.push_back(cut.of_nan);
    for (int doubled = 0; doubled < 4; ++doubled) {  // whole vectors, too
      for (std::vector<double>* list : {&v, &d, &expected}) {
        const std::vector<double> copy = *list;
        list->insert(list->end(), copy.begin(), copy.end());
      }
    }
    const auto n = static_cast<int64_t>(v.size());
    OpTest(std::string(cut.type) + "_grad")
        .Input(cut.reads, {n}, v)
        .Input("Out@GRAD", {n}, d)
        .Expect("X@GRAD", {n}, expected);
  }
  OpTest("hard_sigmoid_grad")
      .Attr("slope", 0.f)
      .Input("Out", {2}, {0.5, 0.5})
      .Input("Out@GRAD", {2}, {kNan, 1})
      .Expect("X@GRAD", {2}, {0, 0});
}

// Adding 1 first would round these arguments away.
TEST(Activation, SmallArguments) {
  const std::vector<double> x = {1e-12, -1e-12};
  for (const char* type : {"log1p", "expm1"}) {
    const Tensor out = OpTest(type).Input("X", {2}, x).Output("Out", KernelMode::kReference);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(out.span<float>()[i], x[i], 1e-18) << type;
  }
}

// Beyond a threshold the derivative is exactly 0, below as above.
TEST(Activation, SoftReluThresholds) {
  OpTest("soft_relu")
      .Attr("threshold", 2.f)
      .Input("X", {4}, {-9, -2, 1, 9})
      .Expect("Out", {4},
              {std::log1p(std::exp(-2)), std::log1p(std::exp(-2)), std::log1p(std::exp(1)),
               std::log1p(std::exp(2))});
  for (double x : {-9.0, -2.0, 2.0, 9.0}) {
    const Tensor out =
        OpTest("soft_relu").Attr("threshold", 2.f).Input("X", {1}, {x}).Output("Out");
    OpTest("soft_relu_grad")
        .Attr("threshold", 2.f)
        .TensorInput("Out", out)
        .TensorInput("Out@GRAD", Tensor::Of<float>({1}, {1}))
        .Expect("X@GRAD", {1}, {0});
  }
}

// Below 0 the recurrence comes after a reflection.
TEST(Activation, LgammaDerivatives) {
  OpTest("lgamma_grad")
      .Input("X", {4}, {1, -0.5, 20, -2})
      .Input("Out@GRAD", {4}, {1, 1, 1, 1})
      .Expect("X@GRAD", {4},
              {-0.57721566490153286, 0.03648997397857652, 2.97052399224214905, kNan});
  OpTest("lgamma_grad_grad")
      .Input("X", {3}, {1, -0.5, 20})
      .Input("DOut", {3}, {1, 1, 1})
      .Input("DDX", {3}, {1, 1, 1})
      .Expect("DV", {3}, {1.64493406684822644, 8.93480220054467931, 0.05127082293520307});
  OpTest("lgamma").RandomInput("X", {20}, -0.9, -0.1).CheckGradient({"X"}, {1e-6, 1e-4, 6});
}

TEST(Activation, Attrs) {
  OpTest("leaky_relu").Attr("alpha", 0.5f).Input("X", {2}, {-2, 3}).Expect("Out", {2}, {-1, 3});
  OpTest("relu6").Attr("threshold", 2.f).Input("X", {3}, {-2, 1, 3}).Expect("Out", {3}, {0, 1, 2});
  OpTest("elu").Attr("alpha", 2.f).Input("X", {1}, {-1}).Expect("Out", {1}, {2 * std::expm1(-1)});
  OpTest("hard_sigmoid")
      .Attr("slope", 0.5f)
      .Attr("offset", 0.25f)
      .Input("X", {2}, {1, 9})
      .Expect("Out", {2}, {0.75, 1});
  OpTest("hard_sigmoid")
      .Attr("slope", 0.f)
      .Input("X", {3}, {kInf, -kInf, 2})
      .Expect("Out", {3}, {kNan, kNan, 0.5})
      .CheckFast();
  OpTest("hard_swish")
      .Attr("threshold", 4.f)
      .Attr("scale", 2.f)
      .Attr("offset", 1.f)
      .Input("X", {4}, {-2, 1, 2, 5})
      .Expect("Out", {4}, {0, 1, 3, 10})
      .CheckGradient({"X"})
      .CheckFast();
  // min(max(X + offset, 0), threshold) is a negative threshold everywhere.
  OpTest("hard_swish")
      .Attr("threshold", -1.f)
      .Attr("scale", 2.f)
      .Attr("offset", -1.f)
      .Input("X", {4}, {-2, 0.5, 2, 5})
      .Expect("Out", {4}, {1, -0.25, -1, -2.5})
      .CheckGradient({"X"})
      .CheckFast();
  OpTest("swish")
      .Attr("beta", 2.f)
      .Input("X", {1}, {1})
      .Expect("Out", {1}, {1 / (1 + std::exp(-2))})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"})
      .CheckFast();
  OpTest("softplus")
      .Attr("beta", 2.f)
      .Attr("threshold", 3.f)
      .Input("X", {2}, {1, 2})
      .Expect("Out", {2}, {std::log1p(std::exp(2)) / 2, 2})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("gelu")
      .Attr("approximate", true)
      .Input("X", {2}, {1, -0.5})
      .Expect("Out", {2}, {0.8411920, -0.1542860})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("brelu")
      .Attr("t_min", -1.f)
      .Attr("t_max", 1.f)
      .Input("X", {4}, {-2, -0.5, 0.5, 2})
      .Expect("Out", {4}, {-1, -0.5, 0.5, 1})
      .CheckGradient({"X"});
  OpTest("softshrink")
      .Attr("lambda", 1.f)
      .Input("X", {3}, {-3, 1, 2})
      .Expect("Out", {3}, {-2, 0, 1});
  OpTest("thresholded_relu")
      .Attr("threshold", 0.f)
      .Input("X", {3}, {-1, 0, 2})
      .Expect("Out", {3}, {0, 0, 2});
  OpTest("stanh")
      .Attr("scale_a", 2.f)
      .Attr("scale_b", 3.f)
      .Input("X", {1}, {0.25})
      .Expect("Out", {1}, {3 * std::tanh(0.5)})
      .CheckGradient({"X"});
  OpTest("selu")
      .Attr("scale", 2.f)
      .Attr("alpha", 0.5f)
      .Input("X", {2}, {-1, 1})
      .Expect("Out", {2}, {std::expm1(-1), 2})
      .CheckGradient({"X"});
}

TEST(Activation, Pow) {
  OpTest("pow")
      .Attr("factor", 3.f)
      .Input("X", {3}, {-2, 0.5, 1})
      .Expect("Out", {3}, {-8, 0.125, 1})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("pow")
      .Attr("factor", 9.f)
      .Input("X", {2}, {2, 3})
      .Input("FactorTensor", {1}, {2})
      .Expect("Out", {2}, {4, 9})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    OpTest("pow")
        .Input("X", {2}, {2, 3})
        .TensorInput("FactorTensor", Tensor::Of<double>({1}, {2}).Cast(dtype))
        .Expect("Out", {2}, {4, 9})
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"});
  }
  OpTest("pow").Attr("factor", 2.f).IntInput("X", {2}, {-3, 5}).Expect("Out", {2}, {9, 25});
  OpTest("pow_grad")
      .Attr("factor", 0.f)
      .Input("X", {1}, {0})
      .Input("Out@GRAD", {1}, {1})
      .Expect("X@GRAD", {1}, {0});
}

TEST(Activation, Rounding) {
  const std::vector<double> x = {-1.5, -0.2, 0, 0.5, 2.7};
  OpTest("sign").Input("X", {5}, x).Expect("Out", {5}, {-1, -1, 0, 1, 1});
  OpTest("floor").Input("X", {5}, x).Expect("Out", {5}, {-2, -1, 0, 0, 2});
  OpTest("ceil").Input("X", {5}, x).Expect("Out", {5}, {-1, 0, 0, 1, 3});
  OpTest("round").Input("X", {5}, x).Expect("Out", {5}, {-2, 0, 0, 1, 3});
  OpTest("trunc").Input("X", {5}, x).Expect("Out", {5}, {-1, 0, 0, 0, 2});
}

// Their gradient is zero, by an op that says so.
TEST(Activation, RoundingHasZeroGradient) {
  for (const char* type : {"sign", "floor", "ceil", "round", "trunc"}) CheckZeroGradient(type);
}

TEST(Activation, Integers) {
  OpTest("relu").IntInput("X", {2}, {-3, 5}, DType::kInt32).Expect("Out", {2}, {0, 5});
  OpTest("abs").IntInput("X", {2}, {-3, INT64_MIN}).Expect("Out", {2}, {3, -9223372036854775808.0});
  OpTest("square").IntInput("X", {2}, {-3, 5}).Expect("Out", {2}, {9, 25});
  OpTest("sign").IntInput("X", {3}, {-3, 0, 5}).Expect("Out", {3}, {-1, 0, 1});
  OpTest("trunc").IntInput("X", {2}, {-3, 5}).Expect("Out", {2}, {-3, 5});
}

// Second derivatives multiply without wrapping around: they have no loops for integers.
TEST(Activation, NoSecondDerivativesOfIntegers) {
  for (const char* type : {"square", "pow"}) {
    EXPECT_TRUE(DefaultOps().Get(std::string(type) + "_grad").HasLoopFor(DType::kInt32)) << type;
    EXPECT_FALSE(DefaultOps().Get(std::string(type) + "_grad_grad").HasLoopFor(DType::kInt32));
  }
}

TEST(Activation, GradientConstraints) {
  for (const Row& row : Rows()) {
    const OpSpec& def = DefaultOps().Get(std::string(row.type) + "_grad");
    const std::string v = def.inputs[0].name;
    OpTest(def.type).RandomInput(v, {2}).RandomInput("Out@GRAD", {3}).ExpectError(def.type + ".C3");
    OpTest(def.type)
        .RandomInput(v, {1})
        .IntInput("Out@GRAD", {1}, {1})
        .ExpectError(def.type + ".C4");
    if (!row.curved) continue;
    const std::string second = def.type + "_grad";
    OpTest(second)
        .RandomInput(v, {2})
        .RandomInput("DOut", {2})
        .RandomInput("DDX", {1})
        .ExpectError(second + ".C3");
    OpTest(second)
        .RandomInput(v, {1})
        .RandomInput("DOut", {1})
        .IntInput("DDX", {1}, {1})
        .ExpectError(second + ".C4");
  }
}

// Version 0 of two ops computed something else for some attrs (leaky_relu.C5, hard_shrink.C5).
TEST(Activation, AttrsOfOlderVersions) {
  const auto problem = [](const char* type, const char* attr, float value,
                          std::optional<ProgramDesc::OpVersions> versions) {
    ProgramDesc program;
    program.Root().Var("x").SetShape({2});
    program.Root().Var("y");
    program.Root().AppendOp(type, {{"X", {"x"}}}, {{"Out", {"y"}}}, {{attr, value}});
    program.SetOpVersions(std::move(versions));
    const auto problems = Verify(program, DefaultOps());
    return problems.empty() ? "" : problems[0].message;
  };
  const ProgramDesc::OpVersions old = {{"conv2d", 1}};
  for (const auto& [type, attr, value] :
       {std::tuple{"leaky_relu", "alpha", -0.5f}, std::tuple{"leaky_relu", "alpha", 2.f},
        std::tuple{"hard_shrink", "threshold", -1.f}}) {
    ExpectConstraint(problem(type, attr, value, old), std::string(type) + ".C5");
    EXPECT_EQ(problem(type, attr, value, std::nullopt), "");
    EXPECT_EQ(problem(type, attr, value, ProgramDesc::OpVersions{{type, 1}}), "");
    EXPECT_EQ(problem(type, attr, 0.5f, old), "");
  }
}

TEST(Activation, PowConstraints) {
  OpTest("pow").RandomInput("X", {2}).RandomInput("FactorTensor", {2}).ExpectError("pow.C1");
  OpTest("pow")
      .RandomInput("X", {2})
      .IntInput("FactorTensor", {1}, {2}, DType::kInt8)
      .ExpectError("pow.C2");
  const auto grad = [] {
    OpTest test("pow_grad");
    test.RandomInput("X", {2}).RandomInput("Out@GRAD", {2});
    return test;
  };
  grad().RandomInput("FactorTensor", {2}).ExpectError("pow_grad.C1");
  grad().IntInput("FactorTensor", {1}, {2}, DType::kInt8).ExpectError("pow_grad.C2");
  OpTest("pow_grad").RandomInput("X", {2}).RandomInput("Out@GRAD", {3}).ExpectError("pow_grad.C3");
  OpTest("pow_grad")
      .RandomInput("X", {1})
      .IntInput("Out@GRAD", {1}, {1})
      .ExpectError("pow_grad.C4");
  const auto second = [] {
    OpTest test("pow_grad_grad");
    test.RandomInput("X", {2}).RandomInput("DOut", {2});
    return test;
  };
  second().RandomInput("DDX", {2}).RandomInput("FactorTensor", {2}).ExpectError("pow_grad_grad.C1");
  second()
      .RandomInput("DDX", {2})
      .IntInput("FactorTensor", {1}, {2}, DType::kInt8)
      .ExpectError("pow_grad_grad.C2");
  second().RandomInput("DDX", {3}).ExpectError("pow_grad_grad.C3");
  second().IntInput("DDX", {2}, {1, 2}).ExpectError("pow_grad_grad.C4");
}

}  // namespace coracle::activation_test
