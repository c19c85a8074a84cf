// Softmax, LogSoftmax, Hardmax and OneHot, which use one axis as classes.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>

namespace coracle::onnx {
namespace {

// Up to operator set 12, the dims from `axis` on are joined.
void OverClasses(NodeContext& node, Variable (*op)(NodeContext&, const Variable&, int32_t)) {
  const bool joined = node.opset() < 13;
  const int rank = node.rank(0);
  int64_t axis = node.Int("axis", joined ? 1 : -1);
  if (rank == 0) return node.Set(0, op(node, node.In(0), 0), true);
  if (!joined || axis == rank - 1 || axis == -1)
    return node.Set(0, op(node, node.In(0), node.Axis(axis, rank)));
  node.Require(axis >= -rank && axis <= rank, "attribute axis is not one of the input's");
  if (axis < 0) axis += rank;
  const Variable rows =
      node.WithXShape("flatten2", node.In(0), {{"axis", ToInt32(axis, "attribute axis")}});
  node.Set(0, Reshaped(node, op(node, rows, 1), node.shape(0)));
}

Variable Normalized(NodeContext& node, const Variable& x, int32_t axis) {
  return node.Unary(node.row().maps_to, x, {{"axis", axis}});
}

// 1 for the first of equal largest elements, 0 for the others.
Variable First(NodeContext& node, const Variable& x, int32_t axis) {
  const int64_t classes = x.shape()[axis];
  if (classes < 0) node.Refuse("an axis of unknown length");
  const Variable index = node.Unary("arg_max", x, {{"axis", static_cast<int64_t>(axis)}});
  const Variable hot = node.Make("one_hot_v2", {{"X", {index.name()}}},
                                 {{"depth", ToInt32(classes, "a number of classes")},
                                  {"dtype", static_cast<int32_t>(x.dtype())}});
  // The result of a vector has one row.
  if (x.shape().rank() == 1) return node.Reshape(hot, {classes});
  return MoveAxis(node, hot, -1, axis);
}

void ImportSoftmax(NodeContext& node) { OverClasses(node, Normalized); }

void ImportHardmax(NodeContext& node) { OverClasses(node, First); }

// On where the class equals the index (which counts from the end if negative), else off; an index
// out of range has no class.
void ImportOneHot(NodeContext& node) {
  std::vector<int64_t> depth;
  if (!IsFloating(node.dtype(1)))
    depth = node.KnownInts(1, "depth");
  else
    for (float number : node.KnownFloats(1, "depth")) depth.push_back(static_cast<int64_t>(number));
  node.Require(depth.size() == 1 && depth[0] >= 1 && depth[0] <= (1 << 30),
               "depth must be one positive number, at most 2^30");
  const int rank = node.rank(0) + 1;
  const int32_t axis = node.Axis(node.Int("axis", -1), rank);
  const Variable index = IndicesOf(node, 0, node.ConstantVar(depth));
  Variable hot = node.Make("one_hot_v2", {{"X", {index.name()}}},
                           {{"depth", ToInt32(depth[0], "depth")},
                            {"dtype", static_cast<int32_t>(DType::kFloat32)},
                            {"allow_out_of_range", true}});
  if (node.IsScalar(0)) hot = node.Reshape(hot, {depth[0]});
  hot = node.Cast(MoveAxis(node, hot, -1, axis), DType::kBool);
  const Variable off = SliceOf(node, node.In(2), 0, 0, 1), on = SliceOf(node, node.In(2), 0, 1, 2);
  node.Set(0, BroadcastWhere(node, hot, on, off));
}

}  // namespace

void AddSoftmaxImporters(NodeImporters& importers) {
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Softmax",
         .since = 1,
         .takes = "n",
         .import = ImportSoftmax,
         .maps_to = "softmax"},
           {.op_type = "LogSoftmax",
           .since = 1,
           .takes = "n",
           .import = ImportSoftmax,
           .maps_to = "log_softmax"},
           {.op_type = "Hardmax",
           .since = 1,
           .takes = "n",
           .import = ImportHardmax,
           .maps_to = "arg_max, one_hot_v2"},
           {.op_type = "OneHot",
           .since = 9,
           .takes = "n n T1",
           .import = ImportOneHot,
           .maps_to = "one_hot_v2, where, broadcast_tensors",
           .unsigneds = Unsigned::kMoves},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
