// Optimizers by name, groups by pattern, regularizers by name and by multiplier, and
// what users add.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::factory_test {

// The parameters a and b, both 1 at first, with the gradient g.
struct Net {
  ProgramDesc main, startup;
  Net() {
    for (const char* name : {"a", "b", "g"}) {
      VarDesc& var = main.Root().Var(name);
      var.SetDType(DType::kFloat64);
      var.SetShape({1});
      var.SetPersistable(true);
      var.SetIsParameter(name[0] != 'g');
    }
  }
  TrainingAttr& Training(const char* name) { return main.Root().FindVar(name)->MutableTraining(); }
  std::pair<double, double> Run(double g) {
    VarValues env;
    Interpret(startup.Root(), DefaultOps(), env);
    env["a"] = Tensor::Of<double>({1}, {1});
    env["b"] = Tensor::Of<double>({1}, {1});
    env["g"] = Tensor::Of<double>({1}, {g});
    Interpret(main.Root(), DefaultOps(), env);
    return {std::get<Tensor>(env.at("a")).Item<double>(),
            std::get<Tensor>(env.at("b")).Item<double>()};
  }
  std::vector<ParamAndGrad> pairs = {{"a", "g"}, {"b", "g"}};
};

TEST(Factory, MakesEveryKind) {
  const std::vector<std::string> expected = {"adadelta",
                                             "adagrad",
                                             "adam",
                                             "adamax",
                                             "adamw",
                                             "decayed_adagrad",
                                             "dpsgd",
                                             "ftrl",
                                             "lamb",
                                             "lars_momentum",
                                             "lion",
                                             "momentum",
                                             "proximal_adagrad",
                                             "proximal_gd",
                                             "rmsprop",
                                             "sgd"};
  for (const std::string& kind : expected) {
    SCOPED_TRACE(kind);
    const auto optimizer = MakeOptimizer({kind, {{"learning_rate", 0.5}}});
    Net net;
    optimizer->ApplyGradients(net.main.Root(), net.startup, net.pairs);
    const std::string op = kind == "adamw" ? "adam" : kind;
    bool found = false;
    for (size_t i = 0; i < net.main.Root().NumOps(); ++i)
      found |= net.main.Root().op(i).type() == op;
    EXPECT_TRUE(found);
    EXPECT_NE(net.Run(0.5).first, 1);
  }
}

TEST(Factory, AttrsAreTheOptions) {
  Net net;
  MakeOptimizer({"momentum", {{"learning_rate", 0.25f}, {"momentum", 0.5}, {"use_nesterov", true}}})
      ->ApplyGradients(net.main.Root(), net.startup, net.pairs);
  EXPECT_EQ(net.Run(1).first, 1 - 0.25 * 1.5);
}

TEST(Factory, Errors) {
  EXPECT_EQ(0u, ErrorOf([] {
                  MakeOptimizer({"adma", {}});
                }).find("no optimizer is called 'adma'; known: adadelta, "));
  EXPECT_NE(std::string::npos, ErrorOf([] {
                                 MakeOptimizer({"adma", {}});
                               }).find("did you mean adam"));
  const std::string unknown = ErrorOf([] { MakeOptimizer({"adam", {{"betal", 0.5}}}); });
  EXPECT_EQ(0u, unknown.find("adam: there is no 'betal'")) << unknown;
  EXPECT_NE(std::string::npos, unknown.find("did you mean beta1")) << unknown;
  EXPECT_EQ("adam: beta1 must be a number", ErrorOf([] {
              MakeOptimizer({"adam", {{"beta1", std::string("x")}}});
            }));
  EXPECT_EQ("adam: lazy_mode must be true or false", ErrorOf([] {
              MakeOptimizer({"adam", {{"lazy_mode", 1.0}}});
            }));
  EXPECT_EQ(0u, ErrorOf([] {
                  MakeOptimizer({"adam", {{"beta1", 1.5}}});
                }).find("adam: beta1 must lie in [0, 1), got 1.5"));
  EXPECT_NE(std::string::npos, ErrorOf([] {
                                 RegisterOptimizer("adam", [](const Setting&) {
                                   return std::unique_ptr<Optimizer>();
                                 });
                               }).find("the name 'adam' is taken"));
}

// A user's optimizer: w -= rate * factor * sign(g).
class SignSgd : public Optimizer {
 public:
  SignSgd(double rate, double factor) : Optimizer(rate), factor_(factor) {}

