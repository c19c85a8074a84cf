// Caffe's six solvers by our optimizers: golden numbers computed from the formulas of its sources
// in double precision, and its order of clip, normalization and decay.

#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

namespace coracle::caffe_solver_test {

using Row = std::vector<double>;  // the weight, then the state

struct Golden {
  const char* name;
  std::function<std::unique_ptr<Optimizer>()> make;
  std::vector<std::string> state;  // variables
  std::vector<Row> rows;
  bool exact = false;  // decimals of few digits; else the rows are rounded to nine digits
};

template <class T, class O>
std::function<std::unique_ptr<Optimizer>()> Of(const O& options) {
  return [options] { return std::make_unique<T>(options); };
}

// Half a unit of the ninth digit.
double Rounding(double value) {
  return 0.5000001 * std::pow(10, std::floor(std::log10(std::abs(value))) - 8);
}

const std::vector<double> kGradients = {0.5, -0.25, 1, 0.125};

// One weight, 1 at first; learning rate 0.1 unless said.
std::vector<Golden> AllGolden() {
  const MomentumOptions sgd = {.learning_rate = 0.1, .momentum = 0.9, .velocity_holds_rate = true};
  MomentumOptions nesterov = sgd;
  nesterov.use_nesterov = true;
  return {
      {"SGD",
       Of<Momentum>(sgd),
       {"w_velocity_0"},
       {{0.95, 0.05}, {0.93, 0.02}, {0.812, 0.118}, {0.6933, 0.1187}},
       true},
      {"Nesterov",
       Of<Momentum>(nesterov),
       {"w_velocity_0"},
       {{0.905, 0.05}, {0.912, 0.02}, {0.7058, 0.118}, {0.58647, 0.1187}},
       true},
      {"AdaGrad, delta 0.1",
       Of<Adagrad>(AdagradOptions{.learning_rate = 0.1, .epsilon = 0.1}),
       {"w_moment_0"},
       {{0.916666667, 0.25},
        {0.954601955, 0.3125},
        {0.874322192, 1.3125},
        {0.864341698, 1.328125}}},
      {"AdaGrad, delta 1e-8",
       Of<Adagrad>(AdagradOptions{.learning_rate = 0.1, .epsilon = 1e-8}),
       {"w_moment_0"},
       {{0.900000002}, {0.944721361}, {0.857434205}, {0.846587683}}},
      {"RMSProp, rho 0.95, delta 0.1",
       Of<DecayedAdagrad>(
           DecayedAdagradOptions{.learning_rate = 0.1, .decay = 0.95, .epsilon = 0.1}),
       {"w_moment_0"},
       {{0.763932023, 0.0125},
        {0.876304458, 0.015},
        {0.593399689, 0.06425},
        {0.557545446, 0.06181875}}},
      {"RMSProp, rho 0.99, delta 1e-8",
       Of<DecayedAdagrad>(
           DecayedAdagradOptions{.learning_rate = 0.1, .decay = 0.99, .epsilon = 1e-8}),
       {"w_moment_0"},
       {{1.9999996e-7}, {0.449013374}, {-0.425726216}, {-0.534961897}}},
      {"AdaDelta, 0.95, delta 1e-6, rate 1",
       Of<Adadelta>(AdadeltaOptions{.epsilon = 1e-6, .rho = 0.95}),
       {"w__avg_squared_grad_0", "w__avg_squared_update_0"},
       {{0.995528043, 0.0125, 9.99920006e-7},
        {0.99841464, 0.015, 1.36654623e-6},
        {0.992345635, 0.06425, 3.13986048e-6},
        {0.99132272, 0.06181875, 3.03518513e-6}}},
      {"Adam, delta 1e-8",
       Of<Adam>(AdamOptions{.learning_rate = 0.1, .epsilon = 1e-8, .use_epsilon_hat = true}),
       {"w_moment1_0", "w_moment2_0"},
       {{0.900000063, 0.05, 0.00025},
        {0.873366374, 0.02, 0.00031225},
        {0.807555232, 0.118, 0.00131193775},
        {0.747657575, 0.1187, 0.00132625081}}},
      {"Adam, delta 0.1",
       Of<Adam>(AdamOptions{.learning_rate = 0.1, .epsilon = 0.1, .use_epsilon_hat = true}),
       {},
       {{0.986347294}, {0.98234771}, {0.964848715}, {0.948858585}}},
  };
}

// One parameter `w` and its gradient `g`, fed by hand.
class OneWeight {
 public:
  OneWeight(DType dtype, const std::vector<double>& w, Optimizer& optimizer, int64_t runs = 1) {
    const auto n = static_cast<int64_t>(w.size());
    for (const char* name : {"w", "g"}) {
      VarDesc& var = main_.Root().Var(name);
      var.SetDType(dtype);
      var.SetShape({n});
      var.SetPersistable(true);
    }
    main_.Root().FindVar("w")->SetIsParameter(true);
    const std::shared_ptr<Optimizer> borrowed(&optimizer, [](Optimizer*) {});
    AppendTrainingStep({.groups = {{.optimizer = borrowed}}, .accumulate = runs}, main_.Root(),
                       startup_, {{"w", "g"}});
    VerifyOrThrow(main_, DefaultOps());
    Interpret(startup_.Root(), DefaultOps(), env_);
    env_["w"] = Tensor::Of<double>({n}, w).Cast(dtype);
  }
  void Run(const std::vector<double>& g) {
    const Tensor& w = std::get<Tensor>(env_.at("w"));
    env_["g"] = Tensor::Of<double>({static_cast<int64_t>(g.size())}, g).Cast(w.dtype());
    Interpret(main_.Root(), DefaultOps(), env_);
  }
  std::vector<double> Values(const std::string& name) const {
    const Tensor wide = std::get<Tensor>(env_.at(name)).Cast(DType::kFloat64);
    const auto span = wide.span<double>();
    return {span.begin(), span.end()};
  }

