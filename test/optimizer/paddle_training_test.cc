// What Paddle's training layer (1.x and 2.1) is known to do wrong, a test for each that its
// behaviour would fail; and its tables of defaults, optimizer state and precision lists. Its update
// formulas are in optimizers_test.cc, its schedules in lr_schedule_test.cc.

#include <coracle/clip/clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/regularizer/regularizer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coracle {
namespace {

// Parameters of zeros (unless Put) with gradients that are given, in float64 unless said.
class Net {
 public:
  explicit Net(DType dtype = DType::kFloat64) : dtype_(dtype) {}

  void Add(const std::string& param, const std::vector<double>& gradient) {
    const auto n = static_cast<int64_t>(gradient.size());
    for (const std::string& name : {param, param + "@GRAD"}) {
      VarDesc& var = main.Root().Var(name);
      var.SetDType(dtype_);
      var.SetShape({n});
      var.SetPersistable(true);
    }
    main.Root().FindVar(param)->SetIsParameter(true);
    pairs.push_back({param, param + "@GRAD"});
    Put(param, std::vector<double>(gradient.size()));
    Put(param + "@GRAD", gradient);
  }
  void Put(const std::string& name, const std::vector<double>& values) {
    env_[name] = Tensor::Of<double>({static_cast<int64_t>(values.size())}, values).Cast(dtype_);
  }
  TrainingAttr& Training(const std::string& param) {
    return main.Root().FindVar(param)->MutableTraining();
  }
  // Appends the update of all pairs and runs the startup program.
  void Apply(Optimizer& optimizer) {
    optimizer.ApplyGradients(main.Root(), startup, pairs);
    Start();
  }
  void Start() {
    VerifyOrThrow(main, DefaultOps());
    Interpret(startup.Root(), DefaultOps(), env_);
  }
  void Run() { Interpret(main.Root(), DefaultOps(), env_); }
  std::vector<double> Values(const std::string& name) const {
    const Tensor wide = std::get<Tensor>(env_.at(name)).Cast(DType::kFloat64);
    return {wide.span<double>().begin(), wide.span<double>().end()};
  }
  void ExpectNear(const std::string& name, const std::vector<double>& expected,
                  double tolerance = 1e-12) const {
    const std::vector<double> got = Values(name);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], tolerance) << name << "[" << i << "]";
  }
  const VarValues& env() const { return env_; }

  ProgramDesc main, startup;
  std::vector<ParamAndGrad> pairs;

 private:
  DType dtype_;
  VarValues env_;
};

// --- defects ---

// Paddle, both eras: the clip of the last parameter is used for all.
TEST(PaddleDefect, EachParameterHasItsOwnClip) {
  const std::vector<double> g = {3, 4};
  struct Case {
    const char* name;
    Setting clip;
    std::vector<double> clipped;
  };
  const double together = std::sqrt(50);
  std::vector<Case> cases = {
      {"value", ClipGradByValue(3.5, 0), {3, 3.5}},
      {"norm", ClipGradByNorm(2), {1.2, 1.6}},
      {"global1", ClipGradByGlobalNorm(1, "g"), {3 / together, 4 / together}},
      {"global2", ClipGradByGlobalNorm(1, "g"), {3 / together, 4 / together}},
      {"other_group", ClipGradByGlobalNorm(1, "h"), {0.6, 0.8}},
      {"none", NoGradientClip(), {3, 4}}};
  for (size_t turn = 0; turn < cases.size(); ++turn) {
    std::rotate(cases.begin(), cases.begin() + 1, cases.end());
    SCOPED_TRACE(cases.back().name);  // the last
    Net net;
    for (const Case& c : cases) {
      net.Add(c.name, g);
      net.Training(c.name).gradient_clip = c.clip;
    }
    Sgd sgd({.learning_rate = 1});
    net.Apply(sgd);
    net.Run();
    for (const Case& c : cases) net.ExpectNear(c.name, {-c.clipped[0], -c.clipped[1]});
  }
}

