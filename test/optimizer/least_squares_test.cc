// Caffe's inductive tests of its solvers: y = X w + b with N = 4 rows of D = 300 numbers, loss
// 1 / (2 N) |y - t|^2. After K steps, step K + 1 is computed from the weights and the optimizer's
// state by the formulas, and a fresh run of K + 1 steps must arrive there. Also: two layers that
// share their parameters, accumulation over half batches, and a run that is cut in two.

#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>

namespace coracle::least_squares_test {

constexpr int64_t kRows = 4, kWidth = 300;

struct Case {
  double rate = 0.01, decay = 0, momentum = 0;
  bool share = false;
  int64_t runs = 1;  // of an update
};

// A solver of Caffe: how it is made here, the suffixes of its states, and the update u of one
// weight from its gradient at step t = 1, 2, ...; it changes the states.
struct Solver {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const Case&)> make;
  std::vector<std::string> states;
  std::function<double(const Case&, int t, double g, std::vector<double>& s)> update;
  double rate = 1;        // of the plain case
  bool momentum = false;  // whether it has one
  double decay_case = 0.5;
};

std::vector<Solver> Solvers() {
  const auto momentum = [](bool nesterov) {
    return [nesterov](const Case& c) {
      return std::make_unique<Momentum>(MomentumOptions{.learning_rate = c.rate,
                                                        .momentum = c.momentum,
                                                        .use_nesterov = nesterov,
                                                        .velocity_holds_rate = true});
    };
  };
  return {
      {"SGD",
       momentum(false),
       {"velocity"},
       [](const Case& c, int, double g, std::vector<double>& s) {
         return s[0] = c.momentum * s[0] + c.rate * g;
       },
       1,
       true},
      {"Nesterov",
       momentum(true),
       {"velocity"},
       [](const Case& c, int, double g, std::vector<double>& s) {
         const double before = s[0];
         s[0] = c.momentum * s[0] + c.rate * g;
         return (1 + c.momentum) * s[0] - c.momentum * before;
       },
       1,
       true},
      {"AdaGrad",
       [](const Case& c) {
         return std::make_unique<Adagrad>(AdagradOptions{.learning_rate = c.rate, .epsilon = 1e-8});
       },
       {"moment"},
       [](const Case& c, int, double g, std::vector<double>& s) {
         s[0] += g * g;
         return c.rate * g / (std::sqrt(s[0]) + 1e-8);
       }},
      {"RMSProp",
       [](const Case& c) {
         return std::make_unique<DecayedAdagrad>(
             DecayedAdagradOptions{.learning_rate = c.rate, .decay = 0.95, .epsilon = 1e-8});
       },
       {"moment"},
       [](const Case& c, int, double g, std::vector<double>& s) {
         s[0] = 0.95 * s[0] + 0.05 * g * g;
         return c.rate * g / (std::sqrt(s[0]) + 1e-8);
       }},
      {"AdaDelta",
       [](const Case& c) {
         return std::make_unique<Adadelta>(
             AdadeltaOptions{.learning_rate = c.rate, .epsilon = 1e-8, .rho = c.momentum});
       },
       {"_avg_squared_grad", "_avg_squared_update"},
       [](const Case& c, int, double g, std::vector<double>& s) {
         s[0] = c.momentum * s[0] + (1 - c.momentum) * g * g;
         const double v = g * std::sqrt((s[1] + 1e-8) / (s[0] + 1e-8));
         s[1] = c.momentum * s[1] + (1 - c.momentum) * v * v;
         return c.rate * v;
       },
       0.1,
       true,
       0.1},
      {"Adam",
       [](const Case& c) {
         return std::make_unique<Adam>(AdamOptions{.learning_rate = c.rate,
                                                   .beta1 = c.momentum,
                                                   .epsilon = 1e-8,
                                                   .use_epsilon_hat = true});
       },
       {"moment1", "moment2"},
       [](const Case& c, int t, double g, std::vector<double>& s) {
         s[0] = c.momentum * s[0] + (1 - c.momentum) * g;
         s[1] = 0.999 * s[1] + 0.001 * g * g;
         const double correction =
             std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(c.momentum, t));
         return c.rate * correction * s[0] / (std::sqrt(s[1]) + 1e-8);
       },
       0.01,
       true},
  };
}

struct Problem {
  std::vector<double> x, t;
  Problem() : x(kRows * kWidth), t(kRows) {
    std::mt19937_64 random(1701);
    std::normal_distribution<double> normal;
    for (double& v : x) v = normal(random);
    for (double& v : t) v = normal(random);
  }
};

