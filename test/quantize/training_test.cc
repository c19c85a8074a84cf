// Training with quantisation: the ops that round, the programs of the phases, and the inference in
// integers, which must compute what the trained program computes.

#include <coracle/framework/base/error.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/quantize/quantize_programs.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace coracle::training_test {

struct Rounding {
  ProgramDesc main, startup;
  QuantizeTrainingReport report;
  Scope scope;
};

Rounding RoundingOf(const std::string& text, const QuantizeTrainingOptions& options = {}) {
  Rounding net;
  BuiltModel model = ParseModelText(text, "text");
  net.main = std::move(model.main);
  net.startup = std::move(model.startup);
  net.report = QuantizeForTraining(net.main, net.startup, options);
  Executor().Run(net.startup, net.scope, {}, {});
  return net;
}

// Draws parameters (gains also negative, variances positive) and ranges that some values exceed.
void DrawValues(Rounding* net) {
  uint64_t seed = 5;
  for (size_t i = 0; i < net->main.Root().NumVars(); ++i) {
    const VarDesc& var = net->main.Root().var(i);
    if (!var.persistable() || var.name().find("@STEP") != std::string::npos) continue;
    Tensor value = Drawn(var.shape(), ++seed);
    for (float& x : value.span<float>())
      if (var.name().find("@RANGE") != std::string::npos ||
          var.name().find(".w_2") != std::string::npos)
        x = 1.2f + std::abs(x);
    net->scope.Set(var.name(), value);
  }
  Executor().Run(InitializeLearnedSteps(net->main), net->scope, {}, {});
}

std::vector<std::string> Rounded(const ProgramDesc& program) {
  std::vector<std::string> names;
  program.ForEachOp([&](const OpDesc& op) {
    if (op.HasOutput("Out") && op.Output("Out")[0].ends_with("@ROUNDED") &&
        !program.Root().FindVar(op.Input("X")[0])->persistable())
      names.push_back(op.Output("Out")[0]);
  });
  return names;
}

float StepOf(const Rounding& net, const std::string& rounded, int bits) {
  const std::string of = rounded.substr(0, rounded.rfind("@ROUNDED"));
  if (const VarValue* step = net.scope.Find(of + "@STEP"))
    return std::get<Tensor>(*step).span<float>()[0];
  return net.scope.Get(of + "@RANGE").span<float>()[0] / (std::exp2(bits - 1.0f) - 1);
}

// Each rounded activation of the two programs differs by at most one step, and most are equal.
void ExpectSameInIntegers(Rounding& net, const Shape& x, const std::string& out,
                          const QuantizeTrainingOptions& options = {}) {
  DrawValues(&net);
  std::vector<std::string> fetches = Rounded(net.main);
  fetches.push_back(out);
  const QuantizedInference made = InferInIntegers(net.main, net.scope, {"x"}, fetches);
  for (const auto& [type, count] : OpCounts(made.program))
    EXPECT_EQ(type.find("fake"), std::string::npos) << type;
  const std::map<std::string, Tensor> feeds = {{"x", Drawn(x, 77, -2, 2)}};
  const auto exact = RunOn(net.main.CloneForTest(), net.scope, feeds, fetches);
  const auto integer = RunOn(made.program, made.parameters, feeds, fetches);
  for (size_t f = 0; f < fetches.size(); ++f) {
    const auto a = exact[f].span<float>(), b = integer[f].span<float>();
    ASSERT_EQ(a.size(), b.size());
    const bool last = f + 1 == fetches.size();
    float largest = 0;
    for (const float v : a) largest = std::max(largest, std::abs(v));
    EXPECT_GT(largest, 0) << fetches[f];
    const float step =
        last ? largest / 50 : StepOf(net, fetches[f], options.activation_bits) * 1.001f;
    size_t different = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_LE(std::abs(a[i] - b[i]), step) << fetches[f] << " " << i;
      different += std::abs(a[i] - b[i]) > 1e-3f * step + 1e-4f * largest ? 1u : 0u;
    }
    EXPECT_LE(different, a.size() / 50 + (last ? a.size() : 0)) << fetches[f];
  }
}

