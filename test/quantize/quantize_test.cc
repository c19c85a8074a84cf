// Quantised programs against the float program, and against loops.

#include <coracle/convert/models.h>
#include <coracle/quantize/layer_parameters.h>
#include <coracle/quantize/measure.h>
#include <coracle/test/quantize/quantize_programs.h>
#include <coracle/test/test_data.h>

#include <cstring>

namespace coracle::quantize_test {

const Shape kInput = {4, 3, 12, 12};

QuantizedModel Quantised(const TestNet& net, const QuantizeOptions& options,
                         const std::set<std::string>& in_float = {}) {
  return ModelQuantizer(net.program, net.scope, SamplesOf(kInput), options).Make(in_float);
}

double RatioTo(const TestNet& net, const QuantizedModel& model) {
  const std::map<std::string, Tensor> feeds = {{"x", Drawn(kInput, 77)}};
  return RatioOf(RunOn(net.program, net.scope, feeds, {"prob"})[0],
                 RunOn(model.program, model.parameters, feeds, {"prob"})[0]);
}

TEST(ModelQuantizer, IsNearToFloatForEachFormSchemeAndMethod) {
  const TestNet net = NetOf(ResidualNet());
  for (const QuantForm form : {QuantForm::kOnnx, QuantForm::kPaddle}) {
    for (const QuantScheme scheme :
         {QuantScheme::kStatic, QuantScheme::kDynamic, QuantScheme::kWeightOnly}) {
      for (const RangeMethod method : {RangeMethod::kMinMax, RangeMethod::kPercentile,
                                       RangeMethod::kEntropy, RangeMethod::kMse}) {
        if (scheme != QuantScheme::kStatic && method != RangeMethod::kMinMax) continue;
        QuantizeOptions options;
        options.form = form;
        options.scheme = scheme;
        options.method = method;
        options.equalization = Equalization::kNone;
        const QuantizedModel model = Quantised(net, options);
        EXPECT_GT(RatioTo(net, model), method == RangeMethod::kEntropy ? 20 : 30)
            << static_cast<int>(form) << static_cast<int>(scheme) << static_cast<int>(method);
        EXPECT_GT(model.output, 15);
        for (const LayerReport& layer : model.layers) {
          EXPECT_TRUE(layer.quantized);
          EXPECT_GE(layer.own, 15) << layer.output;
        }
      }
    }
  }
}

// The public function, from a saved model to a saved model.
TEST(QuantizeModel, OfASavedModel) {
  const TemporaryDirectory directory;
  const TestNet net = NetOf(ResidualNet());
  SaveInferenceModel(directory.File("float"), {"x"}, {"prob"}, net.program, net.scope);
  Scope scope;
  const InferenceModel model = LoadInferenceModel(directory.File("float"), scope);
  const ProgramDesc before = model.program;
  QuantizeOptions options;
  options.form = QuantForm::kPaddle;
  const QuantizedModel int8 =
      QuantizeModel(model.program, scope, SamplesOf(kInput), options, DefaultOps());
  EXPECT_TRUE(before == model.program);
  EXPECT_GT(int8.output, 15);
  SaveInferenceModel(directory.File("int8"), model.feed_names, model.fetch_names, int8.program,
                     int8.parameters);
  Scope integers;
  const InferenceModel loaded = LoadInferenceModel(directory.File("int8"), integers);
  EXPECT_EQ(loaded.feed_names, model.feed_names);
  EXPECT_GT(OpCounts(loaded.program)["affine_dequantize"], 0);
  const Tensor x = Drawn(kInput, 77);
  const Tensor exact = Executor().Run(model.program, scope, {{"x", x}}, {})[0];
  const Tensor rounded = Executor().Run(loaded.program, integers, {{"x", x}}, {})[0];
  EXPECT_GT(RatioOf(exact, rounded), 30);
  // Only weights, without samples.
  options.scheme = QuantScheme::kWeightOnly;
  EXPECT_TRUE(std::isnan(QuantizeModel(model.program, scope, {}, options).output));
  EXPECT_EQ(ErrorOf([&] { QuantizeModel(model.program, scope, {}); }),
            "a static scheme needs samples, from which it takes the ranges");
}

TEST(ModelQuantizer, WritesOpsOfPaddle) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  options.form = QuantForm::kPaddle;
  options.equalization = Equalization::kNone;
  const QuantizedModel affine = Quantised(net, options);
  options.linear_ops = true;
  const QuantizedModel linear = Quantised(net, options);
  std::map<std::string, int> counts = OpCounts(linear.program);
  EXPECT_EQ(counts.count("affine_quantize") + counts.count("affine_dequantize"), 0u);
  EXPECT_EQ(counts["quantize_linear"], OpCounts(affine.program)["affine_quantize"]);
  EXPECT_NEAR(linear.output, affine.output, 0.5);
  linear.program.ForEachOp(
      [](const OpDesc& op) { EXPECT_FALSE(op.type() == "conv2d" && op.HasInput("Bias")); });
}

