// Parts of transformers: attention, rotary position embedding, caches of keys and values, and the
// convolution of state-space models.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;
using variable_functions::Concat;

// 0, 1, 2, ... along an axis of x, int64.
Variable PositionsAlong(NodeContext& node, const Variable& x, int axis) {
  const int64_t dim = x.shape()[axis];
  if (dim >= 0) {
    RequireSmallConstant(node, {dim}, "positions");
    Ints places(static_cast<size_t>(dim));
    std::iota(places.begin(), places.end(), 0);
    return node.ConstantVar(places);
  }
  const auto number = [&](double value) { return node.ScalarVar(DType::kInt64, value).name(); };
  return node.Make(
      "range",
      {{"Start", {number(0)}}, {"End", {DimOf(node, x, axis).name()}}, {"Step", {number(1)}}});
}

// [batch, length, heads * size] as [batch, heads, length, size].
Variable WithHeads(NodeContext& node, const Variable& x, int64_t heads) {
  const int64_t width = x.shape()[2];
  node.Require(width < 0 || width % heads == 0,
               fmt::format("a width of {} cannot be divided by {} heads", width, heads));
  return node.Transpose(node.Reshape(x, {0, 0, heads, width < 0 ? -1 : width / heads}),
                        {0, 2, 1, 3});
}

// The inverse of WithHeads.
Variable WithoutHeads(NodeContext& node, const Variable& x) {
  return node.Reshape(node.Transpose(x, {0, 2, 1, 3}), {0, 0, -1});
}

// --- Attention: softmax(softcap(Q K^T scale) + bias) V ---

struct Operands {
  Variable q, k, v;  // [batch, heads, length, size]
  int64_t q_heads = 0, kv_heads = 0;
  Variable past = {};  // number of keys before this call, int64 [1]
};

int64_t HeadsOf(NodeContext& node, const char* name, size_t i) {
  const int64_t given = node.Int(name, 0);
  if (node.rank(0) == 3) {
    node.Require(given >= 1, fmt::format("attribute {} is needed for inputs of rank 3", name));
    return given;
  }
  const int64_t heads = node.shape(i)[1];
  node.Require(given == 0 || heads < 0 || given == heads,
               fmt::format("attribute {} is {}, but there are {} heads", name, given, heads));
  if (heads < 0 && given == 0) node.Refuse("heads of unknown number");
  return heads < 0 ? given : heads;
}

Operands OperandsOf(NodeContext& node) {
  const int rank = node.rank(0);
  node.Require((rank == 3 || rank == 4) && node.rank(1) == rank && node.rank(2) == rank,
               "Q, K and V must have one rank of 3 or 4");
  Operands o = {.q = node.In(0),
                .k = node.In(1),
                .v = node.In(2),
                .q_heads = HeadsOf(node, "q_num_heads", 0),
                .kv_heads = HeadsOf(node, "kv_num_heads", 1)};
  node.Require(o.kv_heads >= 1 && o.q_heads % o.kv_heads == 0,
               fmt::format("{} heads of Q cannot share {} of K and V", o.q_heads, o.kv_heads));
  if (rank == 3) {
    o.q = WithHeads(node, o.q, o.q_heads);
    o.k = WithHeads(node, o.k, o.kv_heads);
    o.v = WithHeads(node, o.v, o.kv_heads);
  }
  node.Require(node.HasInput(4) == node.HasInput(5),
               "past_key and past_value must be given together");
  if (node.HasInput(4)) {
    o.past = DimOf(node, node.In(4), 2);
    o.k = Concat({node.In(4), o.k}, 2);
    o.v = Concat({node.In(5), o.v}, 2);
  }
  return o;
}