const char* const kNet = R"(
  data  { name: "x" shape: [-1, 3, 9, 9] }
  layer { conv2d { input: "x" num_filters: 8 filter_size: 3 padding: 1 output: "c1" } }
  layer { batch_norm { input: "c1" act: "relu" output: "a1" } }
  layer { pool2d { input: "a1" pool_size: 2 pool_stride: 2 pool_type: "max" output: "p1" } }
  layer { conv2d { input: "p1" num_filters: 8 filter_size: 3 padding: 1 groups: 8 output: "c2" } }
  layer { batch_norm { input: "c2" output: "n2" } }
  layer { elementwise_add { x: "n2" y: "p1" output: "s" } }
  layer { leaky_relu { input: "s" output: "a2" } }
  layer { fc { input: "a2" size: 5 output: "y" } }
)";

TEST(InferInIntegers, IsTheTrainedProgram) {
  for (const bool learned : {false, true}) {
    for (const int weights : {8, 4, 3}) {
      SCOPED_TRACE(fmt::format("learned {} weights {}", learned, weights));
      const QuantizeTrainingOptions options{.weight_bits = weights, .learned_step = learned};
      Rounding net = RoundingOf(kNet, options);
      EXPECT_EQ(net.report.products.size(), 3u);
      ExpectSameInIntegers(net, {6, 3, 9, 9}, "y", options);
    }
  }
}

TEST(InferInIntegers, FewerBitsOfActivations) {
  for (const bool learned : {false, true}) {
    const QuantizeTrainingOptions options{.activation_bits = 5, .learned_step = learned};
    Rounding net = RoundingOf(kNet, options);
    ExpectSameInIntegers(net, {1, 3, 9, 9}, "y", options);
  }
}

// A gain of 0 or below 0, a channel of zeros, a range in which nothing was observed.
TEST(InferInIntegers, Zeros) {
  Rounding net = RoundingOf(kNet);
  DrawValues(&net);
  net.scope.Get("batch_norm_0.w_0").Clone();
  Tensor gain = net.scope.Get("batch_norm_0.w_0").Clone();
  gain.span<float>()[0] = 0;
  gain.span<float>()[1] = -3;
  net.scope.Set("batch_norm_0.w_0", gain);
  Tensor filter = net.scope.Get("conv2d_0.w_0").Clone();
  std::fill_n(filter.span<float>().begin() + 2 * 27, 27, 0.0f);
  net.scope.Set("conv2d_0.w_0", filter);
  const std::map<std::string, Tensor> feeds = {{"x", Drawn({2, 3, 9, 9}, 7)}};
  for (const float range : {1.0f, 0.0f}) {
    net.scope.Set("x@RANGE", Tensor::Of<float>({1}, {range}));
    const auto exact = RunOn(net.main.CloneForTest(), net.scope, feeds, {"a1"})[0];
    const QuantizedInference made = InferInIntegers(net.main, net.scope, {"x"}, {"a1"});
    const auto integer = RunOn(made.program, made.parameters, feeds, {"a1"})[0];
    for (size_t i = 0; i < exact.span<float>().size(); ++i)
      ASSERT_NEAR(exact.span<float>()[i], integer.span<float>()[i], 1e-3) << range << " " << i;
  }
}

