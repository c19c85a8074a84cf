// The nodes RotaryEmbedding of ONNX and of com.microsoft.

#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/rotary.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::onnx {

using variable_functions::Concat;

Rotation RotationOf(NodeContext& node, const Variable& cos, const Variable& sin,
                    const Variable& ids, int64_t size) {
  Rotation rotation = {cos, sin, size};
  for (Variable* table : {&rotation.cos, &rotation.sin}) {
    if (ids) {
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

Variable ForTokens(NodeContext& node, const Variable& given, const Variable& x, const char* what) {
  const Shape shape = given.shape();
  const int64_t own = shape[1], tokens = x.shape()[2], batch = x.shape()[0];
  node.Require(
      own < 0 || tokens < 0 || own == tokens,
      fmt::format("{} must have one row for each of {} tokens, got {}", what, tokens, own));
  node.Require(shape[0] <= 1 || batch < 0 || shape[0] == batch,
               fmt::format("{} must be for 1 or {} samples, got {}", what, batch, shape[0]));
  if (own >= 0 && tokens >= 0) return given;
  Dims dims;
  dims.Add(given, 0).Add(x, 2);
  if (shape.rank() == 3) dims.Add(given, 2);
  return ReshapedBy(node, given, dims.ToVector(node), dims.shape());
}

namespace {

Variable EverySecond(NodeContext& node, const Variable& x, int64_t first, int64_t end) {
  const auto one = [](int64_t value) { return std::vector<int32_t>{ToInt32(value, "a place")}; };
  return node.Make("strided_slice", {{"Input", {x.name()}}},
                   {{"axes", one(x.shape().rank() - 1)},
                    {"starts", one(first)},
                    {"ends", one(end)},
                    {"strides", one(2)}});
}

Variable Turned(NodeContext& node, const Variable& x, const Rotation& by, bool neighbours) {
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
  if (size == all) return turned;
  const Variable rest = SliceOf(node, x, 3, size, std::numeric_limits<int32_t>::max());
  return Concat({turned, rest}, 3);
}

}  // namespace

Variable Rotated(NodeContext& node, const Variable& x, const Rotation& by, bool neighbours) {
  const Variable y = Turned(node, x, by, neighbours);
  bool may_grow = false;
  for (const Variable& table : {by.cos, by.sin}) {
    const int64_t samples = table.shape()[0];
    may_grow |= by.given && (samples < 0 || (samples > 1 && x.shape()[0] < 0));
  }
  if (!may_grow) return y;
  // A run may have one sample and positions of several, whose result is larger than x.
  Dims dims;
  dims.Add(x, 0, 4);
  return ReshapedBy(node, y, dims.ToVector(node), dims.shape());
}

namespace {

// The number of rotated elements of a head of x: all of them unless an attribute names it.
int64_t RotatedSize(NodeContext& node, const Variable& x, size_t cos) {
  const int64_t all = x.shape()[3], given = node.Int("rotary_embedding_dim", 0);
  const Shape table = node.shape(cos);
  int64_t size = given != 0 ? given : all;
  if (size < 0 && table[table.rank() - 1] > 0) size = table[table.rank() - 1] * 2;
  if (size < 0) node.RefuseUnknown("the size of a head", "the pairs that are rotated");
  node.Require(size >= 2 && size % 2 == 0 && (all < 0 || size <= all),
               fmt::format("{} of {} elements of a head cannot be rotated", size, all));
  return size;
}

// Rotates input 0 by the tables in inputs `cos` and `cos` + 1.
void SetRotated(NodeContext& node, const Variable& ids, size_t cos, int64_t heads) {
  const int rank = node.rank(0);
  node.Require(rank == 3 || rank == 4, "the input must have rank 3 or 4");
  Variable x = node.In(0);
  if (rank == 3) {
    node.Require(heads >= 1, "attribute num_heads is needed for an input of rank 3");
    x = WithHeads(node, x, heads);
  }
  const int64_t size = RotatedSize(node, x, cos);
  std::vector<Variable> tables = {node.In(cos), node.In(cos + 1)};
  for (Variable& table : tables) {
    if (!ids && table.shape().rank() == 3) table = ForTokens(node, table, x, "a cache");
  }
  const bool matrix = ids && ids.shape().rank() == 2;
  const Variable places = matrix ? ForTokens(node, ids, x, "position_ids") : ids;
  Rotation by = RotationOf(node, tables[0], tables[1], places, size);
  by.given = true;
  const Variable y = Rotated(node, x, by, node.Flag("interleaved", false));
  node.Set(0, rank == 3 ? WithoutHeads(node, y) : y);
}

void ImportRotaryEmbedding(NodeContext& node) {
  const Variable ids = node.HasInput(3) ? node.Cast(node.In(3), DType::kInt64) : Variable();
  SetRotated(node, ids, 1, node.Int("num_heads", 0));
}

// com.microsoft: the positions are the second input. It has one for each token, or the first one
// of all samples.
void ImportPositionedRotary(NodeContext& node) {
  if (node.Flag("is_packed_batching", false))
    node.Refuse(
        "attribute is_packed_batching of 1, for samples of different lengths: export the model "
        "with padded samples");
  if (const float scale = node.Float("scale", 1.0f); scale != 1.0f)
    node.Refuse(fmt::format("attribute scale of {}: export the model with a scale of 1", scale));
  Variable ids = node.Cast(node.In(1), DType::kInt64);
  if (node.rank(1) < 2) {
    node.RequireOne(1, "position_ids of rank 1");
    const int length = node.rank(0) == 3 ? 1 : 2;
    ids = node.Reshape(PlacesOn(node, node.In(0), length) + node.Reshape(ids, {1}), {1, -1});
  }
  int64_t heads = node.Int("num_heads", 0);
  const int64_t width = node.shape(0)[node.rank(0) - 1], half = node.shape(2)[1];
  if (heads == 0 && node.rank(0) == 3) {
    // The heads are as wide as the rows of the tables.
    if (width < 0 || half <= 0) node.RefuseUnknown("the size of a head", "the number of heads");
    node.Require(width % (2 * half) == 0,
                 fmt::format("a width of {} has no heads of {} elements", width, 2 * half));
    heads = width / (2 * half);
  }
  SetRotated(node, ids, 2, heads);
}

}  // namespace

void AddRotaryImporters(NodeImporters& importers) {
  importers.Add({.op_type = "RotaryEmbedding",
                 .since = 23,
                 .takes = "f3-4 f2-3 f2-3 i2?",
                 .import = ImportRotaryEmbedding,
                 .maps_to = "lookup_table_v2, elementwise_mul, concat",
                 .composed = true});
  importers.Add({.op_type = "RotaryEmbedding",
                 .since = 1,
                 .takes = "f3-4 i0-2 f2 f2",
                 .import = ImportPositionedRotary,
                 .maps_to = "lookup_table_v2, elementwise_mul, concat",
                 .composed = true,
                 .domain = "com.microsoft"});
}

}  // namespace coracle::onnx
