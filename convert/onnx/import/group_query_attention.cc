// The node GroupQueryAttention of com.microsoft: decoders of language models with a cache of keys
// and values.

#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/rotary.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {
namespace {

using variable_functions::Concat;

// The inputs by their names in ONNX Runtime.
enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLastPositions,  // seqlens_k: the position of the last token of each sample
  kTotalLength,
  kCos,
  kSin,
  kPositions,
  kBias,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm,
};

struct Group {
  Variable q = {}, k = {}, v = {};  // of the new tokens, with heads
  int64_t q_heads = 0, kv_heads = 0;
  Variable totals = {},
           pasts = {};  // tokens of each sample, with and without the new ones, int64 [batch]
};

void RefuseOthers(NodeContext& node) {
  for (const char* name : {"k_quant_type", "v_quant_type"}) {
    if (node.String(name, "NONE") != "NONE")
      node.Refuse(fmt::format(
          "attribute {}: a cache of quantized keys and values: export with a cache of floats",
          name));
  }
  // These only matter with others.
  for (const char* name : {"kv_cache_bit_width", "rotary_interleaved", "qk_norm_epsilon"})
    node.attributes().Ignore(name);
  if (node.HasInput(kKeyScale) || node.HasInput(kValueScale))
    node.Refuse(
        "inputs 12 and 13, the scales of a cache of quantized keys and values: export with a cache "
        "of floats");
  if (node.Flag("sliding_window_cache", false)) {
    node.Refuse(
        "attribute sliding_window_cache of 1, a cache that drops old tokens: export with a "
        "cache of the whole length");
  }
  if (node.Int("qk_output", 0) != 0 || node.Wants(3)) {
    node.Refuse(
        "attribute qk_output, which shows the scores (output 3): remove both if nothing reads the "
        "scores");
  }
}

// x / sqrt(mean of x^2 + epsilon) for each head, times a weight.
Variable HeadsNormalised(NodeContext& node, const Variable& x, size_t weight) {
  const double epsilon = static_cast<double>(node.Float("qk_norm_epsilon", 1e-6f));
  const Variable square =
      node.Unary("reduce_mean", Square(x), {{"dim", std::vector<int32_t>{3}}, {"keep_dim", true}});
  return x / Sqrt(square + epsilon) * node.In(weight);
}

constexpr const char* kNotLikeQueries =
    "keys or values that are not as many as the queries, as a layer has them that reads the cache "
    "of another one: give the layer its own keys and values, or export it with nodes MatMul and "
    "Softmax";
constexpr const char* kOtherPast = "past_key and past_value must have one length";

// Checks that axes of x and y have equal lengths. Where only a run knows them, it fails.
void RequireSame(NodeContext& node, Group* g, const Variable& x, const Variable& y,
                 const std::vector<int>& axes, const char* why) {
  Variable wrong;
  for (int axis : axes) {
    const int64_t wanted = x.shape()[axis], there = y.shape()[axis];
    if (wanted >= 0 && there >= 0 && wanted != there) node.Refuse(why);
    if (wanted >= 0 && there >= 0) continue;
    const Variable differs = Not(Equal(DimOf(node, x, axis), DimOf(node, y, axis)));
    wrong = wrong ? Or(wrong, differs) : differs;
  }
  if (wrong) g->totals = CheckedAtRun(node, g->totals, wrong, why);
}

// The tokens of each sample, from seqlens_k. A run fails if they do not fit the tensors.
void CountTokens(NodeContext& node, Group* g) {
  const Variable last = node.Reshape(node.Cast(node.In(kLastPositions), DType::kInt64), {-1});
  const int64_t batch = g->q.shape()[0];
  g->totals = (batch < 0 ? InDims(node, last, Dims().Add(g->q, 0))
                         : OfLength(node, last, batch, "seqlens_k, of the batch,")) +
              1.0;
  RequireSame(node, g, g->q, g->k, {0, 2}, kNotLikeQueries);
  RequireSame(node, g, g->q, g->v, {0, 2}, kNotLikeQueries);
  const Variable queries = DimOf(node, g->q, 2);
  Variable held = node.ScalarVar(DType::kInt64, 0), most = queries;
  if (node.HasInput(kPastKey)) {
    RequireSame(node, g, node.In(kPastKey), node.In(kPastValue), {2}, kOtherPast);
    held = DimOf(node, node.In(kPastKey), 2);
    most = Max(held, NumberOf(node, kTotalLength));
  }
  const Variable none = Less(g->totals, ZerosLike(g->totals) + 1.0);
  const Variable beyond = Less(held, g->totals - queries);
  g->totals =
      CheckedAtRun(node, g->totals, Or(none, Or(beyond, Less(most, g->totals))),
                   "seqlens_k does not fit past_key or the total: feed the lengths of this cache");
  // A prompt may be padded at its end: then a sample has fewer tokens than there are queries.
  g->pasts = Max(g->totals - queries, 0.0);
}