 protected:
  void AppendUpdate(const UpdateContext& update) override {
    const std::string sign = MakeTemporary(update.block, "sign", DType::kFloat64);
    const std::string scaled = MakeTemporary(update.block, "scaled", DType::kFloat64);
    update.block.AppendOp("sign", {{"X", {update.grad}}}, {{"Out", {sign}}});
    AppendScale(update.block, sign, scaled, factor_);
    update.block.AppendOp(
        "sgd",
        {{"Param", {update.param}}, {"Grad", {scaled}}, {"LearningRate", {update.learning_rate}}},
        {{"ParamOut", {update.param}}});
  }

 private:
  double factor_;
};

TEST(Factory, OptimizersOfUsers) {
  RegisterOptimizer("sign_sgd", [](const Setting& s) {
    return std::make_unique<SignSgd>(s.Get<double>("learning_rate", 0.5),
                                     s.Get<double>("factor", 1));
  });
  Net net;
  MakeOptimizer({"sign_sgd", {{"factor", 0.5}}})
      ->ApplyGradients(net.main.Root(), net.startup, net.pairs);
  EXPECT_EQ(net.Run(-7).first, 1.25);
}

// The built-in schedules by name, with the attrs of their options.
TEST(Factory, SchedulesByName) {
  const LrSchedulePtr step =
      MakeLrSchedule({"step", {{"rate", 0.5}, {"step_size", int64_t{2}}, {"gamma", 0.25}}});
  for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(step->At(t), StepRate({0.5, 0.25, 2})->At(t));
  const auto error = [](AttrList attrs) {
    return ErrorOf([&] { MakeLrSchedule({"noam", attrs}); });
  };
  EXPECT_EQ(error({{"d_model", 4.0}}), "learning-rate schedule noam: warmup_steps is required");
  EXPECT_EQ(error({{"d_model", 0.0}, {"warmup_steps", int64_t{1}}}),
            "learning-rate schedule noam: d_model must be positive and finite, got 0");
  EXPECT_NE(error({{"dmodel", 4.0}}).find("did you mean d_model"), std::string::npos);
  // An option that must be given.
  EXPECT_THROW(ExponentialRate({.gamma = 0.5}), Error);
  EXPECT_THROW(StepRate({.rate = 0.5}), Error);
}

TEST(Regularizers, Kinds) {
  for (auto [kind, a] : {std::pair{"l2_decay", 1 - 0.1 * (3 + 0.5)},
                         {"l1_decay", 1 - 0.1 * (3 + 0.5)},
                         {"decoupled_decay", 1 * (1 - 0.1 * 0.5) - 0.1 * 3}}) {
    Net net;
    Sgd sgd({.learning_rate = 0.1});
    sgd.SetRegularizer(Setting{kind, {{"coeff", 0.5}}});
    sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
    EXPECT_NEAR(net.Run(3).first, a, 1e-14) << kind;
  }
}

// The parameter's own comes first; "multiplied" is Caffe's decay_mult: 0 leaves the decay out.
TEST(Regularizers, OfAParameter) {
  Net net;
  net.Training("a").regularizer = Setting{"multiplied", {{"by", 0.0}}};
  net.Training("b").regularizer = Setting{"multiplied", {{"by", 3.0}}};
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetRegularizer(Setting{"l2_decay", {{"coeff", 0.5}}});
  sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
  EXPECT_NEAR(net.Run(3).first, 1 - 0.3, 1e-14);
  EXPECT_NEAR(net.Run(3).second, 1 - 0.1 * (3 + 1.5), 1e-14);
  Net own;
  own.Training("a").regularizer = Setting{"l2_decay", {{"coeff", 1.0}}};
  Sgd again({.learning_rate = 0.1});
  again.SetRegularizer(Setting{"l2_decay", {{"coeff", 0.5}}});
  again.ApplyGradients(own.main.Root(), own.startup, own.pairs);
  EXPECT_NEAR(own.Run(3).first, 1 - 0.4, 1e-14);
  EXPECT_NEAR(own.Run(3).second, 1 - 0.35, 1e-14);
}

// The range limits the coeff: what it is multiplied by may be negative.
TEST(Regularizers, MultipliedByANegativeNumber) {
  for (const auto& [kind, b] : {std::pair{"l2_decay", 1 - 0.1 * (3 - 0.5)},
                                {"l1_decay", 1 - 0.1 * (3 - 0.5)},
                                {"decoupled_decay", 1 * (1 + 0.1 * 0.5) - 0.1 * 3}}) {
    Net net;
    net.Training("b").regularizer = Setting{"multiplied", {{"by", -1.0}}};
    Sgd sgd({.learning_rate = 0.1});
    sgd.SetRegularizer(Setting{kind, {{"coeff", 0.5}}});
    sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
    EXPECT_NEAR(net.Run(3).second, b, 1e-14) << kind;
  }
  Net net;
  for (const char* name : {"a", "b"})
    net.Training(name).regularizer = Setting{"multiplied", {{"by", -1.0}}};
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetRegularizer(Setting{"l2_decay", {{"coeff", -0.5}}});
  EXPECT_EQ(ErrorOf([&] { sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs); }),
            "parameter 'a': l2_decay: coeff must be finite and not negative, got -0.5");
}

