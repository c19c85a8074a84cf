#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/operators/conv/conv_case.h>

#include <thread>

namespace coracle::conv2d_test {

TEST(Conv2d, Values) {
  OpTest("conv2d")
      .Input("Input", {1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})
      .Input("Filter", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Expect("Output", {1, 1, 2, 2}, {37, 47, 67, 77});
}

TEST(Conv2d, BiasAndResidual) {
  OpTest("conv2d")
      .Input("Input", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("Filter", {2, 1, 1, 1}, {1, 10})
      .Input("Bias", {2}, {0.5, -1})
      .Input("ResidualData", {1, 2, 2, 2}, {100, 0, 0, 0, 0, 0, 0, 1000})
      .Expect("Output", {1, 2, 2, 2}, {101.5, 2.5, 3.5, 4.5, 9, 19, 29, 1039});
}

TEST(Conv2d, ChannelsLastTakesTheSameFilter) {
  // Pixels (1, 10) and (2, 20); filter over channels {3, 1}.
  OpTest("conv2d")
      .Attr("data_format", "NHWC")
      .Input("Input", {1, 1, 2, 2}, {1, 10, 2, 20})
      .Input("Filter", {1, 2, 1, 2}, {3, 5, 1, 7})
      .Expect("Output", {1, 1, 1, 1}, {1 * 3 + 2 * 5 + 10 * 1 + 20 * 7});
}

TEST(Conv2d, FourPaddings) {
  // Top 1, bottom 0, left 0, right 2 around one row {1, 2}, kernel 2x2 of {1, 2; 3, 4}.
  OpTest("conv2d")
      .Attr("paddings", Ints{1, 0, 0, 2})
      .Input("Input", {1, 1, 1, 2}, {1, 2})
      .Input("Filter", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Expect("Output", {1, 1, 1, 3}, {11, 6, 0});
}

TEST(Conv2d, SamePaddingPutsTheOddZeroAfterAndIgnoresDilation) {
  // in 3, stride 1, kernel 2: one zero in all, after. Stride 2: out = ceil(3 / 2) = 2.
  OpTest("conv2d")
      .Attr("padding_algorithm", "SAME")
      .Attr("paddings", Ints{7, 7})
      .Attr("dilations", Ints{2, 2})
      .Input("Input", {1, 1, 1, 3}, {1, 2, 3})
      .Input("Filter", {1, 1, 1, 2}, {1, 10})
      .Expect("Output", {1, 1, 1, 3}, {21, 32, 3});
  OpTest("conv2d")
      .Attr("padding_algorithm", "SAME")
      .Attr("strides", Ints{2, 2})
      .Input("Input", {1, 1, 1, 3}, {1, 2, 3})
      .Input("Filter", {1, 1, 1, 2}, {1, 10})
      .Expect("Output", {1, 1, 1, 2}, {21, 3});
}

TEST(Conv2d, ValidIgnoresPaddings) {
  OpTest("conv2d")
      .Attr("padding_algorithm", "VALID")
      .Attr("paddings", Ints{3, 3})
      .Input("Input", {1, 1, 1, 3}, {1, 2, 3})
      .Input("Filter", {1, 1, 1, 2}, {1, 10})
      .Expect("Output", {1, 1, 1, 2}, {21, 32});
}

TEST(Conv2d, GroupsAndDilation) {
  OpTest("conv2d")
      .Attr("groups", 2)
      .Attr("dilations", Ints{1, 2})
      .Input("Input", {1, 2, 1, 3}, {1, 2, 3, 4, 5, 6})
      .Input("Filter", {2, 1, 1, 2}, {1, 10, 2, 1})
      .Expect("Output", {1, 2, 1, 1}, {31, 14});
}

TEST(Conv2d, DepthwiseMultiplier) {
  OpTest("depthwise_conv2d")
      .Attr("groups", 2)
      .Input("Input", {1, 2, 1, 1}, {3, 5})
      .Input("Filter", {4, 1, 1, 1}, {1, 2, 3, 4})
      .Expect("Output", {1, 4, 1, 1}, {3, 6, 15, 20});
}

TEST(Conv2d, EmptyBatch) {
  OpTest("conv2d")
      .Input("Input", {0, 1, 3, 3}, {})
      .Input("Filter", {2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Expect("Output", {0, 2, 2, 2}, {});
  OpTest("conv2d_grad")
      .Input("Input", {0, 1, 2, 2}, {})
      .Input("Filter", {1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("Output@GRAD", {0, 1, 1, 1}, {})
      .Expect("Filter@GRAD", {1, 1, 2, 2}, {0, 0, 0, 0})
      .Expect("Bias@GRAD", {1}, {0})
      .Expect("Input@GRAD", {0, 1, 2, 2}, {});
}

TEST(Conv2d, NoChannelsGiveTheBias) {
  OpTest("conv2d")
      .Input("Input", {1, 0, 1, 2}, {})
      .Input("Filter", {1, 0, 1, 1}, {})
      .Input("Bias", {1}, {3})
      .Expect("Output", {1, 1, 1, 2}, {3, 3});
}

TEST(Conv2d, UnknownDimsWhileBuilding) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  auto var = [&](const std::string& name, const Shape& shape) {
    VarDesc& v = block.Var(name);
    v.SetShape(shape);
    v.SetDType(DType::kFloat32);
  };
  var("x", {-1, 3, -1, 8});
  var("w", {4, 3, 3, 3});
  block.Var("y");
  const OpDesc& op =
      block.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"y"}}}, {});
  InferOp(block, op, DefaultOps());
  EXPECT_EQ("[-1, 4, -1, 6]", block.Var("y").shape().ToString());
}

TEST(Conv2d, HostileSizesDoNotOverflow) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const char* name : {"x", "w"}) {
    VarDesc& v = block.Var(name);
    v.SetShape({1, 1, int64_t{1} << 61, 3});
    v.SetDType(DType::kFloat32);
  }
  block.Var("y");
  const OpDesc& op = block.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}},
                                    {{"Output", {"y"}}}, {{"dilations", Ints{2147483647, 1}}});
  EXPECT_THROW(InferOp(block, op, DefaultOps()), Error);
}