// A training run on it, in float64.
class TrainingRun {
 public:
  TrainingRun(const Solver& solver, const Case& c) : case_(c) {
    Builder net(main_, startup_);
    const int64_t rows = kRows / c.runs;
    Variable t = net.Data("t", {rows, 1}, DType::kFloat64), loss;
    FcOptions fc = {.size = 1};
    fc.param_attr = {.name = "w", .initializer = NormalInitializer(0, 0.1)};
    fc.bias_attr = ParamAttr{.name = "b", .initializer = NormalInitializer(0, 0.1)};
    Variable y;
    if (c.share) {  // the halves of the batch go through two layers with the same parameters
      Variable first = net.Data("x", {rows / 2, kWidth}, DType::kFloat64);
      Variable second = net.Data("x2", {rows / 2, kWidth}, DType::kFloat64);
      y = net.Concat({net.Fc(first, fc), net.Fc(second, fc)}, {.axis = 0});
    } else {
      y = net.Fc(net.Data("x", {rows, kWidth}, DType::kFloat64), fc);
    }
    loss = net.Scale(net.Mean(net.SquareErrorCost(y, t)), {.scale = 0.5f});
    const std::shared_ptr<Optimizer> optimizer = solver.make(c);
    if (c.decay != 0) optimizer->SetRegularizer(L2DecayRegularizer(c.decay));
    optimizer->SetGradientDivisor(static_cast<double>(c.runs), true);
    AppendTrainingStep({.groups = {{.optimizer = optimizer}}, .accumulate = c.runs}, loss,
                       startup_);
    Executor exe({.seed = 7});
    exe.Run(startup_, scope_);
    std::vector<std::string> feeds = {"x", "t"};
    if (c.share) feeds = {"x", "x2", "t"};
    step_ = std::make_unique<PreparedProgram>(exe.Prepare(main_, feeds, {loss.name()}));
  }

  void Steps(const Problem& problem, int64_t n) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t run = 0; run < case_.runs; ++run) step_->Run(scope_, Feeds(problem, run));
    }
  }

  std::vector<double> Get(const std::string& name) const {
    const auto span = scope_.Get(name).span<double>();
    return {span.begin(), span.end()};
  }
  Scope& scope() { return scope_; }
  std::vector<std::string> Persistables() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < main_.Root().NumVars(); ++i) {
      if (main_.Root().var(i).persistable()) names.push_back(main_.Root().var(i).name());
    }
    return names;
  }

 private:
  std::vector<Tensor> Feeds(const Problem& problem, int64_t run) const {
    const int64_t rows = kRows / case_.runs;
    const auto part = [](const std::vector<double>& all, int64_t first, int64_t count,
                         int64_t width) {
      const std::vector<double> values(all.begin() + first * width,
                                       all.begin() + (first + count) * width);
      return Tensor::Of<double>({count, width}, values);
    };
    const Tensor t = part(problem.t, run * rows, rows, 1);
    if (!case_.share) return {part(problem.x, run * rows, rows, kWidth), t};
    return {part(problem.x, run * rows, rows / 2, kWidth),
            part(problem.x, run * rows + rows / 2, rows / 2, kWidth), t};
  }

  Case case_;
  ProgramDesc main_, startup_;
  Scope scope_;
  std::unique_ptr<PreparedProgram> step_;
};

// (X' X w - X' t) / N + decay * w; the bias, of a column of ones, is the last.
std::vector<double> Gradient(const Problem& problem, const std::vector<double>& w,
                             const std::vector<double>& b, double decay) {
  std::vector<double> gradient(kWidth + 1);
  for (int64_t i = 0; i < kRows; ++i) {
    const double* x = problem.x.data() + i * kWidth;
    double error = b[0] - problem.t[static_cast<size_t>(i)];
    for (size_t k = 0; k < kWidth; ++k) error += x[k] * w[k];
    for (size_t k = 0; k < kWidth; ++k) gradient[k] += error * x[k] / kRows;
    gradient[kWidth] += error / kRows;
  }
  for (size_t k = 0; k < kWidth; ++k) gradient[k] += decay * w[k];
  gradient[kWidth] += decay * b[0];
  return gradient;
}