TEST(ModelQuantizer, EqualisesWithTheSmallestError) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  const QuantizedModel best = Quantised(net, options);
  for (const Equalization kind :
       {Equalization::kNone, Equalization::kCrossLayer, Equalization::kSmooth}) {
    options.equalization = kind;
    EXPECT_GE(best.output, Quantised(net, options).output) << static_cast<int>(kind);
  }
}

// A layer between two small channels of one neighbour and large ones of the other: what is best for
// one activation is not for the next.
TEST(ModelQuantizer, EqualisesEachActivationInItsBestWay) {
  TestNet net = NetOf(R"(
    data  { name: "x" shape: [-1, 16] }
    layer { fc { input: "x" size: 16 act: "relu" output: "a" } }
    layer { fc { input: "a" size: 16 act: "relu" output: "b" } }
    layer { fc { input: "b" size: 8 output: "y" } })");
  // Weights of one kind for the first pair of layers, and activations for the second.
  const std::span<float> w0 = net.scope.GetMutable("fc_0.w_0").span<float>();
  for (size_t i = 0; i < 16; ++i) w0[i * 16] *= 50;
  const std::span<float> w2 = net.scope.GetMutable("fc_2.w_0").span<float>();
  for (size_t j = 0; j < 8; ++j) w2[3 * 8 + j] *= 40;
  const CalibrationFeeds samples = SamplesOf({32, 16});
  QuantizeOptions options;
  double best_of_one = -1000;
  for (const Equalization kind :
       {Equalization::kNone, Equalization::kCrossLayer, Equalization::kSmooth}) {
    options.equalization = kind;
    const QuantizedModel model = ModelQuantizer(net.program, net.scope, samples, options).Make();
    best_of_one = std::max(best_of_one, model.output);
  }
  options.equalization = Equalization::kAuto;
  EXPECT_GE(ModelQuantizer(net.program, net.scope, samples, options).Make().output, best_of_one);
}

TEST(ModelQuantizer, TakesNamesThatItsCopiesWouldHave) {
  const TestNet net = NetOf(R"(
    data  { name: "x" shape: [-1, 6] }
    layer { fc { input: "x" size: 4 act: "relu" output: "y" } }
    layer { fc { input: "y" size: 4 output: "y@OWN" } })");
  const QuantizedModel model = ModelQuantizer(net.program, net.scope, SamplesOf({5, 6}), {}).Make();
  ASSERT_EQ(model.layers.size(), 2u);
  for (const LayerReport& layer : model.layers) EXPECT_GT(layer.own, 20) << layer.output;
}

// Paddle's ops know the axes 0 and 1 only.
TEST(ModelQuantizer, GivesWeightsOfThreeDimsOneScaleForPaddle) {
  TestNet net;
  BlockDesc& root = net.program.Root();
  root.Var("x").SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 3, 4}, 0});
  root.Var("w").SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 4, 5}, 0});
  root.Var("w").SetPersistable(true);
  root.Var("y").SetMeta({VarType::kLoDTensor, DType::kFloat32, {2, 3, 5}, 0});
  root.AppendOp("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  net.scope.Set("w", Drawn({2, 4, 5}, 3));
  QuantizeOptions options;
  options.form = QuantForm::kPaddle;
  options.linear_ops = true;
  const QuantizedModel model =
      ModelQuantizer(net.program, net.scope, SamplesOf({2, 3, 4}), options).Make();
  int weights = 0;
  model.program.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "dequantize_linear" && op.type() != "quantize_linear") return;
    EXPECT_EQ(op.GetAttr<int32_t>("quant_axis", 0), -1);
    weights += op.Input("X")[0] == "w@INT8";
    EXPECT_EQ(model.parameters.Get(op.Input("Scale")[0]).numel(), 1);
  });
  EXPECT_EQ(weights, 1);
  const std::map<std::string, Tensor> feeds = {{"x", Drawn({2, 3, 4}, 9)}};
  EXPECT_GT(RatioOf(RunOn(net.program, net.scope, feeds, {"y"})[0],
                    RunOn(model.program, model.parameters, feeds, {"y"})[0]),
            30);
}

