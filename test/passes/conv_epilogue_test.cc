// The ops after a convolution become a part of it: the program before and after, where this must
// not be done, and the same numbers.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

namespace coracle::conv_epilogue_test {

// A net of an image x, written op by op. Parameters have numbers around 0.
class Net {
 public:
  explicit Net(DType dtype = DType::kFloat32) : dtype_(dtype) {}

  ProgramDesc program;
  Scope scope;

  std::string Data(const std::string& name, const Shape& shape) {
    Declare(name, shape);
    feeds_.insert(name);
    return name;
  }
  std::string Parameter(const std::string& name, const Shape& shape) {
    Declare(name, shape).SetPersistable(true);
    scope.Set(name, Drawn(shape, static_cast<int>(name.size()) + ++drawn_));
    return name;
  }
  std::string Append(const std::string& type, SlotList in, const std::string& slot,
                     const std::string& out, AttrList attrs = {}) {
    OpDesc& op = program.Root().AppendOp(type, std::move(in), {{slot, {out}}}, std::move(attrs));
    InferOp(program.Root(), op, DefaultOps());
    return out;
  }
  std::string Conv(const std::string& x, int64_t channels, int64_t filters, const std::string& out,
                   int32_t kernel = 3, const std::string& type = "conv2d", int32_t stride = 1) {
    const int32_t pad = kernel / 2, groups = type == "conv2d" ? 1 : static_cast<int32_t>(channels);
    Parameter(out + ".w", {filters, channels / groups, kernel, kernel});
    Parameter(out + ".b", {filters});
    return Append(type, {{"Input", {x}}, {"Filter", {out + ".w"}}, {"Bias", {out + ".b"}}},
                  "Output", out,
                  {{"paddings", std::vector<int32_t>{pad, pad}},
                   {"strides", std::vector<int32_t>{stride, stride}},
                   {"groups", groups}});
  }
  std::string Binary(const std::string& type, const std::string& x, const std::string& y,
                     const std::string& out, int32_t axis = -1) {
    return Append(type, {{"X", {x}}, {"Y", {y}}}, "Out", out, {{"axis", axis}});
  }
  std::string Unary(const std::string& type, const std::string& x, const std::string& out,
                    AttrList attrs = {}) {
    return Append(type, {{"X", {x}}}, "Out", out, std::move(attrs));
  }

  // The program after these passes.
  ProgramDesc After(const std::vector<std::string>& passes,
                    const std::vector<std::string>& fetches = {"y"}) const {
    ProgramDesc after = program;
    PassContext context{DefaultOps(), feeds_, {fetches.begin(), fetches.end()}};
    RunPasses(after, context, passes);
    return after;
  }
  std::string Fused(const std::vector<std::string>& fetches = {"y"}) const {
    return Listing(After({"fuse_conv_epilogue"}, fetches));
  }
  bool Stays(const std::vector<std::string>& fetches = {"y"}) const {
    return Fused(fetches) == Listing(program);
  }

  Tensor Drawn(const Shape& shape, int seed) const {
    Tensor t(DType::kFloat64, shape);
    for (int64_t i = 0; i < t.numel(); ++i)
      t.data<double>()[i] = std::sin(static_cast<double>(7 * i + seed));
    return t.Cast(dtype_);
  }
  // The optimised program, frozen, against the plain one.
  void ExpectSame(const std::map<std::string, Shape>& shapes,
                  const std::vector<std::string>& fetches = {"y"}, double tolerance = 2e-5) {
    std::map<std::string, Tensor> feeds;
    std::vector<std::string> names;
    std::vector<Tensor> values;
    for (const auto& [name, shape] : shapes) {
      feeds[name] = Drawn(shape, 5 + static_cast<int>(names.size()));
      names.push_back(name);
      values.push_back(feeds[name]);
    }
    const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
    const auto expected = Executor(plain).Run(program, scope, feeds, fetches);
    PreparedProgram frozen = Executor().PrepareFrozen(program, scope, names, fetches);
    const auto got = frozen.Run(scope, values);
    const auto loose = Executor().Run(program, scope, feeds, fetches);
    for (size_t k = 0; k < fetches.size(); ++k) {
      ExpectNear(expected[k], got[k], tolerance);
      ExpectNear(expected[k], loose[k], tolerance);
    }
  }
  static void ExpectNear(const Tensor& expected, const Tensor& got, double tolerance) {
    ASSERT_EQ(expected.shape(), got.shape());
    const Tensor a = expected.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
    for (int64_t i = 0; i < a.numel(); ++i) {
      const double want = a.data<double>()[i];
      ASSERT_NEAR(want, b.data<double>()[i], tolerance * (1 + std::abs(want))) << i;
    }
  }

