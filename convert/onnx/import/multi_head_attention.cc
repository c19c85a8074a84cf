// The nodes MultiHeadAttention, Attention and QAttention of com.microsoft.

#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/padding_mask.h>
#include <coracle/convert/onnx/import/quantized_matmul.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::onnx {
namespace {

using variable_functions::Concat;

// Where a node has what the scores depend on.
struct ScoreInputs {
  size_t mask, bias;
};

// The biases of the scores: of a mask of padding, of an input, of causal attention.
void AddBiases(NodeContext& node, const ScoreInputs& at, const Variable& past, Product* product) {
  const DType dtype = product->q.dtype();
  const float hidden = node.Float("mask_filter_value", -10000.0f);
  const bool causal = node.Flag("unidirectional", false);
  const auto add = [&](const Variable& bias) {
    product->bias = product->bias ? product->bias + bias : bias;
  };
  if (node.HasInput(at.mask)) {
    add(PaddingBias(node, at.mask, product->q, product->k, past, hidden));
    product->may_be_blind = std::isinf(hidden);
  }
  if (node.HasInput(at.bias)) {
    add(node.In(at.bias));
    product->may_be_blind |= node.HasInput(at.mask) || MayBeBlind(node, at.bias, causal);
  }
  if (causal) {
    const Variable queries = PositionsOfQueries(node, product->q, past);
    add(CausalBias(node, product->k, queries, dtype));
  }
}

// --- MultiHeadAttention ---

// Queries, keys and values with heads.
struct Heads {
  Variable q, k, v;
};

// The tensors [batch, length, heads * size] in the input i of rank 3, or of rank 5, [batch, length,
// heads, number, size], in which several are packed; then the other inputs are absent.
std::vector<Variable> PartsOf(NodeContext& node, size_t i, int64_t heads) {
  Variable x = node.In(i);
  if (node.rank(i) == 3) return {x};
  if (node.rank(i) != 5) {
    node.Refuse(
        fmt::format("input {} of rank {}: reshape query, key and value to [batch, length, width], "
                    "or pack them in rank 5",
                    i, node.rank(i)));
  }
  const int64_t rest = 3 - static_cast<int64_t>(i);
  const Shape shape = x.shape();
  node.Require(rest > 1 && (shape[2] < 0 || shape[2] == heads) &&
                   (shape[3] < 0 || shape[3] == rest) && shape[4] != 0,
               fmt::format("input {}, {}, must hold {} tensors of {} heads, [batch, length, {}, "
                           "{}, size]",
                           i, shape.ToString(), rest, heads, heads, rest));
  if (shape[2] < 0) x = InDims(node, x, Dims().Add(x, 0, 2).Add(heads).Add(x, 3, 5));
  if (shape[3] < 0) x = InDims(node, x, Dims().Add(x, 0, 3).Add(rest).Add(x, 4));
  std::vector<Variable> parts;
  for (int64_t part = 0; part < rest; ++part) {
    const int64_t width = shape[4] < 0 ? -1 : heads * shape[4];
    parts.push_back(node.Reshape(SliceOf(node, x, 3, part, part + 1), {0, 0, width}));
  }
  for (size_t other = i + 1; other < 3; ++other)
    node.Require(!node.HasInput(other), fmt::format("input {} is packed in input {}", other, i));
  return parts;
}

// Input i of rank 4, which must have this number of heads.
Variable OfHeads(NodeContext& node, size_t i, int64_t heads) {
  const Variable x = node.In(i);
  const int64_t there = x.shape()[1];
  node.Require(
      there < 0 || there == heads,
      fmt::format("input {} has {} heads, but attribute num_heads is {}", i, there, heads));
  return there < 0 ? InDims(node, x, Dims().Add(x, 0).Add(heads).Add(x, 2, 4)) : x;
}

// Queries, and keys and values that an encoder computed: they have heads already, and no bias.
Heads CrossHeads(NodeContext& node, int64_t heads) {
  node.Require(node.HasInput(2) && node.rank(2) == 4 && !node.HasInput(6),
               "a key of rank 4 needs a value of rank 4, and no past");
  Variable q = node.In(0);
  if (node.rank(0) != 3) {
    node.Refuse(
        "query of another rank than 3 with a key of rank 4: reshape it to [batch, length, width]");
  }
  if (node.HasInput(3)) {
    const int64_t width = q.shape()[2], there = node.shape(3)[0];
    if (width < 0) node.RefuseUnknown("the width of the queries", "the parts of the bias");
    if (there < 0) node.RefuseUnknown("the length of the bias", "its parts");
    node.Require(
        there >= width,
        fmt::format("the bias has {} elements, but the queries are {} wide", there, width));
    q = q + SliceOf(node, node.In(3), 0, 0, width);
  }
  return {WithHeads(node, q, heads), OfHeads(node, 1, heads), OfHeads(node, 2, heads)};
}

// Adds to each part its elements of the bias, which lie one after another.
void AddBiasParts(NodeContext& node, const Variable& bias, std::vector<Variable>* parts) {
  int64_t all = 0, begin = 0;
  for (const Variable& part : *parts) {
    const int64_t width = part.shape()[2];
    if (width < 0) node.RefuseUnknown("a width", "the parts of the bias");
    all += width;
  }
  const Variable whole = OfLength(node, bias, all, "the bias of queries, keys and values");
  for (Variable& part : *parts) {
    const int64_t width = part.shape()[2];
    part = part + SliceOf(node, whole, 0, begin, begin + width);
    begin += width;
  }
}

Heads HeadsOf(NodeContext& node, int64_t heads) {
  if (node.HasInput(1) && node.rank(1) == 4) return CrossHeads(node, heads);
  std::vector<Variable> parts;
  for (size_t i = 0; parts.size() < 3; ++i) {
    for (const Variable& part : PartsOf(node, i, heads)) parts.push_back(part);
  }
  if (node.HasInput(3)) AddBiasParts(node, node.In(3), &parts);
  for (Variable& part : parts) part = WithHeads(node, part, heads);
  return {parts[0], parts[1], parts[2]};
}

// Inputs query, key, value, a bias of all three, a mask of keys, a summand of the products, past
// keys and values, and two for beam search in one buffer.
void ImportMultiHeadAttention(NodeContext& node) {
  for (size_t i : {size_t{8}, size_t{9}}) {
    if (node.HasInput(i)) {
      node.Refuse(
          fmt::format("input {}, for past keys in a buffer that a beam search shares: "
                      "export the decoder without that (past keys of their own length)",
                      i));
    }
  }
  if (node.Wants(3)) {
    node.Refuse(
        "output 3, the products of queries and keys: remove this output if nothing reads it");
  }
  const int64_t heads = node.Int("num_heads");
  node.Require(heads >= 1, "attribute num_heads must be positive");
  Heads h = HeadsOf(node, heads);
  node.Require(node.HasInput(6) == node.HasInput(7),
               "past_key and past_value must be given together");
  Variable past;
  if (node.HasInput(6)) {
    past = DimOf(node, node.In(6), 2);
    h.k = Concat({node.In(6), h.k}, 2);
    h.v = Concat({node.In(7), h.v}, 2);
  }
  Product product = {.q = h.q, .k = h.k, .v = h.v, .scale = node.Float("scale", 0.0f)};
  AddBiases(node, {.mask = 4, .bias = 5}, past, &product);
  node.Set(0, WithoutHeads(node, Attended(node, product)));
  if (node.Wants(1)) node.Set(1, h.k);
  if (node.Wants(2)) node.Set(2, h.v);
}

// --- Attention ---

// The widths of queries, keys and values in the weights.
std::vector<int64_t> WidthsOf(NodeContext& node) {
  const std::vector<int64_t> given = node.Ints("qkv_hidden_sizes", {});
  const int64_t all = node.shape(1)[1];
  if (!given.empty()) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    node.Require(given.size() == 3 && given[0] == given[1] && given[0] > 0 && given[2] > 0 &&
                     given[0] <= kMost && given[2] <= kMost,
                 "attribute qkv_hidden_sizes must have three numbers, of which the first two are "
                 "equal");
    const int64_t sum = 2 * given[0] + given[2];
    node.Require(all < 0 || all == sum,
                 fmt::format("the weights have {} columns, but qkv_hidden_sizes {}", all, sum));
    return given;
  }
  if (all < 0) node.RefuseUnknown("the number of columns of the weights", "the width of a head");
  node.Require(all > 0 && all % 3 == 0,
               fmt::format("{} columns of the weights are not three parts", all));
  return {all / 3, all / 3, all / 3};
}

