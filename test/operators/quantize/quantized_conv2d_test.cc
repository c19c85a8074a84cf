#include <coracle/operators/quantize/quantized.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/quantize/quantized_conv_case.h>

namespace coracle::quantized_conv2d_test {

constexpr int32_t kFloat = 5, kInt32 = 2, kUInt8 = 20, kInt8 = 21;

Tensor Scale(float s) { return Tensor::Of<float>({1}, {s}); }
template <class T>
Tensor Zero(int z) {
  return Tensor::Of<T>({1}, {static_cast<T>(z)});
}

// Two pixels of one channel, a 1 x 1 filter: real inputs 0.5 (q - 3), weights 0.25 q.
OpTest Small(int32_t out_dtype) {
  OpTest test("quantized_conv2d");
  test.Attr("out_dtype", out_dtype)
      .TensorInput("Input", Tensor::Of<uint8_t>({1, 1, 1, 2}, {1, 255}))
      .TensorInput("InputScale", Scale(0.5f))
      .TensorInput("InputZeroPoint", Zero<uint8_t>(3))
      .TensorInput("Filter", Tensor::Of<int8_t>({2, 1, 1, 1}, {2, -128}))
      .TensorInput("FilterScale", Tensor::Of<float>({2}, {0.25f, -1.0f}));
  return test;
}

TEST(QuantizedConv2d, ValuesInRealUnits) {
  // -1 and 126, times 0.5 and 128.
  Small(kFloat).Expect("Output", {1, 2, 1, 2}, {-0.5, 63, -128, 16128});
  Small(kFloat)
      .Attr("fuse_activation", std::string("relu"))
      .TensorInput("Bias", Tensor::Of<float>({2}, {1, 100}))
      .TensorInput("Residual", Tensor::Of<float>({1, 2, 1, 2}, {0, 1, 2, 3}))
      .Expect("Output", {1, 2, 1, 2}, {0.5, 65, 0, 16231});
}

TEST(QuantizedConv2d, RoundsTiesToEvenThenAddsTheZeroPoint) {
  // -0.5 and 63 in units of 1; -0.25 and 31.5 in units of 2.
  Small(kInt8)
      .TensorInput("OutScale", Scale(1))
      .TensorInput("OutZeroPoint", Zero<int8_t>(1))
      .Expect("Output", {1, 2, 1, 2}, {1, 64, -127, 127});
  Small(kInt8).TensorInput("OutScale", Scale(2)).Expect("Output", {1, 2, 1, 2}, {0, 32, -64, 127});
  Small(kUInt8)
      .TensorInput("OutScale", Scale(1))
      .TensorInput("OutZeroPoint", Zero<uint8_t>(1))
      .Expect("Output", {1, 2, 1, 2}, {1, 64, 0, 255});
}

TEST(QuantizedConv2d, IntegerBiasHasTheUnitsOfTheSums) {
  Small(kFloat)
      .TensorInput("Bias", Tensor::Of<int32_t>({2}, {8, 1}))
      .Expect("Output", {1, 2, 1, 2}, {0.5, 64, -128.5, 16127.5});
}

TEST(QuantizedConv2d, ResidualOfIntegers) {
  Small(kInt8)
      .TensorInput("Residual", Tensor::Of<uint8_t>({1, 2, 1, 2}, {4, 5, 6, 4}))
      .TensorInput("ResidualScale", Scale(10))
      .TensorInput("ResidualZeroPoint", Zero<uint8_t>(4))
      .TensorInput("OutScale", Scale(1))
      .Expect("Output", {1, 2, 1, 2}, {0, 73, -108, 127});
}

OpTest Sums(int8_t filter_zero) {
  OpTest test("quantized_conv2d");
  test.Attr("out_dtype", kInt32)
      .Attr("paddings", Ints{0, 1})
      .TensorInput("Input", Tensor::Of<uint8_t>({1, 1, 1, 2}, {10, 20}))
      .TensorInput("InputZeroPoint", Zero<uint8_t>(7))
      .TensorInput("Filter", Tensor::Of<int8_t>({1, 1, 1, 3}, {1, 2, 3}))
      .TensorInput("FilterZeroPoint", Zero<int8_t>(filter_zero));
  return test;
}

TEST(QuantizedConv2d, SumsOfIntegersArePaddedWithTheZeroPoint) {
  // (0, 3, 13, 0) with (1, 2, 3) and with (3, 4, 5).
  Sums(0).Expect("Output", {1, 1, 1, 2}, {45, 29});
  Sums(-2).Expect("Output", {1, 1, 1, 2}, {77, 61});
  Sums(0)
      .TensorInput("Bias", Tensor::Of<int32_t>({1}, {2147483647}))
      .ExpectDType("Output", DType::kInt32)
      .Expect("Output", {1, 1, 1, 2}, {45 - 2147483649.0, 29 - 2147483649.0});
}

TEST(QuantizedConv2d, ANanGivesTheLeastInteger) {
  Small(kInt8)
      .TensorInput("Bias", Tensor::Of<float>({2}, {NAN, INFINITY}))
      .TensorInput("OutScale", Scale(1))
      .Expect("Output", {1, 2, 1, 2}, {-128, -128, 127, 127});
  Small(kUInt8).TensorInput("OutScale", Scale(0)).Expect("Output", {1, 2, 1, 2}, {0, 255, 0, 255});
}

TEST(QuantizedConv2d, EmptyTensors) {
  OpTest("quantized_conv2d")
      .Attr("out_dtype", kFloat)
      .TensorInput("Input", Tensor(DType::kInt8, {1, 0, 1, 2}))
      .TensorInput("InputScale", Scale(1))
      .TensorInput("Filter", Tensor(DType::kInt8, {1, 0, 1, 1}))
      .TensorInput("FilterScale", Scale(1))
      .TensorInput("Bias", Tensor::Of<float>({1}, {3}))
      .Expect("Output", {1, 1, 1, 2}, {3, 3});
  OpTest("quantized_conv2d")
      .Attr("out_dtype", kInt32)
      .TensorInput("Input", Tensor(DType::kInt8, {0, 1, 3, 3}))
      .TensorInput("Filter", Tensor(DType::kInt8, {2, 1, 2, 2}))
      .Expect("Output", {0, 2, 2, 2}, {});
}

// --- errors ---

TEST(QuantizedConv2d, C8_FilterType) {
  OpTest("quantized_conv2d")
      .Attr("out_dtype", kInt32)
      .TensorInput("Input", Tensor(DType::kInt8, {1, 1, 1, 1}))
      .TensorInput("Filter", Tensor(DType::kFloat32, {1, 1, 1, 1}))
      .ExpectError("quantized_conv2d.C8");
}

TEST(QuantizedConv2d, C9_Scales) {
  Small(kInt8).ExpectError("quantized_conv2d.C9");  // no OutScale
  Small(kFloat).TensorInput("OutScale", Scale(1)).ExpectError("quantized_conv2d.C9");
  Small(kInt8)
      .TensorInput("OutScale", Tensor::Of<float>({2}, {1, 1}))
      .ExpectError("quantized_conv2d.C9");
  Small(kInt8)
      .TensorInput("OutScale", Tensor::Of<double>({1}, {1}))
      .ExpectError("quantized_conv2d.C9");
  Small(kFloat)
      .TensorInput("Residual", Tensor::Of<uint8_t>({1, 2, 1, 2}, {4, 5, 6, 4}))
      .ExpectError("quantized_conv2d.C9");
}

TEST(QuantizedConv2d, C10_ZeroPoints) {
  Small(kFloat)
      .TensorInput("FilterZeroPoint", Zero<uint8_t>(0))
      .ExpectError("quantized_conv2d.C10");
  Small(kFloat)
      .TensorInput("FilterZeroPoint", Tensor::Of<int8_t>({3}, {0, 0, 0}))
      .ExpectError("quantized_conv2d.C10");
  Small(kFloat).TensorInput("OutZeroPoint", Zero<int8_t>(0)).ExpectError("quantized_conv2d.C10");
}

TEST(QuantizedConv2d, C11_Bias) {
  Small(kFloat)
      .TensorInput("Bias", Tensor::Of<float>({1}, {1}))
      .ExpectError("quantized_conv2d.C11");
  Small(kFloat)
      .TensorInput("Bias", Tensor::Of<int8_t>({2}, {1, 1}))
      .ExpectError("quantized_conv2d.C11");
}

TEST(QuantizedConv2d, C12_Residual) {
  Small(kFloat)
      .TensorInput("Residual", Tensor::Of<float>({1, 2, 1, 1}, {0, 1}))
      .ExpectError("quantized_conv2d.C12");
  Small(kFloat)
      .TensorInput("Residual", Tensor::Of<double>({1, 2, 1, 2}, {0, 1, 2, 3}))
      .ExpectError("quantized_conv2d.C12");
}

TEST(QuantizedConv2d, C13_OutType) {
  Small(6).ExpectError("quantized_conv2d.C13");
  Small(kInt32).ExpectError("quantized_conv2d.C13");
  Sums(0).TensorInput("Bias", Tensor::Of<float>({1}, {1})).ExpectError("quantized_conv2d.C13");
  Sums(0).Attr("fuse_activation", std::string("relu")).ExpectError("quantized_conv2d.C13");
}

TEST(QuantizedConv2d, FloatingImagesAreRefused) {
  OpTest("quantized_conv2d")
      .Attr("out_dtype", kInt32)
      .TensorInput("Input", Tensor(DType::kFloat32, {1, 1, 1, 1}))
      .TensorInput("Filter", Tensor(DType::kInt8, {1, 1, 1, 1}))
      .ExpectError("int8, uint8");
}

// --- kernels against written-out sums ---

struct Draws {
  std::mt19937 random;
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }
  template <class T>
  T Of(const std::vector<T>& list) {
    return list[static_cast<size_t>((*this)(0, static_cast<int64_t>(list.size()) - 1))];
  }
};

