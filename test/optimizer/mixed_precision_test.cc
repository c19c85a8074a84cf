// DecorateMixedPrecision: which ops compute in 16 bits, where casts are, and that what comes out is
// nearly what float32 gives.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace coracle::mixed_precision_test {

constexpr DType kLow = DType::kBFloat16;

struct Net {
  ProgramDesc main, startup;
  Builder net{main, startup};

  MixedPrecisionReport Decorate(const MixedPrecisionOptions& options = {}) {
    MixedPrecisionReport report = DecorateMixedPrecision(main, startup, options);
    VerifyOrThrow(main, DefaultOps());
    return report;
  }
  DType DTypeOf(const std::string& name) const {
    for (int b = 0; b < main.NumBlocks(); ++b) {
      if (const VarDesc* var = main.Block(b).FindVar(name)) return var->dtype();
    }
    ADD_FAILURE() << "no variable " << name;
    return DType::kBool;
  }
  std::vector<const OpDesc*> Ops(const std::string& type) const {
    std::vector<const OpDesc*> found;
    for (int b = 0; b < main.NumBlocks(); ++b) {
      for (size_t i = 0; i < main.Block(b).NumOps(); ++i) {
        if (main.Block(b).op(i).type() == type) found.push_back(&main.Block(b).op(i));
      }
    }
    return found;
  }
  // The dtype of an op's first input.
  DType ComputesIn(const std::string& type) const {
    for (const OpDesc* op : Ops(type)) return DTypeOf(op->inputs()[0].args[0]);
    ADD_FAILURE() << "no op " << type;
    return DType::kBool;
  }
  // Every conversion of a variable once.
  void ExpectCastsShared() const {
    std::set<std::pair<std::string, int32_t>> seen;
    for (const OpDesc* op : Ops("cast")) {
      EXPECT_TRUE(seen.insert({op->Input("X")[0], op->GetAttr<int32_t>("out_dtype", -1)}).second)
          << op->Input("X")[0];
    }
  }
};

Tensor Random(const Shape& shape, unsigned seed) {
  Tensor tensor(DType::kFloat32, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& v : tensor.span<float>()) v = uniform(random);
  return tensor;
}

struct Lenet : Net {
  Lenet() {
    Variable image = net.Data("image", {-1, 1, 12, 12});
    Variable label = net.Data("label", {-1, 1}, DType::kInt64);
    Variable c =
        net.Conv2d(image, {.num_filters = 4, .filter_size = 5, .act = "relu", .output = "c"});
    Variable p = net.Pool2d(c, {.pool_size = 2, .pool_stride = 2, .output = "p"});
    Variable h = net.Fc(p, {.size = 16, .act = "tanh", .output = "h"});
    Variable logits = net.Fc(h, {.size = 10, .output = "logits"});
    Variable ce = net.SoftmaxWithCrossEntropy(logits, label);
    loss = net.Mean(ce, {.output = "loss"});
    net.Accuracy(logits, label, {.output = "acc"});
  }
  std::vector<double> Train(int steps, double rate = 0.1) {
    Sgd({.learning_rate = rate}).Minimize(Variable::Of(main.Root(), "loss"), startup);
    VerifyOrThrow(main, DefaultOps());
    Executor exe;
    exe.Run(startup, scope);
    PreparedProgram step = exe.Prepare(main, {"image", "label"}, {"loss"});
    Tensor labels(DType::kInt64, {8, 1});
    for (int i = 0; i < 8; ++i) labels.data<int64_t>()[i] = i;
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const Tensor out = step.Run(scope, {Random({8, 1, 12, 12}, 5), labels})[0];
      losses.push_back(out.Cast(DType::kFloat64).Item<double>());
    }
    return losses;
  }
  Variable loss;
  Scope scope;
};

