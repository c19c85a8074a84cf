// layer_norm joined with the sum and the dropout before it, and their gradients: what is rewritten,
// what is nearly it, and the same bits.

#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/passes.h>
#include <coracle/test/passes/listing.h>
#include <coracle/test/passes/same_results.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

namespace coracle::fuse_layer_norm_test {

constexpr const char* kPass = "fuse_layer_norm";

bool Has(const std::string& listing, const std::string& text) {
  return listing.find(text) != std::string::npos;
}

struct Net {
  ProgramDesc main, startup;
  Builder b{main, startup};
  std::vector<std::string> fetches;

  Variable Data(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    return b.Data(name, shape, dtype, {.stop_gradient = false});
  }
  Variable Norm(const Variable& x, const std::string& name) {
    return b.LayerNorm(x, {.begin_norm_axis = x.shape().rank() - 1,
                           .param_attr = {.name = name + ".scale"},
                           .bias_attr = ParamAttr{.name = name + ".bias"},
                           .output = name});
  }
  Variable Drop(const Variable& x, float p = 0.3f) {
    return b.Dropout(x, {.dropout_prob = p, .dropout_implementation = "upscale_in_train"});
  }
  std::string After(const std::vector<std::string>& fetched) const {
    ProgramDesc program = main;
    RunPasses(program, {DefaultOps(), {"x", "z"}, {fetched.begin(), fetched.end()}}, {kPass});
    return Listing(program);
  }
  // Fetches the loss, y and the gradients of the parameters and feeds.
  std::string Train(const Variable& y, const std::vector<Variable>& feeds,
                    BackwardOptions options = {}) {
    const Variable loss = b.Mean(Square(y), {.output = "loss"});
    fetches = {"loss", y.name()};
    for (const ParamAndGrad& p : AppendBackward(loss, options)) fetches.push_back(p.grad);
    for (const Variable& feed : feeds) fetches.push_back(feed.name() + "@GRAD");
    return After(fetches);
  }
  // All bits of two steps, with and without the pass. Where terms are repeated, their
  // gradients are summed in another order.
  void ExpectSameBits(const std::map<std::string, Tensor>& feeds, bool repeated = false) const {
    for (const KernelMode kernels : {KernelMode::kAuto, KernelMode::kReference}) {
      const auto run = [&](CompileOptions options) {
        options.kernels = kernels;
        options.seed = 9;
        Scope scope;
        Executor executor(options);
        executor.Run(startup, scope);
        executor.Run(main, scope, feeds, fetches);
        return executor.Run(main, scope, feeds, fetches);
      };
      CompileOptions without;
      without.disabled_passes = {kPass, "fuse_elementwise"};
      CompileOptions with;
      with.disabled_passes = {"fuse_elementwise"};
      const auto want = run(without), got = run(with);
      for (size_t i = 0; i < fetches.size(); ++i) {
        ASSERT_EQ(got[i].shape(), want[i].shape()) << fetches[i];
        if (!repeated) {
          EXPECT_EQ(std::memcmp(got[i].raw(), want[i].raw(), want[i].nbytes()), 0) << fetches[i];
          continue;
        }
        for (int64_t k = 0; k < want[i].numel(); ++k) {
          const float expected = want[i].data<float>()[k];
          ASSERT_NEAR(got[i].data<float>()[k], expected, 1e-5f * (1 + std::abs(expected)))
              << fetches[i] << " at " << k;
        }
      }
    }
  }
};

constexpr const char* kFusedOp = " = fused_residual_layer_norm(";
constexpr const char* kFusedGrad = " = fused_residual_layer_norm_gradients(";

void ExpectFused(const std::string& after, std::initializer_list<const char*> gone) {
  EXPECT_TRUE(Has(after, kFusedOp)) << after;
  EXPECT_TRUE(Has(after, kFusedGrad)) << after;
  for (const char* type : gone)
    EXPECT_FALSE(Has(after, std::string(" = ") + type + "(")) << type << "\n" << after;
}

TEST(FuseLayerNorm, ForwardAlone) {
  Net net;
  const Variable sum = net.b.Add(net.Data("x", {-1, 5}), net.Data("z", {-1, 5}), {.output = "s"});
  net.Norm(sum, "y");
  const OpDesc& norm = net.main.Root().op(1);
  const std::string rest = fmt::format(
      "Mean={}, Variance={} = fused_residual_layer_norm(X=x, Y=z, Scale=y.scale, "
      "Bias=y.bias)\n",
      norm.Output("Mean")[0], norm.Output("Variance")[0]);
  EXPECT_EQ(net.After({"y"}), "Out=y, " + rest);
  EXPECT_EQ(net.After({"y", "s"}), "Out=y, Sum=s, " + rest);
  net.fetches = {"y", "s"};
  net.ExpectSameBits({{"x", Drawn({3, 5})}, {"z", Drawn({3, 5})}});
  net.ExpectSameBits({{"x", Drawn({3, 5})}, {"z", Drawn({1, 5})}}, true);
}

// As in a Transformer: the norm of what a layer adds to its input, with and without dropout.
TEST(FuseLayerNorm, PostNorm) {
  for (const int64_t batch : {int64_t{-1}, int64_t{6}}) {
    for (const bool drops : {false, true}) {
      for (const bool first : {false, true}) {
        SCOPED_TRACE(::testing::Message() << batch << drops << first);
        Net net;
        const Variable x = net.Data("x", {batch, 7});
        Variable h = x;
        for (const char* name : {"n1", "n2"}) {
          Variable f = net.b.Fc(h, {.size = 7});
          if (drops) f = net.Drop(f);
          h = net.Norm(first ? net.b.Add(f, h) : net.b.Add(h, f), name);
        }
        const std::string after = net.Train(h, {x});
        ExpectFused(after, {"layer_norm", "layer_norm_grad", "dropout", "dropout_grad"});
        EXPECT_EQ(Has(after, "Mask="), drops);
        net.ExpectSameBits({{"x", Drawn({6, 7})}});
      }
    }
  }
}

// The sum is read by the layer after the next one too, so that its gradient has two terms.
TEST(FuseLayerNorm, PreNorm) {
  for (const bool drops : {false, true}) {
    Net net;
    const Variable x = net.Data("x", {-1, 4, 40});
    Variable h = x;
    for (const char* name : {"n1", "n2", "n3"}) {
      Variable f = net.b.Fc(net.Norm(h, name), {.size = 40, .num_flatten_dims = 2});
      if (drops) f = net.Drop(f);
      h = net.b.Add(h, f);
    }
    const std::string after = net.Train(net.Norm(h, "y"), {x});
    ExpectFused(after, {"dropout", "dropout_grad"});
    EXPECT_TRUE(Has(after, "Sum@GRAD=")) << after;
    net.ExpectSameBits({{"x", Drawn({3, 4, 40})}});
  }
}

TEST(FuseLayerNorm, Recomputed) {
  Net net;
  const Variable x = net.Data("x", {-1, 8});
  Variable h = x;
  for (const char* name : {"n1", "n2", "n3"})
    h = net.Norm(net.b.Add(h, net.Drop(net.b.Fc(h, {.size = 8}))), name);
  BackwardOptions options;
  options.recompute.checkpoints = {"n2"};
  const std::string after = net.Train(h, {x}, options);
  ExpectFused(after, {"layer_norm", "layer_norm_grad", "dropout", "dropout_grad"});
  EXPECT_TRUE(Has(after, "n1@RECOMPUTED")) << after;
  net.ExpectSameBits({{"x", Drawn({5, 8})}});
}

// The shapes fit, but are not the same.
TEST(FuseLayerNorm, TermsThatAreRepeated) {
  for (const auto& [rows_x, rows_z] : std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {1, 4}}) {
    for (const bool drops : {false, true}) {
      Net net;
      const Variable x = net.Data("x", {-1, 6}), z = net.Data("z", {-1, 6});
      const Variable f = net.b.Tanh(x);
      const std::string after =
          net.Train(net.Norm(net.b.Add(z, drops ? net.Drop(f) : f), "y"), {x, z});
      ExpectFused(after, {"dropout", "dropout_grad"});
      net.ExpectSameBits({{"x", Drawn({rows_x, 6})}, {"z", Drawn({rows_z, 6})}}, true);
    }
  }
}