void DrawShape(Draws& draw, QuantizedConvCase* c) {
  c->batch = draw(1, 3);
  c->groups = draw(0, 2) ? 1 : draw(1, 4);
  c->channels = c->groups * draw(1, draw(0, 3) ? 9 : 70);
  c->filters = c->groups * draw(1, draw(0, 3) ? 23 : 70);
  if (draw(0, 4) == 0) {  // depthwise
    c->groups = c->channels = draw(1, 80);
    c->filters = c->channels * draw(1, draw(0, 2) ? 1 : 2);
  }
  c->kh = draw(1, 4);
  c->kw = draw(1, 5);
  if (draw(0, 2) == 0) c->kh = c->kw = draw.Of<int64_t>({1, 3});
  c->strides = {static_cast<int32_t>(draw(1, 2)), static_cast<int32_t>(draw(1, 3))};
  if (draw(0, 1)) c->strides = {1, 1};
  if (draw(0, 2) == 0)
    c->dilations = {static_cast<int32_t>(draw(1, 2)), static_cast<int32_t>(draw(1, 2))};
  c->paddings.clear();
  for (int i = 0; i < 4; ++i) c->paddings.push_back(static_cast<int32_t>(draw(0, 2)));
  c->algorithm = draw.Of<std::string>({"EXPLICIT", "EXPLICIT", "SAME", "VALID"});
  c->format = draw.Of<std::string>({"NHWC", "NHWC", "NCHW"});
  c->height = c->dilations[0] * (c->kh - 1) + draw(1, 9);
  c->width = c->dilations[1] * (c->kw - 1) + draw(1, 17);
}

