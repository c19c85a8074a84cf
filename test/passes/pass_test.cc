#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/layers/builder.h>
#include <coracle/passes/freeze.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::pass_test {

void ExpectPass(const std::string& pass, ProgramDesc program,
                const std::vector<std::string>& fetches, const std::string& after) {
  PassContext context{DefaultOps(), {"x"}, {fetches.begin(), fetches.end()}};
  RunPasses(program, context, {pass});
  EXPECT_EQ(Listing(program), after);
}

void ExpectUnchanged(const std::string& pass, const ProgramDesc& program,
                     const std::vector<std::string>& fetches) {
  ExpectPass(pass, program, fetches, Listing(program));
}

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
};

Conv2dOptions Conv(int filters, const std::string& output, bool bias = true) {
  Conv2dOptions options{.num_filters = filters,
                        .filter_size = 3,
                        .param_attr = {.name = output + ".w"},
                        .output = output};
  if (bias)
    options.bias_attr = ParamAttr{.name = output + ".b"};
  else
    options.bias_attr = std::nullopt;
  return options;
}

TEST(DeadCode, RemovesWhatNobodyReads) {
  Net net;
  Variable x = net.b.Data("x", {-1, 4});
  Variable a = net.b.Relu(x, {.output = "a"});
  net.b.Sigmoid(net.b.Relu(a, {.output = "unused"}), {.output = "unused2"});
  net.b.Sigmoid(a, {.output = "y"});
  ExpectPass("dead_code", net.main, {"y"}, "Out=a = relu(X=x)\nOut=y = sigmoid(X=a)\n");
}

TEST(DeadCode, KeepsOpsThatNameSeveralBlocksAndWhatTheseRead) {
  OpRegistry ops;
  for (const char* type : {"relu", "sigmoid"}) ops.Add(DefaultOps().Get(type));
  ops.Add(OpDef("switch_blocks")
              .Doc("test")
              .Attr<std::vector<BlockRef>>("blocks", "one of them runs")
              .Infer([](InferContext&) {})
              .NoGradient("a test"));
  Net net;
  Variable x = net.b.Data("x", {-1, 4});
  net.b.Relu(x, {.output = "a"});
  net.b.Relu(x, {.output = "unused"});
  BlockDesc &first = net.main.AppendBlock(0), &second = net.main.AppendBlock(0);
  first.AppendOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  second.AppendOp("sigmoid", {{"X", {"a"}}}, {{"Out", {"y"}}});
  net.main.Root().AppendOp("switch_blocks", {}, {}, {{"blocks", std::vector<BlockRef>{{1}, {2}}}});
  EliminateDeadCode(net.main, {ops, {"x"}, {}});
  EXPECT_EQ(Listing(net.main), "Out=a = relu(X=x)\n = switch_blocks()\n");
}

TEST(DeadCode, KeepsWritersOfPersistables) {
  Net net;
  Variable x = net.b.Data("x", {-1, 4});
  net.b.Relu(x, {.output = "state"});
  net.main.Root().FindVar("state")->SetPersistable(true);
  ExpectUnchanged("dead_code", net.main, {});
}

TEST(FuseConvBias, ForwardAlone) {
  Net net;
  net.b.Conv2d(net.b.Data("x", {-1, 2, 8, 8}), Conv(4, "y"));
  ExpectPass("fuse_conv_bias", net.main, {"y"},
             "Output=y = conv2d(Input=x, Filter=y.w, Bias=y.b) data_format=\"NCHW\"\n");
}

TEST(FuseConvBias, WithGradient) {
  Net net;
  Variable y = net.b.Conv2d(
      net.b.Data("x", {-1, 2, 8, 8}, DType::kFloat32, {.stop_gradient = false}), Conv(4, "y"));
  AppendBackward(net.b.Mean(y, {.output = "loss"}));
  PassContext context{DefaultOps(), {"x"}, {"loss", "y.w@GRAD", "y.b@GRAD"}};
  RunPasses(net.main, context, {"fuse_conv_bias"});
  std::string listing = Listing(net.main);
  EXPECT_EQ(listing.find("elementwise_add"), std::string::npos) << listing;
  EXPECT_NE(listing.find("Bias@GRAD=y.b@GRAD"), std::string::npos) << listing;
}

