#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::svm_test {

using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;
using Doubles = std::vector<double>;

const Doubles& TwoRows() {
  static const Doubles rows = {0.5, -1, 2, 0.25};
  return rows;
}

// Two support vectors of two features, one machine.
OpTest Regression(const std::string& kernel, float degree = 3) {
  OpTest op("svm");
  op.Attr("kernel", kernel)
      .Attr("gamma", 0.5f)
      .Attr("coef0", 0.25f)
      .Attr("degree", degree)
      .Attr("vectors", int64_t{2})
      .Attr("support_vectors", Floats{1, 2, -1, 0.5f})
      .Attr("coefficients", Floats{0.75f, -0.5f})
      .Attr("rho", Floats{0.125f})
      .Input("X", {2, 2}, TwoRows());
  return op;
}

double Kernel(const std::string& kernel, double degree, const double* x, const double* v) {
  const double dot = x[0] * v[0] + x[1] * v[1];
  if (kernel == "linear") return dot;
  if (kernel == "poly") return std::pow(0.5 * dot + 0.25, degree);
  if (kernel == "sigmoid") return std::tanh(0.5 * dot + 0.25);
  return std::exp(-0.5 * (std::pow(x[0] - v[0], 2) + std::pow(x[1] - v[1], 2)));
}

TEST(Svm, Kernels) {
  const double vectors[] = {1, 2, -1, 0.5};
  for (const std::string kernel : {"linear", "poly", "rbf", "sigmoid"}) {
    for (double degree : {1., 2., 3., 4.}) {
      Doubles wanted;
      for (const double* x : {&TwoRows()[0], &TwoRows()[2]}) {
        wanted.push_back(0.125 + 0.75 * Kernel(kernel, degree, x, vectors) -
                         0.5 * Kernel(kernel, degree, x, vectors + 2));
      }
      Regression(kernel, static_cast<float>(degree))
          .NoOutput("Label")
          .Expect("Out", {2, 1}, wanted);
    }
  }
}

// Three classes with 1, 2 and 1 vectors of one feature, and linear kernels.
OpTest Classes() {
  OpTest op("svm");
  op.Attr("vectors", int64_t{4})
      .Attr("support_vectors", Floats{1, 2, 3, 4})
      .Attr("coefficients", Floats{10, 20, 30, 40, 1, 2, 3, 4})
      .Attr("rho", Floats{0.5f, -7, 100})
      .Attr("vectors_per_class", Longs{1, 2, 1})
      .Input("X", {2, 1}, {1, -1});
  return op;
}

// The decisions by hand. Pair (0, 1): the vector of class 0 in row 0, those of class 1 in row 0:
// 10 * 1 + 20 * 2 + 30 * 3 = 140. Pair (0, 2): class 0 in row 1, class 2 in row 0: 1 * 1 + 40 * 4.
// Pair (1, 2): class 1 in row 1, class 2 in row 1: 2 * 2 + 3 * 3 + 4 * 4 = 29.
TEST(Svm, Pairs) {
  Classes().Expect("Out", {2, 3}, {140.5, 154, 129, -139.5, -168, 71});
  EXPECT_TRUE(BitEqual(Classes().Output("Label"), Tensor::Of<int64_t>({2}, {0, 1})));
  // Each class wins one pair.
  OpTest equal = Classes();
  equal.Attr("rho", Floats{0.5f, -7000, 100});
  EXPECT_EQ(equal.Output("Label").data<int64_t>()[0], 0);
}

