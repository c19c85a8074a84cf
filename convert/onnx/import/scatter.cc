// Scatter, ScatterElements, ScatterND: put elements and slices at indices.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <span>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

// How updates are combined with an element.
std::string Reduction(NodeContext& node, int add_since, int extrema_since) {
  if (node.opset() < add_since) return "none";
  if (node.opset() < extrema_since) return node.OneOf("reduction", "none", {"none", "add", "mul"});
  return node.OneOf("reduction", "none", {"none", "add", "mul", "max", "min"});
}

// Scatters the rows `updates` [n, width] into data [positions, width] at the rows ids [n]. Products
// and extrema use a table of all positions and updates, since several updates may have the
// same position.
Variable ScatterRows(NodeContext& node, const Variable& data, const Variable& ids,
                     const Variable& updates, const std::string& reduction) {
  const int64_t places = data.shape()[0], width = data.shape()[1], n = ids.shape()[0];
  if (reduction == "none") {
    return node.Make("scatter",
                     {{"X", {data.name()}}, {"Ids", {ids.name()}}, {"Updates", {updates.name()}}},
                     {{"overwrite", true}});
  }
  if (reduction == "add") {
    return node.Make("scatter_nd_add", {{"X", {data.name()}},
                                        {"Index", {node.Reshape(ids, {n, 1}).name()}},
                                        {"Updates", {updates.name()}}});
  }
  RequireSmall(node, {n, places, width}, "a reduction of updates");
  const Variable hit = node.Make("one_hot_v2", {{"X", {ids.name()}}},
                                 {{"depth", ToInt32(places, "a number of places")},
                                  {"dtype", static_cast<int32_t>(DType::kBool)}});
  const Shape table({n, places, width});
  const Variable own = node.BroadcastTo(node.Reshape(data, {1, places, width}), table);
  const Variable met = node.BroadcastTo(node.Reshape(updates, {n, 1, width}), table);
  const Variable where = node.BroadcastTo(node.Reshape(hit, {n, places, 1}), table);
  const Variable neutral =
      reduction == "mul" ? node.Unary("fill_any_like", own, {{"value", 1.0f}}) : own;
  const std::string type = reduction == "mul"   ? "reduce_prod"
                           : reduction == "max" ? "reduce_max"
                                                : "reduce_min";
  const Variable by =
      node.Unary(type, Where(where, met, neutral), {{"dim", std::vector<int32_t>{0}}});
  if (reduction == "mul") return data * by;
  return reduction == "max" ? Max(data, by) : Min(data, by);
}

// Like ScatterRows, for any dtype: computes in a dtype that the ops support.
Variable Scattered(NodeContext& node, const Variable& data, const Variable& ids,
                   const Variable& updates, const std::string& reduction) {
  if (ids.shape().numel() == 0) return data;
  const DType own = data.dtype();
  DType dtype = node.ComputeDType("scatter", own);
  if (own == DType::kBool) {
    if (reduction != "none") node.Refuse("a reduction of bools");
    dtype = DType::kInt32;
  }
  return node.Cast(
      ScatterRows(node, node.Cast(data, dtype), ids, node.Cast(updates, dtype), reduction), own);
}

Ints Strides(const Shape& shape) {
  Ints strides(static_cast<size_t>(shape.rank()), 1);
  for (int i = shape.rank() - 2; i >= 0; --i)
    strides[static_cast<size_t>(i)] = strides[static_cast<size_t>(i + 1)] * shape[i + 1];
  return strides;
}

// The position in the flat data of each element of `updates`, without the axis: a constant.
Tensor PlacesBesideAxis(const Shape& updates, const Ints& strides, int axis) {
  Tensor places(DType::kInt64, updates);
  int64_t* at = places.data<int64_t>();
  Ints index(static_cast<size_t>(updates.rank()), 0);
  for (int64_t i = 0; i < updates.numel(); ++i) {
    int64_t place = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      if (static_cast<int>(d) != axis) place += index[d] * strides[d];
    }
    at[i] = place;
    for (int d = updates.rank() - 1; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < updates[d]) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
  return places;
}

