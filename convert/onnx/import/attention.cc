// Parts of transformers: attention, caches of keys and values. The convolution of state-space
// models is here, too.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;
using variable_functions::Concat;

// --- Attention: softmax(softcap(Q K^T scale) + bias) V ---

struct Operands {
  Variable q, k, v;    // [batch, heads, length, size]
  Variable past = {};  // number of keys before this call, int64 [1]
};

// The heads of input i; -1 if their number is not known.
int64_t HeadsOf(NodeContext& node, const char* name, size_t i) {
  const int64_t given = node.Int(name, 0);
  if (node.rank(0) == 3) {
    node.Require(given >= 1, fmt::format("attribute {} is needed for inputs of rank 3", name));
    return given;
  }
  const int64_t heads = node.shape(i)[1];
  node.Require(given == 0 || heads < 0 || given == heads,
               fmt::format("attribute {} is {}, but there are {} heads", name, given, heads));
  return heads < 0 && given > 0 ? given : heads;
}

// Each head of x, which is K or V, for each head of Q that shares it. Only a run knows how many
// heads there are.
Variable SharedAtRun(NodeContext& node, const Variable& x, const Operands& o) {
  const Variable heads = DimOf(node, o.k, 1), all = DimOf(node, o.q, 1);
  const Variable rest = node.Binary("elementwise_mod", all, heads);
  const Variable wrong =
      Or(Not(Equal(rest, ZerosLike(rest))), Not(Equal(DimOf(node, x, 1), heads)));
  const Variable place = CheckedAtRun(
      node, Counted(node, all), wrong,
      "K and V must have one number of heads, and Q a multiple of it: feed such heads");
  const Variable each = Max(node.Binary("elementwise_floordiv", all, heads), 1.0);
  const Variable index = node.Binary("elementwise_floordiv", place, each);
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}},
                   {{"axis", int32_t{1}}});
}

// The heads of x, which is K or V, as many as those of Q.
Variable Shared(NodeContext& node, const Variable& x, const Operands& o) {
  const int64_t all = o.q.shape()[1], heads = o.k.shape()[1], own = x.shape()[1];
  if (all < 0 || heads < 0 || own < 0) return SharedAtRun(node, x, o);
  node.Require(own == heads, fmt::format("K has {} heads, but V has {}", heads, own));
  RequireShared(node, all, heads);
  return WithRepeatedHeads(node, x, all / heads);
}