TEST(FuseConvBias, TransposedConvolution) {
  for (const int64_t channels : {6, 1}) {
    Net net;
    const Variable f = net.b.Data("f", {4, 3, 2, 2});
    net.b.Data("x", {-1, 4, 5, 5});
    net.b.Append("conv2d_transpose", {{"Input", {"x"}}, {"Filter", {f.name()}}},
                 {{"Output", {"c"}}}, {{"groups", 2}});
    net.b.Add(net.b.Var("c"), net.b.Data("b", {channels}), {.axis = 1, .output = "y"});
    PassContext context{DefaultOps(), {"x", "f", "b"}, {"y"}};
    RunPasses(net.main, context, {"fuse_conv_bias"});
    EXPECT_EQ(Listing(net.main).find("elementwise_add") == std::string::npos, channels == 6)
        << Listing(net.main);
  }
}

// The fused copy of a fused convolution is a copy of what that one writes.
TEST(FuseConvBias, CopiesThatAreComputedAgain) {
  Net net;
  Variable h = net.b.Data("x", {2, 4, 8, 8}, DType::kFloat32, {.stop_gradient = false});
  for (const char* name : {"a", "b", "c"}) h = net.b.Relu(net.b.Conv2d(h, Conv(4, name)));
  BackwardOptions options;
  options.recompute.checkpoints = {"b"};
  AppendBackward(net.b.Mean(Square(h), {.output = "loss"}), options);
  PassContext context{DefaultOps(), {"x"}, {"loss", "a.w@GRAD", "b.w@GRAD"}};
  RunPasses(net.main, context, {"fuse_conv_bias"});
  int copies = 0;
  net.main.Root().ForEachOp([&](const OpDesc& op) {
    if (op.type() != "conv2d" || !op.FindAttr("recomputed_from")) return;
    ++copies;
    EXPECT_TRUE(op.HasInput("Bias"));
    EXPECT_EQ(op.Output("Output")[0],
              op.GetAttr<std::vector<std::string>>("recomputed_from", {})[0] + "@RECOMPUTED");
  });
  EXPECT_GT(copies, 0) << Listing(net.main);
}

// An add_grad that reads the bias along another axis than the add before it: not of this product.
TEST(FuseConvBias, GradientAlongAnotherAxis) {
  Net net;
  Variable y = net.b.Conv2d(
      net.b.Data("x", {-1, 2, 6, 6}, DType::kFloat32, {.stop_gradient = false}), Conv(4, "y"));
  AppendBackward(net.b.Mean(y, {.output = "loss"}));
  net.main.Root().ForEachOp([](OpDesc& op) {
    if (op.type() == "elementwise_add_grad") op.SetAttr("axis", int32_t{3});
  });
  PassContext context{DefaultOps(), {"x"}, {"loss", "y.w@GRAD", "y.b@GRAD"}};
  RunPasses(net.main, context, {"fuse_conv_bias"});
  EXPECT_NE(Listing(net.main).find("elementwise_add_grad"), std::string::npos);
}

TEST(FuseConvBias, Volumes) {
  for (const std::string format : {"NCDHW", "NDHWC"}) {
    Net net;
    const DataOptions wanted = {.stop_gradient = false};
    net.b.Data("x", {2, 3, 3, 3, 3}, DType::kFloat32, wanted);
    const Variable f = net.b.Data("f", {3, 3, 1, 1, 1}, DType::kFloat32, wanted);
    const Variable bias = net.b.Data("b", {3}, DType::kFloat32, wanted);
    net.b.Append("conv3d", {{"Input", {"x"}}, {"Filter", {"f"}}}, {{"Output", {"c"}}},
                 {{"data_format", format}});
    const Variable y = net.b.Add(net.b.Var("c"), bias, {.axis = 1});
    const std::vector<std::string> grads = Gradients({Mean(Square(y))}, {f, bias});
    PassContext context{DefaultOps(), {"x", "f", "b"}, {y.name(), grads[0], grads[1]}};
    RunPasses(net.main, context, {"fuse_conv_bias"});
    EXPECT_EQ(Listing(net.main).find("= elementwise_add") == std::string::npos, format == "NCDHW")
        << Listing(net.main);
  }
}