QuantizedConvCase RandomCase(Draws& draw) {
  QuantizedConvCase c;
  DrawShape(draw, &c);
  const std::vector<DType> bytes = {DType::kUInt8, DType::kInt8};
  c.input = draw.Of(bytes);
  c.filter = draw.Of<DType>({DType::kInt8, DType::kInt8, DType::kUInt8});
  c.out = draw.Of<DType>(
      {DType::kUInt8, DType::kInt8, DType::kUInt8, DType::kInt8, DType::kFloat32, DType::kInt32});
  const auto zero = [&](DType dtype) {
    if (dtype != DType::kUInt8 && dtype != DType::kInt8) return 0;
    return static_cast<int32_t>(draw(0, 1) ? 0 : draw(0, 255)) - (dtype == DType::kInt8 ? 128 : 0);
  };
  c.input_zero = draw(0, 2) ? zero(c.input) : 0;
  c.out_zero = zero(c.out);
  c.out_scale = static_cast<float>(draw(5, 50)) * 0.00317f;
  c.scale_of_filters = draw(0, 3);
  if (c.filter == DType::kUInt8 || draw(0, 3) == 0) {
    const int32_t middle = c.filter == DType::kUInt8 ? 128 : 0;
    c.filter_zeros.resize(static_cast<size_t>(draw(0, 1) ? 1 : c.filters));
    const int32_t range = draw(0, 1) ? 0 : static_cast<int32_t>(draw(0, 100));
    for (int32_t& z : c.filter_zeros) z = middle + static_cast<int32_t>(draw(-range, range));
  }
  if (draw(0, 2) == 0) c.least_weight = -(c.largest_weight = 60);
  const bool real = c.out != DType::kInt32;
  if (draw(0, 1)) c.bias = real && draw(0, 1) ? DType::kFloat32 : DType::kInt32;
  if (!real) return c;
  if (draw(0, 2) == 0) {
    c.residual = draw.Of<DType>({DType::kUInt8, DType::kInt8, DType::kFloat32});
    c.residual_zero = zero(*c.residual);
  }
  c.activation = draw.Of<std::string>(
      {"", "", "relu", "relu6", "clip", "leaky_relu", "hard_swish", "swish", "sigmoid", "tanh"});
  c.alpha = c.activation == "relu6" ? 6.0f : c.activation == "swish" ? 1.0f : 0.1f;
  if (c.activation == "clip") c.alpha = -1, c.beta = 2.5f;
  return c;
}