 private:
  VarDesc& Declare(const std::string& name, const Shape& shape) {
    VarDesc& var = program.Root().Var(name);
    var.SetDType(dtype_);
    var.SetShape(shape);
    return var;
  }
  DType dtype_;
  int drawn_ = 0;
  std::unordered_set<std::string> feeds_;
};

struct Case {
  const char* type;
  AttrList attrs;
};
const std::vector<Case>& Activations() {
  static const std::vector<Case> cases = {{"relu", {}},
                                          {"relu6", {}},
                                          {"relu6", {{"threshold", 0.75f}}},
                                          {"leaky_relu", {{"alpha", 0.125f}}},
                                          {"leaky_relu", {}},
                                          {"hard_swish", {}},
                                          {"hard_sigmoid", {{"slope", 0.3f}, {"offset", 0.25f}}},
                                          {"hard_sigmoid", {}},
                                          {"swish", {{"beta", 1.5f}}},
                                          {"swish", {}},
                                          {"sigmoid", {}},
                                          {"tanh", {}},
                                          {"gelu", {}},
                                          {"gelu", {{"approximate", true}}},
                                          {"clip", {{"min", 0.0f}, {"max", 0.25f}}},
                                          {"clip", {{"min", -0.5f}, {"max", 0.25f}}}};
  return cases;
}

TEST(FuseConvEpilogue, ResidualAndActivation) {
  Net net;
  net.Data("x", {-1, 4, 6, 6});
  net.Conv("x", 4, 4, "c");
  net.Binary("elementwise_add", "c", "x", "s");
  net.Unary("relu", "s", "y");
  const ProgramDesc after = net.After({"fuse_conv_epilogue"});
  EXPECT_EQ(Listing(after), "Output=y = conv2d(Input=x, Filter=c.w, Bias=c.b, ResidualData=x)\n");
  EXPECT_EQ(after.Root().op(0).GetAttr<std::string>("fuse_activation", ""), "relu");
  net.ExpectSame({{"x", {3, 4, 6, 6}}});
  net.ExpectSame({{"x", {1, 4, 6, 6}}});
}

// The other way round; both operands are convolutions.
TEST(FuseConvEpilogue, ResidualIsTheFirstOperand) {
  Net net;
  net.Data("x", {-1, 4, -1, -1});
  net.Conv("x", 4, 16, "a");
  net.Conv("x", 4, 16, "b", 1);
  net.Binary("elementwise_add", "a", "b", "y");
  EXPECT_EQ(net.Fused(),
            "Output=b = conv2d(Input=x, Filter=b.w, Bias=b.b)\n"
            "Output=y = conv2d(Input=x, Filter=a.w, Bias=a.b, ResidualData=b)\n");
  net.ExpectSame({{"x", {2, 4, 5, 7}}});

  Net other;
  other.Data("x", {-1, 4, -1, -1});
  other.Unary("relu", "x", "r");
  other.Conv("r", 4, 4, "a");
  other.Binary("elementwise_add", "r", "a", "y");
  EXPECT_EQ(other.Fused(),
            "Out=r = relu(X=x)\n"
            "Output=y = conv2d(Input=r, Filter=a.w, Bias=a.b, ResidualData=r)\n");
  other.ExpectSame({{"x", {2, 4, 5, 7}}});
}

TEST(FuseConvEpilogue, EveryActivation) {
  for (const Case& c : Activations()) {
    for (const char* type : {"conv2d", "depthwise_conv2d"}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        SCOPED_TRACE(::testing::Message() << c.type << " " << type);
        Net net(dtype);
        net.Data("x", {-1, 16, -1, -1});
        net.Conv("x", 16, 16, "c", 3, type);
        net.Unary(c.type, "c", "y", c.attrs);
        const ProgramDesc after = net.After({"fuse_conv_epilogue"});
        ASSERT_EQ(after.Root().NumOps(), 1u);
        net.ExpectSame({{"x", {2, 16, 5, 6}}}, {"y"}, dtype == DType::kFloat64 ? 1e-6 : 2e-5);
      }
    }
  }
}