 private:
  ProgramDesc main_, startup_;
  VarValues env_;
};

TEST(CaffeSolver, GoldenNumbers) {
  for (const Golden& golden : AllGolden()) {
    SCOPED_TRACE(golden.name);
    for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
      const auto optimizer = golden.make();
      OneWeight net(dtype, {1}, *optimizer);
      const auto tolerance = [&](double value) {
        if (dtype == DType::kFloat32) return 1e-6;
        return golden.exact ? 1e-12 : Rounding(value);
      };
      for (size_t step = 0; step < golden.rows.size(); ++step) {
        net.Run({kGradients[step]});
        const Row& row = golden.rows[step];
        EXPECT_NEAR(net.Values("w")[0], row[0], tolerance(row[0]))
            << ToString(dtype) << " step " << step;
        for (size_t i = 1; i < row.size(); ++i) {
          EXPECT_NEAR(net.Values(golden.state[i - 1])[0], row[i], tolerance(row[i]))
              << golden.state[i - 1] << " " << ToString(dtype) << " step " << step;
        }
      }
    }
  }
}

// Both eras of Paddle's Adam differ from each other where epsilon is large, as they should.
TEST(CaffeSolver, AdamsEpsilonOfBothEras) {
  double m = 0, v = 0, hat = 1, corrected = 1;
  Adam old_era({.learning_rate = 0.1, .epsilon = 0.1, .use_epsilon_hat = true});
  Adam new_era({.learning_rate = 0.1, .epsilon = 0.1});
  OneWeight a(DType::kFloat64, {1}, old_era), b(DType::kFloat64, {1}, new_era);
  for (int t = 1; t <= 4; ++t) {
    const double g = kGradients[static_cast<size_t>(t - 1)];
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double root = std::sqrt(1 - std::pow(0.999, t));
    const double rate = 0.1 * root / (1 - std::pow(0.9, t));
    hat -= rate * m / (std::sqrt(v) + 0.1);
    corrected -= rate * m / (std::sqrt(v) + 0.1 * root);
    a.Run({g});
    b.Run({g});
    EXPECT_NEAR(a.Values("w")[0], hat, 1e-12);
    EXPECT_NEAR(b.Values("w")[0], corrected, 1e-12);
  }
  EXPECT_GT(std::abs(hat - corrected), 0.1);
}