TEST(QuantizedConv2d, ReferenceComputesWrittenOutSums) {
  Draws draw{std::mt19937(1)};
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE(i);
    const QuantizedConvCase c = RandomCase(draw);
    QuantizedConvInputs inputs(c, draw.random);
    PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), {},
                  KernelMode::kReference);
    ExpectConv(inputs, c, op.Run(), false);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The inputs that are constant in a random case: all; or no scales; or no zero point of Input.
std::set<std::string> RandomConstants(Draws& draw, const QuantizedConvInputs& inputs) {
  std::set<std::string> names = inputs.Names();
  const int64_t kind = draw(0, 5);
  if (kind == 0) names.erase("InputScale");
  if (kind == 1) names.erase("InputZeroPoint");
  if (kind == 2) names = {"Filter", "FilterZeroPoint"};
  return names;
}

// Sums of float32 are rounded if they exceed 2^24.
double RoundingOf(const PreparedOp& op) { return op.way() == "float32" ? 3e-4 : 3e-6; }

// Checks random cases and returns how often each way was taken.
std::map<std::string, int> CheckRandomCases(int count, unsigned seed) {
  Draws draw{std::mt19937(seed)};
  std::map<std::string, int> ways;
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    const QuantizedConvCase c = RandomCase(draw);
    QuantizedConvInputs inputs(c, draw.random);
    PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(),
                  RandomConstants(draw, inputs), KernelMode::kAuto);
    SCOPED_TRACE(op.way());
    ExpectConv(inputs, c, op.Run(), true, RoundingOf(op));
    if (testing::Test::HasFatalFailure()) break;
    ++ways[op.way()];
  }
  for (const auto& [way, times] : ways) std::cout << "  " << way << ": " << times << "\n";
  return ways;
}

TEST(QuantizedConv2d, FastKernelsComputeWrittenOutSums) {
  const std::map<std::string, int> ways = CheckRandomCases(600, 2);
  if (!ExactIntegerProducts()) return;
  EXPECT_GT(ways.at("onednn"), 50);
  EXPECT_GT(ways.at("sums"), 100);
}

