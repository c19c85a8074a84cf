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
  Dims dims;
  dims.Add(node.In(0), 0, rank);
  node.Set(0, Reshaped(node, op(node, rows, 1), dims));
}

Variable Normalized(NodeContext& node, const Variable& x, int32_t axis) {
  return node.Unary(node.row().maps_to, x, {{"axis", axis}});
}

// Rows with a 1 at each index; those out of range have none. A depth of -1 is known only at run
// time, as `late`, int64 [1].
Variable OneHotOf(NodeContext& node, const Variable& index, int64_t depth, const Variable& late,
                  DType dtype) {
  SlotList inputs = {{"X", {index.name()}}};
  AttrList attrs = {{"dtype", static_cast<int32_t>(dtype)}, {"allow_out_of_range", true}};
  if (depth >= 0)
    attrs.push_back({"depth", ToInt32(depth, "depth")});
  else
    inputs.push_back({"depth_tensor", {late.name()}});
  return node.Make("one_hot_v2", std::move(inputs), std::move(attrs));
}

// 1 for the first of equal largest elements, 0 for the others.
Variable First(NodeContext& node, const Variable& x, int32_t axis) {
  const Variable index = node.Unary("arg_max", x, {{"axis", static_cast<int64_t>(axis)}});
  const Variable hot = OneHotOf(node, index, x.shape()[axis], DimOf(node, x, axis), x.dtype());
  // The result of a vector has one row.
  if (x.shape().rank() == 1) return node.Reshape(hot, {x.shape()[0]});
  return MoveAxis(node, hot, -1, axis);
}

void ImportSoftmax(NodeContext& node) { OverClasses(node, Normalized); }

void ImportHardmax(NodeContext& node) { OverClasses(node, First); }

// On where the class equals the index (which counts from the end if negative), else off; an index
// out of range has no class.
void ImportOneHot(NodeContext& node) {
  const auto known = IsFloating(node.dtype(1)) ? std::nullopt : node.ConstantInts(1);
  node.RequireOne(1, "depth");
  node.Require(!known || ((*known)[0] >= 1 && (*known)[0] <= (1 << 30)),
               "depth must be one positive number, at most 2^30");
  const Variable depth = known ? node.ConstantVar(*known) : NumberOf(node, 1);
  const int rank = node.rank(0) + 1;
  const int32_t axis = node.Axis(node.Int("axis", -1), rank);
  const Variable index = IndicesOf(node, 0, depth);
  Variable hot = OneHotOf(node, index, known ? (*known)[0] : -1, depth, DType::kFloat32);
  if (node.IsScalar(0)) hot = node.Reshape(hot, {hot.shape()[1]});
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