TEST(MixedPrecision, ListsAtO1) {
  Lenet t;
  const MixedPrecisionReport report = t.Decorate();
  for (const char* type : {"conv2d", "mul", "elementwise_add", "relu", "tanh", "pool2d"})
    EXPECT_EQ(t.ComputesIn(type), kLow) << type;
  for (const char* type : {"softmax_with_cross_entropy", "mean"})
    EXPECT_EQ(t.ComputesIn(type), DType::kFloat32) << type;
  EXPECT_EQ(t.DTypeOf("h"), kLow);
  EXPECT_EQ(t.DTypeOf("logits"), kLow);
  EXPECT_EQ(t.DTypeOf("loss"), DType::kFloat32);
  for (const std::string& param : t.main.Parameters())
    EXPECT_EQ(t.DTypeOf(param), DType::kFloat32) << param;
  t.ExpectCastsShared();
  // The image, six parameters down; logits up.
  EXPECT_EQ(report.casts, 8);
  EXPECT_EQ(static_cast<int>(t.Ops("cast").size()), 8);
  EXPECT_GE(report.low_ops, 9);
}

TEST(MixedPrecision, TrainsLikeFloat32) {
  Lenet whole;
  const std::vector<double> expected = whole.Train(20);
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (PrecisionLevel level : {PrecisionLevel::kO1, PrecisionLevel::kO2, PrecisionLevel::kO3}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " O" + std::to_string(static_cast<int>(level)));
      Lenet t;
      t.Decorate({.dtype = dtype, .level = level, .float32_vars = {"loss"}});
      const std::vector<double> losses = t.Train(20);
      EXPECT_LT(expected.back(), expected.front() - 0.5);
      const double share = dtype == DType::kFloat16 ? 0.02 : 0.06;
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], expected[i], share * expected[0]) << i;
    }
  }
}

// The gradients that reach clip and update are float32, whatever the dtype inside.
TEST(MixedPrecision, ParameterGradientsAreFloat) {
  for (PrecisionLevel level : {PrecisionLevel::kO1, PrecisionLevel::kO2}) {
    Lenet t;
    t.Decorate({.dtype = DType::kFloat16, .level = level});
    Sgd sgd({.learning_rate = 0.1});
    for (const ParamAndGrad& pair : sgd.Minimize(Variable::Of(t.main.Root(), "loss"), t.startup)) {
      EXPECT_EQ(t.DTypeOf(pair.param), DType::kFloat32);
      EXPECT_EQ(t.DTypeOf(pair.grad), DType::kFloat32);
    }
  }
}

TEST(MixedPrecision, LevelO0ChangesNothing) {
  Lenet t;
  const std::string before = SerializeProgram(t.main);
  const MixedPrecisionReport report = t.Decorate({.level = PrecisionLevel::kO0});
  EXPECT_EQ(SerializeProgram(t.main), before);
  EXPECT_EQ(report.casts + report.low_ops, 0);
}

// apex's table: what is float32 at which level.
TEST(MixedPrecision, LevelsKeepWhatTheySay) {
  for (int level = 1; level <= 3; ++level) {
    Net t;
    Variable x = t.net.Data("x", {-1, 3, 8, 8});
    Variable c = t.net.Conv2d(x, {.num_filters = 4, .filter_size = 3, .param_attr = {.name = "w"}});
    Variable n = t.net.BatchNorm(c, {.param_attr = {.name = "scale"}, .moving_mean_name = "mean"});
    t.net.Mean(t.net.Activation(n, "exp", {}, {.output = "e"}), {.output = "loss"});
    t.Decorate({.level = static_cast<PrecisionLevel>(level)});
    SCOPED_TRACE(level);
    EXPECT_EQ(t.DTypeOf("w"), level == 3 ? kLow : DType::kFloat32);      // master weights
    EXPECT_EQ(t.DTypeOf("scale"), level == 3 ? kLow : DType::kFloat32);  // of the norm
    EXPECT_EQ(t.DTypeOf("mean"), DType::kFloat32);                       // a state
    EXPECT_EQ(t.ComputesIn("batch_norm"), kLow);
    EXPECT_EQ(t.ComputesIn("exp"), level == 3 ? kLow : DType::kFloat32);
    EXPECT_EQ(t.startup.Root().FindVar("w")->dtype(), t.DTypeOf("w"));
    VerifyOrThrow(t.startup, DefaultOps());
    Scope scope;
    Executor().Run(t.startup, scope);
    EXPECT_EQ(scope.Get("w").dtype(), t.DTypeOf("w"));
  }
}