// A convolution keeps a filter in its own layout only. Another op that reads it gets all bits.
TEST(QuantizedFilters, AreRestoredFromTheLayoutOfTheConvolution) {
  struct Case {
    DType dtype;
    int zero;
    int32_t groups;
  };
  for (const Case& c :
       {Case{DType::kInt8, 0, 1}, Case{DType::kInt8, 0, 2}, Case{DType::kInt8, -5, 1},
        Case{DType::kUInt8, 128, 1}, Case{DType::kUInt8, 3, 1}, Case{DType::kUInt8, 3, 2}}) {
    TestNet net;
    BlockDesc& root = net.program.Root();
    const auto declare = [&](const std::string& name, DType dtype, const Shape& shape) {
      root.Var(name).SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    };
    const auto parameter = [&](const std::string& name, Tensor value) {
      declare(name, value.dtype(), value.shape());
      root.Var(name).SetPersistable(true);
      net.scope.Set(name, std::move(value));
    };
    const Shape shape = {32, 16 / c.groups, 3, 3};
    Tensor w(c.dtype, shape), x(DType::kUInt8, {2, 16, 9, 9}), zero(c.dtype, {1});
    auto* bytes = static_cast<uint8_t*>(w.raw());
    for (int64_t i = 0; i < w.numel(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 % 251);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
    *static_cast<uint8_t*>(zero.raw()) = static_cast<uint8_t>(c.zero);
    parameter("w", w.Clone());
    parameter("zero", std::move(zero));
    parameter("s", Tensor::Of<float>({1}, {0.5f}));
    declare("x", DType::kUInt8, {-1, 16, 9, 9});
    for (const char* name : {"y", "z"}) root.Var(name);
    root.AppendOp("quantized_conv2d",
                  {{"Input", {"x"}},
                   {"InputScale", {"s"}},
                   {"Filter", {"w"}},
                   {"FilterScale", {"s"}},
                   {"FilterZeroPoint", {"zero"}}},
                  {{"Output", {"y"}}},
                  {{"out_dtype", static_cast<int32_t>(DType::kFloat32)}, {"groups", c.groups}});
    root.AppendOp("assign", {{"X", {"w"}}}, {{"Out", {"z"}}});
    const auto run = [&](KernelMode kernels) {
      Scope scope = SharedCopy(net.scope);
      const CompileOptions options{.kernels = kernels, .optimize = false};
      std::vector<Tensor> results;
      PreparedProgram program =
          Executor(options).PrepareFrozen(net.program, scope, {"x"}, {"y", "z"});
      for (const Tensor& each : program.Run(scope, {x})) results.push_back(each.Clone());
      return results;
    };
    const std::vector<Tensor> got = run(KernelMode::kAuto), want = run(KernelMode::kReference);
    EXPECT_GT(RatioOf(want[0], got[0]), 100) << c.zero << " " << c.groups;
    ASSERT_EQ(got[1].nbytes(), w.nbytes());
    EXPECT_EQ(std::memcmp(got[1].raw(), w.raw(), w.nbytes()), 0) << c.zero << " " << c.groups;
  }
}

TEST(SignalNoise, RefusesDifferentShapes) {
  SignalNoise noise;
  EXPECT_NE(ErrorOf([&] {
              noise.Add(Drawn({2, 3}, 1), Drawn({2, 2}, 1));
            }).find("a quantised result has the shape [2, 2], and in floating point [2, 3]"),
            std::string::npos);
  noise.Add(Drawn({2, 3}, 1), Drawn({2, 3}, 1));
  EXPECT_TRUE(std::isinf(noise.Decibels()));
}

TEST(ModelQuantizer, WeightsOfFourBitsAreNear) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  options.weight_bits = 4;
  options.block_size = 16;
  options.scheme = QuantScheme::kWeightOnly;
  const QuantizedModel model = Quantised(net, options);
  EXPECT_GT(RatioTo(net, model), 15);
  EXPECT_EQ(OpCounts(model.program).count("affine_quantize"), 0u);
  EXPECT_EQ(OpCounts(model.program)["affine_dequantize"], 3);
}

TEST(ModelQuantizer, WritesOnePairForEachActivation) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  options.equalization = Equalization::kNone;
  const QuantizedModel model = Quantised(net, options);
  EXPECT_EQ(OpCounts(model.program)["affine_quantize"], 6);
  const OpDesc *pool = nullptr, *after = nullptr;
  model.program.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "affine_quantize") return;
    if (op.Input("X")[0] == "a1") pool = &op;
    if (op.Input("X")[0] == "p1") after = &op;
  });
  ASSERT_TRUE(pool && after);
  EXPECT_EQ(pool->Input("Scale"), after->Input("Scale"));
}

