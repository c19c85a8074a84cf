// batch_norm joined with the sum and the relu behind it, and their gradients: what is rewritten,
// what is nearly it, and the same numbers.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::fuse_batch_norm_activation_test {

constexpr const char* kPass = "fuse_batch_norm_activation";

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};

  Variable Image(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    feeds.insert(name);
    return b.Data(name, shape, dtype, {.stop_gradient = false});
  }
  Variable Norm(const Variable& x, const std::string& name, BatchNormOptions options = {}) {
    options.param_attr = {.name = name + ".scale"};
    options.bias_attr = {.name = name + ".bias"};
    options.moving_mean_name = name + ".mean";
    options.moving_variance_name = name + ".variance";
    options.output = name;
    return b.BatchNorm(x, options);
  }
  std::string After(std::unordered_set<std::string> fetches) {
    ProgramDesc program = main;
    RunPasses(program, {DefaultOps(), feeds, std::move(fetches)}, {kPass});
    masks_from_x = 0;
    program.Root().ForEachOp(
        [&](const OpDesc& op) { masks_from_x += op.GetAttr<bool>("mask_from_x", false); });
    return Listing(program);
  }
  int masks_from_x = 0;  // gradients that do not read y
  std::unordered_set<std::string> feeds;
};

bool Has(const std::string& listing, const std::string& text) {
  return listing.find(text) != std::string::npos;
}

Tensor Drawn(const Shape& shape, uint32_t state) {
  Tensor t(DType::kFloat32, shape);
  for (float& v : t.span<float>()) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 8388608.0f - 1;
  }
  return t;
}

// The results of two runs (the second sees the running statistics of the first), with all passes
// and with none.
void ExpectSameResults(Net& net, const std::map<std::string, Tensor>& feeds,
                       const std::vector<std::string>& fetches) {
  const auto run = [&](const CompileOptions& options) {
    Scope scope;
    Executor executor(options);
    executor.Run(net.startup, scope);
    const BlockDesc& root = net.main.Root();
    for (size_t i = 0; i < root.NumVars(); ++i) {
      if (root.var(i).persistable()) scope.Set(root.var(i).name(), Drawn(root.var(i).shape(), 7));
    }
    executor.Run(net.main, scope, feeds, fetches);
    return executor.Run(net.main, scope, feeds, fetches);
  };
  const auto want = run({.kernels = KernelMode::kReference, .optimize = false});
  for (const auto& got : {run({}), run({.kernels = KernelMode::kReference})}) {
    for (size_t i = 0; i < fetches.size(); ++i) {
      ASSERT_EQ(got[i].shape(), want[i].shape()) << fetches[i];
      for (int64_t k = 0; k < got[i].numel(); ++k) {
        const float expected = want[i].data<float>()[k];
        ASSERT_NEAR(got[i].data<float>()[k], expected, 2e-5f * (1 + std::abs(expected)))
            << fetches[i] << " " << k;
      }
    }
  }
}

// What two normalised convolutions and a shortcut make, as in residual nets.
struct Block {
  enum Shortcut { kNone, kOwnInput, kProjection };
  Net net;
  std::vector<std::string> fetches;

  Block(int64_t batch, Shortcut shortcut, bool shortcut_first, BackwardOptions options = {}) {
    const Conv2dOptions conv = {
        .num_filters = 4, .filter_size = 3, .padding = 1, .bias_attr = std::nullopt};
    const Variable x = net.Image("x", {batch, 3, 6, 5});
    const auto filter = [&](const char* name) {
      Conv2dOptions named = conv;
      named.param_attr = {.name = name};
      return named;
    };
    const Variable h = net.b.Relu(net.Norm(net.b.Conv2d(x, filter("w0")), "n0"), {.output = "h"});
    const Variable c = net.b.Relu(net.Norm(net.b.Conv2d(h, filter("w1")), "n1"), {.output = "c"});
    const Variable d = net.Norm(net.b.Conv2d(c, filter("w2")), "n2");
    Variable y = d;
    if (shortcut != kNone) {
      const Variable z = shortcut == kOwnInput ? h : net.Norm(net.b.Conv2d(h, filter("w3")), "n3");
      y = shortcut_first ? net.b.Add(z, d) : net.b.Add(d, z);
    }
    y = net.b.Relu(y, {.output = "y"});
    const Variable loss = net.b.Mean(Square(y), {.output = "loss"});
    fetches = {"loss", "y"};
    for (const ParamAndGrad& p : AppendBackward(loss, options)) fetches.push_back(p.grad);
  }
};