// Paddle 2: a single parameter without a clip leaves every gradient unclipped.
TEST(PaddleDefect, AParameterWithoutClipLeavesTheOthersClipped) {
  for (const bool first : {true, false}) {
    Net net;
    if (first) net.Add("plain", {3, 4});
    net.Add("clipped", {3, 4});
    if (!first) net.Add("plain", {3, 4});
    net.Training("clipped").gradient_clip = ClipGradByGlobalNorm(1);
    Sgd sgd({.learning_rate = 1});
    net.Apply(sgd);
    net.Run();
    net.ExpectNear("clipped", {-0.6, -0.8});
    net.ExpectNear("plain", {-3, -4});
  }
}

// Paddle 1.x: the limit is a float32 constant whatever the gradients are.
TEST(PaddleDefect, TheGlobalNormOfDoublesIsADouble) {
  Net net;
  net.Add("a", {3, 4});
  net.Add("b", {0, 12});
  Sgd sgd({.learning_rate = 1});
  sgd.SetGradientClip(ClipGradByGlobalNorm(0.1));
  net.Apply(sgd);
  net.Run();
  net.ExpectNear("a", {-0.3 / 13, -0.4 / 13}, 1e-15);
  net.ExpectNear("b", {0, -1.2 / 13}, 1e-15);
  EXPECT_EQ(std::get<Tensor>(net.env().at("gradient_clip.default_group.norm")).dtype(),
            DType::kFloat64);
}

// A parameter that got no gradient: its clip and decay are passed over with it.
TEST(PaddleDefect, WithoutGradientNothingIsDecayed) {
  Net net;
  net.Add("a", {1});
  net.Add("b", {1});
  net.Put("a", {2});
  net.Put("b", {2});
  net.pairs[1].grad = "";
  Sgd sgd({.learning_rate = 1});
  sgd.SetRegularizer(L2DecayRegularizer(0.5));
  sgd.SetGradientClip(ClipGradByGlobalNorm(8));
  net.Apply(sgd);
  net.Run();
  net.ExpectNear("a", {0});
  EXPECT_EQ(net.Values("b"), std::vector<double>{2});
}

// Paddle 1.x gives l1 in the place of l2. One step from n = 0 with lr 0.5: L = 0.2 - 0.2 / 0.5.
TEST(PaddleDefect, FtrlsL1IsNotItsL2) {
  for (const bool l1 : {true, false}) {
    Net net;
    net.Add("w", {0.2});
    net.Put("w", {1});
    Ftrl ftrl({.learning_rate = 0.5, .l1 = l1 ? 0.3 : 0, .l2 = l1 ? 0 : 0.3});
    net.Apply(ftrl);
    net.Run();
    net.ExpectNear("w", {l1 ? 0 : 0.2 / (0.2 / 0.5 + 0.6)}, 1e-9);
  }
}