TEST(ModelQuantizer, KeepsLayersInFloat) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  options.equalization = Equalization::kNone;
  const QuantizedModel model = Quantised(net, options, {"a1"});
  EXPECT_FALSE(model.layers[0].quantized);
  EXPECT_EQ(model.layers[0].bytes_after, model.layers[0].bytes_before);
  options.exclude = "^a1$|^logits";
  const ModelQuantizer excluded(net.program, net.scope, SamplesOf(kInput), options);
  EXPECT_EQ(excluded.products(), std::vector<std::string>{"c2"});
  options.exclude = "";
  options.keep_ends = true;
  EXPECT_EQ(ModelQuantizer(net.program, net.scope, SamplesOf(kInput), options).products(),
            std::vector<std::string>{"c2"});
}

TEST(ModelQuantizer, ComputesInBfloat16WhatStaysInFloat) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  options.bfloat16 = true;
  options.exclude = ".";
  const QuantizedModel model = Quantised(net, options);
  EXPECT_EQ(OpCounts(model.program).count("affine_quantize"), 0u);
  EXPECT_GT(RatioTo(net, model), 30);
  EXPECT_LT(RatioTo(net, model), 90);
}

// One fully connected layer by loops: quantised data, rounded weights, corrected bias.
TEST(ModelQuantizer, ComputesALayerAsItsFormulasSay) {
  const TestNet net = NetOf(R"(
    data  { name: "x" shape: [-1, 6] }
    layer { fc { input: "x" size: 4 act: "relu" output: "y" } })");
  QuantizeOptions options;
  options.correct_bias = false;
  const Shape shape = {5, 6};
  const QuantizedModel model =
      ModelQuantizer(net.program, net.scope, SamplesOf(shape, 2), options).Make();
  const Tensor& w = net.scope.Get("fc_0.w_0");
  float low = 0, high = 0;
  SamplesOf(shape, 2)([&](const std::vector<Tensor>& batch) {
    for (const float x : batch[0].span<float>()) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
  });
  const double scale = (static_cast<double>(high) - static_cast<double>(low)) / 255;
  const double zero = std::nearbyint(-static_cast<double>(low) / scale);
  double signal = 0, noise = 0;
  SamplesOf(shape, 2)([&](const std::vector<Tensor>& batch) {
    const Tensor y = RunOn(model.program, model.parameters, {{"x", batch[0]}}, {"y"})[0];
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        double sum = 0, exact = 0, most = 0;
        for (size_t k = 0; k < 6; ++k)
          most = std::max(most, std::abs(static_cast<double>(w.span<float>()[k * 4 + j])));
        for (size_t k = 0; k < 6; ++k) {
          const double x = static_cast<double>(batch[0].span<float>()[i * 6 + k]);
          const double v = static_cast<double>(w.span<float>()[k * 4 + j]);
          const double q = std::min(std::max(std::nearbyint(x / scale) + zero, 0.0), 255.0) - zero;
          sum += q * scale * std::nearbyint(v / most * 127) * most / 127;
          exact += x * v;
        }
        const double got = static_cast<double>(y.span<float>()[i * 4 + j]);
        EXPECT_NEAR(got, std::max(sum, 0.0), 1e-4);
        signal += std::max(exact, 0.0) * std::max(exact, 0.0);
        noise += std::pow(std::max(exact, 0.0) - std::max(sum, 0.0), 2);
      }
    }
  });
  ASSERT_EQ(model.layers.size(), 1u);
  EXPECT_NEAR(model.layers[0].own, 10 * std::log10(signal / noise), 0.05);
  EXPECT_NEAR(model.layers[0].total, model.layers[0].own, 1e-6);
  EXPECT_EQ(model.layers[0].bytes_before, 96u);
  EXPECT_EQ(model.layers[0].bytes_after, 24u + 16u);
}