TEST(FuseBatchNormActivation, ForwardAlone) {
  Net net;
  net.b.Relu(net.Norm(net.Image("x", {-1, 3, 6, 5}), "n"), {.output = "y"});
  const auto saved = [&](const char* slot) { return net.main.Root().op(0).Output(slot)[0]; };
  EXPECT_EQ(net.After({"y"}),
            fmt::format("Y=y, MeanOut=n.mean, VarianceOut=n.variance, SavedMean={}, "
                        "SavedVariance={} = fused_batch_norm_act(X=x, Scale=n.scale, Bias=n.bias, "
                        "Mean=n.mean, Variance=n.variance) data_layout=\"NCHW\"\n",
                        saved("SavedMean"), saved("SavedVariance")));
}

// float16 may round a small number to 0, and gradients are masked by that.
TEST(FuseBatchNormActivation, HalfPrecision) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Net net;
    net.b.Relu(net.Norm(net.Image("x", {-1, 3, 6, 5}, dtype), "n"), {.output = "y"});
    EXPECT_EQ(Has(net.After({"y"}), "fused_batch_norm_act"), dtype == DType::kBFloat16);
  }
}

TEST(FuseBatchNormActivation, WithGradient) {
  Net net;
  const Variable x = net.Image("x", {-1, 3, 6, 5});
  const Variable y = net.b.Relu(net.Norm(x, "n"), {.output = "y"});
  const std::vector<std::string> grads = Gradients({Mean(y)}, {x});
  const std::string after = net.After({grads[0]});
  EXPECT_TRUE(Has(after, "= fused_batch_norm_act(X=x, ")) << after;
  EXPECT_TRUE(Has(after, "X@GRAD=x@GRAD")) << after;
  EXPECT_TRUE(Has(after, "= fused_batch_norm_act_grad(")) << after;
  EXPECT_EQ(net.masks_from_x, 1);
  for (const char* gone : {"= batch_norm", "= relu"}) EXPECT_FALSE(Has(after, gone)) << after;
}

// Y's sign cannot be made again from X once the bias is another one.
TEST(FuseBatchNormActivation, ParametersThatChangeBeforeTheGradient) {
  for (const char* changed : {"n.bias", "n.scale"}) {
    Net net;
    const Variable x = net.Image("x", {-1, 3, 6, 5});
    const Variable y = net.b.Relu(net.Norm(x, "n"), {.output = "y"});
    net.b.Append("scale", {{"X", {changed}}}, {{"Out", {changed}}}, {{"scale", -2.0f}});
    BlockDesc& root = net.main.Root();
    root.Var("d").SetMeta(y.desc().meta());
    root.Var("dx").SetMeta(x.desc().meta());
    const auto saved = [&](const char* slot) { return root.op(0).Output(slot); };
    root.AppendOp("relu_grad", {{"Out", {"y"}}, {"Out@GRAD", {"y"}}}, {{"X@GRAD", {"d"}}});
    root.AppendOp("batch_norm_grad",
                  {{"X", {"x"}},
                   {"Scale", {"n.scale"}},
                   {"SavedMean", saved("SavedMean")},
                   {"SavedVariance", saved("SavedVariance")},
                   {"Y@GRAD", {"d"}}},
                  {{"X@GRAD", {"dx"}}}, {{"epsilon", 1e-5f}, {"data_layout", std::string("NCHW")}});
    EXPECT_TRUE(Has(net.After({"dx"}), "= fused_batch_norm_act_grad("));
    EXPECT_EQ(net.masks_from_x, 0);
    ExpectSameResults(net, {{"x", Drawn({4, 3, 6, 5}, 3)}}, {"dx"});
  }
}