// The integers and scales of one product by written-out loops.
TEST(InferInIntegers, WeightsAsTheyAreRounded) {
  Rounding net = RoundingOf(R"(
    data  { name: "x" shape: [-1, 4] }
    layer { fc { input: "x" size: 3 output: "y" } }
  )",
                            {.weight_bits = 4});
  const Tensor w = Drawn({4, 3}, 9);
  net.scope.Set("fc_0.w_0", w);
  net.scope.Set("x@RANGE", Tensor::Of<float>({1}, {2.54f}));
  const QuantizedInference made = InferInIntegers(net.main, net.scope, {"x"}, {"y"});
  const Tensor& q = made.parameters.Get("fc_0.w_0@INT4");
  const Tensor& scale = made.parameters.Get("fc_0.w_0@INT4@SCALE");
  for (size_t n = 0; n < 3; ++n) {
    float largest = 0;
    for (size_t k = 0; k < 4; ++k)
      largest = std::max(largest, std::abs(w.span<float>()[k * 3 + n]));
    EXPECT_FLOAT_EQ(scale.span<float>()[n], largest / 7);
    for (size_t k = 0; k < 4; ++k)
      EXPECT_EQ(q.span<int8_t>()[k * 3 + n], std::round(7 * w.span<float>()[k * 3 + n] / largest));
  }
  EXPECT_FLOAT_EQ(made.parameters.Get("x@QUANT_SCALE").span<float>()[0], 0.02f);
  bool found = false;
  made.program.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "affine_quantize") return;
    found = true;
    EXPECT_EQ(op.GetAttr<int64_t>("qmin", 0), -127);
  });
  EXPECT_TRUE(found);
}

TEST(InferInIntegers, Refused) {
  const auto error = [](const Rounding& net) {
    return ErrorOf([&] { InferInIntegers(net.main, net.scope, {"x"}, {"y"}); });
  };
  Rounding net = RoundingOf(kNet);
  DrawValues(&net);
  net.scope.Set("a1@RANGE", Tensor::Of<float>({1}, {INFINITY}));
  EXPECT_EQ(error(net), "'a1@RANGE' is inf: only finite numbers can be quantised");
  net.scope.Set("a1@RANGE", Tensor::Zeros(DType::kFloat32, {0}));
  EXPECT_EQ(error(net),
            "'a1@RANGE', a range or a step of quantisation, must have 1 elements, got 0");
  net.scope.Set("a1@RANGE", Tensor::Of<float>({1}, {1}));
  Tensor filter = net.scope.Get("conv2d_0.w_0").Clone();
  filter.span<float>()[3] = std::nanf("");
  net.scope.Set("conv2d_0.w_0", filter);
  EXPECT_EQ(error(net), "'conv2d_0.w_0' is nan: only finite numbers can be quantised");
  Rounding plain;
  BuiltModel model = ParseModelText(kNet, "text");
  plain.main = std::move(model.main);
  EXPECT_EQ(error(plain),
            "no op of the program rounds for integers: give a program that was trained with "
            "quantisation");
}

std::map<std::string, int> CountsOf(const std::string& text,
                                    const QuantizeTrainingOptions& options = {}) {
  return OpCounts(RoundingOf(text, options).main);
}

constexpr const char* kChannel = "fake_channel_wise_quantize_dequantize_abs_max";
constexpr const char* kAverage = "fake_quantize_dequantize_moving_average_abs_max";

// What several products read is rounded once.
TEST(QuantizeForTraining, SharedOperands) {
  const auto counts = CountsOf(R"(
    data  { name: "x" shape: [-1, 4] }
    layer { fc { input: "x" size: 4 param { name: "w" } output: "a" } }
    layer { fc { input: "a" size: 4 param { name: "w" } output: "b" } }
    layer { fc { input: "a" size: 2 output: "c" } }
  )");
  EXPECT_EQ(counts.at(kChannel), 2);  // w, and the weight of c
  EXPECT_EQ(counts.at(kAverage), 2);  // x, a
}

// A weight with one axis of channels here and another there has two roundings, and two steps.
TEST(QuantizeForTraining, TiedWeights) {
  const char* const text = R"(
    data  { name: "x" shape: [-1, 4] }
    layer { parameter { shape: [4, 6] output: "w" } }
    layer { matmul { x: "x" y: "w" output: "a" } }
    layer { matmul { x: "a" y: "w" transpose_y: true output: "b" } }
  )";
  EXPECT_EQ(CountsOf(text).at(kChannel), 2);
  Rounding net = RoundingOf(text, {.learned_step = true});
  EXPECT_EQ(net.scope.Get("w@STEP").shape(), Shape({6}));
  EXPECT_EQ(net.scope.Get("w@STEP_OF_AXIS_0").shape(), Shape({4}));
  ExpectSameInIntegers(net, {5, 4}, "b");
}