TEST(FuseLayerNorm, Double) {
  Net net;
  const Variable x = net.Data("x", {-1, 6}, DType::kFloat64);
  ExpectFused(net.Train(net.Norm(net.b.Add(x, net.Drop(net.b.Tanh(x))), "y"), {x}), {"dropout"});
  net.ExpectSameBits({{"x", Drawn({4, 6}, DType::kFloat64)}});
}

// The dropout stays where somebody else sees what it made, or where it is another one.
TEST(FuseLayerNorm, DropoutsThatStay) {
  using Edit = std::function<void(Net&, OpDesc&)>;
  const auto fused = [](const Edit& edit, const std::vector<std::string>& seen) {
    Net net;
    const Variable x = net.Data("x", {-1, 6});
    const Variable d = net.b.Dropout(net.b.Tanh(x), {.dropout_prob = 0.3f, .output = "d"});
    net.Norm(net.b.Add(x, d), "y");
    edit(net, net.main.Root().op(1));
    std::vector<std::string> fetched = seen;
    fetched.push_back("y");
    const std::string after = net.After(fetched);
    EXPECT_TRUE(Has(after, kFusedOp)) << after;
    return !Has(after, " = dropout(");
  };
  const Edit none = [](Net&, OpDesc&) {};
  EXPECT_TRUE(fused(none, {}));
  EXPECT_FALSE(fused(none, {"d"}));
  EXPECT_FALSE(
      fused([](Net& net, OpDesc&) { net.b.Relu(net.b.Var("d"), {.output = "r"}); }, {"r"}));
  EXPECT_FALSE(fused([](Net&, OpDesc& op) { op.SetAttr("is_test", true); }, {}));
  EXPECT_FALSE(fused(
      [](Net& net, OpDesc& op) {
        net.b.Data("seed", {1}, DType::kInt32);
        op.SetInput("Seed", {"seed"});
      },
      {}));
  EXPECT_FALSE(fused(
      [](Net& net, OpDesc& op) {  // a mask of factors
        net.main.Root()
            .FindVar(op.Output("Mask")[0])
            ->SetMeta({VarType::kLoDTensor, DType::kFloat32, {-1, 6}, 0});
      },
      {}));
}