TEST(FuseBatchNormActivation, ResidualBlocks) {
  for (const int64_t batch : {int64_t{-1}, int64_t{4}}) {
    for (const Block::Shortcut shortcut : {Block::kNone, Block::kOwnInput, Block::kProjection}) {
      for (const bool first : {false, true}) {
        SCOPED_TRACE(::testing::Message() << batch << " " << shortcut << " " << first);
        Block block(batch, shortcut, first);
        const std::string after = block.net.After({block.fetches.begin(), block.fetches.end()});
        const bool sum = shortcut != Block::kNone;
        EXPECT_EQ(Has(after, "= fused_bn_add_activation("), sum) << after;
        EXPECT_EQ(Has(after, "= fused_bn_add_activation_grad("), sum) << after;
        EXPECT_EQ(Has(after, "= batch_norm("), shortcut == Block::kProjection) << after;
        EXPECT_EQ(block.net.masks_from_x, sum ? 2 : 3);
        for (const char* gone : {"= relu", "= elementwise_add"})
          EXPECT_FALSE(Has(after, gone)) << after;
        std::vector<std::string> fetches = block.fetches;
        for (const char* norm : {"n0", "n1", "n2"}) {
          fetches.push_back(std::string(norm) + ".mean");
          fetches.push_back(std::string(norm) + ".variance");
        }
        ExpectSameResults(block.net, {{"x", Drawn({4, 3, 6, 5}, 3)}}, fetches);
      }
    }
  }
}

// Copies that are computed again are fused as the originals are.
TEST(FuseBatchNormActivation, Recomputed) {
  for (const Block::Shortcut shortcut : {Block::kNone, Block::kOwnInput, Block::kProjection}) {
    BackwardOptions options;
    options.recompute.checkpoints = {"y"};
    Block block(-1, shortcut, false, options);
    const std::string after = block.net.After({block.fetches.begin(), block.fetches.end()});
    EXPECT_TRUE(Has(after, "c@RECOMPUTED")) << after;
    EXPECT_GE(block.net.masks_from_x, 2);
    for (const char* gone : {"= relu", "= elementwise_add"})
      EXPECT_FALSE(Has(after, gone)) << after;
    ExpectSameResults(block.net, {{"x", Drawn({4, 3, 6, 5}, 5)}}, block.fetches);
  }
}

// The shapes fit in a run, but are not the same.
TEST(FuseBatchNormActivation, SumsOfDifferentShapes) {
  for (const auto& [batch_x, batch_z] : std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {1, 4}}) {
    Net net;
    const Variable x = net.Image("x", {-1, 3, 6, 5}), z = net.Image("z", {-1, 3, 6, 5});
    const Variable y = net.b.Relu(net.b.Add(net.Norm(x, "n"), z), {.output = "y"});
    std::vector<std::string> fetches = Gradients({Mean(Square(y))}, {x, z});
    fetches.push_back("y");
    const std::string after = net.After({fetches.begin(), fetches.end()});
    EXPECT_TRUE(Has(after, "= fused_bn_add_activation(")) << after;
    EXPECT_TRUE(Has(after, "= fused_bn_add_activation_grad(")) << after;
    ExpectSameResults(
        net, {{"x", Drawn({batch_x, 3, 6, 5}, 3)}, {"z", Drawn({batch_z, 3, 6, 5}, 4)}}, fetches);
  }
}