// A pool moves rounded numbers; a sum reads what is rounded for a product anyway.
TEST(QuantizeForTraining, MovesAndSums) {
  const Rounding net = RoundingOf(kNet);
  EXPECT_EQ(Rounded(net.main), (std::vector<std::string>{"x@ROUNDED", "a1@ROUNDED", "a2@ROUNDED"}));
  net.main.ForEachOp([&](const OpDesc& op) {
    if (op.type() == "pool2d") {
      EXPECT_EQ(op.Input("X")[0], "a1@ROUNDED");
    }
  });
  // A pool that something else reads stays in floating point.
  const Rounding other = RoundingOf(R"(
    data  { name: "x" shape: [-1, 3, 8, 8] }
    layer { pool2d { input: "x" pool_size: 2 pool_type: "max" output: "p" } }
    layer { conv2d { input: "p" num_filters: 2 filter_size: 1 output: "y" } }
    layer { softmax { input: "p" output: "z" } }
  )");
  EXPECT_EQ(Rounded(other.main), std::vector<std::string>{"p@ROUNDED"});
}

TEST(QuantizeForTraining, Excluded) {
  EXPECT_EQ(CountsOf(kNet, {.exclude = "^y$"}).at(kChannel), 2);
  EXPECT_EQ(CountsOf(kNet, {.exclude = "a1"}).at(kChannel), 2);  // after norm and activation
  EXPECT_EQ(CountsOf(kNet, {.exclude = "conv2d_[01].w"}).at(kChannel), 1);
  EXPECT_EQ(ErrorOf([] { RoundingOf(kNet, {.exclude = "."}); }),
            "quantize: all 3 products of the model are excluded");
}

TEST(QuantizeForTraining, Refused) {
  EXPECT_EQ(ErrorOf([] { RoundingOf(kNet, {.weight_bits = 9}); }),
            "quantize: weights have 2 to 8 bits, got 9");
  EXPECT_EQ(ErrorOf([] { RoundingOf(kNet, {.activation_bits = 1}); }),
            "quantize: activations have 2 to 8 bits, got 1");
  EXPECT_EQ(ErrorOf([] { RoundingOf(kNet, {.moving_rate = 1}); }),
            "quantize: moving_rate must be at least 0 and below 1, got 1");
  EXPECT_EQ(ErrorOf([] {
              RoundingOf("data { name: 'x' shape: [-1, 4] } layer { relu { input: 'x' } }");
            }).substr(0, 44),
            "quantize: the model has no product to quanti");
  Rounding twice = RoundingOf(kNet);
  const ProgramDesc before = twice.main;
  EXPECT_EQ(ErrorOf([&] { QuantizeForTraining(twice.main, twice.startup); }).substr(0, 37),
            "quantize: the program rounds already:");
  EXPECT_TRUE(before == twice.main);
  Rounding taken;
  BuiltModel model = ParseModelText(kNet, "text");
  model.main.Root().Var("a1@RANGE");
  EXPECT_EQ(ErrorOf([&] { QuantizeForTraining(model.main, model.startup); }),
            "quantize: the model already has a variable 'a1@RANGE'");
  EXPECT_EQ(OpCounts(model.main).count(kChannel), 0u);
}

const char* const kLoss = R"(
  data  { name: "x" shape: [-1, 3, 6, 6] }
  layer { conv2d { input: "x" num_filters: 4 filter_size: 3 output: "c" } }
  layer { batch_norm { input: "c" act: "relu" output: "a" } }
  layer { fc { input: "a" size: 2 output: "y" } }
  layer { mean { input: "y" output: "loss" } }
)";

