// TopK, Unique, NonZero, NonMaxSuppression: ops that compare elements.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::onnx {
namespace {

// The results if no elements are requested along the axis.
void SetTopNone(NodeContext& node, int32_t axis) {
  const Variable none = SliceOf(node, node.In(0), axis, 0, 0);
  node.Set(0, none);
  node.Set(1, node.Cast(none, DType::kInt64));
}

// k is an attribute up to operator set 9.
void ImportTopK(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", -1), node.rank(0));
  AttrList attrs = {{"axis", axis}};
  if (node.opset() >= 11) {
    attrs.push_back({"largest", node.Flag("largest", true)});
    node.attributes().Ignore("sorted");  // they always are
  }
  const DType own = node.dtype(0), dtype = node.ComputeDType("top_k_v2", own);
  const auto known = node.opset() < 10 ? std::vector<int64_t>{node.Int("k")} : node.ConstantInts(1);
  if (known) {
    node.Require(known->size() == 1 && (*known)[0] >= 0, "k must be one number, not negative");
    if ((*known)[0] == 0) return SetTopNone(node, axis);
    node.Require((*known)[0] <= (1 << 30), fmt::format("k = {}", (*known)[0]));
    attrs.push_back({"k", ToInt32((*known)[0], "k")});
  }
  SlotList inputs = {{"X", {node.Cast(node.In(0), dtype).name()}}};
  if (!known) inputs.push_back({"K", {node.In(1).name()}});
  const std::string values = node.NewName("top_k_v2"), indices = node.NewName("indices");
  node.writer().Append("top_k_v2", std::move(inputs), {{"Out", {values}}, {"Indices", {indices}}},
                       std::move(attrs));
  node.Set(0, node.Cast(node.writer().Var(values), own));
  node.Set(1, node.writer().Var(indices));
}

// --- Unique ---

struct Found {
  Variable values, first, inverse, counts;
};

// Sorted slices along `axis`; without an axis, sorted elements.
Found SortedUnique(NodeContext& node, const Variable& x, const std::vector<int32_t>& axis) {
  std::vector<std::string> names;
  for (const char* hint : {"unique", "first", "inverse", "counts"})
    names.push_back(node.NewName(hint));
  node.writer().Append(
      "unique", {{"X", {x.name()}}},
      {{"Out", {names[0]}}, {"Indices", {names[1]}}, {"Index", {names[2]}}, {"Counts", {names[3]}}},
      {{"dtype", static_cast<int32_t>(DType::kInt64)},
       {"return_index", true},
       {"return_inverse", true},
       {"return_counts", true},
       {"is_sorted", true},
       {"axis", axis}});
  const auto var = [&](size_t i) { return node.writer().Var(names[i]); };
  return {var(0), var(1), var(2), var(3)};
}

Variable OrderOf(NodeContext& node, const Variable& x) {
  const std::string out = node.NewName("argsort"), indices = node.NewName("order");
  node.writer().Append("argsort", {{"X", {x.name()}}}, {{"Out", {out}}, {"Indices", {indices}}},
                       {{"axis", 0}});
  return node.writer().Var(indices);
}

// In the order of their first occurrences.
Found InOrder(NodeContext& node, const Found& sorted, int32_t axis) {
  const Variable order = OrderOf(node, sorted.first), place = OrderOf(node, order);
  const auto taken = [&](const Variable& x, const Variable& index, int32_t along) {
    return node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"axis", along}});
  };
  return {taken(sorted.values, order, axis), taken(sorted.first, order, 0),
          taken(place, sorted.inverse, 0), taken(sorted.counts, order, 0)};
}

void ImportUnique(NodeContext& node) {
  const bool sorted = node.Flag("sorted", true);
  const DType own = node.dtype(0), dtype = node.ComputeDType("unique", own);
  Variable x = node.Cast(node.In(0), dtype);
  std::vector<int32_t> axis;
  if (node.HasAttr("axis"))
    axis.push_back(node.Axis(node.Int("axis"), node.rank(0)));
  else
    x = node.Reshape(x, {-1});
  Found found = SortedUnique(node, x, axis);
  if (!sorted) found = InOrder(node, found, axis.empty() ? 0 : axis[0]);
  node.Set(0, node.Cast(found.values, own));
  node.Set(1, found.first);
  node.Set(2, found.inverse);
  node.Set(3, found.counts);
}

// A column for each element that is not 0.
void ImportNonZero(NodeContext& node) {
  Variable x = node.In(0);
  if (x.dtype() != DType::kBool) x = node.Cast(x, node.ComputeDType("where_index", x.dtype()));
  const Variable rows = node.Make("where_index", {{"Condition", {x.name()}}});
  node.Set(0, node.Transpose(rows, {1, 0}));
}

// --- NonMaxSuppression ---

// Corners of boxes [.., 4], in any order, or centre, width and height.
Variable Corners(NodeContext& node, const Variable& boxes, bool centers) {
  const auto column = [&](int64_t k) { return SliceOf(node, boxes, 2, k, k + 1); };
  if (centers) {
    const Variable x = column(0), y = column(1), w = column(2) * 0.5, h = column(3) * 0.5;
    return variable_functions::Concat({y - h, x - w, y + h, x + w}, 2);
  }
  const Variable y1 = column(0), x1 = column(1), y2 = column(2), x2 = column(3);
  return variable_functions::Concat({Min(y1, y2), Min(x1, x2), Max(y1, y2), Max(x1, x2)}, 2);
}

Variable JoinedFirst(NodeContext& node, const Variable& x) {
  return node.WithXShape("flatten_contiguous_range", x, {{"start_axis", 0}, {"stop_axis", 1}});
}