TEST(Conv2d, Gradients) {
  for (const char* format : {"NCHW", "NHWC"}) {
    ConvCase c{2, 4, 6, 2, 5, 6, 3, 2, {1, 2}, {1, 0, 2, 1}, {1, 2}, "EXPLICIT", format, true};
    c.Test().CheckGradient({"Input", "Filter", "Bias"});
    c.algorithm = "SAME";
    c.Test().CheckGradient({"Input", "Filter", "Bias"});
  }
  ConvCase depthwise{2, 3, 6, 3, 4, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, "EXPLICIT", "NCHW", false};
  depthwise.Test("depthwise_conv2d").CheckGradient({"Input", "Filter"});
}

TEST(Conv2d, GradientOfOneInputAlone) {
  ConvCase c{2, 3, 4, 1, 5, 5, 3, 3, {1, 1}, {1, 1}, {1, 1}, "EXPLICIT", "NHWC", true};
  for (const char* slot : {"Input", "Filter", "Bias"}) c.Test().CheckGradient({slot});
}

TEST(Conv2d, SecondGradients) {
  for (const char* format : {"NCHW", "NHWC"}) {
    ConvCase c{2, 4, 6, 2, 4, 5, 2, 2, {1, 2}, {1, 0, 2, 1}, {1, 2}, "EXPLICIT", format, true};
    c.Test().CheckSecondGradient({"Input", "Filter", "Bias"});
    for (const char* slot : {"Input", "Filter", "Bias"}) c.Test().CheckSecondGradient({slot});
  }
  ConvCase depthwise{2, 3, 6, 3, 4, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, "EXPLICIT", "NCHW", false};
  depthwise.Test("depthwise_conv2d").CheckSecondGradient({"Input", "Filter"});
}