void ImportScatterElements(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  const std::string reduction = node.op_type() == "Scatter" ? "none" : Reduction(node, 16, 18);
  if (reduction != "none") node.RoundOnce();
  const Variable x = node.In(0), updates = node.In(2);
  const Shape shape = node.shape(0), at = node.shape(1);
  if (!shape.IsKnown() || !at.IsKnown()) node.Refuse("data and indices of unknown shapes");
  node.Require(at.rank() == shape.rank() && node.shape(2) == at,
               "updates and indices must have one shape, of the rank of the data");
  for (int i = 0; i < at.rank(); ++i)
    node.Require(i == axis || at[i] <= shape[i], "the indices are larger than the data");
  RequireSmallConstant(node, at.ToVector(), "indices");
  const Ints strides = Strides(shape);
  const Variable index = IndicesOf(node, 1, DimOf(node, x, axis));
  const auto stride = static_cast<double>(strides[static_cast<size_t>(axis)]);
  const Variable ids = index * stride + node.ConstantVar(PlacesBesideAxis(at, strides, axis));
  const Variable out =
      Scattered(node, node.Reshape(x, {shape.numel(), 1}), node.Reshape(ids, {at.numel()}),
                node.Reshape(updates, {at.numel(), 1}), reduction);
  node.Set(0, node.Reshape(out, shape.ToVector()));
}

void ImportScatterND(NodeContext& node) {
  const std::string reduction = Reduction(node, 16, 18);
  if (reduction != "none") node.RoundOnce();
  const Variable x = node.In(0), updates = node.In(2);
  const Shape shape = node.shape(0), at = node.shape(1);
  if (!shape.IsKnown() || !at.IsKnown()) node.Refuse("data and indices of unknown shapes");
  node.Require(at.rank() >= 1 && at[at.rank() - 1] >= 1 && at[at.rank() - 1] <= shape.rank(),
               "the last dimension of the indices must lie in [1, rank of the data]");
  const auto depth = static_cast<int>(at[at.rank() - 1]);
  Shape dims, wanted(std::span(at.begin(), static_cast<size_t>(at.rank() - 1)));
  for (int i = 0; i < depth; ++i) dims.Append(shape[i]);
  for (int i = depth; i < shape.rank(); ++i) wanted.Append(shape[i]);
  node.Require(node.shape(2) == wanted, fmt::format("updates must have the shape {}, got {}",
                                                    wanted.ToString(), node.shape(2).ToString()));
  const int64_t places = dims.numel(), width = shape.Product(depth, shape.rank());
  const int64_t n = at.numel() / depth;
  const Variable index =
      node.Reshape(IndicesOf(node, 1, node.ConstantVar(dims.ToVector())), {n, depth});
  const Variable ids = node.Unary("reduce_sum", index * node.ConstantVar(Strides(dims)),
                                  {{"dim", std::vector<int32_t>{1}}});
  const Variable out = Scattered(node, node.Reshape(x, {places, width}), ids,
                                 node.Reshape(updates, {n, width}), reduction);
  node.Set(0, node.Reshape(out, shape.ToVector()));
}

}  // namespace

void AddScatterImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  constexpr char kOps[] = "scatter; scatter_nd_add; reduce_prod, reduce_max or reduce_min";
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Scatter",
         .since = 9,
         .until = 10,
         .takes = "T1+ i1+ T1+",
         .import = ImportScatterElements,
         .maps_to = "scatter",
         .unsigneds = kMoves},
           {.op_type = "ScatterElements",
           .since = 11,
           .takes = "T1+ i1+ T1+",
           .import = ImportScatterElements,
           .maps_to = kOps},
           {.op_type = "ScatterND",
           .since = 11,
           .takes = "T1+ i1+ T",
           .import = ImportScatterND,
           .maps_to = kOps},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