// g = [3, 4], w = [1, -2], clip 1, iter_size 2, decay 0.5: clipped [.6, .8], divided [.3, .4], with
// L2 [.8, -.6], with L1 [.8, -.1].
TEST(CaffeSolver, ClipNormalizeRegularize) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (auto [kind, w0, w1] : {std::tuple{"l2_decay", 0.92, -1.94}, {"l1_decay", 0.92, -1.99}}) {
      for (const char* clip : {"by_global_norm", "by_norm"}) {
        Momentum sgd({.learning_rate = 0.1, .momentum = 0.9, .velocity_holds_rate = true});
        sgd.SetGradientClip(Setting{clip, {{"clip_norm", 1.0}}});
        sgd.SetRegularizer(Setting{kind, {{"coeff", 0.5}}});
        sgd.SetGradientDivisor(2, true);
        OneWeight net(dtype, {1, -2}, sgd, 2);
        net.Run({1, 3});
        EXPECT_EQ(net.Values("w"), (std::vector<double>{1, -2}));
        net.Run({2, 1});
        const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-6;
        EXPECT_NEAR(net.Values("w")[0], w0, tolerance) << kind;
        EXPECT_NEAR(net.Values("w")[1], w1, tolerance) << kind;
      }
    }
  }
}

// The other order, the default: the mean [1.5, 2] has the norm 2.5, clipped to [.6, .8].
TEST(CaffeSolver, TheClipOfTheMean) {
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetGradientClip(Setting{"by_global_norm", {{"clip_norm", 1.0}}});
  sgd.SetGradientDivisor(2);
  OneWeight net(DType::kFloat64, {1, -2}, sgd, 2);
  net.Run({1, 3});
  net.Run({2, 1});
  EXPECT_NEAR(net.Values("w")[0], 1 - 0.06, 1e-12);
  EXPECT_NEAR(net.Values("w")[1], -2 - 0.08, 1e-12);
}

// sign(0) = 0: an L1 decay leaves a weight at zero.
TEST(CaffeSolver, L1OfZero) {
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetRegularizer(Setting{"l1_decay", {{"coeff", 0.5}}});
  OneWeight net(DType::kFloat64, {0, -1}, sgd);
  net.Run({0, 0});
  EXPECT_EQ(net.Values("w")[0], 0);
  EXPECT_NEAR(net.Values("w")[1], -0.95, 1e-15);
}

// The rate is inside the velocity: after the rate fell, what the velocity carries on did not.
TEST(CaffeSolver, VelocityKeepsItsRate) {
  double w = 1, h = 0;
  Momentum sgd({.learning_rate = 0.1, .momentum = 0.9, .velocity_holds_rate = true});
  sgd.SetSchedule(StepRate({0.1, 0.1, 2}));
  OneWeight net(DType::kFloat64, {1}, sgd);
  for (int step = 0; step < 4; ++step) {
    h = 0.9 * h + (step < 2 ? 0.1 : 0.01) * kGradients[static_cast<size_t>(step)];
    w -= h;
    net.Run({kGradients[static_cast<size_t>(step)]});
    EXPECT_NEAR(net.Values("w")[0], w, 1e-12) << step;
  }
}

// Caffe, src/caffe/solvers/sgd_solver.cpp; base 0.01.
TEST(CaffeSolver, LearningRatePolicies) {
  const auto expect = [](const LrSchedulePtr& schedule, int64_t t, double rate) {
    EXPECT_NEAR(schedule->At(t), rate, rate == 0 ? 0 : Rounding(rate)) << t;
  };
  const LrSchedulePtr step = StepRate({0.01, 0.1, 100});
  expect(step, 99, 0.01);
  expect(step, 100, 0.001);
  expect(step, 200, 1e-4);
  expect(ExponentialRate({0.01, 0.999}), 1000, 0.00367695425);
  const LrSchedulePtr inv = InvRate({0.01, 1e-4, 0.75});
  expect(inv, 100, 0.00992565029);
  expect(inv, 1000, 0.00931012445);
  const LrSchedulePtr poly = PolynomialRate({0.01, 1000, 0, 0.75});
  expect(poly, 500, 0.00594603558);
  for (int64_t t : {1000, 1001, 100000}) expect(poly, t, 0);  // Caffe: NaN past max_iter
  const LrSchedulePtr sigmoid = SigmoidRate({0.01, 0.05, 100});
  expect(sigmoid, 0, 6.69285092e-5);
  expect(sigmoid, 100, 0.005);
  expect(sigmoid, 200, 0.00993307149);
  expect(SigmoidRate({0.01, -0.05, 100}), 0, 0.00993307149);  // Caffe can only rise
  // Drops at exactly those steps; duplicates all at once; nothing to be saved but the step.
  const LrSchedulePtr multistep = MultiStepRate({0.01, 0.1, {50, 150, 300}});
  for (auto [t, rate] :
       {std::pair{49, 0.01}, {50, 1e-3}, {149, 1e-3}, {150, 1e-4}, {299, 1e-4}, {300, 1e-5}})
    expect(multistep, t, rate);
  expect(MultiStepRate({0.01, 0.1, {50, 50}}), 50, 1e-4);
}