TEST(Conv2d, ResidualGetsTheOutputsGradient) {
  ConvCase c{1, 2, 3, 1, 4, 4, 2, 2, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NCHW", true};
  c.Test().RandomInput("ResidualData", {1, 3, 3, 3}).CheckGradient({"Input", "ResidualData"});
  c.Test().RandomInput("ResidualData", {1, 3, 3, 3}).CheckFast();
}

TEST(Conv2d, FastAgainstReference) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const ConvCase c = RandomCase(random);
    SCOPED_TRACE(::testing::Message()
                 << "trial " << trial << " " << c.format << " input " << c.Input().ToString()
                 << " filters " << c.filters << " groups " << c.groups << " kernel " << c.kh << "x"
                 << c.kw << " " << c.algorithm);
    c.Test().CheckFast();
  }
}

TEST(Conv2d, FastAgainstReferenceOnNetworkShapes) {
  const std::vector<ConvCase> cases = {
      {3, 1, 20, 1, 28, 28, 5, 5, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NHWC", true},
      {3, 20, 50, 1, 12, 12, 5, 5, {1, 1}, {0, 0}, {1, 1}, "EXPLICIT", "NHWC", true},
      {2, 3, 64, 1, 19, 19, 7, 7, {2, 2}, {3, 3}, {1, 1}, "EXPLICIT", "NHWC", false},
      {2, 16, 32, 1, 9, 9, 3, 3, {2, 2}, {1, 1}, {1, 1}, "EXPLICIT", "NHWC", false},
      {2, 16, 16, 1, 9, 9, 3, 3, {1, 1}, {1, 1}, {1, 1}, "EXPLICIT", "NCHW", false}};
  for (const ConvCase& c : cases) c.Test().CheckFast();
  const ConvCase depthwise{2, 24,     24,     24,     9,          9,      3,
                           3, {2, 2}, {1, 1}, {1, 1}, "EXPLICIT", "NHWC", false};
  depthwise.Test("depthwise_conv2d").CheckFast();
  ConvCase apart{2, 24, 24, 24, 20, 19, 3, 5, {1, 2}, {3, 4}, {2, 3}, "EXPLICIT", "NHWC", true};
  apart.Test("depthwise_conv2d").CheckFast();
}

// Signals of `length` positions, as images that are one pixel wide or one pixel high.
struct Signals {
  int64_t batch, channels, filters, groups, length, kernel;
  int32_t stride, padding, dilation;

  int64_t Outputs() const {
    return (length + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
  // [batch, channels, length] as an image of this format.
  static Shape Image(const std::string& format, bool wide, int64_t n, int64_t c, int64_t l) {
    const int64_t height = wide ? 1 : l, width = wide ? l : 1;
    return format == "NHWC" ? Shape{n, height, width, c} : Shape{n, c, height, width};
  }
  static size_t At(const std::string& format, int64_t channels, int64_t length, int64_t n,
                   int64_t c, int64_t i) {
    return static_cast<size_t>(format == "NHWC" ? (n * length + i) * channels + c
                                                : (n * channels + c) * length + i);
  }
  static double Number(size_t i) { return static_cast<double>(i * 37 % 19) / 8 - 1; }

  // The sums over the windows, written out.
  std::vector<double> Expected(const std::string& format) const {
    const int64_t outputs = Outputs(), per_group = channels / groups;
    std::vector<double> sums(static_cast<size_t>(batch * filters * outputs));
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t m = 0; m < filters; ++m) {
        for (int64_t o = 0; o < outputs; ++o) {
          double& sum = sums[At(format, filters, outputs, n, m, o)];
          for (int64_t c = 0; c < per_group; ++c) {
            for (int64_t k = 0; k < kernel; ++k) {
              const int64_t i = o * stride - padding + k * dilation;
              const int64_t channel = m / (filters / groups) * per_group + c;
              if (i < 0 || i >= length) continue;
              sum += Number(At(format, channels, length, n, channel, i)) *
                     Number(static_cast<size_t>((m * per_group + c) * kernel + k));
            }
          }
        }
      }
    }
    return sums;
  }

  void Check(const std::string& type, const std::string& format, bool wide) const {
    SCOPED_TRACE(testing::Message() << format << (wide ? ", one row, " : ", one column, ")
                                    << channels << " channels, kernel " << kernel);
    std::vector<double> input(static_cast<size_t>(batch * channels * length));
    std::vector<double> filter(static_cast<size_t>(filters * channels / groups * kernel));
    for (size_t i = 0; i < input.size(); ++i) input[i] = Number(i);
    for (size_t i = 0; i < filter.size(); ++i) filter[i] = Number(i);
    const auto pair = [&](int32_t along, int32_t across) {
      return wide ? Ints{across, along} : Ints{along, across};
    };
    OpTest(type)
        .Attr("data_format", format)
        .Attr("strides", pair(stride, 2))  // the other axis has one position
        .Attr("paddings", pair(padding, 0))
        .Attr("dilations", pair(dilation, 3))
        .Attr("groups", static_cast<int32_t>(groups))
        .Input("Input", Image(format, wide, batch, channels, length), input)
        .Input("Filter",
               wide ? Shape{filters, channels / groups, 1, kernel}
                    : Shape{filters, channels / groups, kernel, 1},
               filter)
        .Expect("Output", Image(format, wide, batch, filters, Outputs()), Expected(format), 1e-4)
        .CheckFast();
  }
};

TEST(Conv2d, SignalsInEitherDirection) {
  const std::vector<Signals> cases = {
      {1, 3, 5, 1, 20, 3, 1, 1, 1},    {2, 16, 24, 1, 40, 5, 1, 2, 1},
      {1, 32, 32, 1, 70, 9, 2, 3, 1},  {1, 16, 16, 1, 50, 3, 1, 4, 4},
      {1, 16, 32, 4, 30, 3, 1, 1, 1},  {2, 64, 32, 1, 9, 1, 1, 0, 1},
      {1, 1, 33, 1, 200, 64, 16, 0, 1}};
  const std::vector<Signals> depthwise = {
      {1, 24, 24, 24, 300, 3, 1, 1, 1}, {2, 17, 17, 17, 40, 9, 1, 4, 1},
      {1, 8, 8, 8, 30, 5, 2, 2, 3},     {1, 40, 40, 40, 7, 31, 1, 15, 1},
      {1, 16, 16, 16, 150, 4, 3, 1, 2}, {1, 5, 10, 5, 20, 3, 1, 1, 1}};
  for (const char* format : {"NCHW", "NHWC"}) {
    for (bool wide : {false, true}) {
      for (const Signals& c : cases) c.Check("conv2d", format, wide);
      for (const Signals& c : depthwise) c.Check("depthwise_conv2d", format, wide);
    }
  }
}

// A filter that the planner knows is packed once, when the plan is made.
TEST(Conv2d, ConstantFilter) {
  for (const auto& [channels, filters] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 18}, {16, 32}}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    VarDesc& x = block.Var("x");
    x.SetShape({2, 6, 7, channels});
    x.SetDType(DType::kFloat32);
    auto append = [&](const std::string& type, const SlotList& ins, const SlotList& outs,
                      const AttrList& attrs) {
      for (const Slot& slot : outs) block.Var(slot.args[0]);
      InferOp(block, block.AppendOp(type, ins, outs, attrs), DefaultOps());
    };
    append("fill_constant", {}, {{"Out", {"w0"}}},
           {{"shape", std::vector<int64_t>{filters, channels, 3, 2}}, {"value", 0.01f}});
    for (int axis = 0; axis < 4; ++axis) {  // a filter without equal neighbours
      append("cumsum", {{"X", {"w" + std::to_string(axis)}}},
             {{"Out", {"w" + std::to_string(axis + 1)}}}, {{"axis", axis}});
    }
    append("conv2d", {{"Input", {"x"}}, {"Filter", {"w4"}}}, {{"Output", {"y"}}},
           {{"data_format", std::string("NHWC")}});
    Tensor image = Tensor::Zeros(DType::kFloat32, x.shape());
    for (int64_t i = 0; i < image.numel(); ++i)
      image.data<float>()[i] = static_cast<float>(i * 37 % 101) * 0.01f - 0.5f;
    VarValues expected{{"x", image}};
    Interpret(block, DefaultOps(), expected);
    Scope scope;
    auto step = Executor().Prepare(program, {"x"}, {"y"});
    for (int run = 0; run < 2; ++run) {
      const Tensor& got = step.Run(scope, {image})[0];
      const Tensor& want = std::get<Tensor>(expected.at("y"));
      ASSERT_EQ(want.shape().ToString(), got.shape().ToString());
      for (int64_t i = 0; i < got.numel(); ++i)
        ASSERT_NEAR(want.data<float>()[i], got.data<float>()[i],
                    2e-4 * (1 + std::abs(want.data<float>()[i])));
    }
  }
}