void CheckInduction(const Solver& solver, const Case& c, int k) {
  const Problem problem;
  TrainingRun before(solver, c), after(solver, c);
  before.Steps(problem, k);
  after.Steps(problem, k + 1);
  const std::vector<double> gradient = Gradient(problem, before.Get("w"), before.Get("b"), c.decay);
  double moved = 0;
  for (const char* param : {"w", "b"}) {
    const std::vector<double> old = before.Get(param), got = after.Get(param);
    std::vector<std::vector<double>> states, got_states;
    for (const std::string& suffix : solver.states) {
      states.push_back(before.Get(std::string(param) + "_" + suffix + "_0"));
      got_states.push_back(after.Get(std::string(param) + "_" + suffix + "_0"));
    }
    for (size_t i = 0; i < old.size(); ++i) {
      std::vector<double> s;
      for (const auto& state : states) s.push_back(state[i]);
      const double g = param[0] == 'b' ? gradient[kWidth] : gradient[i];
      const double expected = old[i] - solver.update(c, k + 1, g, s);
      moved += std::abs(expected - old[i]);
      ASSERT_NEAR(got[i], expected, 1e-9 * std::max(1.0, std::abs(expected))) << param << i;
      for (size_t j = 0; j < s.size(); ++j)
        ASSERT_NEAR(got_states[j][i], s[j], 1e-9 * std::max(1.0, std::abs(s[j]))) << param << i;
    }
  }
  EXPECT_GT(moved, 1e-6);
}

void CheckAll(const Solver& solver, const Case& c, int last_k) {
  for (int k = 0; k <= last_k; ++k) {
    SCOPED_TRACE(testing::Message() << solver.name << " rate " << c.rate << " decay " << c.decay
                                    << " momentum " << c.momentum << " k " << k);
    CheckInduction(solver, c, k);
  }
}

TEST(LeastSquares, Plain) {
  for (const Solver& solver : Solvers()) {
    CheckAll(solver, {.rate = solver.rate}, 0);
    CheckAll(solver, {.rate = 0.01}, 0);
  }
}

TEST(LeastSquares, Decay) {
  for (const Solver& solver : Solvers())
    CheckAll(solver, {.rate = 0.01, .decay = solver.decay_case}, 4);
}

TEST(LeastSquares, Momentum) {
  for (const Solver& solver : Solvers()) {
    for (double momentum : {0.5, 0.95})
      if (solver.momentum) CheckAll(solver, {.rate = 0.01, .momentum = momentum}, 4);
  }
}

Case Everything(const Solver& solver, double momentum = 0.9) {
  return {.rate = 0.01, .decay = 0.5, .momentum = solver.momentum ? momentum : 0.0};
}

TEST(LeastSquares, Everything) {
  for (const Solver& solver : Solvers()) {
    for (double momentum : {0.5, 0.9, 0.95}) {
      CheckAll(solver, Everything(solver, momentum), 4);
      if (!solver.momentum) break;
    }
  }
}

TEST(LeastSquares, Share) {
  for (const Solver& solver : Solvers()) {
    Case c = Everything(solver);
    c.share = true;
    CheckAll(solver, c, 4);
  }
}

// Two half batches make an update: as the whole batch, to rounding.
TEST(LeastSquares, Accumulation) {
  for (const Solver& solver : Solvers()) {
    for (bool share : {false, true}) {
      SCOPED_TRACE(testing::Message() << solver.name << " share " << share);
      Case whole = Everything(solver), halves = whole;
      whole.share = halves.share = share;
      halves.runs = 2;
      const Problem problem;
      TrainingRun a(solver, whole), b(solver, halves);
      a.Steps(problem, 4);
      b.Steps(problem, 4);
      for (const char* param : {"w", "b"}) {
        const std::vector<double> x = a.Get(param), y = b.Get(param);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-10) << param << i;
      }
    }
  }
}

// 2 n steps, and n steps, a new run that is given all persistable variables, and n steps: the bits.
TEST(LeastSquares, Snapshot) {
  for (const Solver& solver : Solvers()) {
    for (bool share : {false, true}) {
      for (int64_t runs : {1, 2}) {
        for (int64_t n = 1; n <= 4; ++n) {
          SCOPED_TRACE(testing::Message() << solver.name << " share " << share << " n " << n);
          Case c = Everything(solver);
          c.share = share;
          c.runs = runs;
          const Problem problem;
          TrainingRun all(solver, c), first(solver, c), second(solver, c);
          all.Steps(problem, 2 * n);
          first.Steps(problem, n);
          for (const std::string& name : first.Persistables())
            second.scope().Set(name, first.scope().Get(name).Clone());
          second.Steps(problem, n);
          for (const std::string& name : all.Persistables()) {
            const Tensor &x = all.scope().Get(name), &y = second.scope().Get(name);
            EXPECT_EQ(0, std::memcmp(x.raw(), y.raw(), x.nbytes())) << name;
          }
        }
      }
    }
  }
}
}  // namespace coracle::least_squares_test
