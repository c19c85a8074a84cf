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

float OneFloat(NodeContext& node, size_t i, const char* what, float otherwise) {
  if (!node.HasInput(i)) return otherwise;
  const std::vector<float> values = node.KnownFloats(i, what);
  node.Require(values.size() == 1, "a threshold must be one number");
  return values[0];
}

// Each class of each image is treated as an image, since the limit applies to each class.
void ImportNonMaxSuppression(NodeContext& node) {
  const bool centers = node.Flag("center_point_box", false);
  const Shape scores = node.shape(1);
  node.Require(scores.rank() == 3 && node.rank(0) == 3,
               "boxes must be [images, n, 4] and scores [images, classes, n]");
  if (!scores.IsKnown()) node.Refuse("scores of unknown shape");
  const int64_t images = scores[0], classes = scores[1], n = scores[2];
  int64_t most = 0;
  if (node.HasInput(2)) {
    const std::vector<int64_t> given = node.KnownInts(2, "max_output_boxes_per_class");
    node.Require(given.size() == 1, "max_output_boxes_per_class must be one number");
    most = given[0];
  }
  const float iou = OneFloat(node, 3, "iou_threshold", 0);
  const float threshold =
      OneFloat(node, 4, "score_threshold", std::numeric_limits<float>::lowest());
  if (most <= 0 || scores.numel() == 0) return node.SetConstant(0, Tensor(DType::kInt64, {0, 3}));
  const Variable boxes = node.Reshape(
      node.BroadcastTo(node.Reshape(Corners(node, node.In(0), centers), {images, 1, n, 4}),
                       Shape({images, classes, n, 4})),
      {images * classes, n, 4});
  const Variable single = node.Reshape(node.In(1), {images * classes, 1, n});
  const std::string out = node.NewName("detections"), index = node.NewName("index");
  node.writer().Append(
      "multiclass_nms3", {{"BBoxes", {boxes.name()}}, {"Scores", {single.name()}}},
      {{"Out", {out}}, {"Index", {index}}, {"NmsRoisNum", {node.NewName("unused")}}},
      {{"background_label", -1},
       {"score_threshold", threshold},
       {"nms_top_k", -1},
       {"keep_top_k", ToInt32(std::min(most, n), "max_output_boxes_per_class")},
       {"normalized", true},
       {"nms_threshold", iou}});
  const Variable at = node.Cast(node.writer().Var(index), DType::kInt64);
  const auto number = [&](int64_t k) { return node.ConstantVar(std::vector<int64_t>{k}); };
  const Variable row = node.Binary("elementwise_floordiv", at, number(n));
  node.Set(0, variable_functions::Concat({node.Binary("elementwise_floordiv", row, number(classes)),
                                          node.Binary("elementwise_mod", row, number(classes)),
                                          node.Binary("elementwise_mod", at, number(n))},
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
