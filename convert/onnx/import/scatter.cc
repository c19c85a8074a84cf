// Scatter, ScatterElements, ScatterND: put elements and slices at indices.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <fmt/format.h>

#include <numeric>
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

Variable Unsqueezed(NodeContext& node, const Variable& x, int32_t axis) {
  return node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{axis}}});
}

// Products and extrema: reduces a table of all positions and updates, since several updates may
// have the same position. Its first row is `data`.
Variable ReduceRows(NodeContext& node, const Variable& data, const Variable& ids,
                    const Variable& updates, const std::string& reduction) {
  const Shape& shape = data.shape();
  if (shape.IsKnown() && ids.shape().IsKnown())
    RequireSmall(node, {ids.shape()[0], shape[0], shape[1]}, "a reduction of updates");
  const Variable hit = node.Make(
      "one_hot_v2", {{"X", {ids.name()}}, {"depth_tensor", {DimOf(node, data, 0).name()}}},
      {{"dtype", static_cast<int32_t>(DType::kBool)}});
  const Variable own = Unsqueezed(node, data, 0);
  const Variable neutral =
      reduction == "mul" ? node.Unary("fill_any_like", own, {{"value", 1.0f}}) : own;
  const Variable met =
      BroadcastWhere(node, Unsqueezed(node, hit, 2), Unsqueezed(node, updates, 1), neutral);
  const std::string type = reduction == "mul"   ? "reduce_prod"
                           : reduction == "max" ? "reduce_max"
                                                : "reduce_min";
  return node.Unary(type, variable_functions::Concat({own, met}, 0),
                    {{"dim", std::vector<int32_t>{0}}});
}

// Scatters the rows `updates` [n, width] into data [positions, width] at the rows ids [n].
Variable ScatterRows(NodeContext& node, const Variable& data, const Variable& ids,
                     const Variable& updates, const std::string& reduction) {
  if (reduction == "none") {
    return node.Make("scatter",
                     {{"X", {data.name()}}, {"Ids", {ids.name()}}, {"Updates", {updates.name()}}},
                     {{"overwrite", true}});
  }
  if (reduction != "add") return ReduceRows(node, data, ids, updates, reduction);
  return node.Make("scatter_nd_add", {{"X", {data.name()}},
                                      {"Index", {Unsqueezed(node, ids, 1).name()}},
                                      {"Updates", {updates.name()}}});
}

// Like ScatterRows, for any dtype: computes in a dtype that the ops support.
Variable Scattered(NodeContext& node, const Variable& data, const Variable& ids,
                   const Variable& updates, const std::string& reduction) {
  if (ids.shape() == Shape{0}) return data;
  const DType own = data.dtype();
  DType dtype = node.ComputeDType("scatter", own);
  if (own == DType::kBool) {
    node.Require(reduction == "none" || reduction == "max" || reduction == "min",
                 "bools have no sum and no product");
    dtype = DType::kInt32;
  }
  return node.Cast(
      ScatterRows(node, node.Cast(data, dtype), ids, node.Cast(updates, dtype), reduction), own);
}

// The first dims of x as numbers, int64 [1], and the distances of neighbours along these axes, in
// units of the elements that follow the axes.
struct Strides {
  Strides(NodeContext& node, const Variable& x, int count) {
    for (int i = 0; i < count; ++i) dims.push_back(DimOf(node, x, i));
    strides.assign(static_cast<size_t>(count), node.ConstantVar(Ints{1}));
    for (int i = count - 1; i > 0; --i) {
      const auto k = static_cast<size_t>(i);
      const int64_t known = ProductOfDims(x.shape(), i, count);
      strides[k - 1] = known >= 0 ? node.ConstantVar(Ints{known}) : strides[k] * dims[k];
    }
  }
  std::vector<Variable> dims, strides;
};

Variable Joined(const std::vector<Variable>& x) { return x.size() == 1 ? x[0] : Concat(x, 0); }

Variable Matrix(NodeContext& node, const Variable& x, int32_t axis) {
  return node.WithXShape("flatten2", x, {{"axis", axis}});
}

void SetInShapeOf(NodeContext& node, const Variable& out, const Variable& x) {
  Dims dims;
  node.Set(0, Reshaped(node, out, dims.Add(x, 0, x.shape().rank())));
}

// Requires known indices to lie in their axes; each row of them has one for each of `axes`. Returns
// whether that holds for all: false if an index or a dim is known only at run time.
bool AreInside(NodeContext& node, const Ints& axes) {
  const auto known = node.ConstantInts(1);
  if (!known) return false;
  const Shape shape = node.shape(0);
  bool all = true;
  for (size_t i = 0; i < known->size(); ++i) {
    const int64_t axis = axes[i % axes.size()], at = (*known)[i];
    const int64_t dim = shape[static_cast<int>(axis)];
    node.Require(
        dim < 0 || (-dim <= at && at < dim),
        fmt::format("the index {} is outside of axis {}, which has {} elements", at, axis, dim));
    all &= dim >= 0;
  }
  return all;
}