// One plan, two workspaces, two threads: both kernels keep no state of a run.
TEST(Conv2d, RunsConcurrently) {
  for (int64_t channels : {3, 16}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    const std::vector<std::pair<std::string, Shape>> vars = {
        {"x", {2, 9, 9, channels}}, {"w", {16, channels, 3, 3}}, {"dy", {2, 7, 7, 16}}};
    for (const auto& [name, shape] : vars) {
      VarDesc& var = block.Var(name);
      var.SetShape(shape);
      var.SetDType(DType::kFloat32);
    }
    for (const char* name : {"y", "dx", "dw"}) block.Var(name);
    const AttrList attrs = {{"data_format", std::string("NHWC")}};
    InferOp(
        block,
        block.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"y"}}}, attrs),
        DefaultOps());
    InferOp(block,
            block.AppendOp("conv2d_grad",
                           {{"Input", {"x"}}, {"Filter", {"w"}}, {"Output@GRAD", {"dy"}}},
                           {{"Input@GRAD", {"dx"}}, {"Filter@GRAD", {"dw"}}}, attrs),
            DefaultOps());
    auto first = Executor().Prepare(program, {"x", "w", "dy"}, {"y", "dx", "dw"});
    auto run = [&vars](PreparedProgram step, float offset) {
      std::vector<Tensor> feeds;
      for (const auto& [name, shape] : vars) {
        feeds.push_back(Tensor::Zeros(DType::kFloat32, shape));
        for (int64_t i = 0; i < feeds.back().numel(); ++i)
          feeds.back().data<float>()[i] = offset + static_cast<float>(i % 13) * 0.1f;
      }
      Scope scope;
      std::vector<Tensor> results;
      for (int i = 0; i < 20; ++i) {
        results.clear();
        for (const Tensor& t : step.Run(scope, feeds)) results.push_back(t.Clone());
      }
      return results;
    };
    const std::vector<Tensor> alone[] = {run(first, 0.5f), run(first, -0.25f)};
    std::vector<Tensor> together[2];
    std::thread other([&] { together[1] = run(first, -0.25f); });
    together[0] = run(first, 0.5f);
    other.join();
    for (int k = 0; k < 2; ++k) {
      for (size_t t = 0; t < alone[k].size(); ++t) {
        for (int64_t i = 0; i < alone[k][t].numel(); ++i) {
          ASSERT_NEAR(alone[k][t].data<float>()[i], together[k][t].data<float>()[i], 1e-3)
              << "run " << k << " output " << t << " element " << i;
        }
      }
    }
  }
}