struct Training {
  ProgramDesc main;
  Scope scope;
};

Training TrainingOf(bool quantize, bool learned = false) {
  BuiltModel model = ParseModelText(kLoss, "text");
  if (quantize) QuantizeForTraining(model.main, model.startup, {.learned_step = learned});
  Momentum(MomentumOptions{.learning_rate = 0.1, .momentum = 0.9})
      .Minimize(Variable::Of(model.main.Root(), "loss"), model.startup);
  Training training;
  training.main = std::move(model.main);
  Executor().Run(model.startup, training.scope, {}, {});
  return training;
}

float LossOf(const ProgramDesc& program, Scope& scope, uint64_t seed) {
  return Executor()
      .Run(program, scope, {{"x", Drawn({4, 3, 6, 6}, seed)}}, {"loss"})[0]
      .Item<float>();
}

// Before rounding begins, training is training in floating point, bit for bit.
TEST(ProgramOfPhase, ObserveChangesNothing) {
  for (const bool learned : {false, true}) {
    Training plain = TrainingOf(false), rounding = TrainingOf(true, learned);
    const ProgramDesc observe = ProgramOfPhase(rounding.main, QuantizePhase::kObserve);
    float largest = 0;
    for (const uint64_t seed : {1u, 2u, 3u}) {
      EXPECT_EQ(LossOf(plain.main, plain.scope, seed), LossOf(observe, rounding.scope, seed));
      const Tensor x = Drawn({4, 3, 6, 6}, seed);
      float of_batch = 0;
      for (const float v : x.span<float>()) of_batch = std::max(of_batch, std::abs(v));
      largest = 0.9f * largest + of_batch;
    }
    for (const std::string& name : plain.main.Parameters())
      EXPECT_TRUE(BitEqual(plain.scope.Get(name), rounding.scope.Get(name))) << name;
    EXPECT_NEAR(rounding.scope.Get("x@RANGE").Item<float>(), largest / (1 + 0.9f + 0.81f), 1e-5);
    if (learned) {
      EXPECT_EQ(rounding.scope.Get("x@STEP").Item<float>(), 1);
    }
  }
}

// The average of an op has any names, as in programs of Paddle.
TEST(ProgramOfPhase, ObservesVariablesOfAnyName) {
  Training named = TrainingOf(true), other = TrainingOf(true);
  for (const char* part : {"@RANGE", "@RANGE_SUM", "@RANGE_COUNT"}) {
    const std::string from = std::string("x") + part, to = std::string("other.") + (part + 1);
    other.main.Root().RenameVar(*other.main.Root().FindVar(from), to);
    other.main.ForEachOp([&](OpDesc& op) {
      op.RenameInput(from, to);
      op.RenameOutput(from, to);
    });
    other.scope.Set(to, other.scope.Get(from).Clone());
  }
  for (Training* t : {&named, &other})
    LossOf(ProgramOfPhase(t->main, QuantizePhase::kObserve), t->scope, 1);
  EXPECT_GT(named.scope.Get("x@RANGE").Item<float>(), 0);
  EXPECT_TRUE(BitEqual(named.scope.Get("x@RANGE"), other.scope.Get("other.RANGE")));
  EXPECT_TRUE(BitEqual(named.scope.Get("x@RANGE_SUM"), other.scope.Get("other.RANGE_SUM")));
}