// Repeats each head of K and V for each head of Q that shares it.
Variable Repeated(NodeContext& node, const Variable& x, int64_t times) {
  if (times == 1) return x;
  const Shape& shape = x.shape();
  const Variable each = node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{2}}});
  const std::vector<int32_t> repeats = {1, 1, ToInt32(times, "a number of heads"), 1, 1};
  const Variable all = node.Unary("tile", each, {{"repeat_times", repeats}});
  if (shape[3] < 0 && shape[2] < 0) node.Refuse("heads of unknown size that are shared");
  return node.Reshape(all, {0, shape[1] * times, shape[2], shape[3]});
}

// 0 for keys that take part, minus infinity for others: the logarithm of 1 and 0.
Variable BiasOf(NodeContext& node, const Variable& takes_part, DType dtype) {
  return Log(node.Cast(takes_part, dtype));
}

// A mask may be shorter than the keys; the remaining keys do not take part.
Variable MaskBias(NodeContext& node, const Operands& o) {
  Variable mask = node.In(3);
  const bool flags = mask.dtype() == DType::kBool;
  if (flags) mask = BiasOf(node, mask, o.q.dtype());
  node.Require(mask.dtype() == o.q.dtype(), "attn_mask must be bool, or have the dtype of Q");
  const int last = mask.shape().rank() - 1;
  node.Require(last >= 0 && last <= 3, "attn_mask must have 1 to 4 dimensions");
  const int64_t there = mask.shape()[last], keys = o.k.shape()[2];
  if (there < 0 || keys < 0 || there >= keys || there == 1) return mask;
  Ints before(static_cast<size_t>(last) + 1, 0), after = before;
  after.back() = keys - there;
  return node.Unary("pad", mask,
                    {{"paddings", Interleaved(before, after)},
                     {"pad_value", -std::numeric_limits<float>::infinity()}});
}

// Query i of this call sees the keys up to index i + offset, offset being the number of
// earlier keys.
Variable CausalBias(NodeContext& node, const Operands& o) {
  Variable query = node.Reshape(PositionsAlong(node, o.q, 2), {-1, 1});
  const Variable key = PositionsAlong(node, o.k, 2);
  if (o.past) {
    query = query + o.past;
  } else if (node.HasInput(6)) {
    // Keys in a cache of fixed size: the queries belong to the last filled positions.
    const Variable filled = node.Reshape(node.Cast(node.In(6), DType::kInt64), {-1, 1, 1, 1});
    query = query + (filled - DimOf(node, o.q, 2));
  }
  return BiasOf(node, node.Binary("less_equal", key, query), o.q.dtype());
}

// The sum of the biases of the products; {} if there are none.
Variable AllBiases(NodeContext& node, const Operands& o) {
  std::vector<Variable> biases;
  if (node.HasInput(3)) biases.push_back(MaskBias(node, o));
  if (node.Flag("is_causal", false)) biases.push_back(CausalBias(node, o));
  if (node.HasInput(6)) {
    const Variable filled = node.Reshape(node.Cast(node.In(6), DType::kInt64), {-1, 1, 1, 1});
    const Variable key = PositionsAlong(node, o.k, 2);
    biases.push_back(BiasOf(node, node.Binary("less_than", key, filled), o.q.dtype()));
  }
  Variable sum;
  for (const Variable& bias : biases) sum = sum ? sum + bias : bias;
  return sum;
}

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

// Whether a query may see no key. With only a causal bias, it sees the first one.
bool MayBeBlind(const NodeContext& node, size_t mask, bool causal) {
  // Only Attention has lengths of the keys.
  const bool padded = mask == 3 && node.HasInput(6);
  if (padded || !node.HasInput(mask)) return padded;
  return causal || !node.Constant(mask) || !LeavesKeys(*node.Constant(mask));
}

// Queries that see no key: their rows of the bias are -inf throughout, for which a softmax would
// give nan. The operator's result for them is 0.
struct Blind {
  Variable rows;  // bool [..., queries, 1]; {} if each query sees a key
  Variable bias;  // 0 in these rows
};

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

float ScaleOf(NodeContext& node, const Operands& o) {
  if (node.HasAttr("scale")) return node.Float("scale", 1.0f);
  const int64_t size = o.q.shape()[3];
  if (size < 0) node.Refuse("attribute scale is missing for heads of unknown size");
  node.Require(size > 0, "heads without elements");
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
}

