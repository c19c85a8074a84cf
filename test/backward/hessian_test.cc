// Hessians and Hessian-vector products: exact values where they are known, else against central
// differences of the gradient, in double, run by the executor with all passes.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/test/backward/loop_ops.h>
#include <coracle/test/backward/test_ops.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>

namespace coracle::hessian_test {

constexpr double kStep = 1e-5;

Tensor Draws(const Shape& shape, const std::string& name, double low = -1, double high = 1) {
  Tensor t(DType::kFloat64, shape);
  const Philox random(5, HashName(name), 0);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<double>()[i] = low + (high - low) * random.UniformDouble(static_cast<uint64_t>(i));
  return t;
}

// A network in double, its parameters and feeds.
class Network {
 public:
  Network() : net(main, startup) {}

  Variable Feed(const std::string& name, const Tensor& value) {
    feeds_[name] = value;
    return net.Data(name, value.shape(), value.dtype());
  }
  void Initialize() {
    Executor().Run(startup, scope_);
    parameters_ = main.Parameters();
    for (const std::string& name : parameters_) {
      Tensor& value = scope_.GetMutable(name);
      value = Draws(value.shape(), name, -0.8, 0.8);
    }
  }
  std::vector<Variable> Parameters() {
    std::vector<Variable> variables;
    for (const std::string& name : main.Parameters())
      variables.push_back(Variable::Of(main.Root(), name));
    return variables;
  }
  std::vector<Tensor> Run(const std::vector<std::string>& fetches) {
    return Executor().Run(main, scope_, feeds_, fetches);
  }
  // Central differences of fetched tensors as element i of a parameter moves.
  class Differences {
   public:
    Differences(Network& network, const std::vector<std::string>& fetches) : network_(network) {
      std::vector<std::string> names;
      for (const auto& [name, value] : network.feeds_) {
        names.push_back(name);
        feeds_.push_back(value);
      }
      prepared_.emplace(Executor().Prepare(network.main, names, fetches));
    }
    std::vector<std::vector<double>> operator()(const std::string& param, int64_t i) {
      double& element = network_.scope_.GetMutable(param).data<double>()[i];
      const double at = element;
      element = at + kStep;
      std::vector<std::vector<double>> result = RunOnce();
      element = at - kStep;
      const std::vector<std::vector<double>> minus = RunOnce();
      element = at;
      for (size_t f = 0; f < result.size(); ++f) {
        for (size_t k = 0; k < result[f].size(); ++k)
          result[f][k] = (result[f][k] - minus[f][k]) / (2 * kStep);
      }
      return result;
    }

   private:
    std::vector<std::vector<double>> RunOnce() {
      std::vector<std::vector<double>> values;
      for (const Tensor& t : prepared_->Run(network_.scope_, feeds_))
        values.emplace_back(t.data<double>(), t.data<double>() + t.numel());
      return values;
    }
    Network& network_;
    std::vector<Tensor> feeds_;
    std::optional<PreparedProgram> prepared_;
  };

  ProgramDesc main, startup;
  Builder net;