// Every persistable variable that a step of O3 writes, except parameters, is at least float32.
TEST(MixedPrecision, StatesAreFloat32) {
  for (const std::string kind : {"sgd", "momentum", "lars_momentum", "lion", "dpsgd", "proximal_gd",
                                 "proximal_adagrad", "adam", "adamw", "adamax", "lamb", "adagrad",
                                 "decayed_adagrad", "adadelta", "rmsprop", "ftrl"}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      for (const int way : {0, 1, 2}) {
        SCOPED_TRACE(kind + " " + ToString(dtype) + " " + std::to_string(way));
        Net t;
        Variable x = t.net.Data("x", {-1, 4});
        Variable h = t.net.BatchNorm(t.net.Fc(x, {.size = 3}));
        t.net.Mean(t.net.Fc(h, {.size = 1}), {.output = "loss"});
        t.Decorate({.dtype = dtype, .level = PrecisionLevel::kO3, .float32_vars = {"loss"}});
        OptimizerGroup group{.optimizer = MakeOptimizer({kind, {{"learning_rate", 0.1}}})};
        group.optimizer->SetRegularizer(L2DecayRegularizer(0.1));
        group.optimizer->SetGradientClip(way == 1 ? ClipGradByNorm(1) : ClipGradByGlobalNorm(1));
        if (way == 0) group.average = std::make_shared<ExponentialMovingAverage>();
        if (way == 1) group.average = std::make_shared<ModelAverage>();
        TrainingStep step{.groups = {group}, .accumulate = way == 2 ? 1 : 2};
        if (way == 2) step.lookahead.emplace();
        LossScaling scaling(t.main, t.startup, {.init_scale = 128});
        if (way > 0) step.scaling = &scaling;
        AppendTrainingStep(step, Variable::Of(t.main.Root(), "loss"), t.startup);
        VerifyOrThrow(t.main, DefaultOps());
        int states = 0;
        t.main.ForEachOp([&](const OpDesc& op) {
          op.ForEachOutput([&](const std::string& name) {
            const VarDesc* var = op.block()->FindVarRecursive(name);
            if (!var || !var->persistable() || var->is_parameter()) return;
            ++states;
            EXPECT_NE(var->dtype(), dtype) << name << " of " << op.type();
          });
        });
        EXPECT_GT(states, 2);
        Scope scope;
        Executor exe;
        exe.Run(t.startup, scope);
        for (int i = 0; i < 2; ++i)
          exe.Run(t.main, scope, {{"x", Random({2, 4}, 3).Cast(t.DTypeOf("x"))}});
      }
    }
  }
}

// In float16 1e-7 is 19% off: gradients are divided by the loss scale in float32.
TEST(MixedPrecision, UnscaledInFloat32) {
  Net t;
  Variable w = t.net.Parameter("w", {1}, DType::kFloat16, {.name = "w"}, ConstantInitializer(0));
  Variable x = t.net.Data("x", {1}, DType::kFloat16);
  const Variable loss = t.net.Scale(t.net.ReduceSum(t.net.Mul(w, x)), {.scale = 1.0f / 1024});
  Momentum momentum({.learning_rate = 1, .momentum = 0});
  LossScaling scaling(t.main, t.startup, {.init_scale = 1024});
  scaling.Minimize(momentum, loss, t.startup);
  Scope scope;
  Executor exe;
  exe.Run(t.startup, scope);
  const Tensor feed = Tensor::Of<float>({1}, {1e-4f}).Cast(DType::kFloat16);
  exe.Run(t.main, scope, {{"x", feed}});
  int found = 0;
  for (const std::string& name : PersistableNames(t.main)) {
    if (name.find("velocity") == std::string::npos) continue;
    ++found;
    const double expected = feed.Cast(DType::kFloat64).Item<double>() / 1024;
    EXPECT_NEAR(scope.Get(name).Item<float>(), expected, 1e-6 * expected);
  }
  EXPECT_EQ(found, 1);
}

