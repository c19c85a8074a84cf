// Ops that gather or scatter elements by their indices.
#include <coracle/convert/onnx/export/rows.h>

namespace coracle::onnx {
namespace {

Value AsInt64(OpContext& op, const char* slot) {
  return op.Cast(op.In(slot), op.InType(slot), DType::kInt64);
}

// Index is [n] or [n, 1].
void GatherAlong(OpContext& op, int64_t axis) {
  const Value index = op.Rank("Index") == 1 ? op.In("Index") : op.Reshape(op.In("Index"), {-1});
  op.Out("Out", op.Node("Gather", {op.In("X"), index}, {{"axis", axis}}));
}
void ExportGather(OpContext& op) {
  op.Require(!op.Has("Axis"), "an axis that is a tensor has no counterpart");
  GatherAlong(op, op.Attr<int32_t>("axis"));
}
void ExportIndexSelect(OpContext& op) { GatherAlong(op, op.Attr<int32_t>("dim")); }

void ExportGatherNd(OpContext& op) {
  const int rank = op.Rank("Index");
  op.Require(op.InShape("Index")[rank - 1] > 0, "an index without numbers has no counterpart");
  const Value found = op.Node("GatherND", {op.In("X"), AsInt64(op, "Index")});
  op.Out("Out", op.OutShape("Out") == Shape{1} && rank == 1 ? op.Reshape(found, {1}) : found);
}

void ExportIndexSample(OpContext& op) {
  op.Out("Out", op.Node("GatherElements", {op.In("X"), op.In("Index")}, {{"axis", 1}}));
}

// Ids equal to padding_idx give rows of zeros.
void LookUp(OpContext& op, const Value& ids) {
  const Value rows = op.Node("Gather", {op.In("W"), ids});
  const int64_t padding = op.Attr<int64_t>("padding_idx");
  if (padding == -1) return op.Out("Out", rows);
  const Value is_padding = op.Node(
      "Equal", {ids, op.Constant(Tensor::Of<int64_t>({}, {padding}).Cast(op.InType("Ids")))});
  const Value mask = op.Node("Unsqueeze", {is_padding, op.IntList({-1})});
  op.Out("Out", op.Node("Where", {mask, op.Scalar(0, op.InType("W")), rows}));
}
void ExportLookupTable(OpContext& op) { LookUp(op, op.Squeeze(op.In("Ids"), {-1})); }
void ExportLookupTableV2(OpContext& op) { LookUp(op, op.In("Ids")); }

// 1 where the index along the last dim equals the id. An id out of range gives zeros, as Paddle
// does with allow_out_of_range.
void OneHot(OpContext& op, const Value& ids) {
  const Value depth = op.Has("depth_tensor") ? op.Cast(op.AsScalar(op.In("depth_tensor")),
                                                       op.InType("depth_tensor"), DType::kInt64)
                                             : op.Int(op.Attr<int32_t>("depth"));
  const Value classes = op.Node("Range", {op.Int(0), depth, op.Int(1)});
  const Value ones = op.Node("Equal", {ids, classes});
  op.Out("Out", op.Cast(ones, DType::kBool, op.OutType("Out")));
}
void ExportOneHot(OpContext& op) { OneHot(op, AsInt64(op, "X")); }
void ExportOneHotV2(OpContext& op) { OneHot(op, op.Unsqueeze(AsInt64(op, "X"), {-1})); }

// Without overwrite, the rows Ids are set to zero first, and updates add up.
void ExportScatter(OpContext& op) {
  const Value ids = op.Reshape(AsInt64(op, "Ids"), {-1, 1});
  if (op.Attr<bool>("overwrite")) {
    op.Out("Out", op.Node("ScatterND", {op.In("X"), ids, op.In("Updates")}));
    return;
  }
  op.RequireOpset(16, "scatter without overwrite");
  const Value zeros = op.Node("ConstantOfShape", {op.ShapeOf(op.In("Updates"))},
                              {{"value", Tensor::Zeros(op.InType("X"), {1})}});
  const Value emptied = op.Node("ScatterND", {op.In("X"), ids, zeros});
  op.Out("Out", op.Node("ScatterND", {emptied, ids, op.In("Updates")}, {{"reduction", "add"}}));
}

void ExportScatterNdAdd(OpContext& op) {
  op.RequireOpset(16, "scatter_nd_add");
  op.Out("Out", op.Node("ScatterND", {op.In("X"), AsInt64(op, "Index"), op.In("Updates")},
                        {{"reduction", "add"}}));
}

void ExportMaskedSelect(OpContext& op) {
  op.Out("Y", op.Node("Compress", {op.In("X"), op.Reshape(op.In("Mask"), {-1})}));
}

void ExportWhereIndex(OpContext& op) {
  op.Out("Out", op.Transpose(op.Node("NonZero", {op.In("Condition")}), {1, 0}));
}

constexpr ExportRow kRows[] = {
    {"gather", ExportGather, "Gather"},
    {"gather_nd", ExportGatherNd, "GatherND"},
    {"index_sample", ExportIndexSample, "GatherElements"},
    {"index_select", ExportIndexSelect, "Gather"},
    {"lookup_table", ExportLookupTable, "Squeeze, Gather"},
    {"lookup_table_v2", ExportLookupTableV2, "Gather"},
    {"masked_select", ExportMaskedSelect, "Compress"},
    {"one_hot", ExportOneHot, "Range, Equal, Cast"},
    {"one_hot_v2", ExportOneHotV2, "Unsqueeze, Range, Equal, Cast"},
    {"scatter", ExportScatter, "ScatterND"},
    {"scatter_nd_add", ExportScatterNdAdd, "ScatterND"},
    {"where_index", ExportWhereIndex, "NonZero, Transpose"},
};

}  // namespace

ExportRows GatherRows() { return kRows; }

}  // namespace coracle::onnx