Variable Softmaxed(NodeContext& node, const Variable& x) {
  const auto precision = node.Int32("softmax_precision", 0);
  const std::optional<DType> dtype = precision == 0 ? x.dtype() : FromDataType(precision);
  node.Require(dtype && IsFloating(*dtype), "attribute softmax_precision must be a type of floats");
  const Variable wide = node.Cast(x, *dtype);
  return node.Cast(node.Unary("softmax", wide, {{"axis", -1}}), x.dtype());
}

void ImportAttention(NodeContext& node) {
  const Operands o = OperandsOf(node);
  const int64_t shared = o.q_heads / o.kv_heads, mode = node.Int("qk_matmul_output_mode", 0);
  const float softcap = node.Float("softcap", 0.0f);
  node.Require(softcap >= 0, "attribute softcap must not be negative");
  node.Require(mode >= 0 && mode <= 3, "attribute qk_matmul_output_mode must lie in [0, 3]");
  const Variable k = Repeated(node, o.k, shared), v = Repeated(node, o.v, shared);
  const Variable scaled = o.q * static_cast<double>(ScaleOf(node, o));
  Variable x =
      node.Make("matmul_v2", {{"X", {scaled.name()}}, {"Y", {k.name()}}}, {{"trans_y", true}});
  std::vector<Variable> stages = {x};  // by qk_matmul_output_mode
  if (softcap > 0) x = node.Unary("tanh", x / softcap) * softcap;
  stages.push_back(x);
  Blind blind;
  blind.bias = AllBiases(node, o);
  const Variable whole = blind.bias;
  if (whole && MayBeBlind(node, 3, node.Flag("is_causal", false))) blind = BlindOf(node, whole);
  stages.push_back(whole && node.Wants(3) ? x + whole : x);
  if (whole) x = x + blind.bias;
  x = Softmaxed(node, x);
  stages.push_back(node.Wants(3) ? ZeroInBlind(node, blind, x) : x);
  const Variable y = ZeroInBlind(node, blind, node.Binary("matmul_v2", x, v));
  node.Set(0, node.rank(0) == 3 ? WithoutHeads(node, y) : y);
  if (node.Wants(1)) node.Set(1, o.k);
  if (node.Wants(2)) node.Set(2, o.v);
  if (node.Wants(3)) node.Set(3, stages[static_cast<size_t>(mode)]);
}

// Queries, keys and values [batch, length, heads * size]. If several are packed in one input of
// rank 5, [batch, length, heads, number, size], the other inputs are absent.
std::vector<Variable> PartsOf(NodeContext& node, int64_t heads) {
  std::vector<Variable> parts;
  for (size_t i = 0; parts.size() < 3; ++i) {
    const Variable x = node.In(i);
    if (node.rank(i) == 3) {
      parts.push_back(x);
      continue;
    }
    if (node.rank(i) != 5) node.Refuse("query, key or value of another rank than 3 and 5");
    const int64_t rest = 3 - static_cast<int64_t>(i);
    const Shape& shape = x.shape();
    node.Require(rest > 1 && shape[2] == heads && shape[3] == rest && shape[4] > 0,
                 fmt::format("input {}, {}, must hold {} tensors of {} heads", i, shape.ToString(),
                             rest, heads));
    for (int64_t part = 0; part < rest; ++part)
      parts.push_back(node.Reshape(SliceOf(node, x, 3, part, part + 1), {0, 0, heads * shape[4]}));
    for (size_t other = i + 1; other < 3; ++other)
      node.Require(!node.HasInput(other), fmt::format("input {} is packed in input {}", other, i));
  }
  return parts;
}