Operands OperandsOf(NodeContext& node) {
  const int rank = node.rank(0);
  node.Require((rank == 3 || rank == 4) && node.rank(1) == rank && node.rank(2) == rank,
               "Q, K and V must have one rank of 3 or 4");
  Operands o = {.q = node.In(0), .k = node.In(1), .v = node.In(2)};
  const int64_t all = HeadsOf(node, "q_num_heads", 0), heads = HeadsOf(node, "kv_num_heads", 1);
  if (rank == 3) {
    o.q = WithHeads(node, o.q, all);
    o.k = WithHeads(node, o.k, heads);
    o.v = WithHeads(node, o.v, heads);
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

// The keys that hold tokens, of a cache of fixed size, int64 [batch, 1, 1, 1]; {} without one.
Variable FilledOf(NodeContext& node) {
  if (!node.HasInput(6)) return {};
  return node.Reshape(node.Cast(node.In(6), DType::kInt64), {-1, 1, 1, 1});
}

// Hides keys that are further from the query than attributes left_window_size and
// right_window_size; {} if there are none.
Variable WindowBias(NodeContext& node, const Operands& o, const Variable& queries) {
  const int64_t left = node.Int("left_window_size", -1), right = node.Int("right_window_size", -1);
  node.Require(left >= -1 && right >= -1, "a window size must be -1 or more");
  const Variable key = PlacesOn(node, o.k, 2);
  Variable seen;
  if (left >= 0) seen = node.Binary("greater_equal", key, queries - static_cast<double>(left));
  if (right >= 0) {
    const Variable before = node.Binary("less_equal", key, queries + static_cast<double>(right));
    seen = seen ? And(seen, before) : before;
  }
  return seen ? BiasOf(node, seen, o.q.dtype()) : seen;
}

// The sum of the biases of the scores; {} if there are none. In a cache of fixed size, the queries
// belong to the last filled positions.
Variable AllBiases(NodeContext& node, const Operands& o) {
  const Variable filled = FilledOf(node);
  const Variable past = o.past || !filled ? o.past : filled - DimOf(node, o.q, 2);
  const Variable queries = PositionsOfQueries(node, o.q, past);
  std::vector<Variable> biases;
  if (node.HasInput(3)) biases.push_back(MaskBias(node, o));
  if (node.Flag("is_causal", false)) biases.push_back(CausalBias(node, o.k, queries, o.q.dtype()));
  if (const Variable window = WindowBias(node, o, queries)) biases.push_back(window);
  if (filled) {
    biases.push_back(
        BiasOf(node, node.Binary("less_than", PlacesOn(node, o.k, 2), filled), o.q.dtype()));
  }
  Variable sum;
  for (const Variable& bias : biases) sum = sum ? sum + bias : bias;
  return sum;
}

// Whether a query may see no key.
bool MayHideAll(NodeContext& node) {
  const bool windows =
      node.Int("left_window_size", -1) >= 0 || node.Int("right_window_size", -1) >= 0;
  if (windows || node.HasInput(6)) return true;
  return MayBeBlind(node, 3, node.Flag("is_causal", false));
}

Variable Softmaxed(NodeContext& node, const Variable& x) {
  const auto precision = node.Int32("softmax_precision", 0);
  const std::optional<DType> dtype = precision == 0 ? x.dtype() : FromDataType(precision);
  node.Require(dtype && IsFloating(*dtype), "attribute softmax_precision must be a type of floats");
  const Variable wide = node.Cast(x, *dtype);
  return node.Cast(node.Unary("softmax", wide, {{"axis", -1}}), x.dtype());
}

// Q times the scale; an attribute may say 0.
Variable ScaledQueries(NodeContext& node, const Variable& q) {
  if (!node.HasAttr("scale")) return ScaledHeads(node, q, 0);
  return q * static_cast<double>(node.Float("scale", 1.0f));
}

void ImportAttention(NodeContext& node) {
  const Operands o = OperandsOf(node);
  const int64_t mode = node.Int("qk_matmul_output_mode", 0);
  const float softcap = node.Float("softcap", 0.0f);
  node.Require(softcap >= 0, "attribute softcap must not be negative");
  node.Require(mode >= 0 && mode <= 3, "attribute qk_matmul_output_mode must lie in [0, 3]");
  const Variable k = Shared(node, o.k, o), v = Shared(node, o.v, o);
  const Variable scaled = ScaledQueries(node, o.q);
  Variable x =
      node.Make("matmul_v2", {{"X", {scaled.name()}}, {"Y", {k.name()}}}, {{"trans_y", true}});
  std::vector<Variable> stages = {x};  // by qk_matmul_output_mode
  if (softcap > 0) x = node.Unary("tanh", x / softcap) * softcap;
  stages.push_back(x);
  Blind blind;
  blind.bias = AllBiases(node, o);
  const Variable whole = blind.bias;
  if (whole && MayHideAll(node)) blind = BlindOf(node, whole);
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

// --- FlexAttention: graphs change the scores and the weights ---

Variable Modified(NodeContext& node, const char* name, const Variable& x) {
  const proto::onnx::GraphProto* graph = node.attributes().Graph(name);
  if (!graph) return x;
  if (graph->input_size() != 1) {
    node.Refuse(
        fmt::format("attribute {} of {} inputs: only graphs of whole tensors are known, "
                    "which have one: give the graph one input, all scores or weights",
                    name, graph->input_size()));
  }
  const Values results = node.graph().ImportInner(
      *graph, {std::make_shared<Value>(Value{.var = x, .data_type = ToDataType(x.dtype())})});
  node.Require(results.size() == 1 && results[0] && results[0]->is_tensor() &&
                   results[0]->dtype() == x.dtype() && results[0]->rank() == 4,
               fmt::format("attribute {} must give one tensor like its input", name));
  return node.graph().state().VarOf(*results[0], node.NewName(name));
}

void ImportFlexAttention(NodeContext& node) {
  const Operands o = {.q = node.In(0), .k = node.In(1), .v = node.In(2)};
  const Variable k = Shared(node, o.k, o), v = Shared(node, o.v, o);
  const Variable scaled = ScaledQueries(node, o.q);
  Variable x =
      node.Make("matmul_v2", {{"X", {scaled.name()}}, {"Y", {k.name()}}}, {{"trans_y", true}});
  const auto precision = node.Int32("softmax_precision", 0);
  const std::optional<DType> dtype = precision == 0 ? x.dtype() : FromDataType(precision);
  node.Require(dtype && IsFloating(*dtype), "attribute softmax_precision must be a type of floats");
  x = Modified(node, "score_mod", node.Cast(x, *dtype));
  x = Modified(node, "prob_mod", node.Unary("softmax", x, {{"axis", -1}}));
  node.Set(0, node.Binary("matmul_v2", node.Cast(x, v.dtype()), v));
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
  const int64_t batch = cache.shape()[0], most = cache.shape()[1], length = update.shape()[1];
  node.Require(length != 0 && (most < 0 || length <= most),
               "update must be no longer than the cache");
  if (batch >= 0 && most >= 0) RequireSmall(node, {batch, most, 2}, "an index");
  // [batch, most]: which sample, and which element of the update.
  const Variable sample = AlongAxis(node, PlacesOn(node, cache, 0), 0, 2);
  Variable from = AlongAxis(node, PlacesOn(node, cache, 1), 1, 2) + ZerosLike(sample);
  if (node.HasInput(2)) from = from - node.Reshape(node.Cast(node.In(2), DType::kInt64), {-1, 1});
  if (circular) from = node.Binary("elementwise_mod", from, DimOf(node, cache, 1));
  const Variable count = DimOf(node, update, 1);
  const Variable written = And(GreaterEqual(from, 0.0), Less(from, count));
  const Variable place = Max(Min(from, count - 1.0), 0.0);
  const auto last = [&](const Variable& x) {
    return node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{2}}});
  };
  const Variable index = Concat({last(sample + ZerosLike(from)), last(place)}, 2);
  const Variable taken =
      node.Make("gather_nd", {{"X", {update.name()}}, {"Index", {index.name()}}});
  std::vector<int32_t> ones;
  for (int i = 2; i < rank; ++i) ones.push_back(i);
  const Variable flags =
      ones.empty() ? written : node.WithXShape("unsqueeze2", written, {{"axes", ones}});
  const Variable y = BroadcastWhere(node, flags, taken, cache);
  node.Set(0, MoveAxis(node, y, 1, axis));
}