TEST(ProgramOfPhase, LearnedStepsBeginWithTheRanges) {
  Training t = TrainingOf(true, true);
  LossOf(ProgramOfPhase(t.main, QuantizePhase::kObserve), t.scope, 1);
  Executor().Run(InitializeLearnedSteps(t.main), t.scope, {}, {});
  EXPECT_FLOAT_EQ(t.scope.Get("x@STEP").Item<float>(), t.scope.Get("x@RANGE").Item<float>() / 127);
  const auto w = t.scope.Get("conv2d_0.w_0").span<float>();
  for (size_t c = 0; c < 4; ++c) {
    double sum = 0;
    for (size_t i = 0; i < 27; ++i) sum += std::abs(w[c * 27 + i]);
    EXPECT_NEAR(t.scope.Get("conv2d_0.w_0@STEP").span<float>()[c], 2 * sum / 27 / std::sqrt(127.0),
                1e-6);
  }
  const Tensor before = t.scope.Get("conv2d_0.w_0@STEP").Clone();
  LossOf(t.main, t.scope, 2);
  EXPECT_FALSE(BitEqual(before, t.scope.Get("conv2d_0.w_0@STEP")));
}

// Frozen: ranges and running statistics stay, norms use them, and parameters are still trained. The
// gradient is the one of a program whose norms were fixed from the beginning.
TEST(ProgramOfPhase, FreezeKeepsRangesAndStatistics) {
  Training t = TrainingOf(true);
  LossOf(t.main, t.scope, 1);
  const ProgramDesc frozen = ProgramOfPhase(t.main, QuantizePhase::kFreeze);
  const std::vector<std::string> fixed = {"x@RANGE", "x@RANGE_SUM", "x@RANGE_COUNT", "a@RANGE"};
  std::map<std::string, Tensor> before;
  for (size_t i = 0; i < t.main.Root().NumVars(); ++i) {
    const VarDesc& var = t.main.Root().var(i);
    if (var.persistable()) before[var.name()] = t.scope.Get(var.name()).Clone();
  }
  std::string mean, variance, gain;
  t.main.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "batch_norm") return;
    mean = op.Input("Mean")[0], variance = op.Input("Variance")[0], gain = op.Input("Scale")[0];
  });
  const Tensor x = Drawn({4, 3, 6, 6}, 2);
  const auto out =
      Executor().Run(frozen, t.scope, {{"x", x}}, {"c", GradName("y"), GradName(gain)});
  for (const std::string& name : fixed)
    EXPECT_TRUE(BitEqual(before.at(name), t.scope.Get(name))) << name;
  EXPECT_TRUE(BitEqual(before.at(mean), t.scope.Get(mean)));
  EXPECT_TRUE(BitEqual(before.at(variance), t.scope.Get(variance)));
  EXPECT_FALSE(BitEqual(before.at("conv2d_0.w_0"), t.scope.Get("conv2d_0.w_0")));
  // dgain[c] = sum dn (c - mean) / sqrt(variance + eps), with dn through relu and fc.
  const auto c = out[0].span<float>();
  const float dy = out[1].span<float>()[0];
  const auto w = before.at("fc_0.w_0").span<float>();
  const auto of = [&](const std::string& name, size_t i) {
    return before.at(name).span<float>()[i];
  };
  std::string shift = gain.substr(0, gain.size() - 3) + "b_0";
  std::vector<float> rounded(w.begin(), w.end());
  for (size_t n = 0; n < 2; ++n) {
    float largest = 0;
    for (size_t k = 0; k < 64; ++k) largest = std::max(largest, std::abs(w[k * 2 + n]));
    for (size_t k = 0; k < 64; ++k)
      rounded[k * 2 + n] = std::round(127 * w[k * 2 + n] / largest) * largest / 127;
  }
  for (size_t channel = 0; channel < 4; ++channel) {
    double sum = 0;
    for (size_t row = 0; row < 4; ++row) {
      for (size_t i = 0; i < 16; ++i) {
        const double normal = (c[(row * 4 + channel) * 16 + i] - of(mean, channel)) /
                              std::sqrt(of(variance, channel) + 1e-5);
        if (of(gain, channel) * normal + of(shift, channel) <= 0) continue;
        const size_t k = channel * 16 + i;
        sum += dy * (rounded[k * 2] + rounded[k * 2 + 1]) * normal;
      }
    }
    EXPECT_NEAR(out[2].span<float>()[channel], sum, 1e-4);
  }
}

}  // namespace coracle::training_test
