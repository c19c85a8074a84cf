// Known mistakes of Paddle's training layer (1.x and 2.1), with a test for each that its
// behaviour would fail; and its table of optimizer state. Its tables of defaults and precision
// lists are in paddle_tables_test.cc, its update formulas in optimizers_test.cc, its schedules
// in lr_schedule_test.cc.

#include <coracle/clip/clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace coracle::paddle_training_test {

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
  const std::string norm = PartsOf(net.main).norm_clips.at(0).norm;
  EXPECT_EQ(std::get<Tensor>(net.env().at(norm)).dtype(), DType::kFloat64);
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
    const auto adam = std::make_shared<Adam>(AdamOptions{.learning_rate = 0.1});
    adam->SetGradientDivisor(2);
    TrainingStep step{.groups = {{.optimizer = adam}}, .accumulate = 2};
    if (table_only) step.backward.parameter_list = {"table"};
    AppendTrainingStep(step, loss, startup);
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

// Paddle's rates, coefficients and divisors are float32; for float64 parameters ours are not.
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

// A step as Paddle 2.1 saves it with multi_precision: parameters of 16 bits, in place, each with
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
}  // namespace coracle::paddle_training_test