TEST(FuseLayerNorm, NearMisses) {
  {  // along another axis
    Net net;
    net.Norm(net.b.Add(net.Data("x", {6, 6}), net.Data("z", {6}), {.axis = 0}), "y");
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // 16 bits: what lies between is rounded
    Net net;
    const Variable x = net.Data("x", {-1, 6}, DType::kBFloat16);
    net.Norm(net.b.Add(x, net.Data("z", {-1, 6}, DType::kBFloat16)), "y");
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // the sum is written twice
    Net net;
    const Variable s = net.b.Add(net.Data("x", {-1, 6}), net.Data("z", {-1, 6}), {.output = "s"});
    net.Norm(s, "y");
    net.b.Append("scale", {{"X", {"s"}}}, {{"Out", {"s"}}}, {{"scale", 2.0f}});
    EXPECT_EQ(net.After({"y", "s"}), Listing(net.main));
  }
  {  // a term changes before the norm
    Net net;
    const Variable x = net.Data("x", {-1, 6});
    const Variable s = net.b.Add(x, net.Data("z", {-1, 6}));
    net.b.Append("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}, {{"scale", 2.0f}});
    net.Norm(s, "y");
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
  {  // the sum is read between them
    Net net;
    const Variable s = net.b.Add(net.Data("x", {-1, 6}), net.Data("z", {-1, 6}));
    net.b.Relu(s, {.output = "r"});
    net.Norm(s, "y");
    EXPECT_EQ(net.After({"y", "r"}), Listing(net.main));
  }
  {  // a product
    Net net;
    net.Norm(net.b.Mul(net.Data("x", {-1, 6}), net.Data("z", {-1, 6})), "y");
    EXPECT_EQ(net.After({"y"}), Listing(net.main));
  }
}

// A gradient between the ops is fetched: the forward ops are fused all the same.
TEST(FuseLayerNorm, GradientsThatAreSeen) {
  Net net;
  const Variable x = net.Data("x", {-1, 6});
  const Variable d = net.b.Dropout(net.b.Tanh(x), {.dropout_prob = 0.3f, .output = "d"});
  const Variable s = net.b.Add(x, d, {.output = "s"});
  net.Train(net.Norm(s, "y"), {x});
  net.fetches.emplace_back("s@GRAD");
  std::string after = net.After(net.fetches);
  EXPECT_TRUE(Has(after, kFusedOp)) << after;
  EXPECT_FALSE(Has(after, kFusedGrad)) << after;
  net.ExpectSameBits({{"x", Drawn({5, 6})}});
  net.fetches.back() = "d@GRAD";
  after = net.After(net.fetches);
  EXPECT_TRUE(Has(after, kFusedGrad)) << after;
  EXPECT_TRUE(Has(after, " = dropout_grad(")) << after;
  net.ExpectSameBits({{"x", Drawn({5, 6})}});
}

}  // namespace coracle::fuse_layer_norm_test