// A parameter of 16 bits has the first values that it would have in float32, rounded.
TEST(MixedPrecision, InitialValuesOfO3) {
  Lenet whole, t;
  t.Decorate({.level = PrecisionLevel::kO3});
  Scope a, b;
  Executor().Run(whole.startup, a);
  Executor().Run(t.startup, b);
  for (const std::string& param : whole.main.Parameters()) {
    const Tensor expected = a.Get(param).Cast(kLow).Cast(DType::kFloat32);
    const Tensor actual = b.Get(param).Cast(DType::kFloat32);
    for (int64_t i = 0; i < expected.numel(); ++i)
      ASSERT_EQ(actual.data<float>()[i], expected.data<float>()[i]) << param;
  }
}

TEST(MixedPrecision, UnlistedAndGrayFollowTheirInputs) {
  Net t;
  Variable x = t.net.Data("x", {4, 4});
  Variable w = t.net.Parameter("w", {4, 4}, DType::kFloat32, {.name = "w"});
  Variable low = t.net.Matmul(x, w, {.output = "low"});
  Variable black = t.net.Softmax(x, -1, {.output = "black"});
  t.net.Activation(low, "sin", {}, {.output = "after_low"});  // unlisted
  t.net.Activation(black, "sin", {}, {.output = "after_black"});
  t.net.Activation(x, "sin", {}, {.output = "after_feed"});
  t.net.Add(low, black, {.output = "mixed"});  // gray: a black producer wins
  t.net.Add(low, x, {.output = "with_feed"});
  t.net.Sum({low, x}, {.output = "summed"});  // black
  t.Decorate();
  EXPECT_EQ(t.DTypeOf("after_low"), kLow);
  EXPECT_EQ(t.DTypeOf("after_black"), DType::kFloat32);
  EXPECT_EQ(t.DTypeOf("after_feed"), DType::kFloat32);
  EXPECT_EQ(t.DTypeOf("mixed"), DType::kFloat32);
  EXPECT_EQ(t.DTypeOf("with_feed"), kLow);
  EXPECT_EQ(t.DTypeOf("summed"), DType::kFloat32);
  t.ExpectCastsShared();  // x down once for two readers, low up once for two
}

// PyTorch's autocast wants float32 for these, of the ops that we have. (elementwise_pow and
// layer_norm are gray, as in Paddle; the statistics of layer_norm stay float32.)
TEST(MixedPrecision, Float32OpsOfAutocastAreBlack) {
  const PrecisionLists lists = DefaultPrecisionLists();
  for (const char* type :
       {"exp", "log", "pow", "rsqrt", "reciprocal", "cumsum", "reduce_prod", "reduce_sum", "sum",
        "softmax", "log_softmax", "softplus", "square_error_cost", "squared_l2_norm",
        "softmax_with_cross_entropy", "sigmoid_cross_entropy_with_logits"}) {
    EXPECT_NE(DefaultOps().Find(type), nullptr) << type;
    EXPECT_TRUE(lists.black.contains(type)) << type;
  }
}

TEST(MixedPrecision, CustomListsAndNames) {
  Lenet t;
  t.Decorate({.custom_white = {"softmax_with_cross_entropy"}, .custom_black = {"tanh"}});
  EXPECT_EQ(t.ComputesIn("softmax_with_cross_entropy"), kLow);
  EXPECT_EQ(t.ComputesIn("tanh"), DType::kFloat32);
  Lenet by_name;
  by_name.Decorate({.black_vars = {"c"}, .float32_vars = {"logits"}});
  EXPECT_EQ(by_name.ComputesIn("relu"), DType::kFloat32);
  EXPECT_EQ(by_name.DTypeOf("logits"), DType::kFloat32);
  EXPECT_EQ(by_name.ComputesIn("mul"), kLow);
  EXPECT_NEAR(by_name.Train(1)[0], Lenet().Train(1)[0], 0.05);
}