// Part 0 (keys) or 1 (values) of a past [2, batch, heads, length, size].
Variable PastPart(NodeContext& node, size_t past, int64_t part) {
  return node.WithXShape("squeeze2", SliceOf(node, node.In(past), 0, part, part + 1),
                         {{"axes", std::vector<int32_t>{0}}});
}

// A mask [batch, 1] or [1, 1] that says nothing, as exporters of GPT-2 write it.
bool IsDummyMask(NodeContext& node, size_t mask) {
  return node.rank(mask) == 2 && node.shape(mask)[1] == 1 && node.Flag("unidirectional", false);
}

// The bias in input 2: an element for each column of the weights.
Variable BiasOfColumns(NodeContext& node) {
  const std::vector<int64_t> widths = WidthsOf(node);
  return OfLength(node, node.In(2), widths[0] + widths[1] + widths[2],
                  "the bias of queries, keys and values");
}

// Attention of queries, keys and values that lie one after another in `all` [batch, length, width].
void SetPackedAttention(NodeContext& node, Variable all, ScoreInputs at, size_t past_at) {
  if (node.Flag("do_rotary", false)) {
    node.Refuse(
        "attribute do_rotary of 1, whose tables the node does not hold: export with nodes "
        "RotaryEmbedding");
  }
  node.attributes().Ignore("rotary_embedding_dim");
  if (node.Flag("past_present_share_buffer", false)) {
    node.Refuse(
        "a past that shares the buffer of the present: export with past keys of their own "
        "length");
  }
  const int64_t heads = node.Int("num_heads");
  node.Require(heads >= 1, "attribute num_heads must be positive");
  std::vector<Variable> parts;
  int64_t begin = 0;
  const std::vector<int64_t> widths = WidthsOf(node);
  // A run fails for weights with other columns.
  if (all.shape()[2] < 0)
    all = InDims(node, all, Dims().Add(all, 0, 2).Add(widths[0] + widths[1] + widths[2]));
  for (int64_t width : widths) {
    parts.push_back(WithHeads(node, SliceOf(node, all, 2, begin, begin + width), heads));
    begin += width;
  }
  Variable past;
  if (node.HasInput(past_at)) {
    past = DimOf(node, node.In(past_at), 3);
    parts[1] = Concat({PastPart(node, past_at, 0), parts[1]}, 2);
    parts[2] = Concat({PastPart(node, past_at, 1), parts[2]}, 2);
  }
  Product product = {
      .q = parts[0], .k = parts[1], .v = parts[2], .scale = node.Float("scale", 0.0f)};
  // An input that is not there.
  if (node.HasInput(at.mask) && IsDummyMask(node, at.mask)) at.mask = node.NumInputs();
  AddBiases(node, at, past, &product);
  node.Set(0, WithoutHeads(node, Attended(node, product)));
  if (node.Wants(1)) {
    node.Set(1, node.Make("stack", {{"X", {parts[1].name(), parts[2].name()}}},
                          {{"axis", int32_t{0}}}, "Y"));
  }
}