// com.microsoft: inputs query, key, value, a bias of all three, a mask of keys, a summand of the
// products, past keys and values.
void ImportMultiHeadAttention(NodeContext& node) {
  for (size_t i : {size_t{4}, size_t{6}, size_t{7}, size_t{8}, size_t{9}}) {
    if (node.HasInput(i)) node.Refuse(fmt::format("input {} of this op", i));
  }
  node.attributes().Ignore("mask_filter_value");
  const int64_t heads = node.Int("num_heads");
  node.Require(heads >= 1, "attribute num_heads must be positive");
  std::vector<Variable> parts = PartsOf(node, heads);
  int64_t begin = 0;
  for (Variable& part : parts) {
    const int64_t width = part.shape()[2];
    if (width < 0) node.Refuse("a width that is not known");
    if (node.HasInput(3)) part = part + SliceOf(node, node.In(3), 0, begin, begin + width);
    begin += width;
    part = WithHeads(node, part, heads);
  }
  const Operands o = {.q = parts[0], .k = parts[1], .v = parts[2]};
  const float given = node.Float("scale", 0.0f);
  const Variable scaled = o.q * (given != 0 ? static_cast<double>(given)
                                            : 1.0 / std::sqrt(static_cast<double>(o.q.shape()[3])));
  Variable x =
      node.Make("matmul_v2", {{"X", {scaled.name()}}, {"Y", {o.k.name()}}}, {{"trans_y", true}});
  const bool causal = node.Flag("unidirectional", false);
  Blind blind;
  if (node.HasInput(5)) blind.bias = node.In(5);
  if (causal) blind.bias = blind.bias ? blind.bias + CausalBias(node, o) : CausalBias(node, o);
  if (MayBeBlind(node, 5, causal)) blind = BlindOf(node, blind.bias);
  if (blind.bias) x = x + blind.bias;
  x = node.Unary("softmax", x, {{"axis", -1}});
  const Variable y = ZeroInBlind(node, blind, node.Binary("matmul_v2", x, o.v));
  node.Set(0, WithoutHeads(node, y));
  if (node.Wants(1)) node.Set(1, o.k);
  if (node.Wants(2)) node.Set(2, o.v);
}

// --- RotaryEmbedding ---

struct Rotation {
  // [batch, length, half], or [batch, 1, length, half] if heads come before lengths.
  Variable cos, sin;
  int64_t size = 0;  // number of rotated elements of a head
};

// Tables with a row for each position, indexed by the positions; without positions, tables with a
// row for each token.
Rotation RotationOf(NodeContext& node, size_t positions, size_t cos, int64_t size) {
  Rotation rotation = {node.In(cos), node.In(cos + 1), size};
  for (Variable* table : {&rotation.cos, &rotation.sin}) {
    if (node.HasInput(positions)) {
      const Variable ids = node.Cast(node.In(positions), DType::kInt64);
      node.Require(ids.shape().rank() == 2, "position_ids must be [batch, length]");
      node.Require(table->shape().rank() == 2, "with position_ids, a cache must be a matrix");
      *table = node.Make("lookup_table_v2", {{"W", {table->name()}}, {"Ids", {ids.name()}}},
                         {{"padding_idx", int64_t{-1}}});
    }
    const Shape& shape = table->shape();
    node.Require(
        shape.rank() == 3 && (shape[2] < 0 || shape[2] == size / 2),
        fmt::format("a cache of {} elements a row is needed, got {}", size / 2, shape.ToString()));
    *table = node.WithXShape("unsqueeze2", *table, {{"axes", std::vector<int32_t>{1}}});
  }
  return rotation;
}

Variable EverySecond(NodeContext& node, const Variable& x, int64_t first, int64_t end) {
  const auto one = [](int64_t value) { return std::vector<int32_t>{ToInt32(value, "a place")}; };
  return node.Make("strided_slice", {{"Input", {x.name()}}},
                   {{"axes", one(x.shape().rank() - 1)},
                    {"starts", one(first)},
                    {"ends", one(end)},
                    {"strides", one(2)}});
}