// Dims that are not known until a batch is fed: then one operand stretches, which the fused op
// does too.
TEST(FuseConvEpilogue, ResidualStretchesAtRunTime) {
  for (const bool first : {true, false}) {
    Net net;
    net.Data("x", {-1, 2, -1, -1});
    net.Data("r", {-1, 3, -1, -1});
    net.Conv("x", 2, 3, "c");
    net.Binary("elementwise_add", first ? "c" : "r", first ? "r" : "c", "s");
    net.Unary("relu", "s", "y");
    // Which operand's LoD the sum has is not clear if the convolution is the second.
    EXPECT_EQ(net.After({"fuse_conv_epilogue"}).Root().NumOps(), first ? 1u : 3u);
    net.ExpectSame({{"x", {2, 2, 4, 5}}, {"r", {2, 3, 4, 5}}});
    net.ExpectSame({{"x", {2, 2, 4, 5}}, {"r", {1, 3, 1, 5}}});
    net.ExpectSame({{"x", {1, 2, 1, 5}}, {"r", {2, 3, 4, 5}}});
    net.ExpectSame({{"x", {0, 2, 4, 5}}, {"r", {1, 3, 4, 5}}});
  }
}

TEST(FuseConvEpilogue, NearMisses) {
  const auto with = [](auto&& build, const std::vector<std::string>& fetches = {"y"}) {
    Net net;
    net.Data("x", {-1, 4, 6, 6});
    net.Conv("x", 4, 4, "c");
    build(net);
    EXPECT_TRUE(net.Stays(fetches)) << net.Fused(fetches);
  };
  {  // the sums are fetched
    const auto relu = [](Net& net) { net.Unary("relu", "c", "y"); };
    with(relu, {"c", "y"});
  }
  with([](Net& net) {  // the sums are read twice
    net.Unary("relu", "c", "y");
    net.Unary("sigmoid", "c", "z");
  });
  with([](Net& net) {  // the sums are persistable
    net.program.Root().FindVar("c")->SetPersistable(true);
    net.Unary("relu", "c", "y");
  });
  with([](Net& net) { net.Binary("elementwise_add", "c", "c", "y"); });
  with([](Net& net) {  // a number for each pixel
    net.Binary("elementwise_add", "c", net.Parameter("p", {1, 4, 6, 6}), "y");
  });
  with([](Net& net) { net.Binary("elementwise_add", "c", net.Parameter("p", {6, 6}), "y"); });
  with([](Net& net) { net.Binary("elementwise_sub", "c", "x", "y"); });
  with([](Net& net) { net.Unary("square", "c", "y"); });
  // A convolution has no attrs for these.
  with([](Net& net) { net.Unary("hard_swish", "c", "y", {{"offset", 2.0f}}); });
  with([](Net& net) {
    net.Append("clip", {{"X", {"c"}}, {"Min", {net.Parameter("low", {1})}}}, "Out", "y",
               {{"min", -1.0f}, {"max", 1.0f}});
  });
}