// Where elements of x at indices of an axis are in the flat data, [n]. The gather stops the run at
// an index outside of the axis: its place in the flat data would be in another row.
Variable Offsets(NodeContext& node, const Variable& x, int axis, const Variable& stride,
                 const Variable& index) {
  const Variable all = PlacesOn(node, x, axis) * stride;
  return node.Make("gather", {{"X", {all.name()}}, {"Index", {node.Reshape(index, {-1}).name()}}},
                   {{"axis", int32_t{0}}});
}

void ImportScatterElements(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  const std::string reduction = node.op_type() == "Scatter" ? "none" : Reduction(node, 16, 18);
  if (reduction != "none") node.RoundOnce();
  const Variable x = node.In(0), updates = node.In(2);
  const Shape shape = node.shape(0), at = node.shape(1);
  const int rank = shape.rank();
  node.Require(at.rank() == rank && node.rank(2) == rank && node.shape(2).CompatibleWith(at),
               "updates and indices must have one shape, of the rank of the data");
  for (int i = 0; i < rank; ++i) {
    node.Require(i == axis || shape[i] < 0 || at[i] <= shape[i],
                 "the indices are larger than the data");
  }
  const Strides of(node, x, rank);
  // The positions in the flat data.
  const Variable index = IndicesOf(node, 1, of.dims[static_cast<size_t>(axis)]);
  const Variable stride = of.strides[static_cast<size_t>(axis)];
  Variable ids =
      AreInside(node, {axis}) || rank == 1
          ? index * stride
          : Reshaped(node, Offsets(node, x, axis, stride, index), Dims().Add(index, 0, rank));
  for (int i = 0; i < rank; ++i) {
    if (i == axis) continue;
    const Variable places = PlacesOn(node, index, i), step = of.strides[static_cast<size_t>(i)];
    const bool inside = shape[i] >= 0 && at[i] >= 0;
    const Variable steps = inside ? places * step : Offsets(node, x, i, step, places);
    ids = ids + AlongAxis(node, steps, i, rank);
  }
  const Variable out = Scattered(node, Matrix(node, x, rank), node.Reshape(ids, {-1}),
                                 Matrix(node, updates, rank), reduction);
  SetInShapeOf(node, out, x);
}

// Offsets of rows [n, depth] of indices of the first axes.
Variable OffsetsOfRows(NodeContext& node, const Variable& x, const Strides& of,
                       const Variable& index) {
  Variable sum;
  for (size_t i = 0; i < of.strides.size(); ++i) {
    const int axis = static_cast<int>(i);
    const Variable part =
        Offsets(node, x, axis, of.strides[i], SliceOf(node, index, 1, axis, axis + 1));
    sum = i == 0 ? part : sum + part;
  }
  return sum;
}

void ImportScatterND(NodeContext& node) {
  const std::string reduction = Reduction(node, 16, 18);
  if (reduction != "none") node.RoundOnce();
  const Variable x = node.In(0), updates = node.In(2);
  const Shape shape = node.shape(0), at = node.shape(1);
  const int last = at.rank() - 1;
  if (at[last] < 0)
    node.RefuseUnknown("the last dimension of the indices", "the axes that they select");
  node.Require(at[last] >= 1 && at[last] <= shape.rank(),
               "the last dimension of the indices must lie in [1, rank of the data]");
  const auto depth = static_cast<int>(at[last]);
  Shape wanted(std::span(at.begin(), static_cast<size_t>(last)));
  for (int i = depth; i < shape.rank(); ++i) wanted.Append(shape[i]);
  node.Require(node.rank(2) == wanted.rank() && node.shape(2).CompatibleWith(wanted),
               fmt::format("updates must have the shape {}, got {}", wanted.ToString(),
                           node.shape(2).ToString()));
  const Strides of(node, x, depth);
  const Variable index = Matrix(node, IndicesOf(node, 1, Joined(of.dims)), last);
  Ints axes(static_cast<size_t>(depth));
  std::iota(axes.begin(), axes.end(), 0);
  const bool inside = AreInside(node, axes) || depth == 1;
  const Variable ids =
      inside ? Sum(index * Joined(of.strides), {1}) : OffsetsOfRows(node, x, of, index);
  const Variable rows =
      node.IsScalar(2) ? node.Reshape(updates, {1, 1}) : Matrix(node, updates, last);
  SetInShapeOf(node, Scattered(node, Matrix(node, x, depth), ids, rows, reduction), x);
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