TEST(FuseConvBias, NearMisses) {
  {  // the product itself is fetched
    Net net;
    net.b.Conv2d(net.b.Data("x", {-1, 2, 8, 8}), Conv(4, "y"));
    ExpectUnchanged("fuse_conv_bias", net.main, {"y", net.main.Root().op(0).Output("Output")[0]});
  }
  {  // somebody else reads the product
    Net net;
    net.b.Conv2d(net.b.Data("x", {-1, 2, 8, 8}), Conv(4, "y"));
    net.b.Relu(net.b.Var(net.main.Root().op(0).Output("Output")[0]), {.output = "z"});
    ExpectUnchanged("fuse_conv_bias", net.main, {"y", "z"});
  }
  {  // added along another axis
    Net net;
    Variable y = net.b.Conv2d(net.b.Data("x", {-1, 2, 6, 6}), Conv(4, "y", false));
    net.b.Add(y, net.b.Parameter("row", {4}, DType::kFloat32), {.axis = 3, .output = "z"});
    ExpectUnchanged("fuse_conv_bias", net.main, {"z"});
  }
  {  // one number for all channels
    Net net;
    Variable y = net.b.Conv2d(net.b.Data("x", {-1, 2, 6, 6}), Conv(4, "y", false));
    net.b.Add(y, net.b.Parameter("one", {1}, DType::kFloat32), {.axis = 1, .output = "z"});
    ExpectUnchanged("fuse_conv_bias", net.main, {"z"});
  }
}

TEST(Nhwc, ConvertsImagesAtTheBorders) {
  Net net;
  Variable c = net.b.Conv2d(net.b.Data("x", {-1, 1, 8, 8}), Conv(4, "c", false));
  Variable p = net.b.Pool2d(net.b.Relu(c, {.output = "r"}),
                            {.pool_size = 2, .pool_stride = 2, .output = "p"});
  net.b.Fc(p, {.size = 3, .param_attr = {.name = "w"}, .bias_attr = std::nullopt, .output = "y"});
  ExpectPass("nhwc", net.main, {"y"},
             "Out=x@NHWC = transpose2(X=x) axis=[0, 2, 3, 1]\n"
             "Output=c@NHWC = conv2d(Input=x@NHWC, Filter=c.w) data_format=\"NHWC\"\n"
             "Out=r@NHWC = relu(X=c@NHWC)\n"
             "Out=p@NHWC = pool2d(X=r@NHWC) data_format=\"NHWC\"\n"
             "Out=p = transpose2(X=p@NHWC) axis=[0, 3, 1, 2]\n"
             "Out=y = mul(X=p, Y=w)\n");
}