struct OfNobodyOptions {
  using Makes = OptimizerOf<OfNobodyOptions>;
  double learning_rate = 0.1;
};

TEST(Optimizers, OptimizerOfIsForBuiltInOptions) {
  try {
    std::make_unique<OptimizerOf<OfNobodyOptions>>(OfNobodyOptions());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.message(),
              "OptimizerOf is for the options of Coracle's optimizers: for options of your own, "
              "name as Makes a class of your own that is derived from Optimizer");
  }
}

TEST(Optimizers, NamesGivenTwice) {
  EXPECT_EQ(ErrorOf([] {
              MakeOptimizer({"sgd", {{"learning_rate", 0.1}, {"learning_rate", 0.2}}});
            }),
            "sgd: learning_rate is given twice");
  EXPECT_EQ(ErrorOf([] {
              MakeLrSchedule({"step", {{"step_size", 2}, {"step_size", 3}}});
            }),
            "learning-rate schedule step: step_size is given twice");
}

TEST(Regularizers, OfUsers) {
  RegisterRegularizer("grad_twice", [](const UpdateContext& update, const Setting&) {
    std::string twice = MakeTemporary(update.block, "twice", DType::kFloat64);
    AppendScale(update.block, update.grad, twice, 2);
    return twice;
  });
  Net net;
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetRegularizer(Setting{"grad_twice", {}});
  sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
  EXPECT_NEAR(net.Run(3).first, 1 - 0.6, 1e-14);
  Sgd bad({});
  bad.SetRegularizer(Setting{"l2_decoy", {}});
  const std::string message =
      ErrorOf([&] { bad.ApplyGradients(net.main.Root(), net.startup, net.pairs); });
  EXPECT_EQ(0u, message.find("parameter 'a': no regularizer is called 'l2_decoy'")) << message;
}

// A parameter may opt out of the optimizer's clip.
TEST(Regularizers, NoClip) {
  Net net;
  net.Training("a").gradient_clip = Setting{"none", {}};
  Sgd sgd({.learning_rate = 0.1});
  sgd.SetGradientClip(Setting{"by_global_norm", {{"clip_norm", 1.0}}});
  sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
  EXPECT_NEAR(net.Run(4).first, 1 - 0.4, 1e-14);
  EXPECT_NEAR(net.Run(4).second, 1 - 0.1, 1e-14);
}

TEST(OptimizerGroup, Patterns) {
  for (auto [name, pattern, matches] : {std::tuple{"conv1.w", "conv*", true},
                                        {"conv1.w", "*.w", true},
                                        {"conv1.w", "conv?.w", true},
                                        {"conv12.w", "conv?.w", false},
                                        {"conv1.w", "conv1", false},
                                        {"a", "", false},
                                        {"", "*", true},
                                        {"abab", "*ab", true},
                                        {"abab", "a*b*b", true},
                                        {"a*b", "a*b", true}})
    EXPECT_EQ(MatchesPattern(name, pattern), matches) << name << " " << pattern;
}

TEST(OptimizerGroup, EachForItsParameters) {
  Net net;
  auto clipped = std::make_shared<Sgd>(SgdOptions{.learning_rate = 1});
  clipped->SetGradientClip(Setting{"by_norm", {{"clip_norm", 0.5}}});
  auto other = std::make_shared<Momentum>(MomentumOptions{.learning_rate = 0.1});
  AppendTrainingStep({.groups = {{{"a*"}, clipped}, {{"b"}, other}}}, net.main.Root(), net.startup,
                     net.pairs);
  EXPECT_NEAR(net.Run(2).first, 0.5, 1e-14);
  EXPECT_NEAR(net.Run(2).second, 0.8, 1e-14);
}

TEST(OptimizerGroup, Errors) {
  Net net;
  const auto sgd = std::make_shared<Sgd>(SgdOptions{});
  const auto error = [&](const std::vector<OptimizerGroup>& groups) {
    return ErrorOf([&] { SplitByGroup(groups, net.pairs); });
  };
  EXPECT_EQ(error({{{"a"}, sgd}}),
            "optimizer: no optimizer matches the parameter 'b'; freeze it or add its name to one");
  EXPECT_EQ(error({{{"a", "b"}, sgd}, {{"b*"}, sgd}}),
            "optimizer: two optimizers match the parameter 'b': 'a, b' and 'b*'");
  EXPECT_EQ(error({{{"*", "c"}, sgd}}), "optimizer: no parameter matches 'c'; there are a, b");
}
}  // namespace coracle::factory_test