// The probabilities p of algorithm 2 minimise the sum over pairs of (r_ji p_i - r_ij p_j)^2, so
// Q p is the same number for all classes, up to the tolerance at which the iteration ends.
TEST(Svm, Probabilities) {
  const Floats a = {-0.02f, -0.01f, -0.03f}, b = {0.1f, 0.2f, 0.3f};
  OpTest op = Classes();
  op.Attr("prob_a", a).Attr("prob_b", b);
  const Doubles decisions = {140.5, 154, 129, -139.5, -168, 71};
  const Tensor out = op.Output("Out").Cast(DType::kFloat64);
  ASSERT_EQ(out.shape(), Shape({2, 3}));
  for (size_t row = 0; row < 2; ++row) {
    const double* p = out.data<double>() + 3 * row;
    EXPECT_NEAR(p[0] + p[1] + p[2], 1, 1e-6);
    double r[3][3] = {};
    size_t pair = 0;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = i + 1; j < 3; ++j, ++pair) {
        const double f =
            static_cast<double>(a[pair]) * decisions[3 * row + pair] + static_cast<double>(b[pair]);
        r[i][j] = 1 / (1 + std::exp(f));
        r[j][i] = 1 - r[i][j];
      }
    }
    Doubles qp(3, 0);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) {
        if (i != j) qp[i] += r[j][i] * r[j][i] * p[i] - r[j][i] * r[i][j] * p[j];
      }
    }
    const double middle = p[0] * qp[0] + p[1] * qp[1] + p[2] * qp[2];
    for (double value : qp) EXPECT_NEAR(value, middle, 0.005 / 3);
  }
}

// Two classes: the pair's probability itself.
TEST(Svm, TwoProbabilities) {
  const double f = -0.5 * (0.75 * 1 + 2 * 0.5 + 0.25) + 0.125;
  OpTest("svm")
      .Attr("vectors", int64_t{2})
      .Attr("support_vectors", Floats{1, 0.5f})
      .Attr("coefficients", Floats{0.75f, 2})
      .Attr("rho", Floats{0.25f})
      .Attr("vectors_per_class", Longs{1, 1})
      .Attr("prob_a", Floats{-0.5f})
      .Attr("prob_b", Floats{0.125f})
      .Input("X", {1, 1}, {1})
      .Expect("Out", {1, 2}, {1 / (1 + std::exp(f)), 1 - 1 / (1 + std::exp(f))}, 2e-3);
}

// Many rows are divided among threads; no rows give no results.
TEST(Svm, Rows) {
  Doubles x, wanted;
  for (int i = 0; i < 500; ++i) {
    x.push_back(i);
    wanted.push_back(2. * i + 1);
  }
  OpTest op("svm");
  op.Attr("support_vectors", Floats{2}).Attr("coefficients", Floats{1}).Attr("rho", Floats{1});
  OpTest none = op;
  op.Input("X", {500, 1}, x).Expect("Out", {500, 1}, wanted);
  none.Input("X", {0, 1}, {}).Expect("Out", {0, 1}, {});
}

TEST(Svm, C1_Columns) {
  OpTest("svm")
      .Attr("support_vectors", Floats{1, 2})
      .Attr("coefficients", Floats{1})
      .Attr("rho", Floats{1})
      .Input("X", {1, 3}, {1, 2, 3})
      .ExpectError("svm.C1");
}

TEST(Svm, C2_Vectors) {
  Regression("linear").Attr("vectors", int64_t{3}).ExpectError("svm.C1");
  OpTest("svm").Attr("vectors", int64_t{0}).Input("X", {1, 0}, {}).ExpectError("svm.C2");
}

TEST(Svm, C3_Classes) {
  for (const Longs& counts : {Longs{4}, Longs{1, 2}, Longs{5, -1}, Longs{1, INT64_MAX}})
    Classes().Attr("vectors_per_class", counts).ExpectError("svm.C3");
}

TEST(Svm, C4_Coefficients) {
  Classes().Attr("coefficients", Floats{1, 2, 3, 4}).ExpectError("svm.C4");
}

TEST(Svm, C5_Rho) { Classes().Attr("rho", Floats{1}).ExpectError("svm.C5"); }

TEST(Svm, C6_Probabilities) {
  Classes().Attr("prob_a", Floats{1, 2, 3}).ExpectError("svm.C6");
  Regression("linear").Attr("prob_a", Floats{1}).Attr("prob_b", Floats{1}).ExpectError("svm.C6");
}

}  // namespace coracle::svm_test