// After an activation nothing is added, and there is one activation.
TEST(FuseConvEpilogue, OneActivationComesLast) {
  Net net;
  net.Data("x", {-1, 4, 6, 6});
  net.Conv("x", 4, 4, "c");
  net.Unary("relu", "c", "r");
  net.Unary("sigmoid", "r", "s");
  net.Binary("elementwise_add", "s", "x", "y");
  EXPECT_EQ(net.Fused(),
            "Output=r = conv2d(Input=x, Filter=c.w, Bias=c.b)\n"
            "Out=s = sigmoid(X=r)\n"
            "Out=y = elementwise_add(X=s, Y=x) axis=-1\n");
  ProgramDesc twice = net.After({"fuse_conv_epilogue"});
  PassContext context{DefaultOps(), {"x"}, {"y"}};
  const std::string once = Listing(twice);
  RunPasses(twice, context, {"fuse_conv_epilogue"});
  EXPECT_EQ(Listing(twice), once);
  net.ExpectSame({{"x", {2, 4, 6, 6}}});
}

// A file may have convolutions with an activation, after which nothing is a part of the sums.
TEST(FuseConvEpilogue, ActivationsOfTheProgram) {
  for (const char* type : {"conv2d", "conv2d_transpose"}) {
    Net net;
    net.Data("x", {-1, 4, 6, 6});
    net.Append(type, {{"Input", {"x"}}, {"Filter", {net.Parameter("w", {4, 4, 3, 3})}}}, "Output",
               "c", {{"fuse_activation", std::string("relu")}});
    net.Binary("elementwise_add", "c", net.Parameter("b", {4}), "s", 1);
    for (const char* name : {"scale", "shift", "mean"}) net.Parameter(name, {4});
    net.scope.Set("variance", Tensor::Full<float>({4}, 0.5f));
    VarDesc& variance = net.program.Root().Var("variance");
    variance.SetDType(DType::kFloat32);
    variance.SetShape({4});
    variance.SetPersistable(true);
    OpDesc& norm = net.program.Root().AppendOp("batch_norm",
                                               {{"X", {"s"}},
                                                {"Scale", {"scale"}},
                                                {"Bias", {"shift"}},
                                                {"Mean", {"mean"}},
                                                {"Variance", {"variance"}}},
                                               {{"Y", {"n"}},
                                                {"MeanOut", {"mean"}},
                                                {"VarianceOut", {"variance"}},
                                                {"SavedMean", {"saved_mean"}},
                                                {"SavedVariance", {"saved_variance"}}},
                                               {{"is_test", true}});
    InferOp(net.program.Root(), norm, DefaultOps());
    net.Unary("relu", "n", "y");
    EXPECT_EQ(Listing(net.After({"fuse_conv_bias", "fuse_conv_epilogue"})), Listing(net.program));
    net.ExpectSame({{"x", {2, 4, 6, 6}}});
  }
}

// bfloat16 is rounded once; float16, whose sums may overflow, stays as it is.
TEST(FuseConvEpilogue, HalfPrecision) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Net net(dtype);
    net.Data("x", {-1, 4, 6, 6});
    net.Conv("x", 4, 4, "c");
    net.Unary("relu", "c", "y");
    EXPECT_EQ(net.Stays(), dtype == DType::kFloat16);
  }
}

// Gradient ops that read the sums keep them; relu's gradient reads its output, so the forward pass
// is fused. Ops that recomputation repeats stay as they are.
TEST(FuseConvEpilogue, Training) {
  for (const char* act : {"relu", "hard_swish"}) {
    for (const bool again : {false, true}) {
      SCOPED_TRACE(::testing::Message() << act << " " << again);
      ProgramDesc main, startup;
      Builder b(main, startup);
      Variable h = b.Data("x", {2, 4, 6, 6}, DType::kFloat32, {.stop_gradient = false});
      std::vector<std::string> kept;
      for (int i = 0; i < 3; ++i) {
        h = b.Conv2d(h, {.num_filters = 4, .filter_size = 3, .padding = 1});
        b.Append(act, {{"X", {h.name()}}}, {{"Out", {fmt::format("h{}", i)}}});
        h = b.Var(fmt::format("h{}", i));
        kept.push_back(h.name());
      }
      const Variable loss = b.Mean(Square(h), {.output = "loss"});
      BackwardOptions options;
      if (again) options.recompute.checkpoints = {kept[1]};
      std::vector<std::string> fetches = {"loss"};
      for (const ParamAndGrad& pair : AppendBackward(loss, options)) fetches.push_back(pair.grad);
      ProgramDesc after = main;
      PassContext context{DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}};
      RunPasses(after, context, {"fuse_conv_bias", "fuse_conv_epilogue"});
      bool fused = false;
      after.Root().ForEachOp([&](const OpDesc& op) {
        const bool activated = !op.GetAttr<std::string>("fuse_activation", "").empty();
        fused = fused || activated;
        EXPECT_FALSE(activated && op.FindAttr("recomputed_from"));
      });
      EXPECT_EQ(fused, act == std::string("relu")) << Listing(after);

      Scope scope;
      Executor().Run(startup, scope);
      Tensor x(DType::kFloat32, {2, 4, 6, 6});
      for (int64_t i = 0; i < x.numel(); ++i)
        x.data<float>()[i] = std::sin(static_cast<float>(3 * i));
      const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
      const auto expected = Executor(plain).Run(main, scope, {{"x", x}}, fetches);
      const auto got = Executor().Run(main, scope, {{"x", x}}, fetches);
      for (size_t k = 0; k < fetches.size(); ++k) Net::ExpectNear(expected[k], got[k], 1e-4);
    }
  }
}

