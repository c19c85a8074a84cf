// Optimizers on one weight with given gradients, against loops in double written out here from the
// formulas (Paddle's, see the options' docs).

#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace coracle::optimizers_test {

const std::vector<double> kGradients = {0.5, -0.25, 1, 0.125, 0, -0.75};

// The weight, 1 at first, after each gradient.
std::vector<double> Trace(Optimizer& optimizer, DType dtype) {
  ProgramDesc main, startup;
  for (const char* name : {"w", "g"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetDType(dtype);
    var.SetShape({1});
    var.SetPersistable(true);
  }
  main.Root().FindVar("w")->SetIsParameter(true);
  optimizer.ApplyGradients(main.Root(), startup, {{"w", "g"}});
  VerifyOrThrow(main, DefaultOps());
  VerifyOrThrow(startup, DefaultOps());
  VarValues env;
  Interpret(startup.Root(), DefaultOps(), env);
  env["w"] = Tensor::Of<double>({1}, {1.0}).Cast(dtype);
  std::vector<double> trace;
  for (double g : kGradients) {
    env["g"] = Tensor::Of<double>({1}, {g}).Cast(dtype);
    Interpret(main.Root(), DefaultOps(), env);
    trace.push_back(std::get<Tensor>(env.at("w")).Cast(DType::kFloat64).Item<double>());
  }
  return trace;
}

// `make()` gives an optimizer; step(t, g, w) is its update of w with the gradient number t =
// 1, 2...
template <class Make>
void Expect(Make make, const std::function<double(int, double, double)>& step) {
  auto optimizer = make(), again = make();
  const std::vector<double> narrow = Trace(optimizer, DType::kFloat32);
  const std::vector<double> wide = Trace(again, DType::kFloat64);
  double w = 1;
  for (size_t i = 0; i < kGradients.size(); ++i) {
    w = step(static_cast<int>(i) + 1, kGradients[i], w);
    EXPECT_NEAR(narrow[i], w, 1e-6) << "float32, step " << i + 1;
    EXPECT_NEAR(wide[i], w, 1e-12) << "float64, step " << i + 1;
  }
}

TEST(Optimizers, LarsMomentum) {
  double v = 0;
  Expect(
      [] {
        return LarsMomentum({.learning_rate = 0.5, .lars_coeff = 0.1, .lars_weight_decay = 0.01});
      },
      [&](int, double g, double w) {
        const double p = std::abs(w), n = std::abs(g);
        const double rate = n > 0 && p > 0 ? 0.5 * 0.1 * p / (n + 0.01 * p) : 0.5;
        v = 0.9 * v + rate * (g + 0.01 * w);
        return w - v;
      });
}

TEST(Optimizers, DecayedAdagrad) {
  double m = 0;
  Expect([] { return DecayedAdagrad({.learning_rate = 0.1, .decay = 0.9, .epsilon = 0.01}); },
         [&](int, double g, double w) {
           m = 0.9 * m + 0.1 * g * g;
           return w - 0.1 * g / (std::sqrt(m) + 0.01);
         });
}

TEST(Optimizers, Adadelta) {
  double squares = 0, updates = 0;
  Expect([] { return Adadelta({.epsilon = 1e-3, .rho = 0.9}); },
         [&](int, double g, double w) {
           squares = 0.9 * squares + 0.1 * g * g;
           const double u = -std::sqrt((updates + 1e-3) / (squares + 1e-3)) * g;
           updates = 0.9 * updates + 0.1 * u * u;
           return w + u;
         });
}

TEST(Optimizers, Adamax) {
  double m = 0, u = 0;
  Expect([] { return Adamax({.learning_rate = 0.1, .epsilon = 1e-4}); },
         [&](int t, double g, double w) {
           m = 0.9 * m + 0.1 * g;
           u = std::max(std::abs(g), 0.999 * u + 1e-4);
           return w - 0.1 / (1 - std::pow(0.9, t)) * m / u;
         });
}

TEST(Optimizers, Rmsprop) {
  for (bool centered : {false, true}) {
    double s = 0, a = 0, m = 0;
    Expect(
        [=] {
          return Rmsprop({.learning_rate = 0.1,
                          .rho = 0.9,
                          .epsilon = 1e-2,
                          .momentum = 0.5,
                          .centered = centered});
        },
        [&](int, double g, double w) {
          s = 0.9 * s + 0.1 * g * g;
          a = 0.9 * a + 0.1 * g;
          m = 0.5 * m + 0.1 * g / std::sqrt(s - (centered ? a * a : 0) + 1e-2);
          return w - m;
        });
  }
}

// The kernel adds 1e-10 to l1 and l2.
TEST(Optimizers, Ftrl) {
  const double l1 = 0.01 + 1e-10, l2 = 0.1 + 1e-10;
  for (double power : {-0.5, -0.75}) {
    double n = 0, l = 0;
    Expect([=] { return Ftrl({.learning_rate = 0.5, .l1 = 0.01, .l2 = 0.1, .lr_power = power}); },
           [&](int, double g, double w) {
             const double before = n;
             n += g * g;
             l += g - (std::pow(n, -power) - std::pow(before, -power)) / 0.5 * w;
             if (std::abs(l) <= l1) return 0.0;
             return ((l < 0 ? -l1 : l1) - l) / (std::pow(n, -power) / 0.5 + 2 * l2);
           });
  }
}

TEST(Optimizers, Lamb) {
  for (bool decays : {true, false}) {
    double m = 0, v = 0;
    Expect(
        [=] {
          return Lamb({.learning_rate = 0.1,
                       .lamb_weight_decay = 0.05,
                       .decays = [=](const std::string& name) { return name != "w" || decays; }});
        },
        [&](int t, double g, double w) {
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          const double r =
              m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-6) +
              (decays ? 0.05 * w : 0);
          const double trust = w != 0 && r != 0 ? std::abs(w) / std::abs(r) : 1;
          return w - 0.1 * trust * r;
        });
  }
}