 private:
  Scope scope_;
  std::map<std::string, Tensor> feeds_;
  std::vector<std::string> parameters_;
};

// Every Hessian of the loss by one parameter, and the product of the Hessian by all parameters with
// a random vector, against differences of the gradients.
void ExpectSecondDerivatives(Network& network, const Variable& loss) {
  network.Initialize();
  const std::vector<Variable> xs = network.Parameters();
  std::vector<Variable> vectors;
  std::map<std::string, Tensor> v;
  for (const Variable& x : xs) {
    v[x.name()] = Draws(x.shape(), x.name() + "_vector");
    vectors.push_back(network.Feed(x.name() + "_vector", v[x.name()]));
  }
  const std::vector<std::string> gradients = Gradients({loss}, xs);
  const std::vector<std::string> hessians = Hessian(loss, xs);
  const std::vector<std::string> products = HessianVectorProduct(loss, xs, vectors);
  std::vector<std::string> fetches = hessians;
  fetches.insert(fetches.end(), products.begin(), products.end());
  for (const std::string& name : fetches) ASSERT_NE(name, "");
  const std::vector<Tensor> results = network.Run(fetches);
  Network::Differences differences(network, gradients);
  double largest = 0;
  std::vector<std::vector<double>> numeric_products(xs.size());
  for (size_t j = 0; j < xs.size(); ++j) {
    const int64_t n = xs[j].shape().numel();
    const Tensor& hessian = results[j];
    ASSERT_EQ(hessian.shape().rank(), 2 * xs[j].shape().rank());
    ASSERT_EQ(hessian.numel(), n * n);
    for (int64_t i = 0; i < n; ++i) {
      const std::string& x = xs[j].name();
      const std::vector<std::vector<double>> columns = differences(x, i);
      for (size_t k = 0; k < xs.size(); ++k) {
        const std::vector<double>& column = columns[k];
        numeric_products[k].resize(column.size());
        for (size_t r = 0; r < column.size(); ++r) {
          numeric_products[k][r] += column[r] * v.at(x).data<double>()[i];
          if (k != j) continue;
          const double h = hessian.data<double>()[static_cast<int64_t>(r) * n + i];
          largest = std::max(largest, std::abs(h));
          EXPECT_NEAR(h, column[r], 1e-6 * std::max(1.0, std::abs(h)))
              << x << ", row " << r << ", column " << i;
        }
      }
    }
  }
  EXPECT_GT(largest, 1e-3);
  for (size_t k = 0; k < xs.size(); ++k) {
    const Tensor& product = results[xs.size() + k];
    ASSERT_EQ(product.shape().ToString(), xs[k].shape().ToString());
    for (int64_t r = 0; r < product.numel(); ++r) {
      const double numeric = numeric_products[k][static_cast<size_t>(r)];
      EXPECT_NEAR(product.data<double>()[r], numeric, 1e-6 * std::max(1.0, std::abs(numeric)))
          << "product, " << xs[k].name() << " at " << r;
    }
  }
}

std::vector<double> ToVector(const Tensor& t) {
  return {t.data<double>(), t.data<double>() + t.numel()};
}

// y = x' A x / 2 + b' x has the Hessian (A + A') / 2, whatever x is.
TEST(Hessian, Quadratic) {
  Network network;
  const Variable a = network.Feed("a", Tensor::Of<double>({2, 2}, {4, 1, 3, 10}));
  const Variable b = network.Feed("b", Tensor::Of<double>({2}, {5, 6}));
  const Variable v = network.Feed("v", Tensor::Of<double>({2}, {1, 100}));
  const Variable x =
      network.net.Parameter("x", {2}, DType::kFloat64, {.name = "x"}, ConstantInitializer(0.5));
  const Variable ax = network.net.Matmul(x, a);
  const Variable quadratic = network.net.Scale(network.net.Mul(ax, x), {.scale = 0.5f});
  const Variable linear = network.net.Mul(b, x);
  const Variable y = network.net.ReduceSum(network.net.Add(quadratic, linear));
  network.Initialize();
  const std::string hessian = Hessian(y, {x})[0];
  const std::string product = HessianVectorProduct(y, {x}, {v})[0];
  const std::vector<Tensor> results = network.Run({hessian, product});
  EXPECT_EQ(results[0].shape(), Shape({2, 2}));
  EXPECT_EQ(ToVector(results[0]), (std::vector<double>{4, 2, 2, 10}));
  EXPECT_EQ(ToVector(results[1]), (std::vector<double>{204, 1002}));
}

TEST(Hessian, LogisticRegression) {
  Network network;
  const Variable x = network.Feed("x", Draws({8, 3}, "x"));
  const Variable label =
      network.Feed("label", Tensor::Of<double>({8, 1}, {0, 1, 1, 0, 1, 0, 0, 1}));
  const Variable logit = network.net.Fc(x, {.size = 1});
  ExpectSecondDerivatives(
      network, network.net.Mean(network.net.SigmoidCrossEntropyWithLogits(logit, label)));
}

TEST(Hessian, ConvNet) {
  Network network;
  const Variable image = network.Feed("image", Draws({3, 1, 6, 6}, "image"));
  const Variable label = network.Feed("label", Tensor::Of<int64_t>({3, 1}, {2, 0, 1}));
  Builder& net = network.net;
  Variable h = net.Conv2d(image, {.num_filters = 2, .filter_size = 3});
  h = net.BatchNorm(h, {.act = "tanh"});
  h = net.Pool2d(h, {.pool_size = 2, .pool_type = "avg", .pool_stride = 2});
  const Variable logits = net.Fc(h, {.size = 3});
  ExpectSecondDerivatives(network, net.Mean(net.SoftmaxWithCrossEntropy(logits, label)));
}

// --- small programs of test ops ---

HessianOptions Options() {
  HessianOptions options;
  options.ops = &DefaultOps();
  return options;
}

class SmallHessian : public ::testing::Test {
 protected:
  Variable Param(const std::string& name, const Shape& shape) {
    return net.Parameter(name, shape, DType::kFloat64, {.name = name}, ConstantInitializer(2));
  }
  std::vector<Tensor> Run(const std::vector<std::string>& fetches) {
    Scope scope;
    Executor().Run(startup, scope);
    return Executor().Run(main, scope, {}, fetches);
  }
  void ExpectInvalid(const std::function<void()>& call, const std::string& text) {
    const std::string before = DebugText();
    try {
      call();
      ADD_FAILURE() << "no error; expected one with '" << text << "'";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(e.message().find(text), std::string::npos) << e.message();
    }
    EXPECT_EQ(before, DebugText()) << "the program was changed";
  }
  std::string DebugText() const {
    std::string text;
    const BlockDesc& block = main.Root();
    for (size_t i = 0; i < block.NumOps(); ++i) text += block.op(i).type() + " ";
    for (size_t i = 0; i < block.NumVars(); ++i) text += block.var(i).name() + " ";
    return text;
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
};

TEST_F(SmallHessian, LinearAndUnrelatedInputs) {
  const Variable x = Param("x", {2}), w = Param("w", {3}), u = Param("u", {2});
  const Variable square = net.Unary("square", w);
  const Variable y = net.Add(net.ReduceSum(x), net.ReduceSum(square));
  const Variable vx = Param("vx", {2}), vw = Param("vw", {3});
  const std::vector<std::string> hessians = Hessian(y, {x, u, w}, Options());
  const std::vector<std::string> products = HessianVectorProduct(y, {x, u, w}, {vx, vx, vw});
  EXPECT_EQ(hessians[1], "");
  EXPECT_EQ(products[1], "");
  const std::vector<Tensor> results = Run({hessians[0], hessians[2], products[0], products[2]});
  EXPECT_EQ(ToVector(results[0]), std::vector<double>(4, 0.0));
  EXPECT_EQ(ToVector(results[1]), (std::vector<double>{2, 0, 0, 0, 2, 0, 0, 0, 2}));
  EXPECT_EQ(ToVector(results[2]), std::vector<double>(2, 0.0));
  EXPECT_EQ(ToVector(results[3]), std::vector<double>(3, 4.0));
}

// d2 (x0 x1 x2 x3) / dx dx at 2: the product of the other two, 4.
TEST_F(SmallHessian, OfAMatrixHasFourDimensions) {
  const Variable x = Param("x", {2, 2});
  const Variable y = net.Reduce("reduce_prod", x);
  const std::vector<Tensor> results = Run(Hessian(y, {x}));
  EXPECT_EQ(results[0].shape(), Shape({2, 2, 2, 2}));
  EXPECT_EQ(ToVector(results[0]),
            (std::vector<double>{0, 4, 4, 4, 4, 0, 4, 4, 4, 4, 0, 4, 4, 4, 4, 0}));
}

// The Hessian of a gradient penalty: y = |d(sum x^3)/dx|^2 = 9 x^4, y'' = 108 x^2.
TEST_F(SmallHessian, OfAFunctionOfGradients) {
  const Variable x = Param("x", {1});
  const Variable cube = net.Mul(net.Mul(x, x), x);
  const std::string g = Gradients({cube}, {x})[0];
  const Variable y = net.Mul(Variable::Of(main.Root(), g), Variable::Of(main.Root(), g));
  EXPECT_EQ(ToVector(Run(Hessian(y, {x}))[0]), (std::vector<double>{108 * 4}));
}

// v is constant, also where it is computed from x: y = x^3, H v = 6 x * x.
TEST_F(SmallHessian, TheVectorIsConstant) {
  const Variable x = Param("x", {1});
  const Variable y = net.Mul(net.Mul(x, x), x);
  EXPECT_EQ(ToVector(Run(HessianVectorProduct(y, {x}, {x}))[0]), (std::vector<double>{24}));
}

TEST_F(SmallHessian, T37_InvalidShapes) {
  const Variable x = Param("x", {10, 10});
  ExpectInvalid([&] { Hessian(x, {x}); }, "y must hold one element, the shape of 'x' is [10, 10]");
  const Variable open = net.Data("open", {-1, 3}, DType::kFloat64);
  ExpectInvalid([&] { Hessian(open, {open}); }, "y must hold one element");
  const Variable y = net.ReduceSum(open);
  ExpectInvalid([&] { Hessian(y, {open}); }, "must be known when the program is built");
  const Variable deep = Param("deep", {1, 1, 1, 1, 1});
  const Variable z = net.ReduceSum(deep);
  ExpectInvalid([&] { Hessian(z, {deep}); }, "more than 9 dimensions");
  ExpectInvalid([&] { Hessian(Variable(), {x}); }, "y is an empty Variable");
  ExpectInvalid([&] { Hessian(z, {Variable()}); }, "an x is an empty Variable");
}

TEST_F(SmallHessian, InvalidVectors) {
  const Variable x = Param("x", {2}), w = Param("w", {3});
  const Variable y = net.ReduceSum(net.Unary("square", x));
  ExpectInvalid([&] { HessianVectorProduct(y, {x, w}, {x}); }, "got 1 vectors for 2 xs");
  ExpectInvalid([&] { HessianVectorProduct(y, {x}, {w}); },
                "the vector 'w' is float64[3], its x 'x' is float64[2]");
  ExpectInvalid([&] { HessianVectorProduct(x, {x}, {x}); }, "y must hold one element");
  ExpectInvalid([&] { HessianVectorProduct(y, {x}, {Variable()}); },
                "a vector is an empty Variable");
}

// The first gradients are removed if there is no second gradient.
TEST_F(SmallHessian, LeavesTheProgramAsItWasOnAMissingRule) {
  const Variable x = Param("x", {4});
  OpDesc& op = main.Root().AppendOp("top_k", {{"X", {"x"}}}, {{"Out", {"o"}}, {"Indices", {"i"}}},
                                    {{"k", int32_t{1}}});
  main.Root().Var("o");
  main.Root().Var("i");
  InferOp(main.Root(), op, DefaultOps());
  const Variable y = net.Unary("square", Variable::Of(main.Root(), "o"));
  const std::string before = DebugText();
  EXPECT_THROW(Hessian(y, {x}), Error);
  EXPECT_THROW(HessianVectorProduct(y, {x}, {x}), Error);
  EXPECT_EQ(before, DebugText());
}

// Backward edits the forward block of a loop: its copies, and the outputs it gave to the loop.
TEST(HessianOfALoop, LeavesTheProgramAsItWas) {
  TestProgram test({2});
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  BlockDesc& body = test.program.AppendBlock(test.root());
  TestProgram::AppendTo(body, "t_square", {"h"}, "a");
  TestProgram::AppendTo(body, "t_mul", {"a", "w"}, "a");
  TestProgram::AppendTo(body, "t_tanh", {"a"}, "h");
  test.root().AppendOp("t_loop", {{"X", {"h", "w"}}}, {{"Out", {"h"}}},
                       {{"sub_block", BlockRef{body.idx()}}, {"times", int32_t{3}}});
  const Variable loss = test.Loss("h");
  HessianOptions options;
  options.ops = &LoopOps();
  const ProgramDesc before = test.program;
  EXPECT_THROW(Hessian(loss, {test.Var("w")}, options), Error);
  EXPECT_TRUE(test.program == before);
  EXPECT_THROW(HessianVectorProduct(loss, {test.Var("w")}, {test.Var("w")}, options), Error);
  EXPECT_TRUE(test.program == before);
}
}  // namespace coracle::hessian_test