TEST(QuantizedConv2d, MachinesWithoutExactProductsComputeWrittenOutSums) {
  const ScopedIntegerProducts none(false);
  CheckRandomCases(250, 8);
}

TEST(QuantizedConv2d, DepthwiseKernelComputesWrittenOutSums) {
  Draws draw{std::mt19937(6)};
  int by_depthwise = 0;
  for (int i = 0; i < 250; ++i) {
    SCOPED_TRACE(i);
    QuantizedConvCase c = RandomCase(draw);
    c.groups = c.channels = c.filters = draw.Of<int64_t>({1, 8, 16, 24, 32, 33, 64, 80, 130});
    c.kh = c.kw = draw.Of<int64_t>({1, 2, 3, 3, 3, 5, 7});
    c.height = c.dilations[0] * (c.kh - 1) + draw(1, 9);
    c.width = c.dilations[1] * (c.kw - 1) + draw(1, draw(0, 9) ? 17 : 300);
    c.out = draw.Of<DType>({DType::kUInt8, DType::kInt8});
    c.out_zero = static_cast<int32_t>(draw(0, 1) ? 0 : draw(0, 100));
    if (c.bias) c.bias = draw.Of<DType>({DType::kFloat32, DType::kInt32});
    c.residual.reset();
    c.filter = DType::kInt8;
    c.filter_zeros.clear();
    c.activation = draw.Of<std::string>({"", "relu", "relu6", "clip", "leaky_relu", "hard_swish"});
    c.alpha = c.activation == "relu6" ? 3.0f : c.activation == "clip" ? -1.0f : 0.1f;
    c.beta = 2.5f;
    QuantizedConvInputs inputs(c, draw.random);
    PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), inputs.Names(),
                  KernelMode::kAuto);
    SCOPED_TRACE(op.way());
    ExpectConv(inputs, c, op.Run(), true, RoundingOf(op));
    if (testing::Test::HasFatalFailure()) return;
    by_depthwise += op.way() == "depthwise";
  }
  if (ExactIntegerProducts()) std::cout << "  by the own kernel: " << by_depthwise << "\n";
}

TEST(QuantizedConv2d, ResidualInTheMemoryOfTheOutput) {
  Draws draw{std::mt19937(3)};
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    QuantizedConvCase c = RandomCase(draw);
    if (c.out == DType::kInt32) continue;
    c.residual = c.out;
    c.residual_zero = 3;
    if (c.out == DType::kFloat32) c.residual_zero = 0;
    QuantizedConvInputs inputs(c, draw.random);
    PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(),
                  RandomConstants(draw, inputs), KernelMode::kAuto, "Residual");
    ExpectConv(inputs, c, op.Run(), true, RoundingOf(op));
    if (testing::Test::HasFatalFailure()) return;
  }
}

void Fill(Tensor* t, int value) {
  std::fill_n(static_cast<uint8_t*>(t->raw()), t->nbytes(), static_cast<uint8_t>(value));
}