// Inputs x, weights, a bias, a mask, past keys and values, a summand of the products.
void ImportPackedAttention(NodeContext& node) {
  if (node.HasInput(6)) {
    node.Refuse(
        "past_sequence_length (input 6), of a past that shares the buffer of the present: "
        "export with past keys of their own length");
  }
  Variable all = node.Binary("matmul_v2", node.In(0), node.In(1));
  if (node.HasInput(2)) all = all + BiasOfColumns(node);
  SetPackedAttention(node, all, {.mask = 3, .bias = 5}, 4);
}

// Inputs x, weights, a bias, the scales of x and the weights, a mask, their zero points, past keys
// and values.
void ImportQuantizedAttention(NodeContext& node) {
  const Variable all = RealProduct(node, {0, 1, 3, 4, 6, 7}, BiasOfColumns(node));
  SetPackedAttention(node, all, {.mask = 5, .bias = node.NumInputs()}, 8);
}

}  // namespace

void AddMultiHeadAttentionImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to = "matmul_v2, elementwise_add, softmax") {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "com.microsoft"});
  };
  add("MultiHeadAttention", "f f? f? f1? i1-4? f? f4? f4? i? i?", ImportMultiHeadAttention);
  add("Attention", "f3 f2 f1? i1-4? f5? f? i?", ImportPackedAttention);
  add("QAttention", "i3 i2 f1 f0-1 f0-1 i1-4? i0-1? i0-1? f5?", ImportQuantizedAttention,
      "quantized_matmul, matmul_v2, elementwise_add, softmax");
}

}  // namespace coracle::onnx