// The sum has the LoD of its first operand.
TEST(FuseBatchNormActivation, LodOfAnotherVariable) {
  const auto listing = [](bool first) {
    Net net;
    const Variable x = net.Image("x", {-1, 3, 6, 5}), z = net.Image("z", {-1, 3, 6, 5});
    const Variable u = net.Norm(x, "n");
    net.b.Relu(first ? net.b.Add(z, u) : net.b.Add(u, z), {.output = "y"});
    return net.After({"y"});
  };
  EXPECT_TRUE(Has(listing(false), "= fused_bn_add_activation("));
  EXPECT_FALSE(Has(listing(true), "= fused_bn_add_activation("));
}

TEST(FuseBatchNormActivation, NearMisses) {
  const Shape shape{-1, 3, 6, 5};
  {  // what is normalised is fetched
    Net net;
    net.b.Relu(net.Norm(net.Image("x", shape), "n"), {.output = "y"});
    EXPECT_EQ(net.After({"y", "n"}), Listing(net.main));
  }
  {  // or read by others
    Net net;
    const Variable u = net.Norm(net.Image("x", shape), "n");
    net.b.Relu(u, {.output = "y"});
    net.b.Sigmoid(u, {.output = "z"});
    EXPECT_EQ(net.After({"y", "z"}), Listing(net.main));
  }
  {  // or the sum is
    Net net;
    const Variable u = net.Norm(net.Image("x", shape), "n");
    const Variable s = net.b.Add(u, net.Image("z", shape), {.output = "s"});
    net.b.Relu(s, {.output = "y"});
    EXPECT_EQ(net.After({"y", "s"}), Listing(net.main));
  }
  {  // persistable
    Net net;
    net.b.Relu(net.Norm(net.Image("x", shape), "n"), {.output = "y"});
    net.main.Root().FindVar("n")->SetPersistable(true);
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  for (const bool global : {false, true}) {  // the statistics are fixed
    Net net;
    BatchNormOptions options;
    (global ? options.use_global_stats : options.is_test) = true;
    const Variable x = net.Image("x", shape);
    const Variable y = net.b.Relu(net.Norm(x, "n", options), {.output = "y"});
    const std::vector<std::string> grads = Gradients({Mean(y)}, {x});
    EXPECT_EQ(net.After({"y", grads[0]}), Listing(net.main));
  }
  {  // the sum is along another axis
    Net net;
    const Variable u = net.Norm(net.Image("x", shape), "n");
    net.b.Relu(net.b.Add(u, net.Image("z", {3}), {.axis = 1}), {.output = "y"});
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // a momentum that only batch_norm takes
    Net net;
    net.b.Relu(net.Norm(net.Image("x", shape), "n"), {.output = "y"});
    net.main.Root().op(0).SetInput("MomentumTensor", {net.Image("m", {1}).name()});
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // another activation
    Net net;
    const Variable x = net.Image("x", shape);
    const Variable y = net.b.Tanh(net.Norm(x, "n"), {.output = "y"});
    const std::vector<std::string> grads = Gradients({Mean(y)}, {x});
    EXPECT_EQ(net.After({"y", grads[0]}), Listing(net.main));
  }
  {  // another dtype
    Net net;
    const Variable x = net.Image("x", shape, DType::kFloat16);
    net.b.Relu(net.Norm(x, "n"), {.output = "y"});
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // the gradient of what is normalised is fetched: the forward ops are fused all the same
    Net net;
    const Variable x = net.Image("x", shape);
    const Variable y = net.b.Relu(net.Norm(x, "n"), {.output = "y"});
    const std::vector<std::string> grads = Gradients({Mean(y)}, {x});
    const std::string after = net.After({grads[0], "n@GRAD"});
    EXPECT_TRUE(Has(after, "= fused_batch_norm_act(")) << after;
    EXPECT_TRUE(Has(after, "= relu_grad(")) << after;
  }
}

}  // namespace coracle::fuse_batch_norm_activation_test