TEST(Conv2d, Constraints) {
  for (const std::string type : {"conv2d", "depthwise_conv2d"}) {
    const auto conv = [&](const Shape& input, const Shape& filter) {
      return std::move(
          OpTest(type).RandomInput("Input", input).RandomInput("Filter", filter).Attr("groups", 1));
    };
    const auto plain = [&] { return conv({1, 2, 3, 3}, {4, 2, 2, 2}); };
    conv({2, 2, 2}, {1, 2, 1, 1}).ExpectError(type + ".C1");
    conv({1, 2, 2, 2}, {1, 2, 1}).ExpectError(type + ".C2");
    plain().Attr("strides", Ints{0, 1}).ExpectError(type + ".C3");
    plain().Attr("strides", Ints{1}).ExpectError(type + ".C3");
    plain().Attr("paddings", Ints{-1, 1}).ExpectError(type + ".C4");
    plain().Attr("paddings", Ints{1, 1, 1}).ExpectError(type + ".C4");
    plain().Attr("padding_algorithm", "FULL").ExpectError("EXPLICIT, SAME, VALID");
    plain().Attr("dilations", Ints{1, 0}).ExpectError(type + ".C5");
    conv({1, 3, 3, 3}, {4, 2, 2, 2}).ExpectError(type + ".C6");
    conv({1, 2, 3, 3}, {4, 2, 4, 2}).ExpectError(type + ".C7");
    plain().Attr("dilations", Ints{1, 3}).ExpectError(type + ".C7");
    plain().TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {4})).ExpectError(type + ".C8");
    plain().RandomInput("Bias", {3}).ExpectError(type + ".C9");
    plain().RandomInput("ResidualData", {1, 4, 2, 3}).ExpectError(type + ".C10");
    OpTest(type + "_grad")
        .RandomInput("Input", {1, 2, 3, 3})
        .RandomInput("Filter", {4, 2, 2, 2})
        .RandomInput("Output@GRAD", {1, 4, 3, 3})
        .ExpectError(type + "_grad.C11");
  }
}
TEST(Conv2d, C6_Groups) {
  for (int32_t groups : {0, 3, 2}) {
    OpTest("conv2d")
        .RandomInput("Input", {1, 2, 3, 3})
        .RandomInput("Filter", {4, 2, 2, 2})
        .Attr("groups", groups)
        .ExpectError("conv2d.C6");
  }
}