// Rotates the pairs (x1, x2) of a head's first elements; x is [batch, heads, length, size]. Pairs
// are neighbours, or an element of the first half and one of the second.
Variable Rotated(NodeContext& node, const Variable& x, const Rotation& by, bool neighbours) {
  const int64_t size = by.size, all = x.shape()[3];
  const Variable x1 = neighbours ? EverySecond(node, x, 0, size) : SliceOf(node, x, 3, 0, size / 2);
  const Variable x2 =
      neighbours ? EverySecond(node, x, 1, size) : SliceOf(node, x, 3, size / 2, size);
  Variable real = by.cos * x1 - by.sin * x2, imaginary = by.sin * x1 + by.cos * x2;
  Variable turned;
  if (neighbours) {
    for (Variable* part : {&real, &imaginary})
      *part = node.WithXShape("unsqueeze2", *part, {{"axes", std::vector<int32_t>{4}}});
    turned = node.Reshape(Concat({real, imaginary}, 4), {0, 0, 0, size});
  } else {
    turned = Concat({real, imaginary}, 3);
  }
  return size == all ? turned : Concat({turned, SliceOf(node, x, 3, size, all)}, 3);
}

// Rotates input 0; `positions` and `cos` are the indices of the inputs with its positions
// and tables.
void SetRotated(NodeContext& node, size_t positions, size_t cos) {
  const int rank = node.rank(0);
  node.Require(rank == 3 || rank == 4, "the input must have rank 3 or 4");
  Variable x = node.In(0);
  if (rank == 3) {
    const int64_t heads = node.Int("num_heads", 0);
    node.Require(heads >= 1, "attribute num_heads is needed for an input of rank 3");
    x = WithHeads(node, x, heads);
  } else {
    node.attributes().Ignore("num_heads");
  }
  const int64_t all = x.shape()[3];
  if (all < 0) node.Refuse("heads of unknown size");
  const int64_t given = node.Int("rotary_embedding_dim", 0), size = given == 0 ? all : given;
  node.Require(size >= 2 && size <= all && size % 2 == 0,
               fmt::format("{} of {} elements of a head cannot be rotated", size, all));
  const Variable y =
      Rotated(node, x, RotationOf(node, positions, cos, size), node.Flag("interleaved", false));
  node.Set(0, rank == 3 ? WithoutHeads(node, y) : y);
}

void ImportRotaryEmbedding(NodeContext& node) { SetRotated(node, 3, 1); }

// com.microsoft: the positions are the second input.
void ImportPositionedRotary(NodeContext& node) {
  for (const char* name : {"is_packed_batching", "scale"}) {
    if (node.HasAttr(name)) node.Refuse(fmt::format("attribute {}", name));
  }
  SetRotated(node, 1, 2);
}

// --- TensorScatter ---

// Position p of the cache's axis gets element p - start of the update, if it exists; the circular
// mode continues at the beginning.
void ImportTensorScatter(NodeContext& node) {
  const bool circular = node.OneOf("mode", "linear", {"linear", "circular"}) == "circular";
  const int rank = node.rank(0);
  const int32_t axis = node.Axis(node.Int("axis", -2), rank);
  node.Require(
      axis > 0 && node.rank(1) == rank,
      "attribute axis must not be that of the batch, and update must have the cache's rank");
  const Variable cache = MoveAxis(node, node.In(0), axis, 1);
  const Variable update = MoveAxis(node, node.In(1), axis, 1);
  const Shape& shape = cache.shape();
  const int64_t batch = shape[0], most = shape[1], length = update.shape()[1];
  if (!shape.IsKnown() || length < 0) node.Refuse("caches or updates of unknown shape");
  node.Require(length >= 1 && length <= most, "update must be no longer than the cache");
  RequireSmall(node, {batch, most, 2}, "an index");
  Variable from = node.BroadcastTo(node.Reshape(PositionsAlong(node, cache, 1), {1, most}),
                                   Shape({batch, most}));
  if (node.HasInput(2))
    from = from - node.Reshape(node.Cast(node.In(2), DType::kInt64), {batch, 1});
  if (circular) from = node.Binary("elementwise_mod", from, node.ScalarVar(DType::kInt64, most));
  const Variable written = And(GreaterEqual(from, 0.0), Less(from, static_cast<double>(length)));
  const Variable place = Max(Min(from, static_cast<double>(length - 1)), 0.0);
  const Variable sample = node.BroadcastTo(
      node.Reshape(PositionsAlong(node, cache, 0), {batch, 1, 1}), Shape({batch, most, 1}));
  const Variable index = Concat({sample, node.Reshape(place, {batch, most, 1})}, 2);
  const Variable taken =
      node.Make("gather_nd", {{"X", {update.name()}}, {"Index", {index.name()}}});
  Ints flags(static_cast<size_t>(rank), 1);
  flags[0] = batch;
  flags[1] = most;
  const Variable y = Selected(node, node.Reshape(written, flags), taken, cache, shape);
  node.Set(0, MoveAxis(node, y, 1, axis));
}