// Parameters that do not decay: of lion and lars too, which have a decay of their own.
TEST(Optimizers, NoDecay) {
  for (const std::string kind : {"adamw", "lamb", "lion", "lars_momentum"}) {
    SCOPED_TRACE(kind);
    const std::string decay = kind == "adamw" || kind == "lion" ? "weight_decay"
                              : kind == "lamb"                  ? "lamb_weight_decay"
                                                                : "lars_weight_decay";
    const auto run = [&](double coeff, bool filtered) {
      ProgramDesc main, startup;
      main.random_seed = startup.random_seed = 7;
      Builder net(main, startup);
      const Variable w =
          net.Parameter("w", {2}, DType::kFloat64, {.name = "w"}, UniformInitializer(1, 5));
      const std::unique_ptr<Optimizer> optimizer =
          MakeOptimizer({kind, {{"learning_rate", 0.1}, {decay, coeff}}});
      if (filtered) optimizer->SetDecayFilter([](const std::string& name) { return name != "w"; });
      optimizer->Minimize(net.ReduceSum(w), startup);
      Scope scope;
      Executor exe;
      exe.Run(startup, scope);
      for (int i = 0; i < 3; ++i) exe.Run(main, scope);
      return scope.Get("w").data<double>()[0];
    };
    EXPECT_NE(run(0.5, false), run(0, false));
    EXPECT_EQ(run(0.5, true), run(0, false));
  }
}

TEST(Optimizers, AdamW) {
  for (bool decays : {true, false}) {
    double m = 0, v = 0;
    Expect(
        [=] {
          return AdamW({.learning_rate = 0.1,
                        .weight_decay = 0.25,
                        .epsilon = 1e-4,
                        .decays = [=](const std::string&) { return decays; }});
        },
        [&](int t, double g, double w) {
          if (decays) w *= 1 - 0.1 * 0.25;
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          return w - 0.1 * (m / (1 - std::pow(0.9, t))) /
                         (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-4);
        });
  }
}

TEST(Optimizers, Lion) {
  double m = 0;
  Expect([] { return Lion({.learning_rate = 0.01, .weight_decay = 0.1}); },
         [&](int, double g, double w) {
           const double c = 0.9 * m + 0.1 * g;
           m = 0.99 * m + 0.01 * g;
           return w - 0.01 * ((c > 0) - (c < 0) + 0.1 * w);
         });
}

TEST(Optimizers, Dpsgd) {
  Expect([] { return Dpsgd({.learning_rate = 0.1, .clip = 0.3, .batch_size = 8, .sigma = 0}); },
         [](int, double g, double w) { return w - 0.1 * g / std::max(1.0, std::abs(g) / 0.3); });
}

TEST(Optimizers, Proximal) {
  const auto shrink = [](double q, double lr) {
    return std::copysign(std::max(std::abs(q) - lr * 0.2, 0.0), q) / (1 + lr * 0.5);
  };
  Expect([] { return ProximalGd({.learning_rate = 0.1, .l1 = 0.2, .l2 = 0.5}); },
         [&](int, double g, double w) { return shrink(w - 0.1 * g, 0.1); });
  double m = 0;
  Expect([] { return ProximalAdagrad({.learning_rate = 0.1, .l1 = 0.2, .l2 = 0.5}); },
         [&](int, double g, double w) {
           m += g * g;
           return shrink(w - 0.1 * g / std::sqrt(m), 0.1);
         });
}

TEST(Optimizers, WrongOptions) {
  const auto refused = [](auto make, const std::string& text) {
    try {
      make();
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, text.size()), text);
    }
  };
  refused([] { LarsMomentum({.momentum = 1}); },
          "lars_momentum: momentum must lie in [0, 1), got 1");
  refused([] { DecayedAdagrad({.decay = -0.1}); }, "decayed_adagrad: decay must lie in [0, 1)");
  refused([] { Adadelta({.epsilon = std::nan("")}); },
          "adadelta: epsilon must be finite and at least 0, got nan");
  refused([] { Adamax({.beta2 = 1}); }, "adamax: beta2");
  refused([] { Rmsprop({.rho = 2}); }, "rmsprop: rho");
  refused([] { Ftrl({.l1 = -1}); }, "ftrl: l1");
  refused([] { Lamb({.lamb_weight_decay = -1}); }, "lamb: lamb_weight_decay");
  refused([] { AdamW({.weight_decay = -1}); }, "adamw: weight_decay");
  refused([] { Lion({.beta1 = 1}); }, "lion: beta1");
  refused([] { Dpsgd({.clip = 0}); }, "dpsgd: clip");
  refused([] { ProximalGd({.l2 = -1}); }, "proximal_gd: l2");
  refused([] { Lion({.learning_rate = -1}); },
          "lion: learning_rate must be finite and not negative, got -1");
}
}  // namespace coracle::optimizers_test