// Volumes too; what else is in the program keeps its layout, since it has no convolution.
TEST(Nhwc, ConvertsVolumes) {
  Net net;
  const Variable x = net.b.Data("x", {-1, 2, 4, 8, 8});
  const Variable filter = net.b.Data("f", {4, 2, 1, 1, 1});
  const Variable scale = net.b.Data("scale", {4});
  net.b.Append("conv3d", {{"Input", {x.name()}}, {"Filter", {filter.name()}}}, {{"Output", {"c"}}},
               {{"strides", std::vector<int32_t>{1, 2, 2}}});
  net.b.Append("group_norm", {{"X", {"c"}}, {"Scale", {scale.name()}}}, {{"Y", {"n"}}},
               {{"groups", 2}});
  net.b.Append("pool3d", {{"X", {"n"}}}, {{"Out", {"y"}}},
               {{"pooling_type", std::string("max")}, {"ksize", std::vector<int32_t>{2, 2, 2}}});
  net.b.Pool2d(net.b.Data("image", {-1, 4, 8, 8}), {.pool_size = 2, .output = "z"});
  PassContext context{DefaultOps(), {"x", "f", "scale", "image"}, {"y", "z"}};
  RunPasses(net.main, context, {"nhwc"});
  const std::string listing = Listing(net.main);
  const auto has = [&](const char* text) {
    EXPECT_NE(listing.find(text), std::string::npos) << text << "\n" << listing;
  };
  has("Out=x@NHWC = transpose2(X=x) axis=[0, 2, 3, 4, 1]\n");
  has("Output=c@NHWC = conv3d(Input=x@NHWC, Filter=f) ");
  has("data_format=\"NDHWC\"");
  has("Y=n@NHWC = group_norm(X=c@NHWC, Scale=scale) ");
  has("data_layout=\"NHWC\"");
  has("Out=y@NHWC = pool3d(X=n@NHWC) ");
  has("Out=y = transpose2(X=y@NHWC) axis=[0, 4, 1, 2, 3]\n");
  has("Out=z = pool2d(X=image) ");
}

// A vector along the last axis, or the first, may turn out to have two axes, which lie elsewhere.
TEST(Nhwc, VectorsOfUncertainRankKeepTheLayout) {
  for (int axis : {-1, 0, 1}) {
    Net net;
    const Variable c = net.b.Conv2d(net.b.Data("x", {8, 8, 10, 10}), Conv(8, "c", false));
    const Variable r = net.b.Data("r", {8});
    net.main.Root().FindVar("r")->SetNeedCheckFeed(false);
    net.b.Append("elementwise_mul", {{"X", {c.name()}}, {"Y", {r.name()}}}, {{"Out", {"y"}}},
                 {{"axis", axis}});
    ProgramDesc after = net.main;
    RunPasses(after, PassContext{DefaultOps(), {"x", "r"}, {"y"}}, {"nhwc"});
    const bool follows = Listing(after).find("Out=y@NHWC = elementwise_mul") != std::string::npos;
    EXPECT_EQ(follows, axis == 1) << axis << "\n" << Listing(after);
  }
}

TEST(Nhwc, NothingToGainWithoutConvolution) {
  Net net;
  net.b.Pool2d(net.b.Data("x", {-1, 4, 8, 8}), {.pool_size = 2, .output = "y"});
  ExpectUnchanged("nhwc", net.main, {"y"});
}

TEST(Nhwc, FetchedVariablesKeepTheirLayout) {
  Net net;
  net.b.Conv2d(net.b.Data("x", {-1, 3, 6, 6}), Conv(4, "y", false));
  ExpectPass("nhwc", net.main, {"y"},
             "Out=x@NHWC = transpose2(X=x) axis=[0, 2, 3, 1]\n"
             "Output=y@NHWC = conv2d(Input=x@NHWC, Filter=y.w) data_format=\"NHWC\"\n"
             "Out=y = transpose2(X=y@NHWC) axis=[0, 3, 1, 2]\n");
}