// The new tokens: three inputs, or one in which all heads lie one after another.
Group GroupOf(NodeContext& node) {
  Group g = {.q_heads = node.Int("num_heads"), .kv_heads = node.Int("kv_num_heads")};
  RequireShared(node, g.q_heads, g.kv_heads);
  node.Require(node.HasInput(kKey) == node.HasInput(kValue),
               "key and value must be given together");
  const int64_t q_heads = g.q_heads, all = g.q_heads + 2 * g.kv_heads;
  if (node.HasInput(kKey)) {
    g.q = WithHeads(node, node.In(kQuery), q_heads);
    if (node.rank(kKey) != 3 || node.rank(kValue) != 3)
      node.Refuse("key or value of another rank than 3: reshape them to [batch, tokens, width]");
    g.k = WithHeads(node, node.In(kKey), g.kv_heads);
    g.v = WithHeads(node, node.In(kValue), g.kv_heads);
  } else {
    const Variable heads = WithHeads(node, node.In(kQuery), all);
    g.q = SliceOf(node, heads, 1, 0, q_heads);
    g.k = SliceOf(node, heads, 1, q_heads, q_heads + g.kv_heads);
    g.v = SliceOf(node, heads, 1, q_heads + g.kv_heads, all);
  }
  if (g.k.shape()[2] == 0) node.Refuse(kNotLikeQueries);
  node.Require(node.HasInput(kQueryNorm) == node.HasInput(kKeyNorm),
               "q_norm_weight and k_norm_weight must be given together");
  if (node.HasInput(kQueryNorm)) {
    g.q = HeadsNormalised(node, g.q, kQueryNorm);
    g.k = HeadsNormalised(node, g.k, kKeyNorm);
  }
  node.Require(node.HasInput(kPastKey) == node.HasInput(kPastValue),
               "past_key and past_value must be given together");
  CountTokens(node, &g);
  return g;
}

// Rotates queries and new keys by their positions.
void Rotate(NodeContext& node, Group* g) {
  if (!node.Flag("do_rotary", false)) return;
  node.Require(node.HasInput(kCos) && node.HasInput(kSin),
               "attribute do_rotary of 1 needs cos_cache and sin_cache");
  const int64_t half = node.shape(kCos)[1], whole = g->q.shape()[3];
  if (half < 0 && whole < 0) node.RefuseUnknown("the width of cos_cache", "the rotated pairs");
  const int64_t size = half < 0 ? whole : 2 * half;
  node.Require(size >= 2 && size % 2 == 0 && (whole < 0 || size <= whole),
               fmt::format("{} of {} elements of a head cannot be rotated", size, whole));
  Variable ids;
  if (node.HasInput(kPositions)) {
    node.Require(node.rank(kPositions) == 2, "position_ids must be [batch, length]");
    ids = ForTokens(node, node.Cast(node.In(kPositions), DType::kInt64), g->q, "position_ids");
  } else {
    ids = node.Reshape(g->pasts, {-1, 1}) + node.Reshape(PlacesOn(node, g->q, 2), {1, -1});
  }
  Rotation by = RotationOf(node, node.In(kCos), node.In(kSin), ids, size);
  by.given = node.HasInput(kPositions);
  const bool neighbours = node.Flag("rotary_interleaved", false);
  g->q = Rotated(node, g->q, by, neighbours);
  g->k = Rotated(node, g->k, by, neighbours);
}

// The tokens of a cache, the old ones of each sample followed by the new ones and then by zeros. A
// cache that is longer than all tokens keeps its length.
class Cache {
 public:
  Cache(NodeContext& node, const Group& g, const Variable& past) : node_(node) {
    const Variable held = DimOf(node, past, 2), added = DimOf(node, g.k, 2);
    const Variable place =
        node.Reshape(Counted(node, Max(held, NumberOf(node, kTotalLength))), {1, -1});
    const Variable from = place - node.Reshape(g.pasts, {-1, 1});  // [batch, places]
    const Variable is_old = Less(from, ZerosLike(from));
    const Variable is_new = And(Not(is_old), Less(from, added));
    filled_ = Or(is_old, is_new);
    // Old tokens come first in the joined tensor, then all new ones.
    const Variable last = held + added - 1.0;
    const Variable newer = node.Cast(is_new, DType::kInt64);
    const Variable index = newer * (from + held) + (1.0 - newer) * (place + ZerosLike(from));
    const Variable sample = node.Reshape(PlacesOn(node, g.k, 0), {-1, 1}) + ZerosLike(index);
    index_ = Concat({Last(sample), Last(Min(index, last))}, 2);
  }