TEST(MixedPrecision, WrongOptions) {
  const auto error = [](const MixedPrecisionOptions& options) {
    Lenet t;
    return ErrorOf([&] { t.Decorate(options); });
  };
  EXPECT_NE(error({.custom_white = {"mul"}, .custom_black = {"mul"}})
                .find("'mul' is in custom_white and in custom_black"),
            std::string::npos);
  EXPECT_NE(error({.custom_white = {"conv2b"}}).find("no op 'conv2b'"), std::string::npos);
  EXPECT_NE(error({.custom_white = {"conv2b"}}).find("conv2d"), std::string::npos);
  EXPECT_NE(error({.black_vars = {"logit"}}).find("logits"), std::string::npos);
  EXPECT_NE(error({.dtype = DType::kFloat64}).find("float16 or bfloat16"), std::string::npos);
  EXPECT_NE(error({.level = PrecisionLevel::kO1, .master_weights = false}).find("contradicts"),
            std::string::npos);
  Lenet late;
  late.Train(1);
  EXPECT_NE(ErrorOf([&] { late.Decorate(); }).find("before Minimize"), std::string::npos);
}

// A variable that is written again, and one that lives in the scope, keep float32.
TEST(MixedPrecision, VariablesWrittenTwiceKeepTheirDType) {
  Net t;
  Variable x = t.net.Data("x", {4, 4});
  Variable w = t.net.Parameter("w", {4, 4}, DType::kFloat32, {.name = "w"});
  Variable h = t.net.Matmul(x, w, {.output = "h"});
  t.net.Append("relu", {{"X", {"h"}}}, {{"Out", {"h"}}});
  t.net.Matmul(h, w, {.output = "out"});
  t.net.Statistic("kept", "kept", {4, 4}, DType::kFloat32, ConstantInitializer(0));
  t.net.Append("matmul_v2", {{"X", {"h"}}, {"Y", {"w"}}}, {{"Out", {"kept"}}});
  ProgramDesc plain = t.main;
  t.Decorate();
  EXPECT_EQ(t.DTypeOf("h"), DType::kFloat32);
  EXPECT_EQ(t.DTypeOf("kept"), DType::kFloat32);
  EXPECT_EQ(t.DTypeOf("out"), kLow);
  EXPECT_EQ(t.ComputesIn("relu"), kLow);
  Scope scope;
  Executor().Run(t.startup, scope);
  const Tensor feed = Random({4, 4}, 3);
  const std::vector<std::string> fetches = {"h", "out", "kept"};
  const auto a = Executor().Run(plain, scope, {{"x", feed}}, fetches);
  const auto b = Executor().Run(t.main, scope, {{"x", feed}}, fetches);
  for (size_t k = 0; k < a.size(); ++k) {
    for (int i = 0; i < 16; ++i)
      EXPECT_NEAR(a[k].data<float>()[i], b[k].Cast(DType::kFloat32).data<float>()[i], 0.03) << k;
  }
}

// h = tanh(h w) n times: the weight is converted once, outside; the state keeps float32.
struct Loop : Net {
  Loop() {
    Variable x = net.Data("x", {2, 4});
    Variable w = net.Parameter("w", {4, 4}, DType::kFloat32, {.name = "w"});
    Variable h = net.Scale(x, {.scale = 1.0f, .output = "h"});
    Variable i = FillConstant(net, {1}, DType::kInt64, 0),
             n = FillConstant(net, {1}, DType::kInt64, 3);
    Variable condition = net.Make("less_than", {{"X", {i.name()}}, {"Y", {n.name()}}});
    While(net, condition, [&] {
      Variable y = net.Tanh(net.Matmul(h, w, {.output = "product"}));
      Assign(net, net.Matmul(y, w), h);
      Increment(net, i);
      Assign(net, net.Make("less_than", {{"X", {i.name()}}, {"Y", {n.name()}}}), condition);
    });
    net.Mean(net.Matmul(h, w), {.output = "loss"});
  }
};