// The layout does not change what is computed, gradients included.
TEST(Nhwc, VolumesHaveTheSameValues) {
  Net net;
  const DataOptions wanted = {.stop_gradient = false};
  const Variable x = net.b.Data("x", {2, 3, 4, 5, 6}, DType::kFloat32, wanted);
  const Variable f = net.b.Data("f", {4, 3, 3, 2, 3}, DType::kFloat32, wanted);
  net.b.Append("conv3d", {{"Input", {"x"}}, {"Filter", {"f"}}}, {{"Output", {"c"}}},
               {{"paddings", std::vector<int32_t>{1, 0, 1}}});
  const Variable relu = net.b.Relu(net.b.Var("c"));
  net.b.Append("pool3d", {{"X", {relu.name()}}}, {{"Out", {"p"}}},
               {{"pooling_type", std::string("avg")},
                {"ksize", std::vector<int32_t>{2, 2, 2}},
                {"strides", std::vector<int32_t>{1, 2, 2}}});
  const Variable loss = Mean(Square(net.b.Var("p")));
  std::vector<std::string> fetches = Gradients({loss}, {x, f});
  fetches.insert(fetches.end(), {"p", "c"});
  const auto drawn = [](const Shape& shape) {
    Tensor t(DType::kFloat32, shape);
    uint32_t state = 1;
    for (float& v : t.span<float>()) {
      state = state * 1664525u + 1013904223u;
      v = static_cast<float>(state >> 8) / 8388608.0f - 1;
    }
    return t;
  };
  const std::map<std::string, Tensor> feeds = {{"x", drawn({2, 3, 4, 5, 6})},
                                               {"f", drawn({4, 3, 3, 2, 3})}};
  Scope scope;
  CompileOptions plain;
  plain.kernels = KernelMode::kReference;
  plain.optimize = false;
  const auto got = Executor().Run(net.main, scope, feeds, fetches);
  const auto want = Executor(plain).Run(net.main, scope, feeds, fetches);
  for (size_t i = 0; i < fetches.size(); ++i) {
    ASSERT_EQ(got[i].shape(), want[i].shape()) << fetches[i];
    for (int64_t k = 0; k < got[i].numel(); ++k)
      ASSERT_NEAR(got[i].data<float>()[k], want[i].data<float>()[k], 1e-5f) << fetches[i];
  }
}

TEST(Nhwc, SequencesOfImages) {
  Net net;
  net.b.Conv2d(net.b.Data("x", {-1, 1, 5, 4}), Conv(2, "y", false));
  Scope scope;
  Executor().Run(net.startup, scope);
  Tensor x = Tensor::Full<float>({3, 1, 5, 4}, 0.5f);
  x.lod() = {{0, 1, 3}};
  EXPECT_EQ(Executor().Run(net.main, scope, {{"x", x}}, {"y"})[0].lod(), x.lod());
}

// Files of old exports declare the shape that they were made with; another one may be fed. And an
// image may have no elements.
TEST(Nhwc, ShapesAreThoseThatAreFed) {
  Net net;
  net.b.Conv2d(net.b.Data("x", {1, 1, 5, 4}, DType::kFloat32), Conv(1, "y", false));
  net.main.Root().FindVar("x")->SetNeedCheckFeed(false);
  for (const Shape& fed : {Shape{2, 1, 3, 3}, Shape{0, 1, 5, 4}}) {
    Scope scope;
    Executor().Run(net.startup, scope);
    Executor plain({.kernels = KernelMode::kReference, .optimize = false});
    const Tensor x = Tensor::Full<float>(fed, 0.5f);
    const Tensor expected = plain.Run(net.main, scope, {{"x", x}}, {"y"})[0];
    const Tensor y = Executor().Run(net.main, scope, {{"x", x}}, {"y"})[0];
    EXPECT_EQ(y.shape(), expected.shape());
    for (int64_t i = 0; i < y.numel(); ++i)
      EXPECT_NEAR(y.data<float>()[i], expected.data<float>()[i], 1e-5);
  }
}

TEST(Nhwc, ChannelsAreThoseThatAreFed) {
  Net net;
  net.b.Conv2d(net.b.Data("z", {1, 1, 4, 4}), Conv(1, "c", false));
  net.b.Pool2d(net.b.Data("x", {1, 1, 4, 4}), {.pool_size = 2, .pool_stride = 2, .output = "y"});
  net.main.Root().FindVar("x")->SetNeedCheckFeed(false);
  Scope scope;
  Executor().Run(net.startup, scope);
  const Tensor x = Tensor::Of<float>({1, 2, 2, 2}, {1, 2, 3, 4, 8, 7, 6, 5});
  const std::vector<Tensor> got = Executor().Run(
      net.main, scope, {{"x", x}, {"z", Tensor::Full<float>({1, 1, 4, 4}, 1.0f)}}, {"y", "c"});
  ASSERT_EQ(got[0].shape(), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(got[0].data<float>()[0], 4.0f);
  EXPECT_EQ(got[0].data<float>()[1], 8.0f);
}

// The variable has no value before the op: it may not be converted ahead of it.
TEST(Nhwc, LeavesAnImageThatOneOpReadsAndWrites) {
  ProgramDesc program;
  for (const char* name : {"x", "v"}) {
    VarDesc& var = program.Root().Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape({1, 1, 1, 1});
  }
  program.Root().AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"v"}}}, {{"Output", {"v"}}},
                          {{"data_format", std::string("NCHW")}});
  ExpectUnchanged("nhwc", program, {"v"});
}

