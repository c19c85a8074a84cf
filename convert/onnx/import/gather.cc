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
  Dims dims;
  dims.Add(x, 0, axis).Add(index, 0, node.rank(1)).Add(x, axis + 1, node.rank(0));
  node.Set(0, Reshaped(node, GatherAlong(node, x, node.Reshape(index, {-1}), axis), dims));
}

// x as a matrix whose rows lie along an axis.
Variable Rows(NodeContext& node, const Variable& x, int axis) {
  const int32_t last = x.shape().rank() - 1;
  return node.WithXShape("flatten2", MoveAxis(node, x, axis, -1), {{"axis", last}});
}

// Other dims of the indices may be shorter than those of X; the rest of X is ignored.
void ImportGatherElements(NodeContext& node) {
  const int rank = node.rank(0);
  const int32_t axis = node.Axis(node.Int("axis", 0), rank);
  node.Require(node.rank(1) == rank, "the indices must have the rank of the data");
  Variable x = node.In(0);
  const Variable index = IndicesOf(node, 1, DimOf(node, x, axis));
  for (int i = 0; i < rank; ++i) {
    const int64_t wanted = index.shape()[i], dim = x.shape()[i];
    if (i == axis || (wanted == dim && dim >= 0)) continue;
    node.Require(wanted <= dim || dim < 0,
                 "the indices are larger than the data outside of the axis");
    x = SliceBetween(node, x, i, node.ConstantVar(Ints{0}), DimOf(node, index, i));
  }
  const Variable taken = node.Make("index_sample", {{"X", {Rows(node, x, axis).name()}},
                                                    {"Index", {Rows(node, index, axis).name()}}});
  Dims moved;
  moved.Add(index, 0, axis).Add(index, axis + 1, rank).Add(index, axis);
  node.Set(0, MoveAxis(node, Reshaped(node, taken, moved), -1, axis));
}

// Prepends the position in the first `batch_dims` dims to the indices: [dims, depth].
Variable WithBatchIndices(NodeContext& node, const Variable& index, int batch_dims) {
  const int rank = index.shape().rank();
  const Variable zeros = ZerosLike(SliceOf(node, index, rank - 1, 0, 1));
  std::vector<std::string> columns;
  for (int d = 0; d < batch_dims; ++d) {
    const Variable line = PlacesOn(node, index, d);
    columns.push_back((zeros + AlongAxis(node, line, d, rank)).name());
  }
  columns.push_back(index.name());
  return node.Make("concat", {{"X", columns}}, {{"axis", rank - 1}});
}

void ImportGatherND(NodeContext& node) {
  const int64_t batch_dims = node.opset() >= 12 ? node.Int("batch_dims", 0) : 0;
  const int index_rank = node.rank(1);
  node.Require(
      index_rank >= 1 && batch_dims >= 0 && batch_dims < index_rank && batch_dims < node.rank(0),
      "attribute batch_dims must be less than the ranks of data and indices");
  const Variable x = node.In(0);
  const int64_t depth = node.shape(1)[index_rank - 1];
  if (depth < 0) node.RefuseUnknown("the last dimension of the indices", "the rank of the result");
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
Variable ReversedSteps(NodeContext& node, const Variable& lengths, const Variable& rows) {
  const Variable zeros = ZerosLike(node.Reshape(lengths, {-1, 1}));
  const Variable step = zeros + AlongAxis(node, PlacesOn(node, rows, 1), 1, 2);
  const Variable length = ZerosLike(step) + node.Reshape(lengths, {-1, 1});
  return Where(Less(step, length), (length - 1.0) - step, step);
}

void ImportReverseSequence(NodeContext& node) {
  const int32_t time = node.Axis(node.Int("time_axis", 0), node.rank(0));
  const int32_t batch = node.Axis(node.Int("batch_axis", 1), node.rank(0));
  node.Require(time + batch == 1,
               "attributes time_axis and batch_axis must be 0 and 1, or 1 and 0");
  const Variable x = node.In(0), rows = MoveAxis(node, x, batch, 0);
  const Variable lengths = node.Cast(node.In(1), DType::kInt64);
  const Variable steps = ReversedSteps(node, lengths, rows);
  const Variable index = node.WithXShape("unsqueeze2", steps, {{"axes", std::vector<int32_t>{2}}});
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