// A nan goes through, and infinities become finite where the activation makes them so.
TEST(FuseConvEpilogue, NansStayNans) {
  // Two kinds of kernels, with one product for each output.
  for (size_t k = 0; k < 2 * Activations().size(); ++k) {
    const Case& c = Activations()[k / 2];
    SCOPED_TRACE(c.type);
    Net net;
    net.Data("x", {1, 16, 8, 8});
    net.Parameter("w", {16, 1, 1, 1});
    net.Append(k % 2 ? "depthwise_conv2d" : "conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}},
               "Output", "c", {{"groups", 16}});
    net.Unary(c.type, "c", "y", c.attrs);
    Tensor x = net.Drawn({1, 16, 8, 8}, 1);
    for (int64_t i = 0; i < x.numel(); i += 5)
      x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 3; i < x.numel(); i += 10)
      x.data<float>()[i] = std::numeric_limits<float>::infinity();
    const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
    const Tensor expected = Executor(plain).Run(net.program, net.scope, {{"x", x}}, {"y"})[0];
    const Tensor got = Executor().Run(net.program, net.scope, {{"x", x}}, {"y"})[0];
    for (int64_t i = 0; i < x.numel(); ++i) {
      const float want = expected.data<float>()[i], value = got.data<float>()[i];
      if (std::isnan(x.data<float>()[i])) {
        ASSERT_TRUE(std::isnan(value)) << i;
      } else if (!std::isfinite(want)) {
        ASSERT_TRUE(!std::isfinite(value) || std::abs(value) < 1e-30f) << i;
      } else if (want == 0 && !std::isfinite(x.data<float>()[i])) {  // a gate of 0 times -inf
        ASSERT_TRUE(std::isnan(value) || value == 0) << i;
      } else {
        ASSERT_NEAR(want, value, 1e-5f) << i;
      }
    }
  }
}

// --- gates and vectors with images, channels last ---

// A block of MobileNetV3: widened, depthwise, squeeze-and-excite, narrowed, residual.
std::string Block(Net& net, const std::string& x, const std::string& name) {
  const std::string n = name + "_";
  net.Conv(x, 16, 32, n + "wide", 1);
  net.Unary("hard_swish", n + "wide", n + "w");
  net.Conv(n + "w", 32, 32, n + "deep", 5, "depthwise_conv2d");
  net.Unary("hard_swish", n + "deep", n + "d");
  net.Append("pool2d", {{"X", {n + "d"}}}, "Out", n + "mean",
             {{"pooling_type", std::string("avg")},
              {"adaptive", true},
              {"ksize", std::vector<int32_t>{1, 1}}});
  net.Conv(n + "mean", 32, 8, n + "squeeze", 1);
  net.Unary("relu", n + "squeeze", n + "s");
  net.Conv(n + "s", 8, 32, n + "excite", 1);
  net.Unary("hard_sigmoid", n + "excite", n + "gate");
  net.Binary("elementwise_mul", n + "d", n + "gate", n + "gated");
  net.Conv(n + "gated", 32, 16, n + "narrow", 1);
  return net.Binary("elementwise_add", x, n + "narrow", name);
}