TEST(MeanShift, IsTheErrorOfTheWeightsTimesTheMeans) {
  ChannelValues data;
  data.sum = {2, -4, 6, 8};
  data.count = 2;
  const Tensor w = Drawn({4, 2, 1, 2}, 1), r = Drawn({4, 2, 1, 2}, 2);
  const OpDesc conv("conv2d", {}, {}, {{"groups", int32_t{2}}});
  const std::vector<double> shift = MeanShift(conv, {"w", "Filter", {0, 1, 1, 2}}, w, r, data);
  ASSERT_EQ(shift.size(), 4u);
  for (size_t m = 0; m < 4; ++m) {
    double want = 0;
    for (size_t i = 0; i < 4; ++i)
      want += static_cast<double>(r.span<float>()[m * 4 + i] - w.span<float>()[m * 4 + i]) *
              data.sum[m / 2 * 2 + i / 2] / 2;
    EXPECT_NEAR(shift[m], want, 1e-6);
  }
  const Tensor a = Drawn({3, 4}, 1), b = Drawn({3, 4}, 2);  // [N, K]: Y is transposed
  const OpDesc matmul("matmul_v2", {}, {}, {{"trans_y", true}});
  const std::vector<double> rows = MeanShift(matmul, {"w", "Y", {0, 1, 1, 2}}, a, b, data);
  ASSERT_EQ(rows.size(), 3u);
  for (size_t n = 0; n < 3; ++n) {
    double want = 0;
    for (size_t k = 0; k < 4; ++k)
      want += static_cast<double>(b.span<float>()[n * 4 + k] - a.span<float>()[n * 4 + k]) *
              data.sum[k] / 2;
    EXPECT_NEAR(rows[n], want, 1e-6);
  }
}

TEST(ModelQuantizer, RaisesScalesForLargeBiases) {
  TestNet net = NetOf(R"(
    data  { name: "x" shape: [-1, 3, 12, 12] }
    layer { conv2d { input: "x" num_filters: 2 filter_size: 1 output: "prob" } })");
  for (float& w : net.scope.GetMutable("conv2d_0.w_0").span<float>()) w *= 1e-9f;
  net.scope.GetMutable("conv2d_0.b_0").span<float>()[1] = 1000;
  QuantizeOptions options;
  options.equalization = Equalization::kNone;
  const QuantizedModel model = Quantised(net, options);
  EXPECT_GT(RatioTo(net, model), 100);
}

TEST(ModelQuantizer, SaysWhatIsWrong) {
  TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  const auto error = [&](const CalibrationFeeds& feeds) {
    return ErrorOf([&] { ModelQuantizer(net.program, net.scope, feeds, options); });
  };
  EXPECT_EQ(error({}), "a static scheme needs samples, from which it takes the ranges");
  EXPECT_EQ(error(SamplesOf(kInput, 0)), "there are no samples to calibrate on");
  options.scheme = QuantScheme::kWeightOnly;
  options.equalization = Equalization::kSmooth;
  EXPECT_EQ(error({}), "equalisation needs samples: it measures channels on them");
  options = {};
  options.exclude = ".";
  EXPECT_EQ(error(SamplesOf(kInput)),
            "all 3 layers of the program are excluded: nothing is left to quantise");
  options.exclude = "";
  EXPECT_EQ(error([](const auto& use) {
              Tensor x = Drawn(kInput, 1);
              x.span<float>()[3] = std::nanf("");
              use({x});
            }),
            "'x' is nan or infinite in batch 0 of the samples: no range holds it; leave out those "
            "samples, or exclude the layers that read it");
  net.scope.GetMutable("fc_0.w_0").span<float>()[0] = INFINITY;
  EXPECT_NE(
      ErrorOf([&] { ModelQuantizer(net.program, net.scope, SamplesOf(kInput), options).Make(); }),
      "no error");
  const TestNet none = NetOf(R"(
    data  { name: "x" shape: [-1, 3] }
    layer { relu { input: "x" output: "y" } })");
  EXPECT_TRUE(ErrorOf([&] {
                ModelQuantizer(none.program, none.scope, SamplesOf({2, 3}), options);
              }).starts_with("the program has no layer to quantise"));
}

TEST(ModelQuantizer, TakesEmptyBatchesAndConstantData) {
  const TestNet net = NetOf(ResidualNet());
  QuantizeOptions options;
  const CalibrationFeeds zeros = [](const auto& use) {
    use({Tensor::Zeros(DType::kFloat32, kInput)});
    use({Tensor(DType::kFloat32, Shape{0, 3, 12, 12})});
  };
  const QuantizedModel model = ModelQuantizer(net.program, net.scope, zeros, options).Make();
  const Tensor prob =
      RunOn(model.program, model.parameters, {{"x", Drawn(kInput, 1)}}, {"prob"})[0];
  for (const float p : prob.span<float>()) EXPECT_TRUE(std::isfinite(p));
}

}  // namespace coracle::quantize_test
