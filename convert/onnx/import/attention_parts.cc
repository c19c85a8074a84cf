#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::onnx {

using variable_functions::Concat;

Variable WithHeads(NodeContext& node, const Variable& x, int64_t heads) {
  const int64_t width = x.shape()[2];
  node.Require(heads >= 1 && (width < 0 || width % heads == 0),
               fmt::format("a width of {} cannot be divided by {} heads: correct the number of "
                           "heads in the node's attributes",
                           width, heads));
  return node.Transpose(node.Reshape(x, {0, 0, heads, width < 0 ? -1 : width / heads}),
                        {0, 2, 1, 3});
}

Variable WithoutHeads(NodeContext& node, const Variable& x) {
  return node.Reshape(node.Transpose(x, {0, 2, 1, 3}), {0, 0, -1});
}

Variable WithRepeatedHeads(NodeContext& node, const Variable& x, int64_t times) {
  if (times == 1) return x;
  const Variable each = node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{2}}});
  const std::vector<int32_t> repeats = {1, 1, ToInt32(times, "a number of heads"), 1, 1};
  const Variable all = node.Unary("tile", each, {{"repeat_times", repeats}});
  Dims dims;
  dims.Add(x, 0);
  if (x.shape()[1] < 0)
    dims.AddNumber(DimOf(node, x, 1) * static_cast<double>(times));
  else
    dims.Add(x.shape()[1] * times);
  return Reshaped(node, all, dims.Add(x, 2, 4));
}

void RequireShared(NodeContext& node, int64_t q_heads, int64_t kv_heads) {
  constexpr int64_t kMost = int64_t{1} << 20;
  node.Require(
      q_heads >= 1 && kv_heads >= 1 && q_heads <= kMost && kv_heads <= kMost &&
          q_heads % kv_heads == 0,
      fmt::format("{} heads of Q cannot share {} of K and V: the number of heads of Q must "
                  "be a multiple of the other, and at most {}",
                  q_heads, kv_heads, kMost));
}

Variable CheckedAtRun(NodeContext& node, const Variable& x, const Variable& wrong,
                      const std::string& why) {
  using Texts = std::vector<std::string>;
  using Integers = std::vector<int64_t>;
  // A table without the reason as a key stops the run with an error that shows it.
  const Variable text = node.Unary("map_values", node.Cast(wrong, DType::kInt64),
                                   {{"out_dtype", static_cast<int32_t>(DType::kString)},
                                    {"keys_int64s", Integers{0, 1}},
                                    {"values_strings", Texts{"", why}}});
  const Variable zero = node.Unary("map_values", text,
                                   {{"out_dtype", static_cast<int32_t>(DType::kInt64)},
                                    {"has_default", false},
                                    {"keys_strings", Texts{""}},
                                    {"values_int64s", Integers{0}}});
  return x + zero;
}

Variable InDims(NodeContext& node, const Variable& x, const Dims& dims) {
  return ReshapedBy(node, x, dims.ToVector(node), dims.shape());
}

Variable OfLength(NodeContext& node, const Variable& x, int64_t length, const char* what) {
  const int64_t there = x.shape()[0];
  node.Require(there < 0 || there == length,
               fmt::format("{} has {} elements, but must have {}", what, there, length));
  return there == length ? x : InDims(node, x, Dims().Add(length));
}

Variable BiasOf(NodeContext& node, const Variable& takes_part, DType dtype) {
  return Log(node.Cast(takes_part, dtype));
}

Variable PositionsOfQueries(NodeContext& node, const Variable& q, const Variable& past) {
  const Variable query = node.Reshape(PlacesOn(node, q, 2), {-1, 1});
  return past ? query + past : query;
}

Variable CausalBias(NodeContext& node, const Variable& k, const Variable& queries, DType dtype) {
  return BiasOf(node, node.Binary("less_equal", PlacesOn(node, k, 2), queries), dtype);
}

namespace {

// Whether each row of a constant mask lets at least one key take part.
bool LeavesKeys(const Tensor& mask) {
  const bool flags = mask.dtype() == DType::kBool;
  const Tensor wide = mask.Cast(DType::kFloat32);
  const float hidden = flags ? 0 : -std::numeric_limits<float>::infinity();
  const int64_t keys = mask.shape()[mask.shape().rank() - 1];
  const auto values = wide.span<float>();
  for (int64_t row = 0; keys > 0 && row < mask.numel() / keys; ++row) {
    const auto begin = values.begin() + row * keys;
    if (std::all_of(begin, begin + keys, [&](float value) { return value == hidden; }))
      return false;
  }
  return true;
}

// One more column of scores: the sink of each head.
Variable WithSink(NodeContext& node, const Variable& raw, const Variable& biased,
                  const Variable& sink) {
  const Variable column = SliceOf(node, raw, 3, 0, 1) * 0.0 + sink;
  return Concat({biased, column}, 3);
}

}  // namespace

bool MayBeBlind(const NodeContext& node, size_t mask, bool causal) {
  if (!node.HasInput(mask)) return false;
  return causal || !node.Constant(mask) || !LeavesKeys(*node.Constant(mask));
}

Blind BlindOf(NodeContext& node, const Variable& bias) {
  const Variable most =
      node.Unary("reduce_max", bias, {{"dim", std::vector<int32_t>{-1}}, {"keep_dim", true}});
  const Variable least = node.ScalarVar(bias.dtype(), -std::numeric_limits<double>::infinity());
  const Variable rows = node.Binary("equal", most, least);
  return {rows, BroadcastWhere(node, rows, node.ScalarVar(bias.dtype(), 0), bias)};
}

Variable ZeroInBlind(NodeContext& node, const Blind& blind, const Variable& x) {
  return blind.rows ? BroadcastWhere(node, blind.rows, node.ScalarVar(x.dtype(), 0), x) : x;
}

Variable ScaledHeads(NodeContext& node, const Variable& x, float scale) {
  if (scale != 0) return x * static_cast<double>(scale);
  const int64_t size = x.shape()[3];
  node.Require(size != 0, "heads without elements");
  if (size > 0) {
    // Rounded as other runtimes do, which hold the scale in float32.
    return x * static_cast<double>(static_cast<float>(1.0 / std::sqrt(static_cast<double>(size))));
  }
  return x * node.Unary("rsqrt", node.Cast(DimOf(node, x, 3), x.dtype()));
}

Variable Attended(NodeContext& node, const Product& product) {
  const Variable scaled = ScaledHeads(node, product.q, product.scale);
  Variable raw = node.Make("matmul_v2", {{"X", {scaled.name()}}, {"Y", {product.k.name()}}},
                           {{"trans_y", true}});
  if (product.softcap > 0) {
    const double cap = static_cast<double>(product.softcap);
    raw = node.Unary("tanh", raw / cap) * cap;
  }
  Blind blind;
  blind.bias = product.bias;
  if (product.bias && product.may_be_blind) blind = BlindOf(node, product.bias);
  Variable x = blind.bias ? raw + blind.bias : raw;
  if (product.sink) x = WithSink(node, raw, x, product.sink);
  x = node.Unary("softmax", x, {{"axis", -1}});
  if (product.sink) x = SliceOf(node, x, 3, 0, -1);
  return ZeroInBlind(node, blind, node.Binary("matmul_v2", x, product.v));
}

}  // namespace coracle::onnx