// Few input channels, channels last, no padding: the kernels of conv_direct.cc.
TEST(Conv2d, FastOnImagesOfFewChannels) {
  for (int64_t channels : {1, 3, 4}) {
    for (int64_t filters : {1, 7, 16, 20, 33, 50, 64}) {
      const int32_t stride = filters % 2 ? 2 : 1;
      const int64_t batch = filters == 20 ? 11 : 2;
      OpTest("conv2d")
          .Attr("strides", std::vector<int32_t>{stride, 1})
          .Attr("data_format", std::string("NHWC"))
          .RandomInput("Input", {batch, 9, 17, channels})
          .RandomInput("Filter", {filters, channels, 3, 5})
          .RandomInput("Bias", {filters})
          .CheckFast(1e-4, {"Filter", "Bias"});
    }
  }
}

// A convolution of volumes of one group, written out.
TEST(Conv3d, Values) {
  std::vector<double> in(2 * 3 * 4 * 3), filter(2 * 2 * 2 * 3 * 2);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i * i % 17) - 8;
  for (size_t i = 0; i < filter.size(); ++i) filter[i] = static_cast<double>(i * 5 % 11) - 5;
  // Strides {1, 2, 1}, zeros {1, 0}, {0, 1}, {1, 1} around; kernel {2, 3, 2}.
  std::vector<double> out;
  for (int m = 0; m < 2; ++m) {
    for (int z = 0; z < 3; ++z) {
      for (int y = 0; y < 2; ++y) {
        for (int x = 0; x < 4; ++x) {
          double sum = m == 0 ? 0.5 : -1;
          for (int c = 0; c < 2; ++c) {
            for (int k = 0; k < 12; ++k) {
              const int d = z - 1 + k / 6, h = 2 * y + k / 2 % 3, w = x - 1 + k % 2;
              if (d < 0 || d >= 3 || h < 0 || h >= 4 || w < 0 || w >= 3) continue;
              sum += in[static_cast<size_t>(((c * 3 + d) * 4 + h) * 3 + w)] *
                     filter[static_cast<size_t>((m * 2 + c) * 12 + k)];
            }
          }
          out.push_back(sum);
        }
      }
    }
  }
  OpTest("conv3d")
      .Attr("strides", Ints{1, 2, 1})
      .Attr("paddings", Ints{1, 0, 0, 1, 1, 1})
      .Input("Input", {1, 2, 3, 4, 3}, in)
      .Input("Filter", {2, 2, 2, 3, 2}, filter)
      .Input("Bias", {2}, {0.5, -1})
      .Expect("Output", {1, 2, 3, 2, 4}, out);
}