TEST(Nhwc, SqueezeAndExciteKeepsTheChannelsLast) {
  for (const Shape& declared : {Shape{-1, 3, -1, -1}, Shape{-1, 3, 16, 16}, Shape{2, 3, 16, 16}}) {
    SCOPED_TRACE(declared.ToString());
    Net net;
    net.Data("x", declared);
    net.Conv("x", 3, 16, "first", 3, "conv2d", 2);
    net.Unary("hard_swish", "first", "h");
    std::string h = Block(net, Block(net, "h", "one"), "two");
    net.Append("pool2d", {{"X", {h}}}, "Out", "mean",
               {{"pooling_type", std::string("avg")},
                {"global_pooling", true},
                {"ksize", std::vector<int32_t>{1, 1}}});
    net.Append("mul", {{"X", {"mean"}}, {"Y", {net.Parameter("w", {16, 5})}}}, "Out", "y");
    const std::string listing =
        Listing(net.After({"fuse_conv_bias", "fuse_conv_epilogue", "nhwc"}));
    int transposes = 0, gated = 0;
    for (size_t at = 0; (at = listing.find("transpose2", at)) != std::string::npos; ++at)
      ++transposes;
    for (size_t at = 0; (at = listing.find("elementwise_mul(X=", at)) != std::string::npos; ++at)
      ++gated;
    EXPECT_EQ(transposes, 2) << listing;  // the image that is fed, and the means
    EXPECT_EQ(gated, 2) << listing;
    EXPECT_NE(listing.find("Out=one_gated@NHWC = elementwise_mul(X=one_d@NHWC, Y=one_gate@NHWC)"),
              std::string::npos)
        << listing;
    EXPECT_EQ(listing.find("= relu("), std::string::npos) << listing;
    EXPECT_EQ(listing.find("= elementwise_add("), std::string::npos) << listing;
    net.ExpectSame({{"x", {2, 3, 16, 16}}});
  }
}

// Fed with a check of the shape, since what a parameter holds may have more axes.
TEST(Nhwc, VectorsBesideImages) {
  struct Vector {
    Shape shape;
    int32_t axis;
    const char* after;
  };
  for (const auto& [shape, axis, after] :
       {Vector{{4}, 1, "axis=3"}, Vector{{6}, 3, "axis=2"}, Vector{{6}, -1, "axis=2"},
        Vector{{5}, 2, "axis=1"}, Vector{{1}, -1, "axis=2"}, Vector{{2}, 0, "axis=0"}}) {
    SCOPED_TRACE(after);
    Net net;
    net.Data("x", {2, 3, 5, 6});
    net.Conv("x", 3, 4, "c");
    net.Binary("elementwise_mul", "c", net.Data("v", shape), "m", axis);
    net.program.Root().FindVar("v")->SetNeedCheckFeed(true);
    net.Unary("relu", "m", "r");
    net.Conv("r", 4, 4, "y");
    const std::string listing = Listing(net.After({"nhwc"}));
    EXPECT_NE(listing.find(std::string("Out=m@NHWC = elementwise_mul(X=c@NHWC, Y=v) ") + after),
              std::string::npos)
        << listing;
    net.ExpectSame({{"x", {2, 3, 5, 6}}, {"v", shape}});
  }
}