// The small net of the sources' analysis: y = X w + b, loss = 1 / (2 N) |y - t|^2, decay 0.5 of
// the bias too.
TEST(CaffeSolver, SmallLeastSquares) {
  const double x[2][2] = {{1, 2}, {3, -1}}, t[2] = {1, 2};
  const std::vector<std::vector<double>> expected = {
      {0.53, -0.33, 0.16}, {0.567, -0.0595, 0.2505}, {0.585375, 0.217625, 0.33395}};
  const double losses[] = {0.4925, 0.236825, 0.0227558125};
  Momentum sgd({.learning_rate = 0.1, .momentum = 0.9, .velocity_holds_rate = true});
  sgd.SetRegularizer(Setting{"l2_decay", {{"coeff", 0.5}}});
  OneWeight net(DType::kFloat64, {0.5, -0.5, 0.1}, sgd);
  for (size_t step = 0; step < 3; ++step) {
    const std::vector<double> w = net.Values("w");
    std::vector<double> g(3);
    double loss = 0;
    for (int i = 0; i < 2; ++i) {
      const double error = x[i][0] * w[0] + x[i][1] * w[1] + w[2] - t[i];
      loss += error * error / 4;
      g[0] += error * x[i][0] / 2;
      g[1] += error * x[i][1] / 2;
      g[2] += error / 2;
    }
    EXPECT_NEAR(loss, losses[step], 1e-12);
    net.Run(g);
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(net.Values("w")[k], expected[step][k], 1e-12);
  }
}

TEST(CaffeSolver, ApplyUpdate) {
  Sgd sgd({.learning_rate = 0.25});
  OneWeight net(DType::kFloat32, {0}, sgd);
  net.Run({1});
  EXPECT_EQ(net.Values("w")[0], -0.25);
}

// --- statements about Caffe's solvers that are often wrong, against its sources ---

// The clip compares and divides by the norm; the sum of squares may well exceed the limit.
TEST(CaffeSolver, TheClipIsOfTheNormNotOfItsSquare) {
  for (auto [limit, factor] : {std::pair{6.0, 1.0}, {5.0, 1.0}, {2.0, 0.4}}) {
    Sgd sgd({.learning_rate = 1});
    sgd.SetGradientClip(Setting{"by_global_norm", {{"clip_norm", limit}}});
    OneWeight net(DType::kFloat64, {0, 0}, sgd);
    net.Run({3, 4});
    EXPECT_NEAR(net.Values("w")[0], -3 * factor, 1e-12) << limit;
    EXPECT_NEAR(net.Values("w")[1], -4 * factor, 1e-12) << limit;
  }
}

// A limit of 0 makes Caffe's gradients zero, and a negative one, its default, means no limit. Here
// a limit is positive, and no clip means no setting.
TEST(CaffeSolver, LimitsThatAreNotPositiveAreRefused) {
  for (double limit : {0.0, -1.0}) {
    Sgd sgd({.learning_rate = 1});
    sgd.SetGradientClip(Setting{"by_global_norm", {{"clip_norm", limit}}});
    EXPECT_THROW(OneWeight(DType::kFloat64, {0}, sgd), Error);
  }
}