TEST(MixedPrecision, Loops) {
  Loop whole, t;
  t.Decorate();
  EXPECT_EQ(t.DTypeOf("product"), kLow);
  EXPECT_EQ(t.DTypeOf("h"), DType::kFloat32);
  std::vector<const OpDesc*> of_w;
  for (const OpDesc* op : t.Ops("cast")) {
    if (op->Input("X")[0] == "w") of_w.push_back(op);
  }
  ASSERT_EQ(of_w.size(), 1u);
  EXPECT_EQ(of_w[0]->block()->idx(), 0);
  for (Loop* net : {&whole, &t}) {
    Sgd({.learning_rate = 0.5}).Minimize(Variable::Of(net->main.Root(), "loss"), net->startup);
    VerifyOrThrow(net->main, DefaultOps());
  }
  Scope scope;
  Executor().Run(whole.startup, scope);
  Scope other = scope.Clone();
  const Tensor feed = Random({2, 4}, 9);
  const auto a = Executor().Run(whole.main, scope, {{"x", feed}}, {"loss", "w@GRAD"});
  Executor().Run(t.startup, other);
  const auto b = Executor().Run(t.main, other, {{"x", feed}}, {"loss", "w@GRAD"});
  EXPECT_NEAR(a[0].Item<float>(), b[0].Item<float>(), 0.01);
  double norm = 0;
  for (int i = 0; i < 16; ++i) {
    EXPECT_NEAR(a[1].data<float>()[i], b[1].data<float>()[i], 0.02);
    norm += std::fabs(a[1].data<float>()[i]);
  }
  EXPECT_GT(norm, 0.1);
}

TEST(MixedPrecision, Branches) {
  Net t;
  Variable x = t.net.Data("x", {2, 4});
  Variable w = t.net.Parameter("w", {4, 4}, DType::kFloat32, {.name = "w"});
  Variable yes = t.net.Data("yes", {1}, DType::kBool);
  const auto results = Cond(
      t.net, yes, [&] { return std::vector<Variable>{t.net.Matmul(x, w)}; },
      [&] { return std::vector<Variable>{t.net.Matmul(t.net.Matmul(x, w), w)}; }, {"out"});
  t.net.Mean(results[0], {.output = "loss"});
  ProgramDesc plain = t.main;
  t.Decorate();
  for (const OpDesc* op : t.Ops("matmul_v2")) EXPECT_EQ(t.DTypeOf(op->Input("X")[0]), kLow);
  for (const OpDesc* op : t.Ops("matmul")) EXPECT_EQ(t.DTypeOf(op->Input("X")[0]), kLow);
  EXPECT_EQ(t.DTypeOf("out"), DType::kFloat32);
  t.ExpectCastsShared();
  Sgd({.learning_rate = 0.5}).Minimize(Variable::Of(t.main.Root(), "loss"), t.startup);
  Scope scope;
  Executor().Run(t.startup, scope);
  for (bool branch : {true, false}) {
    const Tensor feed = Random({2, 4}, 9), cond = Tensor::Of<bool>({1}, {branch});
    Scope fresh = scope.Clone();
    const auto a = Executor().Run(plain, fresh, {{"x", feed}, {"yes", cond}}, {"loss"});
    const auto b = Executor().Run(t.main, fresh, {{"x", feed}, {"yes", cond}}, {"loss"});
    EXPECT_NEAR(a[0].Item<float>(), b[0].Item<float>(), 0.01);
  }
}

// Decisions need nothing that a file does not hold.
TEST(MixedPrecision, AProgramFromAFileIsDecoratedAlike) {
  Lenet t;
  ProgramDesc loaded = ParseProgram(SerializeProgram(t.main));
  t.Decorate();
  DecorateMixedPrecision(loaded, t.startup);
  EXPECT_EQ(SerializeProgram(loaded), SerializeProgram(t.main));
}
}  // namespace coracle::mixed_precision_test