// Images whose dims of 1 stretch, on either side; the gradients too.
TEST(Nhwc, ImagesThatStretch) {
  for (const Shape& shape : {Shape{2, 4, 1, 1}, Shape{1, 4, 1, 1}, Shape{2, 1, 5, 6},
                             Shape{1, 1, 1, 6}, Shape{2, 4, 5, 6}}) {
    for (const bool first : {true, false}) {
      SCOPED_TRACE(shape.ToString());
      ProgramDesc main, startup;
      Builder b(main, startup);
      const DataOptions wanted = {.stop_gradient = false};
      const Variable x = b.Data("x", {2, 3, 5, 6}, DType::kFloat32, wanted);
      const Variable gate = b.Data("gate", shape, DType::kFloat32, wanted);
      const Variable w = b.Data("w", {4, 3, 3, 3}, DType::kFloat32, wanted);
      b.Append("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"c"}}},
               {{"paddings", std::vector<int32_t>{1, 1}}});
      const Variable c = b.Var("c");
      const Variable m = first ? c * gate : gate * c;
      std::vector<std::string> fetches = Gradients({Mean(Square(m))}, {x, gate, w});
      fetches.push_back(m.name());
      const auto drawn = [](const Shape& s, float seed) {
        Tensor t(DType::kFloat32, s);
        for (int64_t i = 0; i < t.numel(); ++i)
          t.data<float>()[i] = std::sin(seed + static_cast<float>(5 * i));
        return t;
      };
      const std::map<std::string, Tensor> feeds = {
          {"x", drawn({2, 3, 5, 6}, 1)}, {"gate", drawn(shape, 2)}, {"w", drawn({4, 3, 3, 3}, 3)}};
      Scope scope;
      const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
      const auto expected = Executor(plain).Run(main, scope, feeds, fetches);
      const auto got = Executor().Run(main, scope, feeds, fetches);
      for (size_t k = 0; k < fetches.size(); ++k) Net::ExpectNear(expected[k], got[k], 1e-4);
    }
  }
}

// Images that are joined or parted along an axis.
TEST(Nhwc, JoinedAndPartedImages) {
  struct Axis {
    int32_t given, after;
  };
  for (const Axis& axis : {Axis{1, 3}, Axis{-3, 3}, Axis{2, 1}, Axis{3, 2}, Axis{-1, 2}}) {
    SCOPED_TRACE(axis.given);
    Net net;
    net.Data("x", {2, 3, 6, 6});
    net.Conv("x", 3, 4, "a");
    net.Conv("x", 3, 4, "b");
    net.Append("concat", {{"X", {"a", "b"}}}, "Out", "j", {{"axis", axis.given}});
    net.Unary("relu", "j", "r");
    OpDesc& split = net.program.Root().AppendOp("split", {{"X", {"r"}}}, {{"Out", {"p", "q"}}},
                                                {{"axis", axis.given}, {"num", int32_t{2}}});
    InferOp(net.program.Root(), split, DefaultOps());
    net.Binary("elementwise_mul", "p", "q", "m");
    net.Conv("m", 4, 4, "y");
    const std::string listing = Listing(net.After({"nhwc"}));
    EXPECT_NE(listing.find(fmt::format("Out=j@NHWC = concat(X=a@NHWC+b@NHWC) axis={}", axis.after)),
              std::string::npos)
        << listing;
    EXPECT_NE(listing.find(fmt::format("Out=p@NHWC+q@NHWC = split(X=r@NHWC) axis={}", axis.after)),
              std::string::npos)
        << listing;
    net.ExpectSame({{"x", {2, 3, 6, 6}}});
  }
  Net rows;
  rows.Data("x", {2, 3, 6, 6});
  rows.Conv("x", 3, 4, "a");
  rows.Append("concat", {{"X", {"a", "a"}}}, "Out", "y", {{"axis", 0}});
  EXPECT_NE(Listing(rows.After({"nhwc"})).find("Out=y = concat(X=a+a) axis=0"), std::string::npos);
}

// Operands other than images keep the op where it is.
TEST(Nhwc, OtherOperandsKeepTheLayout) {
  Net net;
  net.Data("x", {2, 3, 5, 6});
  net.Conv("x", 3, 4, "c");
  net.Binary("elementwise_mul", "c", net.Parameter("rows", {5, 6}), "m");
  net.Conv("m", 4, 4, "y");
  const std::string listing = Listing(net.After({"nhwc"}));
  EXPECT_NE(listing.find("Out=m = elementwise_mul(X=c, Y=rows) axis=-1"), std::string::npos)
      << listing;
  net.ExpectSame({{"x", {2, 3, 5, 6}}});
}
}  // namespace coracle::conv_epilogue_test