// The largest products all over: kernels that add them in 16 bits saturate.
TEST(QuantizedConv2d, LargestSums) {
  Draws draw{std::mt19937(4)};
  for (const int64_t groups : {int64_t{1}, int64_t{32}}) {
    for (const DType input : {DType::kUInt8, DType::kInt8}) {
      for (const DType out : {DType::kInt32, DType::kFloat32, DType::kUInt8}) {
        for (const int weight : {127, -128, 64}) {
          for (const int32_t zero : {0, 5}) {
            QuantizedConvCase c;
            c.channels = groups == 1 ? 560 : 32;
            c.filters = groups == 1 ? 16 : 32;
            c.groups = groups;
            c.paddings = {1, 1};
            c.input = input;
            c.out = out;
            c.out_scale = 400;
            c.input_zero = zero;
            QuantizedConvInputs inputs(c, draw.random);
            Fill(inputs.Find("Input"), input == DType::kUInt8 ? 255 : 127);
            Fill(inputs.Find("Filter"), weight);
            PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), inputs.Names(),
                          KernelMode::kAuto);
            SCOPED_TRACE(op.way() + " weight " + std::to_string(weight));
            ExpectConv(inputs, c, op.Run(), true, RoundingOf(op));
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// A scale of 0 leaves the bias; scales out of the range of floats overflow as the reference does.
TEST(QuantizedConv2d, UnusualScales) {
  Draws draw{std::mt19937(5)};
  for (const float scale : {0.0f, -0.01f, 1e-30f, INFINITY, NAN}) {
    QuantizedConvCase c;
    c.bias = DType::kFloat32;
    QuantizedConvInputs inputs(c, draw.random);
    inputs.Find("FilterScale")->data<float>()[1] = scale;
    PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), inputs.Names(),
                  KernelMode::kAuto);
    PreparedOp reference("quantized_conv2d", inputs.all(), "Output", c.Attrs(), inputs.Names(),
                         KernelMode::kReference);
    EXPECT_TRUE(BitEqual(reference.Run(), op.Run())) << scale << " " << op.way();
  }
}

// The scale of the images is an input: in each run, the kernels see whether float32 serves.
TEST(QuantizedConv2d, UnusualScalesOfARun) {
  Draws draw{std::mt19937(6)};
  for (const float scale : {1e-44f, 1e-30f, 1e30f, 3e38f, INFINITY, NAN}) {
    for (const DType out : {DType::kUInt8, DType::kFloat32}) {
      for (const DType bias : {DType::kInt32, DType::kFloat32}) {
        QuantizedConvCase c;
        c.out = out;
        c.bias = bias;
        c.residual = out == DType::kUInt8 ? DType::kInt8 : DType::kFloat32;
        c.activation = "relu";
        QuantizedConvInputs inputs(c, draw.random);
        inputs.Find("InputScale")->data<float>()[0] = scale;
        std::set<std::string> constants = inputs.Names();
        constants.erase("InputScale");
        PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), constants,
                      KernelMode::kAuto);
        PreparedOp reference("quantized_conv2d", inputs.all(), "Output", c.Attrs(), constants,
                             KernelMode::kReference);
        EXPECT_TRUE(BitEqual(reference.Run(), op.Run())) << scale << " " << op.way();
      }
    }
  }
}

// Sums above 2^24, which float32 would round, minus a bias that leaves their last bits.
TEST(QuantizedConv2d, LargeSumsOfGroupsAreExact) {
  if (!ExactIntegerProducts()) GTEST_SKIP() << "this machine multiplies in float32";
  Draws draw{std::mt19937(8)};
  QuantizedConvCase c;
  c.channels = 600;
  c.filters = 4;
  c.groups = 2;
  c.kh = c.kw = 1;
  c.filter = DType::kUInt8;  // of the whole range: its differences do not fit into int8
  c.out = DType::kFloat32;
  c.bias = DType::kFloat32;
  c.scale_of_filters = false;
  QuantizedConvInputs inputs(c, draw.random);
  Fill(inputs.Find("Input"), 255);
  Fill(inputs.Find("Filter"), 255);
  for (int64_t m = 0; m < c.filters; ++m) {
    for (int64_t i = 0; i < 10 + m; ++i) inputs.Find("Filter")->data<uint8_t>()[m * 300 + i] = 0;
  }
  inputs.Find("InputScale")->data<float>()[0] = 1;
  inputs.Find("FilterScale")->data<float>()[0] = 1;
  const float bias = -18857280;  // a multiple of 2^7
  for (float& b : inputs.Find("Bias")->span<float>()) b = bias;
  PreparedOp op("quantized_conv2d", inputs.all(), "Output", c.Attrs(), inputs.Names(),
                KernelMode::kAuto);
  const Tensor out = op.Run();
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t sum = int64_t{255} * 255 * (300 - 10 - i % 4);
    EXPECT_EQ(out.data<float>()[i], static_cast<float>(sum - 18857280)) << op.way();
  }
}

}  // namespace coracle::quantized_conv2d_test
