// Elements and slices taken by index: Gather, GatherElements, GatherND, Compress, ReverseSequence.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

Variable GatherAlong(NodeContext& node, const Variable& x, const Variable& index, int32_t axis) {
  return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"axis", axis}});
}

// A matrix whose rows are selected by the indices is a table of embeddings, for any shape
// of indices.
bool IsLookup(const NodeContext& node, int32_t axis) {
  return axis == 0 && node.rank(0) == 2 && !node.IsScalar(1);
}

void ImportGather(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  const Variable x = node.In(0), index = IndicesOf(node, 1, DimOf(node, x, axis));
  if (IsLookup(node, axis)) {
    return node.Set(0, node.Make("lookup_table_v2", {{"W", {x.name()}}, {"Ids", {index.name()}}},
                                 {{"padding_idx", int64_t{-1}}}));
  }
  if (node.IsScalar(1)) {
    const Variable one = GatherAlong(node, x, index, axis);
    if (node.rank(0) == 1) return node.Set(0, one, true);
    return node.Set(0, node.WithXShape("squeeze2", one, {{"axes", std::vector<int32_t>{axis}}}));
  }
  if (node.rank(1) == 1) return node.Set(0, GatherAlong(node, x, index, axis));
  Shape shape;
  for (int i = 0; i < axis; ++i) shape.Append(node.shape(0)[i]);
  for (int i = 0; i < node.rank(1); ++i) shape.Append(node.shape(1)[i]);
  for (int i = axis + 1; i < node.rank(0); ++i) shape.Append(node.shape(0)[i]);
  node.Set(0, Reshaped(node, GatherAlong(node, x, node.Reshape(index, {-1}), axis), shape));
}

// x with the elements along an axis as the last dim: [the other dims, the axis].
Variable Rows(NodeContext& node, const Variable& x, int axis) {
  const Variable moved = MoveAxis(node, x, axis, -1);
  return node.Reshape(moved, {-1, x.shape()[axis]});
}

// Other dims of the indices may be shorter than those of X; the rest of X is ignored.
void ImportGatherElements(NodeContext& node) {
  const int rank = node.rank(0);
  const int32_t axis = node.Axis(node.Int("axis", 0), rank);
  node.Require(node.rank(1) == rank, "the indices must have the rank of the data");
  Variable x = node.In(0);
  const Variable index = IndicesOf(node, 1, DimOf(node, x, axis));
  Shape shape = node.shape(1);
  for (int i = 0; i < rank; ++i) {
    const int64_t wanted = shape[i], dim = x.shape()[i];
    if (i == axis || wanted == dim) continue;
    if (wanted < 0 || dim < 0) node.Refuse("data and indices of unknown shapes");
    node.Require(wanted <= dim, "the indices are larger than the data outside of the axis");
    x = SliceOf(node, x, i, 0, wanted);
  }
  if (x.shape()[axis] < 0 || shape[axis] < 0) node.Refuse("an axis of unknown length");
  const Variable taken = node.Make("index_sample", {{"X", {Rows(node, x, axis).name()}},
                                                    {"Index", {Rows(node, index, axis).name()}}});
  Shape moved;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) moved.Append(shape[i]);
  }
  moved.Append(shape[axis]);
  node.Set(0, MoveAxis(node, Reshaped(node, taken, moved), -1, axis));
}

// Prepends the position in the first `batch_dims` dims to the indices: [dims, depth].
Variable WithBatchIndices(NodeContext& node, const Variable& index, int batch_dims) {
  const Shape& shape = index.shape();
  if (!shape.IsKnown()) node.Refuse("attribute batch_dims with indices of unknown shape");
  RequireSmall(node, shape.ToVector(), "indices");
  std::vector<std::string> columns;
  Ints full = shape.ToVector();
  full.back() = 1;
  for (int d = 0; d < batch_dims; ++d) {
    Ints place(full.size(), 1), values;
    place[static_cast<size_t>(d)] = shape[d];
    for (int64_t i = 0; i < shape[d]; ++i) values.push_back(i);
    const Variable line = node.ConstantVar(Tensor::Of<int64_t>(Shape(place), values));
    columns.push_back(node.BroadcastTo(line, Shape(full)).name());
  }
  columns.push_back(index.name());
  return node.Make("concat", {{"X", columns}}, {{"axis", shape.rank() - 1}});
}