  // [batch, heads, places, size].
  Variable Joined(const Variable& past, const Variable& added) const {
    const Variable all = node_.Transpose(Concat({past, added}, 2), {0, 2, 1, 3});
    const Variable taken =
        node_.Make("gather_nd", {{"X", {all.name()}}, {"Index", {index_.name()}}});
    const Variable zero = node_.ScalarVar(taken.dtype(), 0);
    const Variable kept = BroadcastWhere(node_, Last(Last(filled_)), taken, zero);
    return node_.Transpose(kept, {0, 2, 1, 3});
  }

 private:
  Variable Last(const Variable& x) const {
    return node_.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{x.shape().rank()}}});
  }

  NodeContext& node_;
  Variable filled_, index_;
};

constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();

// Hides the keys that a query does not see: those after it, after the sample's last token, and,
// with a window, those that are not among the last ones before it.
Variable VisibleBias(NodeContext& node, const Group& g, const Variable& k) {
  const auto per_sample = [&](const Variable& x) { return node.Reshape(x, {-1, 1, 1, 1}); };
  const Variable key = PlacesOn(node, k, 2), totals = per_sample(g.totals);
  // A window of 0 is none, like -1. No key is further away than the largest int32.
  const int64_t window = std::min<int64_t>(node.Int("local_window_size", -1), kMaxWindow);
  const bool causal = node.Flag("causal", true);
  node.Require(window == -1 || window == 0 || (window > 0 && causal),
               "attribute local_window_size must be -1 or 0 (no window), or positive for causal "
               "attention");
  if (!causal) return BiasOf(node, node.Binary("less_than", key, totals), g.q.dtype());
  // The number of keys up to each query.
  const Variable seen = Min(PositionsOfQueries(node, g.q, per_sample(g.pasts)) + 1.0, totals);
  Variable visible = node.Binary("less_than", key, seen);
  if (window > 0) {
    const Variable first = seen - static_cast<double>(window);
    visible = And(visible, node.Binary("greater_equal", key, first));
  }
  return BiasOf(node, visible, g.q.dtype());
}

// A summand of the scores may have a column for each token, but none for unused places of a cache.
void UseBias(NodeContext& node, Product* product) {
  if (!node.HasInput(kBias)) return;
  const Variable none = node.ScalarVar(DType::kInt64, 0), total = NumberOf(node, kTotalLength);
  for (Variable* x : {&product->k, &product->v}) *x = SliceBetween(node, *x, 2, none, total);
  product->bias = SliceBetween(node, product->bias, 3, none, total) + node.In(kBias);
  product->may_be_blind = true;
}

void ImportGroupQueryAttention(NodeContext& node) {
  RefuseOthers(node);
  Group g = GroupOf(node);
  Rotate(node, &g);
  Variable k = g.k, v = g.v;
  if (node.HasInput(kPastKey)) {
    const Variable past_key = node.In(kPastKey), past_value = node.In(kPastValue);
    const Cache cache(node, g, past_key);
    k = cache.Joined(past_key, g.k);
    v = cache.Joined(past_value, g.v);
  }
  const int64_t shared = g.q_heads / g.kv_heads;
  Product product = {.q = g.q,
                     .k = WithRepeatedHeads(node, k, shared),
                     .v = WithRepeatedHeads(node, v, shared),
                     .scale = node.Float("scale", 0.0f),
                     .softcap = node.Float("softcap", 0.0f),
                     .bias = VisibleBias(node, g, k)};
  UseBias(node, &product);
  const bool smooth = node.Int("smooth_softmax", 0) == 1;
  if (node.HasInput(kSink))
    product.sink = node.Reshape(node.In(kSink), {1, -1, 1, 1});
  else if (smooth)
    product.sink = node.ScalarVar(g.q.dtype(), 0);
  node.Set(0, WithoutHeads(node, Attended(node, product)));
  if (node.Wants(1)) node.Set(1, k);
  if (node.Wants(2)) node.Set(2, v);
}

}  // namespace

void AddGroupQueryAttentionImporters(NodeImporters& importers) {
  importers.Add({.op_type = "GroupQueryAttention",
                 .since = 1,
                 .takes = "f3 f? f? f4? f4? i0-2 i0-1 f2? f2? i2? f? f1? f? f? f1? f1?",
                 .import = ImportGroupQueryAttention,
                 .maps_to = "lookup_table_v2, gather_nd, matmul_v2, elementwise_add, softmax",
                 .composed = true,
                 .domain = "com.microsoft"});
}

}  // namespace coracle::onnx