// --- CausalConvWithState ---

// A causal convolution of each channel: the input is preceded by the state, the last elements of
// the previous input.
void ImportCausalConv(NodeContext& node) {
  const std::string activation = node.OneOf("activation", "none", {"none", "silu", "swish"});
  const Shape filter = node.shape(1);
  if (node.rank(0) != 3 || filter.rank() != 3 || (node.HasInput(3) && node.rank(3) != 3))
    node.Refuse("an input, weight or state of another rank than 3: reshape it, so that it has 3");
  const int64_t channels = filter[0], reach = filter[2] - 1;
  if (channels < 0 || reach < 0)
    node.RefuseUnknown("the shape of the filters", "the padding and the groups");
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
  constexpr int64_t kEnd = std::numeric_limits<int32_t>::max();
  node.Set(1, SliceOf(node, x, 2, reach == 0 ? kEnd : -reach, kEnd));
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
  add("TensorScatter", "T2+ T2+ i1?", 24, ImportTensorScatter, "gather_nd, where");
  add("CausalConvWithState", "f3 f3 f1? f3?", 27, ImportCausalConv, "concat, conv2d, swish");
  importers.Add({.op_type = "CausalConvWithState",
                 .since = 1,
                 .takes = "f f f1? f?",
                 .import = ImportCausalConv,
                 .maps_to = "concat, conv2d, swish",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "FlexAttention",
                 .since = 1,
                 .takes = "f4 f4 f4",
                 .import = ImportFlexAttention,
                 .maps_to = "matmul_v2, softmax and the graphs' ops",
                 .composed = true,
                 .domain = "ai.onnx.preview"});
}

}  // namespace coracle::onnx