// "RMSProp": delta joins the root, not what is under it, which makes a difference at small r: 1 /
// delta against 1 / sqrt(delta). AdaDelta's is under both roots.
TEST(CaffeSolver, DeltaIsBesideTheRootOrUnderIt) {
  const double g = 1e-9, r = 0.01 * g * g, delta = 1e-8;
  DecayedAdagrad rmsprop({.learning_rate = 1, .decay = 0.99, .epsilon = delta});
  Adagrad adagrad({.learning_rate = 1, .epsilon = delta});
  Adadelta adadelta({.learning_rate = 1, .epsilon = delta, .rho = 0.99});
  OneWeight a(DType::kFloat64, {0}, rmsprop), b(DType::kFloat64, {0}, adagrad),
      c(DType::kFloat64, {0}, adadelta);
  for (OneWeight* net : {&a, &b, &c}) net->Run({g});
  EXPECT_NEAR(a.Values("w")[0], -g / (std::sqrt(r) + delta), 1e-12);
  EXPECT_GT(-a.Values("w")[0], 900 * g / std::sqrt(r + delta));  // what the other would give
  EXPECT_NEAR(b.Values("w")[0], -g / (g + delta), 1e-12);
  EXPECT_NEAR(c.Values("w")[0] / g, -std::sqrt(delta / (r + delta)), 1e-12);
}

// "Nesterov" has no r (twice the gradient, twice the step). Its gradient is taken at the stored
// weights, which are the point looked ahead to: w = theta - mu h of the classical theta <- theta -
// h with h <- mu h + lr g(theta - mu h). Here f = w^2 / 2.
TEST(CaffeSolver, NesterovStoresThePointLookedAheadTo) {
  const double lr = 0.1, mu = 0.9;
  Momentum one(
      {.learning_rate = lr, .momentum = mu, .use_nesterov = true, .velocity_holds_rate = true});
  Momentum two(
      {.learning_rate = lr, .momentum = mu, .use_nesterov = true, .velocity_holds_rate = true});
  OneWeight net(DType::kFloat64, {1}, one), twice(DType::kFloat64, {2}, two);
  double theta = 1, h = 0;
  for (int step = 0; step < 6; ++step) {
    h = mu * h + lr * (theta - mu * h);
    theta -= h;
    net.Run(net.Values("w"));
    twice.Run(twice.Values("w"));
    EXPECT_NEAR(net.Values("w")[0], theta - mu * h, 1e-12) << step;
    EXPECT_GT(std::abs(net.Values("w")[0] - theta), 0.01);
    EXPECT_NEAR(twice.Values("w")[0], 2 * net.Values("w")[0], 1e-12);
    EXPECT_NEAR(net.Values("w_velocity_0")[0], h, 1e-12);  // the sign: h is subtracted
  }
}

// "Normalize" limits nothing: it divides by iter_size.
TEST(CaffeSolver, NormalizeDividesByIterSizeAlone) {
  for (int64_t runs : {1, 4}) {
    Sgd sgd({.learning_rate = 1});
    sgd.SetGradientDivisor(static_cast<double>(runs), true);
    OneWeight net(DType::kFloat64, {0}, sgd, runs);
    for (int64_t run = 0; run < runs; ++run) net.Run({1e6});
    EXPECT_EQ(net.Values("w")[0], -1e6);
  }
}

// Adam without `momentum` has beta1 = 0 in Caffe, AdaDelta without it the decay 0: both run.
TEST(CaffeSolver, MomentumOfZero) {
  Adam adam({.learning_rate = 0.1, .beta1 = 0, .epsilon = 1e-8, .use_epsilon_hat = true});
  Adadelta adadelta({.learning_rate = 0.1, .epsilon = 1e-6, .rho = 0});
  OneWeight a(DType::kFloat64, {1}, adam), b(DType::kFloat64, {1}, adadelta);
  double w = 1, v = 0, x = 1, d = 0;
  for (int t = 1; t <= 4; ++t) {
    const double g = kGradients[static_cast<size_t>(t - 1)];
    v = 0.999 * v + 0.001 * g * g;
    w -= 0.1 * std::sqrt(1 - std::pow(0.999, t)) * g / (std::sqrt(v) + 1e-8);
    const double u = g * std::sqrt((d + 1e-6) / (g * g + 1e-6));
    d = u * u;
    x -= 0.1 * u;
    a.Run({g});
    b.Run({g});
    EXPECT_NEAR(a.Values("w")[0], w, 1e-12) << t;
    EXPECT_NEAR(b.Values("w")[0], x, 1e-12) << t;
  }
}
}  // namespace coracle::caffe_solver_test
