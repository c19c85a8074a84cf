#include <coracle/bench/workloads/networks.h>
#include <coracle/initializer/initializer.h>

#include <cmath>

namespace coracle {
namespace {

constexpr int32_t kWidth = 256, kHeads = 4, kHidden = 1024, kTokens = 128, kVocabulary = 10000;

// Element i of the first axis of x.
Variable At(Builder& net, const Variable& x, int32_t i) {
  using Ints = std::vector<int32_t>;
  return net.Make(
      "slice", {{"Input", {x.name()}}},
      {{"axes", Ints{0}}, {"starts", Ints{i}}, {"ends", Ints{i + 1}}, {"decrease_axis", Ints{0}}});
}

// Attention of all heads; input and result are [batch, tokens, kWidth].
Variable SelfAttention(Builder& net, const Variable& x) {
  constexpr int32_t kSize = kWidth / kHeads;
  const Variable projected = net.Fc(x, {.size = 3 * kWidth, .num_flatten_dims = 2});
  const Variable qkv =
      net.Transpose(net.Reshape(projected, {0, 0, 3, kHeads, kSize}), {2, 0, 3, 1, 4});
  const Variable q = At(net, qkv, 0), k = At(net, qkv, 1), v = At(net, qkv, 2);
  const float scale = 1 / std::sqrt(static_cast<float>(kSize));
  const Variable scores = net.Matmul(q, k, {.transpose_y = true, .alpha = scale});
  const Variable mixed = net.Transpose(net.Matmul(net.Softmax(scores), v), {0, 2, 1, 3});
  return net.Fc(net.Reshape(mixed, {0, 0, kWidth}), {.size = kWidth, .num_flatten_dims = 2});
}

// Dropout; returns x itself for p = 0.
Variable Dropped(Builder& net, const Variable& x, float p) {
  if (p == 0) return x;
  return net.Dropout(x, {.dropout_prob = p, .dropout_implementation = "upscale_in_train"});
}

Variable EncoderLayer(Builder& net, const Variable& x, float dropout) {
  const Variable mixed = Dropped(net, SelfAttention(net, x), dropout);
  const Variable a = net.LayerNorm(net.Add(x, mixed), {.begin_norm_axis = 2});
  const Variable h = net.Fc(a, {.size = kHidden, .num_flatten_dims = 2, .act = "gelu"});
  const Variable f = Dropped(net, net.Fc(h, {.size = kWidth, .num_flatten_dims = 2}), dropout);
  return net.LayerNorm(net.Add(a, f), {.begin_norm_axis = 2});
}

}  // namespace

Variable LstmLanguageModel(Builder& net, const Variable& ids) {
  const Variable x = net.Embedding(ids, {.num_embeddings = kVocabulary, .embedding_dim = 200});
  const Variable h = net.Lstm(x, {.hidden_size = 200, .num_layers = 2, .time_major = true}).out;
  return net.Fc(net.Reshape(h, {-1, 200}), {.size = kVocabulary});
}

Variable TransformerClassifier(Builder& net, const Variable& ids, float dropout) {
  const Variable words =
      net.Embedding(ids, {.num_embeddings = kVocabulary,
                          .embedding_dim = kWidth,
                          .param_attr = {.initializer = NormalInitializer(0, 1)}});
  const Variable positions = net.Parameter("positions", {kTokens, kWidth}, DType::kFloat32,
                                           {.initializer = NormalInitializer(0, 0.02)});
  Variable x = Dropped(net, net.Add(words, positions), dropout);
  for (int i = 0; i < 4; ++i) x = EncoderLayer(net, x, dropout);
  return net.Fc(net.ReduceMean(x, {.dim = {1}}), {.size = 10});
}

Variable Recommender(Builder& net, const Variable& ids, int64_t rows) {
  constexpr int32_t kIds = 26, kSize = 16;
  const Variable embedded = net.Embedding(
      ids, {.num_embeddings = rows,
            .embedding_dim = kSize,
            .is_sparse = true,
            .param_attr = {.name = "table", .initializer = UniformInitializer(-0.5, 0.5)}});
  const Variable x = net.Reshape(embedded, {-1, kIds * kSize});
  const Variable h = net.Fc(net.Fc(x, {.size = 256, .act = "relu"}), {.size = 128, .act = "relu"});
  return net.Fc(h, {.size = 1});
}

}  // namespace coracle