// Paddle: the loss scale must not be below 1. In a program that is small enough, it may.
TEST(PaddleDefect, LossScalesBelowOne) {
  std::vector<std::vector<uint8_t>> results;
  for (const bool scaled : {false, true}) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Variable w = net.Parameter("w", {3}, DType::kFloat32, {.name = "w"}, ConstantInitializer(2));
    Variable loss = net.Mean(net.Unary("square", w));
    Momentum momentum({.learning_rate = 0.3});
    std::string scale;
    if (scaled) {
      LossScaling scaling(main, startup,
                          {.init_scale = 0.25, .growth_interval = 2, .min_scale = 0.125});
      scaling.Minimize(momentum, loss, startup);
      scale = scaling.scale_var();
    } else {
      momentum.Minimize(loss, startup);
    }
    Scope scope;
    Executor exe;
    exe.Run(startup, scope);
    for (int i = 0; i < 3; ++i) exe.Run(main, scope);
    const Tensor& value = scope.Get("w");
    EXPECT_NE(value.data<float>()[0], 2);
    if (scaled) {
      EXPECT_EQ(scope.Get(scale).Item<float>(), 0.5f);
    }
    const auto* bytes = static_cast<const uint8_t*>(value.raw());
    results.emplace_back(bytes, bytes + value.nbytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

// Paddle's GradientMerge takes no sparse gradients, no parameter_list and no no_grad_set.
TEST(PaddleDefect, AccumulationOfSparseGradientsAndOfSomeParameters) {
  struct Result {
    Tensor table, w;
  };
  const auto train = [](bool sparse, bool table_only) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Variable ids = net.Data("ids", {3}, DType::kInt64);
    EmbeddingOptions table = {.num_embeddings = 6, .embedding_dim = 2, .is_sparse = sparse};
    table.param_attr = {.name = "table", .initializer = UniformInitializer(-1, 1)};
    FcOptions fc = {.size = 2};
    fc.param_attr = {.name = "w", .initializer = UniformInitializer(-1, 1)};
    fc.bias_attr = std::nullopt;
    Variable loss = net.Mean(net.Unary("square", net.Fc(net.Embedding(ids, table), fc)));
    Adam adam({.learning_rate = 0.1});
    adam.SetGradientDivisor(2);
    MinimizeOptions options;
    if (table_only) options.parameter_list = {"table"};
    AppendGradientAccumulation(main.Root(), startup, Optimizer::Backward(loss, options), 2,
                               [&](BlockDesc& block, const std::vector<ParamAndGrad>& pairs) {
                                 adam.ApplyGradients(block, startup, pairs);
                               });
    VerifyOrThrow(main, DefaultOps());
    Scope scope;
    Executor exe({.seed = 3});
    exe.Run(startup, scope);
    const Tensor before = scope.Get("w").Clone();
    for (int64_t i = 0; i < 4; ++i)
      exe.Run(main, scope, {{"ids", Tensor::Of<int64_t>({3}, {i, (2 * i) % 6, 1})}});
    EXPECT_EQ(std::memcmp(before.raw(), scope.Get("w").raw(), before.nbytes()) == 0, table_only);
    return Result{scope.Get("table").Clone(), scope.Get("w").Clone()};
  };
  for (const bool table_only : {false, true}) {
    const Result sparse = train(true, table_only), dense = train(false, table_only);
    for (int i = 0; i < 12; ++i)
      EXPECT_NEAR(sparse.table.data<float>()[i], dense.table.data<float>()[i], 1e-6);
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(sparse.w.data<float>()[i], dense.w.data<float>()[i], 1e-6);
  }
}

// Paddle compares the int32 step of Lookahead with float32 constants, which 2^24 + 1 is not.
TEST(PaddleDefect, LookaheadCountsBeyondTheIntegersOfFloat) {
  const int64_t k = (int64_t{1} << 24) + 1;
  Net net(DType::kFloat32);
  net.Add("w", {1});
  Sgd sgd({.learning_rate = 1});
  sgd.ApplyGradients(net.main.Root(), net.startup, net.pairs);
  AppendLookahead(net.main.Root(), net.startup, {"w"}, {.alpha = 0.5, .k = k});
  VarValues env;
  env["w"] = Tensor::Of<float>({1}, {4});
  Interpret(net.startup.Root(), DefaultOps(), env);
  env["w@GRAD"] = Tensor::Of<float>({1}, {1});
  env["@LOOKAHEAD_STEP@"] = Tensor::Of<int64_t>({1}, {k - 2});
  const auto w = [&] { return std::get<Tensor>(env.at("w")).Item<float>(); };
  Interpret(net.main.Root(), DefaultOps(), env);  // step k - 1 = 2^24
  EXPECT_EQ(w(), 3);
  Interpret(net.main.Root(), DefaultOps(), env);
  EXPECT_EQ(w(), 3);  // half of the way from 4 to 2
  EXPECT_EQ(std::get<Tensor>(env.at("@LOOKAHEAD_STEP@")).Item<int64_t>(), 0);
}

// Paddle's lists hold neither; it computes them in float32 between ops of 16 bits.
TEST(PaddleDefect, OpsInNoListDoNotFallBackToFloat32) {
  const PrecisionLists lists = DefaultPrecisionLists();
  for (const char* op : {"depthwise_conv2d", "conv2d_transpose", "hard_swish", "concat", "gelu"})
    EXPECT_FALSE(lists.black.contains(op)) << op;
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable x = net.Data("x", {2, 4, 6, 6});
  const auto conv = [&](const Variable& in, const char* output, int groups) {
    return net.Conv2d(
        in, {.num_filters = 4, .filter_size = 3, .padding = 1, .groups = groups, .output = output});
  };
  Variable c = conv(x, "c", 1);
  conv(c, "d", 4);
  net.Parameter("filter", {4, 4, 3, 3}, DType::kFloat32, {.name = "filter"});
  net.Append("conv2d_transpose", {{"Input", {"d"}}, {"Filter", {"filter"}}}, {{"Output", {"up"}}});
  Variable h = net.Activation(Variable::Of(main.Root(), "up"), "hard_swish", {}, {.output = "h"});
  Variable g = net.Activation(h, "gelu", {}, {.output = "g"});
  Variable all = net.Concat({g, h}, {.axis = 1, .output = "all"});
  net.Mean(all, {.output = "loss"});
  DecorateMixedPrecision(main, startup);
  for (const char* name : {"c", "d", "up", "h", "g", "all"})
    EXPECT_EQ(main.Root().FindVar(name)->dtype(), DType::kBFloat16) << name;
  EXPECT_EQ(main.Root().FindVar("loss")->dtype(), DType::kFloat32);
  Sgd({.learning_rate = 0.1}).Minimize(Variable::Of(main.Root(), "loss"), startup);
  VerifyOrThrow(main, DefaultOps());
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  Tensor feed(DType::kFloat32, {2, 4, 6, 6});
  for (int64_t i = 0; i < feed.numel(); ++i)
    feed.data<float>()[i] = static_cast<float>(i % 7) / 7 - 0.5f;
  EXPECT_TRUE(std::isfinite(exe.Run(main, scope, {{"x", feed}}, {"loss"})[0].Item<float>()));
}

// Caffe's lr_mult: 0 is trainable = false: no gradient, and no part in the norm. A multiplier of 0
// keeps its part, as Caffe's force_backward has it.
TEST(PaddleTable, FrozenParametersInTheNorm) {
  for (const bool trainable : {false, true}) {
    Net net;
    net.Add("w", {3, 4});
    net.Add("frozen", {0, 12});
    net.Training("frozen").trainable = trainable;
    net.Training("frozen").learning_rate = 0;
    Sgd sgd({.learning_rate = 1});
    sgd.SetGradientClip(ClipGradByGlobalNorm(1));
    net.Apply(sgd);
    net.Run();
    const double norm = trainable ? 13 : 5;
    net.ExpectNear("w", {-3 / norm, -4 / norm});
    EXPECT_EQ(net.Values("frozen"), (std::vector<double>{0, 0}));
  }
}

// Paddle's rates, coefficients and divisors are float32; beside float64 parameters ours are not.
TEST(PaddleDefect, NumbersBesideDoublesAreDoubles) {
  Net net;
  net.Add("w", {3, 4});
  net.Put("w", {1, -2});
  net.Training("w").learning_rate = 0.1;
  Sgd sgd({.learning_rate = 0.3});
  sgd.SetRegularizer(L2DecayRegularizer(0.7));
  sgd.SetGradientDivisor(3);
  net.Apply(sgd);
  net.Run();
  net.ExpectNear("w", {1 - 0.03 * (3.0 / 3 + 0.7), -2 - 0.03 * (4.0 / 3 - 1.4)}, 1e-15);
}

// A step as Paddle 2.1 saves it with multi_precision: parameters of 16 bits, in place, each beside
// its master. Steps too small for 16 bits add up.
TEST(PaddleTable, MultiPrecision) {
  ProgramDesc main;
  const auto declare = [&](const std::string& name, DType dtype, int64_t n) {
    VarDesc& var = main.Root().Var(name);
    var.SetDType(dtype);
    var.SetShape({n});
    var.SetPersistable(true);
  };
  Scope scope;
  declare("lr", DType::kFloat32, 1);
  scope.Set("lr", Tensor::Of<float>({1}, {0x1p-14f}));
  const std::vector<std::pair<std::string, int64_t>> params = {{"a", 3}, {"b", 40}};
  for (const auto& [name, n] : params) {
    for (const std::string& half : {name, name + "@GRAD"}) {
      declare(half, DType::kFloat16, n);
      scope.Set(half, Tensor::Full<float>({n}, 1).Cast(DType::kFloat16));
    }
    for (const char* suffix : {"_velocity_0", "_fp32_master_0"}) {
      declare(name + suffix, DType::kFloat32, n);
      scope.Set(name + suffix, Tensor::Full<float>({n}, suffix[1] == 'v' ? 0 : 1));
    }
    main.Root().AppendOp(
        "momentum",
        {{"Param", {name}},
         {"Grad", {name + "@GRAD"}},
         {"Velocity", {name + "_velocity_0"}},
         {"LearningRate", {"lr"}},
         {"MasterParam", {name + "_fp32_master_0"}}},
        {{"ParamOut", {name}},
         {"VelocityOut", {name + "_velocity_0"}},
         {"MasterParamOut", {name + "_fp32_master_0"}}},
        {{"mu", 0.0f}, {"multi_precision", true}, {kOpRoleAttr, int32_t{kOptimize}}});
  }
  VerifyOrThrow(main, DefaultOps());
  PreparedProgram step = Executor().Prepare(main);
  for (int i = 1; i <= 16; ++i) {
    step.Run(scope);
    for (const auto& [name, n] : params) {
      const float master = 1 - static_cast<float>(i) * 0x1p-14f;
      const Tensor half = Tensor::Of<float>({1}, {master}).Cast(DType::kFloat16);
      for (int64_t k = 0; k < n; ++k) {
        ASSERT_EQ(scope.Get(name + "_fp32_master_0").data<float>()[k], master) << i;
        ASSERT_EQ(scope.Get(name).Cast(DType::kFloat32).data<float>()[k],
                  half.Cast(DType::kFloat32).Item<float>())
            << i;
      }
    }
  }
}

// --- tables ---

TEST(PaddleTable, DefaultsOfTheOptimizers) {
  EXPECT_EQ(MomentumOptions{}.momentum, 0.9);
  EXPECT_FALSE(MomentumOptions{}.use_nesterov);
  EXPECT_EQ(LarsMomentumOptions{}.lars_coeff, 0.001);
  EXPECT_EQ(LarsMomentumOptions{}.lars_weight_decay, 0.0005);
  EXPECT_EQ(LarsMomentumOptions{}.epsilon, 0);
  EXPECT_EQ(AdagradOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdagradOptions{}.initial_accumulator_value, 0);
  EXPECT_EQ(DecayedAdagradOptions{}.decay, 0.95);
  EXPECT_EQ(DecayedAdagradOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdadeltaOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdadeltaOptions{}.rho, 0.95);
  EXPECT_EQ(AdamOptions{}.learning_rate, 0.001);
  EXPECT_EQ(AdamOptions{}.beta1, 0.9);
  EXPECT_EQ(AdamOptions{}.beta2, 0.999);
  EXPECT_EQ(AdamOptions{}.epsilon, 1e-8);
  EXPECT_FALSE(AdamOptions{}.lazy_mode);
  EXPECT_FALSE(AdamOptions{}.use_epsilon_hat);
  EXPECT_EQ(AdamaxOptions{}.learning_rate, 0.001);
  EXPECT_EQ(AdamaxOptions{}.epsilon, 1e-8);
  EXPECT_EQ(RmspropOptions{}.rho, 0.95);
  EXPECT_EQ(RmspropOptions{}.epsilon, 1e-6);
  EXPECT_EQ(RmspropOptions{}.momentum, 0);
  EXPECT_FALSE(RmspropOptions{}.centered);
  EXPECT_EQ(FtrlOptions{}.l1, 0);
  EXPECT_EQ(FtrlOptions{}.l2, 0);
  EXPECT_EQ(FtrlOptions{}.lr_power, -0.5);
  EXPECT_EQ(LambOptions{}.learning_rate, 0.001);
  EXPECT_EQ(LambOptions{}.lamb_weight_decay, 0.01);
  EXPECT_EQ(LambOptions{}.epsilon, 1e-6);
  EXPECT_EQ(AdamWOptions{}.weight_decay, 0.01);
  EXPECT_EQ(DpsgdOptions{}.clip, 0.9);
  EXPECT_EQ(DpsgdOptions{}.batch_size, 0.999);
  EXPECT_EQ(DpsgdOptions{}.sigma, 1e-8);
  EXPECT_EQ(ExponentialMovingAverageOptions{}.decay, 0.999);
  EXPECT_EQ(ModelAverageOptions{}.min_window, 10000);
  EXPECT_EQ(ModelAverageOptions{}.max_window, 10000);
  EXPECT_EQ(LookaheadOptions{}.alpha, 0.5);
  EXPECT_EQ(LookaheadOptions{}.k, 5);
}

// Of the ops where they differ from the classes', and of what the classes do not set.
TEST(PaddleTable, DefaultsOfTheOps) {
  const auto expect = [](const char* type, const char* attr, const Attribute& value) {
    for (const AttrDef& def : DefaultOps().Get(type).attrs) {
      if (def.name != attr) continue;
      ASSERT_TRUE(def.default_value.has_value()) << type << "." << attr;
      EXPECT_EQ(*def.default_value, value) << type << "." << attr;
      return;
    }
    ADD_FAILURE() << type << " has no attr " << attr;
  };
  expect("rmsprop", "decay", 0.9f);
  expect("rmsprop", "epsilon", 1e-10f);
  expect("rmsprop", "momentum", 0.0f);
  expect("dpsgd", "clip", 10.0f);
  expect("dpsgd", "batch_size", 16.0f);
  expect("dpsgd", "sigma", 1.0f);
  expect("momentum", "use_nesterov", false);
  expect("momentum", "regularization_method", std::string());
  expect("momentum", "regularization_coeff", 0.0f);
  expect("momentum", "rescale_grad", 1.0f);
  expect("adam", "beta1", 0.9f);
  expect("adam", "beta2", 0.999f);
  expect("adam", "epsilon", 1e-8f);
  expect("adam", "lazy_mode", false);
  expect("adam", "use_global_beta_pow", false);
  expect("lars_momentum", "lars_coeff", 0.001f);
  expect("lars_momentum", "lars_weight_decay", 0.0005f);
  expect("lars_momentum", "epsilon", 0.0f);
  expect("ftrl", "lr_power", -0.5f);
  expect("proximal_gd", "l1", 0.0f);
  expect("proximal_gd", "l2", 0.0f);
  expect("update_loss_scaling", "stop_update", false);
}

// Names, first values and sizes of what an update keeps.
TEST(PaddleTable, AccumulatorsOfTheOptimizers) {
  struct Acc {
    const char* name;
    double value = 0;
    bool scalar = false;
  };
  const std::vector<std::pair<const char*, std::vector<Acc>>> table = {
      {"sgd", {}},
      {"momentum", {{"velocity"}}},
      {"lars_momentum", {{"velocity"}}},
      {"adagrad", {{"moment"}}},
      {"decayed_adagrad", {{"moment"}}},
      {"adadelta", {{"_avg_squared_grad"}, {"_avg_squared_update"}}},
      {"adam",
       {{"moment1"}, {"moment2"}, {"beta1_pow_acc", 0.9, true}, {"beta2_pow_acc", 0.999, true}}},
      {"adamax", {{"moment"}, {"inf_norm"}, {"beta1_pow_acc", 0.9, true}}},
      {"rmsprop", {{"momentum"}, {"mean_square"}, {"mean_grad"}}},
      {"ftrl", {{"squared"}, {"linear"}}},
      {"lamb",
       {{"moment1"}, {"moment2"}, {"beta1_pow_acc", 0.9, true}, {"beta2_pow_acc", 0.999, true}}},
      {"dpsgd", {}},
      {"proximal_gd", {}},
      {"proximal_adagrad", {{"moment"}}},
  };
  for (const auto& [kind, accumulators] : table) {
    SCOPED_TRACE(kind);
    Net net;
    net.Add("w", {1, 2, 3});
    net.Add("frozen", {1, 2, 3});
    net.Training("frozen").trainable = false;
    net.Apply(*MakeOptimizer({kind, {}}));
    size_t states = 0;
    for (size_t i = 0; i < net.main.Root().NumVars(); ++i) {
      const std::string& name = net.main.Root().var(i).name();
      states += name.starts_with("w_") && net.main.Root().var(i).persistable();
      EXPECT_FALSE(name.starts_with("frozen_")) << name;  // only of those that are trained
    }
    EXPECT_EQ(states, accumulators.size());
    for (const Acc& acc : accumulators) {
      const std::string name = std::string("w_") + acc.name + "_0";
      ASSERT_NE(net.main.Root().FindVar(name), nullptr) << name;
      EXPECT_TRUE(net.main.Root().FindVar(name)->persistable());
      net.ExpectNear(name, std::vector<double>(acc.scalar ? 1 : 3, acc.value));
    }
  }
}

TEST(PaddleTable, PrecisionLists) {
  const std::set<std::string> white = {"conv2d", "matmul", "matmul_v2", "mul"};
  const std::set<std::string> black = {"exp",
                                       "square",
                                       "log",
                                       "mean",
                                       "sum",
                                       "cos_sim",
                                       "softmax",
                                       "softmax_with_cross_entropy",
                                       "sigmoid_cross_entropy_with_logits",
                                       "cross_entropy",
                                       "cross_entropy2",
                                       "lookup_table",
                                       "lookup_table_v2",
                                       "reduce_sum"};
  std::set<std::string> gray = {"batch_norm",
                                "layer_norm",
                                "tanh",
                                "sigmoid",
                                "top_k",
                                "pool2d",
                                "pool3d",
                                "dropout",
                                "relu",
                                "relu6",
                                "leaky_relu",
                                "soft_relu",
                                "flatten2",
                                "stack",
                                "unstack",
                                "uniform_random",
                                "uniform_random_batch_size_like",
                                "gaussian_random",
                                "gaussian_random_batch_size_like",
                                "slice",
                                "rank",
                                "scale",
                                "transpose2",
                                "reshape2",
                                "gather",
                                "fill_constant",
                                "get_tensor_from_selected_rows",
                                "sign",
                                "cast",
                                "fused_bn_add_activation",
                                "c_identity",
                                "c_concat",
                                "c_allreduce_sum"};
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv"})
    gray.insert(std::string("elementwise_") + op);
  const PrecisionLists lists = DefaultPrecisionLists();
  EXPECT_EQ(lists.white, white);
  for (const std::string& op : gray)
    EXPECT_FALSE(lists.white.contains(op) || lists.black.contains(op)) << op;
  for (const std::string& op : black) EXPECT_TRUE(lists.black.contains(op)) << op;
  for (const std::string& op : lists.black)  // ours are new ones
    EXPECT_FALSE(white.contains(op) || gray.contains(op)) << op;
}

// ReduceOnPlateau: a change of at most epsilon is not made; "rel" means a share of the best.
TEST(PaddleTable, PlateauOptions) {
  PlateauRate small(1e-7, {.factor = 0.95, .patience = 0, .epsilon = 1e-8});
  small.Update(1);
  EXPECT_EQ(small.Update(1), 1e-7);  // 5e-9 less would be at most epsilon
  PlateauRate large(1e-7, {.factor = 0.5, .patience = 0, .epsilon = 1e-8});
  large.Update(1);
  EXPECT_EQ(large.Update(1), 0.5e-7);
  PlateauRate most(1, {.minimize = false, .factor = 0.5, .patience = 0, .threshold = 0.1});
  EXPECT_EQ(most.Update(10), 1);
  EXPECT_EQ(most.Update(11.5), 1);  // above 10 (1 + 0.1)
  EXPECT_EQ(most.Update(12), 0.5);  // not above 12.65
  EXPECT_EQ(most.Update(12.7), 0.5);
  const PlateauRate::Options defaults;
  EXPECT_EQ(defaults.factor, 0.1);
  EXPECT_EQ(defaults.patience, 10);
  EXPECT_EQ(defaults.threshold, 1e-4);
  EXPECT_TRUE(defaults.minimize && defaults.relative);
  EXPECT_EQ(defaults.cooldown, 0);
  EXPECT_EQ(defaults.min_rate, 0);
  EXPECT_EQ(defaults.epsilon, 1e-8);
}

// paddle.optimizer.lr.LinearWarmup: behind the warm-up the inner schedule counts from there.
TEST(PaddleTable, WarmupInFrontOfACountOfItsOwn) {
  const LrSchedulePtr inner = StepRate({0.5, 0.1, 3});
  const LrSchedulePtr schedule =
      SequenceRate({{0, WarmupRate(FixedRate(0.5), 4, 0, 0.5)}, {4, inner}});
  for (int64_t e = 0; e < 12; ++e)
    EXPECT_EQ(schedule->At(e), e < 4 ? 0.5 * static_cast<double>(e) / 4 : inner->At(e - 4)) << e;
}

}  // namespace
}  // namespace coracle