// --- CausalConvWithState ---

// A causal convolution of each channel: the input is preceded by the state, the last elements of
// the previous input.
void ImportCausalConv(NodeContext& node) {
  const std::string activation = node.OneOf("activation", "none", {"none", "silu", "swish"});
  const Shape filter = node.shape(1);
  if (node.rank(0) != 3 || filter.rank() != 3 || (node.HasInput(3) && node.rank(3) != 3))
    node.Refuse("an input, weight or state of another rank than 3");
  const int64_t channels = filter[0], reach = filter[2] - 1;
  if (channels < 0 || reach < 0) node.Refuse("filters of unknown shape");
  node.Require(channels >= 1 && filter[1] == 1, "weight must be [channels, 1, size]");
  Variable x = node.In(0);
  if (node.HasInput(3)) {
    x = Concat({node.In(3), x}, 2);
  } else if (reach > 0) {
    x = node.Unary("pad", x, {{"paddings", Interleaved({0, 0, reach}, {0, 0, 0})}});
  }
  const Variable image = WithHeight(node, x), window = WithHeight(node, node.In(1));
  Variable y = node.Make("conv2d", {{"Input", {image.name()}}, {"Filter", {window.name()}}},
                         {{"groups", ToInt32(channels, "a number of channels")}}, "Output");
  y = WithoutHeight(node, y);
  if (node.HasInput(2)) y = y + node.Reshape(node.In(2), {channels, 1});
  node.Set(0, activation == "none" ? y : node.Unary("swish", y, {{"beta", 1.0f}}));
  if (!node.Wants(1)) return;
  if (reach == 0) node.Refuse("the state of filters of size 1, which has no elements");
  node.Set(1, SliceOf(node, x, 2, -reach, INT32_MAX));
}

}  // namespace

void AddAttentionImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, int since, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = import != ImportTensorScatter});
  };
  add("Attention", "f3-4 f3-4 f3-4 T? f4? f4? i1?", 23, ImportAttention,
      "matmul_v2, elementwise_add, softmax");
  add("RotaryEmbedding", "f3-4 f2-3 f2-3 i2?", 23, ImportRotaryEmbedding,
      "lookup_table_v2, elementwise_mul, concat");
  add("TensorScatter", "T2+ T2+ i1?", 24, ImportTensorScatter, "gather_nd, where");
  add("CausalConvWithState", "f3 f3 f1? f3?", 27, ImportCausalConv, "concat, conv2d, swish");
  const auto microsoft = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                             const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "com.microsoft"});
  };
  microsoft("MultiHeadAttention", "f f? f? f1? T? f? T? T? T? T?", ImportMultiHeadAttention,
            "matmul_v2, elementwise_add, softmax");
  microsoft("RotaryEmbedding", "f3-4 i? f2-3 f2-3", ImportPositionedRotary,
            "lookup_table_v2, elementwise_mul, concat");
  microsoft("CausalConvWithState", "f f f1? f?", ImportCausalConv, "concat, conv2d, swish");
}

}  // namespace coracle::onnx