Variable Unsqueezed(NodeContext& node, const Variable& x, int32_t axis) {
  return node.WithXShape("unsqueeze2", x, {{"axes", std::vector<int32_t>{axis}}});
}

// Whether input i is given, and its value known only at run time.
bool IsLate(const NodeContext& node, size_t i) { return node.HasInput(i) && !node.Constant(i); }

float OneFloat(NodeContext& node, size_t i, const char* what, float otherwise) {
  if (!node.HasInput(i)) return otherwise;
  node.RequireOne(i, what);
  return IsLate(node, i) ? otherwise : node.KnownFloat(i, what);
}

// The boxes of each class of each image, [images * classes, n, 4].
Variable BoxesOfClasses(NodeContext& node, bool centers) {
  const Variable corners = Corners(node, node.In(0), centers), scores = node.In(1);
  Dims dims;
  dims.Add(corners, 0).Add(scores, 1).Add(corners, 1).Add(4);
  return JoinedFirst(node, BroadcastTo(node, Unsqueezed(node, corners, 1), dims));
}

// Scores [images * classes, 1, n]; those that a late threshold drops are the least number.
Variable ScoresOfClasses(NodeContext& node) {
  const Variable scores = node.In(1);
  const auto lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  const Variable kept = IsLate(node, 4)
                            ? BroadcastWhere(node, Greater(scores, node.Reshape(node.In(4), {1})),
                                             scores, node.ScalarVar(scores.dtype(), lowest))
                            : scores;
  return Unsqueezed(node, JoinedFirst(node, kept), 1);
}

// The first `most` of each class, of detections ordered by classes, of which there are `counts`.
Variable FirstOfClasses(NodeContext& node, const Variable& at, const Variable& row,
                        const Variable& counts, const Variable& most) {
  const Variable begins =
      node.Unary("cumsum", node.Cast(counts, DType::kInt64), {{"axis", 0}, {"exclusive", true}});
  const Variable flat = node.Reshape(row, {-1});
  const Variable begin = node.Make("gather", {{"X", {begins.name()}}, {"Index", {flat.name()}}});
  const Variable place = Counted(node, DimOf(node, flat, 0)) - begin;
  const Variable kept = node.Make("where_index", {{"Condition", {Less(place, most).name()}}});
  return node.Make("gather", {{"X", {at.name()}}, {"Index", {kept.name()}}});
}

// Each class of each image is treated as an image, since the limit applies to each class.
void ImportNonMaxSuppression(NodeContext& node) {
  const bool centers = node.Flag("center_point_box", false);
  const Shape scores = node.shape(1);
  int64_t most = 0;
  if (node.HasInput(2)) node.RequireOne(2, "max_output_boxes_per_class");
  const bool late_most = IsLate(node, 2);
  if (node.HasInput(2) && !late_most) most = node.KnownInt(2, "max_output_boxes_per_class");
  const float iou = OneFloat(node, 3, "iou_threshold", 0);
  const float threshold =
      OneFloat(node, 4, "score_threshold", std::numeric_limits<float>::lowest());
  const bool empty = scores.IsKnown() && scores.numel() == 0;
  if ((most <= 0 && !late_most) || empty) return node.SetConstant(0, Tensor(DType::kInt64, {0, 3}));
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  SlotList inputs = {{"BBoxes", {BoxesOfClasses(node, centers).name()}},
                     {"Scores", {ScoresOfClasses(node).name()}}};
  if (IsLate(node, 3)) inputs.push_back({"NmsThreshold", {node.Reshape(node.In(3), {1}).name()}});
  const std::string out = node.NewName("detections"), index = node.NewName("index");
  const std::string counts = node.NewName("counts");
  node.writer().Append(
      "multiclass_nms3", std::move(inputs),
      {{"Out", {out}}, {"Index", {index}}, {"NmsRoisNum", {counts}}},
      {{"background_label", -1},
       {"score_threshold", threshold},
       {"nms_top_k", -1},
       {"keep_top_k", late_most ? -1 : ToInt32(std::min(most, kAll), "max_output_boxes_per_class")},
       {"normalized", true},
       {"nms_threshold", iou}});
  const Variable n = DimOf(node, node.In(1), 2), classes = DimOf(node, node.In(1), 1);
  Variable at = node.Cast(node.writer().Var(index), DType::kInt64);
  if (late_most) {
    at = FirstOfClasses(node, at, node.Binary("elementwise_floordiv", at, n),
                        node.writer().Var(counts), NumberOf(node, 2));
  }
  const Variable row = node.Binary("elementwise_floordiv", at, n);
  node.Set(0, variable_functions::Concat({node.Binary("elementwise_floordiv", row, classes),
                                          node.Binary("elementwise_mod", row, classes),
                                          node.Binary("elementwise_mod", at, n)},
                                         1));
}

}  // namespace

void AddSortImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "TopK",
         .since = 1,
         .takes = "n1+ i?",
         .import = ImportTopK,
         .maps_to = "top_k_v2",
         .unsigneds = kMoves},
           {.op_type = "Unique",
           .since = 11,
           .takes = "T",
           .import = ImportUnique,
           .maps_to = "unique; argsort, gather",
           .unsigneds = kMoves},
           {.op_type = "NonZero",
           .since = 9,
           .takes = "T",
           .import = ImportNonZero,
           .maps_to = "where_index, transpose2"},
           {.op_type = "NonMaxSuppression",
           .since = 10,
           .takes = "f3 f3 i? f? f?",
           .import = ImportNonMaxSuppression,
           .maps_to = "multiclass_nms3"},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
