#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace coracle::attention_layer_test {

using Names = std::vector<std::string>;

class AttentionLayer : public ::testing::Test {
 protected:
  // The loss and the gradients of all parameters, with the startup program's parameters.
  std::vector<Tensor> Train(const Variable& out, const CompileOptions& options = {}) {
    const Variable loss = net.Mean(Square(out));
    Names fetches = {loss.name()};
    for (const ParamAndGrad& p : AppendBackward(loss)) fetches.push_back(p.grad);
    return Run(fetches, options);
  }
  std::vector<Tensor> Run(const Names& fetches, const CompileOptions& options = {}) {
    Scope scope;
    Executor exe(options);
    exe.Run(startup, scope);
    return exe.Run(main, scope, feeds, fetches);
  }
  Variable Feed(const std::string& name, const Shape& shape) {
    Tensor x(DType::kFloat32, shape);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = std::sin(static_cast<float>(i * i + 1));
    feeds.emplace(name, x);
    Shape declared = shape;
    declared[0] = declared[1] = -1;
    return net.Data(name, declared);
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
  std::map<std::string, Tensor> feeds;
};

// The same with the layers that it is made of.
Variable ByParts(Builder& net, const Variable& x, const Variable& memory, const Variable& mask,
                 int32_t size, int32_t heads) {
  const auto part = [&](const Variable& from, const std::string& name) {
    const Variable y = net.Fc(from, {.size = size,
                                     .num_flatten_dims = 2,
                                     .param_attr = {.name = "w_" + name},
                                     .bias_attr = ParamAttr{.name = "b_" + name}});
    return net.Transpose(net.Reshape(y, {0, 0, heads, size / heads}), {0, 2, 1, 3});
  };
  const Variable q = part(x, "q"), k = part(memory, "k"), v = part(memory, "v");
  Variable s = net.Matmul(
      q, k, {.transpose_y = true, .alpha = 1 / std::sqrt(static_cast<float>(size / heads))});
  if (mask) s = net.Add(s, mask);
  const Variable seen = net.Transpose(net.Matmul(net.Softmax(s), v), {0, 2, 1, 3});
  return net.Fc(net.Reshape(seen, {0, 0, size}), {.size = size,
                                                  .num_flatten_dims = 2,
                                                  .param_attr = {.name = "w_out"},
                                                  .bias_attr = ParamAttr{.name = "b_out"}});
}

TEST_F(AttentionLayer, IsMadeOfProjections) {
  const Variable x = Feed("x", {2, 4, 5}), memory = Feed("memory", {2, 7, 3});
  const Variable mask = Feed("mask", {1, 1, 4, 7});
  // Parameters of one name are the same ones.
  const Variable parts = ByParts(net, x, memory, mask, 6, 2);
  const Variable out = net.Attention(x, {.size = 6,
                                         .num_heads = 2,
                                         .memory = memory,
                                         .mask = mask,
                                         .param_attr = {.name = "w"},
                                         .bias_attr = ParamAttr{.name = "b"},
                                         .output = "y"});
  EXPECT_EQ(out.name(), "y");
  EXPECT_EQ(out.shape().ToString(), "[-1, 4, 6]");
  const std::vector<Tensor> got = Run({"y", parts.name()}, {.optimize = false});
  EXPECT_EQ(got[0].shape(), (Shape{2, 4, 6}));
  for (int64_t i = 0; i < got[0].numel(); ++i)
    EXPECT_NEAR(got[0].data<float>()[i], got[1].data<float>()[i], 1e-5) << i;
}

TEST_F(AttentionLayer, Parameters) {
  net.Attention(Feed("x", {2, 4, 5}), {.size = 6, .name = "a"});
  EXPECT_EQ(main.Parameters(), (Names{"a.q.w_0", "a.q.b_0", "a.k.w_0", "a.k.b_0", "a.v.w_0",
                                      "a.v.b_0", "a.out.w_0", "a.out.b_0"}));
  net.Attention(net.Var("x"), {.size = 6, .bias_attr = std::nullopt, .name = "c"});
  EXPECT_EQ(main.Parameters().size(), 12u);
  const Variable y = net.Attention(net.Var("x"), {.size = 4, .act = "relu", .name = "d"});
  EXPECT_EQ(y.shape()[2], 4);
}

TEST_F(AttentionLayer, Trains) {
  const Variable x = Feed("x", {2, 4, 5});
  const std::vector<Tensor> results =
      Train(net.Attention(x, {.size = 6, .num_heads = 3, .causal = true, .dropout_prob = 0.5f}));
  ASSERT_EQ(results.size(), 9u);
  constexpr size_t kGradientOfKeysBias = 4;  // of the loss, and q, k, v, out with weight and bias
  for (size_t i = 0; i < results.size(); ++i) {
    double size = 0;
    for (float v : results[i].span<float>()) size += std::abs(static_cast<double>(v));
    EXPECT_TRUE(std::isfinite(size));
    // A number added to all scores of a row changes no weight: the keys' bias has no gradient.
    if (i != kGradientOfKeysBias) {
      EXPECT_GT(size, 1e-4) << i;
    }
  }
}

// Later steps do not change what a causal layer computes for earlier steps.
TEST_F(AttentionLayer, CausalSeesNoFuture) {
  const Variable x = Feed("x", {1, 5, 4});
  net.Attention(x, {.size = 4, .num_heads = 2, .causal = true, .output = "y"});
  const Tensor before = Run({"y"})[0];
  feeds.at("x").data<float>()[4 * 4] += 1;
  const Tensor after = Run({"y"})[0];
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(before.data<float>()[i], after.data<float>()[i]);
  EXPECT_NE(before.data<float>()[16], after.data<float>()[16]);
}

TEST_F(AttentionLayer, Text) {
  const BuiltModel model = ParseModelText(R"(
    name: "m"
    data { name: "x" shape: [-1, -1, 8] }
    data { name: "past" shape: [-1, -1, 4] }
    data { name: "bias" shape: [-1, 1, 1, -1] }
    layer { attention { input: "x" size: 8 num_heads: 4 causal: true dropout_prob: 0.5 output: "y" } }
    layer { attention { input: "y" memory: "past" mask: "bias" size: 6 num_heads: 2 bias_term: false
                        param { name: "w" } act: "relu" output: "z" } })");
  const BlockDesc& block = model.main.Root();
  EXPECT_EQ(block.FindVar("z")->shape().ToString(), "[-1, -1, 6]");
  std::vector<const OpDesc*> ops;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    if (block.op(i).type() == "scaled_dot_product_attention") ops.push_back(&block.op(i));
  }
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_TRUE(ops[0]->GetAttr<bool>("is_causal", false));
  EXPECT_EQ(ops[0]->GetAttr<float>("dropout_prob", 0), 0.5f);
  EXPECT_NEAR(ops[0]->GetAttr<float>("scale", 0), std::sqrt(0.5f), 1e-7);
  EXPECT_FALSE(ops[0]->HasInput("Mask"));
  EXPECT_EQ(ops[1]->Input("Mask"), Names{"bias"});
  EXPECT_EQ(block.FindVar("w_k")->shape().ToString(), "[4, 6]");
  EXPECT_EQ(block.FindVar("w_out")->shape().ToString(), "[6, 6]");
}

TEST_F(AttentionLayer, Errors) {
  const Variable x = net.Data("x", {-1, -1, 8}), flat = net.Data("flat", {-1, 8});
  const auto error = [&](const Variable& input, const AttentionOptions& options) {
    return ErrorOf([&] { net.Attention(input, options); });
  };
  EXPECT_EQ(error(x, {}), "attention: size must be positive, got 0");
  EXPECT_EQ(error(x, {.size = 8, .num_heads = 0}), "attention: num_heads must be positive, got 0");
  EXPECT_EQ(error(x, {.size = 8, .num_heads = 3}),
            "attention: num_heads must divide size, got 3 and 8");
  EXPECT_EQ(error(flat, {.size = 8}),
            "attention: its input must have 3 dims, got flat of shape [-1, 8]");
  EXPECT_EQ(error(x, {.size = 8, .memory = flat}),
            "attention: its memory must have 3 dims, got flat of shape [-1, 8]");
}
}  // namespace coracle::attention_layer_test