TEST(Conv3d, OneSliceIsAnImage) {
  OpTest("conv3d")
      .Input("Input", {1, 1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})
      .Input("Filter", {1, 1, 1, 2, 2}, {1, 2, 3, 4})
      .Input("ResidualData", {1, 1, 1, 2, 2}, {1, 0, 0, 0})
      .Expect("Output", {1, 1, 1, 2, 2}, {38, 47, 67, 77});
  OpTest("conv3d")
      .Input("Input", {0, 1, 2, 3, 3}, {})
      .RandomInput("Filter", {2, 1, 2, 2, 2})
      .Expect("Output", {0, 2, 1, 2, 2}, {});
}

TEST(Conv3d, GradientsAndFastKernels) {
  for (const std::string format : {"NCDHW", "NDHWC"}) {
    for (const std::string algorithm : {"EXPLICIT", "SAME", "VALID"}) {
      for (const int64_t groups : {1, 2}) {
        OpTest test("conv3d");
        test.Attr("data_format", format)
            .Attr("padding_algorithm", algorithm)
            .Attr("groups", static_cast<int32_t>(groups))
            .Attr("strides", Ints{1, 2, 1})
            .Attr("paddings", Ints{1, 0, 1})
            .Attr("dilations", Ints{2, 1, 1})
            .RandomInput("Input", format == "NCDHW" ? Shape{2, 4, 4, 3, 5} : Shape{2, 4, 3, 5, 4})
            .RandomInput("Filter", {6, 4 / groups, 2, 2, 3})
            .RandomInput("Bias", {6});
        test.CheckGradient({"Input", "Filter", "Bias"}).CheckFast();
        if (groups == 1 && algorithm == "EXPLICIT")
          test.CheckSecondGradient({"Input", "Filter", "Bias"});
      }
    }
  }
  OpTest("conv3d")
      .RandomInput("Input", {1, 2, 2, 3, 2})
      .RandomInput("Filter", {2, 2, 2, 2, 1})
      .CheckHigherGradients();
}

TEST(Conv3d, Constraints) {
  const auto conv = [](const Shape& input, const Shape& filter) {
    return std::move(OpTest("conv3d").RandomInput("Input", input).RandomInput("Filter", filter));
  };
  const auto plain = [&] { return conv({1, 2, 3, 3, 3}, {4, 2, 2, 2, 2}); };
  conv({1, 2, 3, 3}, {4, 2, 2, 2, 2}).ExpectError("conv3d.C1");
  conv({1, 2, 3, 3, 3}, {4, 2, 2, 2}).ExpectError("conv3d.C2");
  plain().Attr("strides", Ints{1, 1}).ExpectError("conv3d.C3");
  plain().Attr("paddings", Ints{1, 1}).ExpectError("conv3d.C4");
  plain().Attr("paddings", Ints{1, 1, 1, 1}).ExpectError("conv3d.C4");
  plain().Attr("dilations", Ints{1, 0, 1}).ExpectError("conv3d.C5");
  plain().Attr("groups", 2).ExpectError("conv3d.C6");
  conv({1, 2, 1, 3, 3}, {4, 2, 2, 2, 2}).ExpectError("conv3d.C7");
  plain().TensorInput("Bias", Tensor::Zeros(DType::kFloat16, {4})).ExpectError("conv3d.C8");
  plain().RandomInput("Bias", {3}).ExpectError("conv3d.C9");
  plain().RandomInput("ResidualData", {1, 4, 2, 2, 3}).ExpectError("conv3d.C10");
  OpTest("conv3d_grad")
      .RandomInput("Input", {1, 2, 3, 3, 3})
      .RandomInput("Filter", {4, 2, 2, 2, 2})
      .RandomInput("Output@GRAD", {1, 4, 3, 3, 3})
      .ExpectError("conv3d_grad.C11");
}

}  // namespace coracle::conv2d_test