void ImportGatherND(NodeContext& node) {
  const int64_t batch_dims = node.opset() >= 12 ? node.Int("batch_dims", 0) : 0;
  const int index_rank = node.rank(1);
  node.Require(
      index_rank >= 1 && batch_dims >= 0 && batch_dims < index_rank && batch_dims < node.rank(0),
      "attribute batch_dims must be less than the ranks of data and indices");
  const Variable x = node.In(0);
  const int64_t depth = node.shape(1)[index_rank - 1];
  if (depth < 0) node.Refuse("indices whose last dimension is not known");
  node.Require(depth >= 1 && batch_dims + depth <= node.rank(0),
               "the last dimension of the indices is more than the rank of the data");
  std::vector<std::string> dims;
  for (int64_t i = 0; i < depth; ++i)
    dims.push_back(DimOf(node, x, static_cast<int>(batch_dims + i)).name());
  const Variable bounds = node.Make("concat", {{"X", dims}}, {{"axis", 0}});
  Variable index = IndicesOf(node, 1, bounds);
  if (batch_dims > 0) index = WithBatchIndices(node, index, static_cast<int>(batch_dims));
  const int rank = index_rank - 1 + node.rank(0) - static_cast<int>(batch_dims + depth);
  const Variable out = node.Make("gather_nd", {{"X", {x.name()}}, {"Index", {index.name()}}});
  node.Set(0, rank == 0 ? node.Reshape(out, {1}) : out, rank == 0);
}

// The slices along an axis (elements, without an axis) where the condition is true; it may be
// shorter than the axis.
void ImportCompress(NodeContext& node) {
  Variable x = node.In(0);
  int32_t axis = 0;
  if (node.HasAttr("axis"))
    axis = node.Axis(node.Int("axis"), node.rank(0));
  else
    x = node.Reshape(x, {-1});
  const Variable where = node.Make("where_index", {{"Condition", {node.In(1).name()}}});
  node.Set(0, GatherAlong(node, x, where, axis));
}

// --- ReverseSequence ---

// The source step of each step of a sequence, int64 [batch, steps].
Variable ReversedSteps(NodeContext& node, const Variable& lengths, int64_t batch, int64_t steps) {
  RequireSmallConstant(node, {batch, steps}, "sequences");
  Ints values;
  for (int64_t t = 0; t < steps; ++t) values.push_back(t);
  const Shape shape({batch, steps});
  const Variable step =
      node.BroadcastTo(node.ConstantVar(Tensor::Of<int64_t>({1, steps}, values)), shape);
  const Variable length = node.BroadcastTo(node.Reshape(lengths, {batch, 1}), shape);
  return Where(Less(step, length), (length - 1.0) - step, step);
}

void ImportReverseSequence(NodeContext& node) {
  const int32_t time = node.Axis(node.Int("time_axis", 0), node.rank(0));
  const int32_t batch = node.Axis(node.Int("batch_axis", 1), node.rank(0));
  node.Require(time + batch == 1,
               "attributes time_axis and batch_axis must be 0 and 1, or 1 and 0");
  const Variable x = node.In(0), rows = MoveAxis(node, x, batch, 0);
  const int64_t n = rows.shape()[0], steps = rows.shape()[1];
  if (n < 0 || steps < 0) node.Refuse("sequences of unknown number or length");
  const Variable lengths = node.Cast(node.In(1), DType::kInt64);
  const Variable index = node.Reshape(ReversedSteps(node, lengths, n, steps), {n, steps, 1});
  const Variable taken = node.Make(
      "gather_nd", {{"X", {rows.name()}}, {"Index", {WithBatchIndices(node, index, 1).name()}}});
  node.Set(0, MoveAxis(node, taken, 0, batch));
}

}  // namespace

void AddGatherImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Gather",
         .since = 1,
         .takes = "T1+ i",
         .import = ImportGather,
         .maps_to = "gather; lookup_table_v2",
         .unsigneds = kMoves},
           {.op_type = "GatherElements",
           .since = 11,
           .takes = "T1+ i1+",
           .import = ImportGatherElements,
           .maps_to = "index_sample",
           .unsigneds = kMoves},
           {.op_type = "GatherND",
           .since = 11,
           .takes = "T1+ i1+",
           .import = ImportGatherND,
           .maps_to = "gather_nd",
           .unsigneds = kMoves},
           {.op_type = "Compress",
           .since = 9,
           .takes = "T b1",
           .import = ImportCompress,
           .maps_to = "where_index, gather",
           .unsigneds = kMoves},
           {.op_type = "ReverseSequence",
           .since = 10,
           .takes = "T2+ i1",
           .import = ImportReverseSequence,
           .maps_to = "gather_nd",
           .unsigneds = kMoves},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