// A small residual net with everything that the passes touch; `seed` chooses its details.
Variable RandomNet(Builder& b, unsigned seed) {
  Variable x = b.Data("x", {-1, 1 + seed % 3, 10, 10}, DType::kFloat32, {.stop_gradient = false});
  Variable h = b.Conv2d(x, {.num_filters = 4, .filter_size = 3, .padding = 1, .act = "relu"});
  if (seed % 2) h = b.BatchNorm(h, {.act = "relu"});
  Variable side = b.Conv2d(h, {.num_filters = 4, .filter_size = 3, .padding = 1});
  h = b.Add(h, side, {.act = "relu"});
  h = b.Pool2d(h, {.pool_size = 2, .pool_type = seed % 4 < 2 ? "max" : "avg", .pool_stride = 2});
  if (seed % 3 == 0) h = b.Conv2d(h, {.num_filters = 8, .filter_size = 3, .groups = 4});
  Variable logits = b.Fc(h, {.size = 3, .output = "logits"});
  return b.Mean(b.SoftmaxWithCrossEntropy(logits, b.Data("label", {-1, 1}, DType::kInt64)),
                {.output = "loss"});
}

TEST(Pipeline, KeepsResultsAndGradients) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Net net;
    Variable loss = RandomNet(net.b, seed);
    std::vector<std::string> fetches = {"loss", "logits", "x@GRAD"};
    for (const ParamAndGrad& pair : AppendBackward(loss)) fetches.push_back(pair.grad);
    // A gradient of the input, so that no convolution is spared its own.
    if (!net.main.Root().FindVar("x@GRAD")) fetches.erase(fetches.begin() + 2);
    Scope scope;
    Executor().Run(net.startup, scope);
    Tensor x(DType::kFloat32, {5, 1 + seed % 3, 10, 10}), label(DType::kInt64, {5, 1});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = std::sin(static_cast<float>(i * (seed + 1)));
    for (int64_t i = 0; i < 5; ++i) label.data<int64_t>()[i] = i % 3;
    CompileOptions plain;
    plain.optimize = false;
    plain.kernels = KernelMode::kReference;
    Scope other = scope.Clone();
    auto expected = Executor(plain).Run(net.main, other, {{"x", x}, {"label", label}}, fetches);
    auto got = Executor().Run(net.main, scope, {{"x", x}, {"label", label}}, fetches);
    for (size_t i = 0; i < fetches.size(); ++i) {
      ASSERT_EQ(expected[i].shape().ToString(), got[i].shape().ToString()) << fetches[i];
      for (int64_t k = 0; k < expected[i].numel(); ++k) {
        float want = expected[i].data<float>()[k];
        ASSERT_NEAR(want, got[i].data<float>()[k], 2e-4f * (1 + std::abs(want)))
            << fetches[i] << " at " << k;
      }
    }
  }
}

TEST(Pipeline, PassesThatAreDisabledDoNotRun) {
  EXPECT_EQ(PassesWithout({}).size(), Pipeline().size());
  std::vector<std::string> all, but_last;
  for (const Pass& pass : Pipeline()) all.push_back(pass.name);
  but_last.assign(all.begin(), all.end() - 1);
  EXPECT_EQ(PassesWithout({all.back()}), but_last);
  EXPECT_TRUE(PassesWithout(all).empty());

  Net net;
  Variable x = net.b.Data("x", {-1, 3, 8, 8});
  net.b.Conv2d(x, Conv(4, "y"));
  const auto types = [&](const CompileOptions& options) {
    std::vector<std::string> found;
    Executor(options).Prepare(net.main, {"x"}, {"y"}).program().ForEachOp([&](const OpDesc& op) {
      found.push_back(op.type());
    });
    return found;
  };
  EXPECT_EQ(types({.disabled_passes = all}), types({.optimize = false}));
  EXPECT_EQ(types({.optimize = false}), (std::vector<std::string>{"conv2d", "elementwise_add"}));
  EXPECT_EQ(types({.disabled_passes = PassesWithout({"fuse_conv_bias"})}),
            std::vector<std::string>{"conv2d"});
  EXPECT_THROW(types({.disabled_passes = {"nhw"}}), Error);
  EXPECT_THROW(types({.optimize = false, .disabled_passes = {"nhw"}}), Error);
}

// The program is verified once, after all passes; the message names the pass all the same.
TEST(Pipeline, PassThatBreaksTheProgramIsNamed) {
  Net net;
  Variable x = net.b.Data("x", {-1, 3, 8, 8});
  net.b.Conv2d(x, Conv(4, "y"));
  Scope scope;
  Executor().Run(net.startup, scope, {}, {});
  FrozenValues frozen = Freeze(net.main, scope, {"x"});
  PassContext context{DefaultOps(), {"x"}, {"y"}};
  context.frozen = &frozen;
  const Pass release = {"release", "", [](ProgramDesc& program, const PassContext& passes) {
                          passes.ReleaseFrozen(program.Root().op(0).Input("Filter")[0]);
                        }};
  const Pass harmful = {"harmful", "", [](ProgramDesc& program, const PassContext&) {
                          program.Root().op(0).SetInput("Filter", {"nowhere"});
                        }};
  const Pass harmless = {"harmless", "", [](ProgramDesc&, const PassContext&) {}};
  try {
    ProgramDesc program = net.main;
    RunPassList(program, context, {release, harmless, harmful, harmless});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInternal);
    EXPECT_NE(e.message().find("pass harmful broke the program"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find("nowhere"), std::string::npos) << e.message();
  }
}

// A pass that cannot read what another one left is not the one to blame.
TEST(Pipeline, PassThatFailsOnABrokenProgram) {
  Net net;
  net.b.Conv2d(net.b.Data("x", {-1, 3, 8, 8}), Conv(4, "y"));
  const PassContext context{DefaultOps(), {"x"}, {"y"}};
  const Pass harmful = {"harmful", "", [](ProgramDesc& program, const PassContext&) {
                          program.Root().op(0).SetInput("Filter", {"nowhere"});
                        }};
  const Pass sensitive = {"sensitive", "", [](ProgramDesc& program, const PassContext&) {
                            const std::string filter = program.Root().op(0).Input("Filter")[0];
                            if (!program.Root().FindVar(filter)) ThrowInvalid("no " + filter);
                          }};
  const Pass failing = {"failing", "", [](ProgramDesc&, const PassContext&) {
                          throw Error(ErrorCode::kUnimplemented, "cannot do that");
                        }};
  const auto error_of = [&](const std::vector<Pass>& passes) {
    try {
      ProgramDesc program = net.main;
      RunPassList(program, context, passes);
    } catch (const Error& e) {
      return std::pair(e.code(), e.message());
    }
    return std::pair(ErrorCode::kNotFound, std::string("no error"));
  };
  const auto [code, message] = error_of({sensitive, harmful, sensitive});
  EXPECT_EQ(code, ErrorCode::kInternal);
  EXPECT_NE(message.find("pass harmful broke the program"), std::string::npos) << message;
  // On a sound program it is.
  EXPECT_EQ(error_of({sensitive, failing}),
            std::pair(ErrorCode::kUnimplemented, std::string("cannot do that")));
}

TEST(Pipeline, UnknownPassIsNamed) {
  ProgramDesc program;
  PassContext context{DefaultOps(), {}, {}};
  try {
    RunPasses(program, context, {"nhw"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("unknown pass 'nhw'; did you mean nhwc?"), std::string::npos)
        << e.message();
  }
}
}  // namespace coracle::pass_test
