// Reshaping, repeating and new tensors: Reshape, Squeeze, Expand, ConstantOfShape, ...

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/dims.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

// A new tensor without elements, in any shape that contains a 0.
Variable EmptyTensor(NodeContext& node, DType dtype, const Shape& shape) {
  return FillConstant(node.writer(), dtype, 0, shape);
}

// --- reshaping ---

void ReshapeTo(NodeContext& node, const Ints& wanted, bool allow_zero) {
  const Variable x = node.In(0);
  if (wanted.empty()) return node.Set(0, node.Reshape(x, {1}), true);
  const bool has_zero = std::find(wanted.begin(), wanted.end(), 0) != wanted.end();
  if (!has_zero || !allow_zero) return node.Set(0, node.Reshape(x, wanted));
  if (!x.shape().IsKnown())
    return node.Set(0, ReshapedBy(node, x, node.ConstantVar(wanted), Shape(wanted)));
  node.Require(x.shape().numel() == 0 && *std::min_element(wanted.begin(), wanted.end()) == 0,
               "a tensor with elements cannot have the shape that is asked for");
  node.Set(0, EmptyTensor(node, x.dtype(), Shape(wanted)));
}

// Up to operator set 4, the shape is an attribute.
void ImportReshape(NodeContext& node) {
  if (node.opset() < 5) {
    const auto shape = node.attributes().Ints("shape");
    node.Require(shape.has_value(), "attribute shape is missing");
    return ReshapeTo(node, *shape, false);
  }
  const bool allow_zero = node.opset() >= 14 && node.Flag("allowzero", false);
  if (const auto wanted = node.ConstantInts(1)) return ReshapeTo(node, *wanted, allow_zero);
  const int rank = LengthOf(node, 1, "shape");
  if (rank == 0) return ReshapeTo(node, {}, false);
  const std::string out = node.NewName("reshape2");
  const Variable x = node.In(0), shape = node.In(1);
  const Shape open(Ints(static_cast<size_t>(rank), -1));
  if (allow_zero) return node.Set(0, ReshapedBy(node, x, shape, open));
  node.writer().block().Var(out).SetShape(open);
  node.writer().Append("reshape2", {{"X", {x.name()}}, {"Shape", {shape.name()}}},
                       {{"Out", {out}}, {"XShape", {out + ".xshape"}}});
  node.Set(0, node.writer().Var(out));
}

void ImportFlatten(NodeContext& node) {
  const int rank = node.rank(0);
  int64_t axis = node.Int("axis", 1);
  node.Require(axis >= -rank && axis <= rank,
               fmt::format("attribute axis must lie in [{}, {}], got {}", -rank, rank, axis));
  if (axis < 0) axis += rank;
  const Variable x = node.In(0);
  if (node.IsScalar(0)) return node.Set(0, node.Reshape(x, {1, 1}));
  node.Set(0, node.WithXShape("flatten2", x, {{"axis", ToInt32(axis, "attribute axis")}}));
}

// Axes known only at run time, int64 in [0, rank), in ascending order.
Variable SortedAxes(NodeContext& node, const Variable& axes, int rank) {
  const Variable negative = node.Cast(Less(axes, ZerosLike(axes)), DType::kInt64);
  const Variable normal = axes + negative * static_cast<double>(rank);
  if (axes.shape()[0] == 1) return normal;
  const std::string out = node.NewName("axes");
  node.writer().Append("argsort", {{"X", {normal.name()}}},
                       {{"Out", {out}}, {"Indices", {node.NewName("unused")}}}, {{"axis", 0}});
  return node.writer().Var(out);
}

// The axes as a vector: some exporters give a scalar.
Variable AxesInput(NodeContext& node, size_t i) {
  const Variable axes = node.Cast(node.In(i), DType::kInt64);
  return node.IsScalar(i) ? node.Reshape(axes, {1}) : axes;
}

// Squeezes axes that are known only at run time: the other axes sort before them, in their order.
void SqueezeLate(NodeContext& node) {
  const int rank = node.rank(0), count = node.IsScalar(1) ? 1 : LengthOf(node, 1, "axes");
  node.Require(count <= rank, "more axes than dimensions");
  if (count == 0) return node.SetSame(0, 0);
  if (count == rank) return node.Set(0, node.Reshape(node.In(0), {1}), true);
  const Variable axes = SortedAxes(node, AxesInput(node, 1), rank);
  const Variable dropped =
      Sum(node.Make("one_hot_v2", {{"X", {axes.name()}}}, {{"depth", rank}}), {0});
  const Variable key = node.Cast(dropped, DType::kInt64) * static_cast<double>(rank) +
                       Counted(node, node.ScalarVar(DType::kInt64, rank));
  const std::string order = node.NewName("order");
  node.writer().Append("argsort", {{"X", {key.name()}}},
                       {{"Out", {node.NewName("unused")}}, {"Indices", {order}}}, {{"axis", 0}});
  const Variable kept = SliceOf(node, node.writer().Var(order), 0, 0, rank - count);
  Dims dims;
  const Variable x = node.In(0), all = dims.Add(x, 0, rank).ToVector(node);
  const Variable shape = node.Make("gather", {{"X", {all.name()}}, {"Index", {kept.name()}}});
  node.Set(0, ReshapedBy(node, x, shape, Shape(Ints(static_cast<size_t>(rank - count), -1))));
}

void ImportSqueeze(NodeContext& node) {
  const Shape shape = node.shape(0);
  if (node.opset() >= 13 && node.HasInput(1) && !node.Constant(1)) return SqueezeLate(node);
  auto axes = node.Axes("axes", 1, 12, shape.rank());
  if (!axes) {
    if (!shape.IsKnown())
      node.RefuseUnknown("which dimensions are 1 (no axes are given)", "the result's rank");
    axes.emplace();
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) axes->push_back(i);
    }
  }
  for (int32_t axis : *axes) {
    node.Require(shape[axis] == 1 || shape[axis] == -1,
                 fmt::format("axis {} is {}, but only 1 can be dropped", axis, shape[axis]));
  }
  if (axes->empty()) return node.SetSame(0, 0);
  if (static_cast<int>(axes->size()) == shape.rank())
    return node.Set(0, node.Reshape(node.In(0), {1}), true);
  const bool known = std::all_of(axes->begin(), axes->end(), [&](int a) { return shape[a] == 1; });
  if (known) return node.Set(0, node.WithXShape("squeeze2", node.In(0), {{"axes", *axes}}));
  // squeeze2 would keep a dim that turns out not to be 1; slice fails to drop it.
  const std::vector<int32_t> zeros(axes->size(), 0);
  const std::vector<int32_t> ends(axes->size(), std::numeric_limits<int32_t>::max());
  node.Set(
      0, node.Make("slice", {{"Input", {node.In(0).name()}}},
                   {{"axes", *axes}, {"starts", zeros}, {"ends", ends}, {"decrease_axis", *axes}}));
}

// The op inserts axes one after the other.
void UnsqueezeLate(NodeContext& node) {
  const int count = node.IsScalar(1) ? 1 : LengthOf(node, 1, "axes");
  const int rank = node.rank(0) + count;
  node.Require(rank <= Shape::kMaxRank, "too many axes");
  if (count == 0) return node.SetSame(0, 0);
  if (node.IsScalar(0))
    return node.Set(0, node.Reshape(node.In(0), Ints(static_cast<size_t>(count), 1)));
  const Variable axes = SortedAxes(node, AxesInput(node, 1), rank);
  const std::string out = node.NewName("unsqueeze2");
  node.writer().Append("unsqueeze2", {{"X", {node.In(0).name()}}, {"AxesTensor", {axes.name()}}},
                       {{"Out", {out}}, {"XShape", {out + ".xshape"}}});
  node.Set(0, node.writer().Var(out));
}

void ImportUnsqueeze(NodeContext& node) {
  if (node.opset() >= 13 && node.HasInput(1) && !node.Constant(1)) return UnsqueezeLate(node);
  std::optional<Ints> given =
      node.opset() < 13 ? node.attributes().Ints("axes") : node.KnownInts(1, "axes");
  node.Require(given.has_value(), "attribute axes is missing");
  const int rank = node.rank(0) + static_cast<int>(given->size());
  std::vector<int32_t> axes;
  for (int64_t axis : *given) axes.push_back(node.Axis(axis, rank));
  std::sort(axes.begin(), axes.end());
  node.Require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(),
               "an axis is given twice");
  if (axes.empty()) return node.SetSame(0, 0);
  if (node.IsScalar(0)) return node.Set(0, node.Reshape(node.In(0), Ints(axes.size(), 1)));
  node.Set(0, node.WithXShape("unsqueeze2", node.In(0), {{"axes", axes}}));
}

void ImportTranspose(NodeContext& node) {
  const int rank = node.rank(0);
  Ints perm;
  for (int i = rank - 1; i >= 0; --i) perm.push_back(i);
  perm = node.Ints("perm", perm);
  node.Require(static_cast<int>(perm.size()) == rank,
               fmt::format("attribute perm must have {} axes", rank));
  if (rank == 0) return node.SetSame(0, 0);
  std::vector<int32_t> axes;
  for (int64_t axis : perm) axes.push_back(node.Axis(axis, rank));
  node.Set(0, node.Transpose(node.In(0), axes));
}

// --- expanding ---

void ImportExpand(NodeContext& node) {
  const Variable x = node.In(0);
  const auto wanted = node.ConstantInts(1);
  if (!wanted) {
    // Both may be broadcast: x is combined with a tensor of the given shape.
    if (LengthOf(node, 1, "shape") == 0) return node.SetSame(0, 0);
    const Variable ones = node.Make("fill_constant", {{"ShapeTensor", {node.In(1).name()}}},
                                    FillAttrs({1}, x.dtype(), 1));
    const std::string out = node.NewName("expand"), other = node.NewName("unused");
    node.writer().Append("broadcast_tensors", {{"X", {x.name(), ones.name()}}},
                         {{"Out", {out, other}}});
    return node.Set(0, node.writer().Var(out));
  }
  if (wanted->empty()) return node.SetSame(0, 0);
  const int rank = std::max(node.rank(0), static_cast<int>(wanted->size()));
  std::vector<int32_t> shape(static_cast<size_t>(rank), -1);
  for (int i = 0; i < rank; ++i) {
    const int at_x = i - rank + x.shape().rank(), at = i - rank + static_cast<int>(wanted->size());
    const int64_t dim = at < 0 ? 1 : (*wanted)[static_cast<size_t>(at)];
    node.Require(dim >= 0 && dim <= std::numeric_limits<int32_t>::max(),
                 fmt::format("a dimension of {}", dim));
    if (dim != 1 || at_x < 0) shape[static_cast<size_t>(i)] = Clamped(dim);
  }
  node.Set(0, node.Unary("expand_v2", x, {{"shape", shape}}));
}

// Up to operator set 5: a number of repeats along one axis.
void TileAlong(NodeContext& node) {
  const int64_t n = node.KnownInt(1, "tiles");
  const int32_t axis = node.Axis(node.KnownInt(2, "axis"), node.rank(0));
  node.Require(n >= 1, "tiles must be positive");
  std::vector<int32_t> times(static_cast<size_t>(node.rank(0)), 1);
  times[static_cast<size_t>(axis)] = Clamped(n);
  node.Set(0, node.Unary("tile", node.In(0), {{"repeat_times", times}}));
}

void ImportTile(NodeContext& node) {
  if (node.opset() < 6) return TileAlong(node);
  const Variable x = node.In(0);
  const auto repeats = node.ConstantInts(1);
  if (node.IsScalar(0)) return node.SetSame(0, 0);
  if (!repeats) {
    return node.Set(0,
                    node.Make("tile", {{"X", {x.name()}}, {"RepeatTimes", {node.In(1).name()}}}));
  }
  node.Require(static_cast<int>(repeats->size()) == node.rank(0),
               "repeats must have a number for each dimension");
  Shape shape = node.shape(0);
  std::vector<int32_t> times;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t n = (*repeats)[static_cast<size_t>(i)];
    node.Require(n >= 0, fmt::format("repeats of {}", n));
    times.push_back(ToInt32(n, "repeats"));
    if (shape[i] >= 0) shape[i] = MulDims(shape[i], n);
  }
  if (std::count(times.begin(), times.end(), 0) == 0)
    return node.Set(0, node.Unary("tile", x, {{"repeat_times", times}}));
  if (shape.IsKnown()) return node.Set(0, EmptyTensor(node, x.dtype(), shape));
  Variable none = x;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int32_t& n = times[static_cast<size_t>(axis)];
    if (n == 0) none = SliceOf(node, none, axis, 0, 0);
    n = std::max(n, 1);
  }
  node.Set(0, node.Unary("tile", none, {{"repeat_times", times}}));
}

// --- new tensors ---

void ImportConstantOfShape(NodeContext& node) {
  Tensor value = Tensor::Full<float>({1}, 0);
  int data_type = ToDataType(DType::kFloat32);
  if (const auto* proto = node.attributes().Tensor("value")) {
    value = ParseTensorProto(*proto, node.graph().state().tensors);
    data_type = proto->data_type();
    node.Require(value.numel() == 1, "attribute value must have one element");
  }
  const bool whole = !IsFloating(value.dtype());
  const Tensor wide = value.Cast(whole ? DType::kInt64 : DType::kFloat64);
  AttrList attrs = {{"dtype", static_cast<int32_t>(value.dtype())}};
  attrs.push_back({"str_value", whole ? fmt::format("{}", wide.data<int64_t>()[0])
                                      : fmt::format("{}", wide.data<double>()[0])});
  const int rank = LengthOf(node, 0, "the shape");
  SlotList inputs;
  if (const auto shape = node.ConstantInts(0))
    attrs.push_back({"shape", shape->empty() ? Ints{1} : *shape});
  else if (rank == 0)
    attrs.push_back({"shape", Ints{1}});
  else
    inputs.push_back({"ShapeTensor", {node.In(0).name()}});
  node.SetValue(0, {.var = node.Make("fill_constant", std::move(inputs), std::move(attrs)),
                    .data_type = data_type,
                    .scalar = rank == 0});
}

// Whether constant bounds give an empty range.
template <class T>
bool IsEmptyRange(NodeContext& node, DType dtype) {
  const auto number = [&](size_t i) { return node.Constant(i)->Cast(dtype).Item<T>(); };
  const T start = number(0), limit = number(1), delta = number(2);
  node.Require(delta != 0, "delta must not be 0");
  return delta > 0 ? start >= limit : start <= limit;
}

// If the steps lead away from the limit, the range is empty; the op range would treat that as
// an error.
Variable ReachableLimit(const Variable& start, const Variable& limit, const Variable& delta) {
  return Where(Less(delta, ZerosLike(delta)), Min(limit, start), Max(limit, start));
}

void ImportRange(NodeContext& node) {
  const DType own = node.dtype(0), dtype = node.ComputeDType("range", own);
  node.RequireOne(0, "start");
  node.RequireOne(1, "limit");
  node.RequireOne(2, "delta");
  const bool known = node.Constant(0) && node.Constant(1) && node.Constant(2);
  if (known && (IsFloating(own) ? IsEmptyRange<double>(node, DType::kFloat64)
                                : IsEmptyRange<int64_t>(node, DType::kInt64)))
    return node.SetConstant(0, Tensor(own, {0}));
  const auto in = [&](size_t i) { return node.Reshape(node.Cast(node.In(i), dtype), {1}); };
  const Variable start = in(0), delta = in(2);
  const Variable limit = known ? in(1) : ReachableLimit(start, in(1), delta);
  const Variable out = node.Make(
      "range", {{"Start", {start.name()}}, {"End", {limit.name()}}, {"Step", {delta.name()}}});
  node.Set(0, node.Cast(out, own));
}

}  // namespace

void AddShapeImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Reshape",
         .since = 1,
         .takes = "T i?",
         .import = ImportReshape,
         .maps_to = "reshape2",
         .unsigneds = kMoves},
           {.op_type = "Flatten",
           .since = 1,
           .takes = "T",
           .import = ImportFlatten,
           .maps_to = "flatten2",
           .unsigneds = kMoves},
           {.op_type = "Squeeze",
           .since = 1,
           .takes = "T i?",
           .import = ImportSqueeze,
           .maps_to = "squeeze2; slice; reshape2",
           .unsigneds = kMoves},
           {.op_type = "Unsqueeze",
           .since = 1,
           .takes = "T i?",
           .import = ImportUnsqueeze,
           .maps_to = "unsqueeze2",
           .unsigneds = kMoves},
           {.op_type = "Transpose",
           .since = 1,
           .takes = "T",
           .import = ImportTranspose,
           .maps_to = "transpose2",
           .unsigneds = kMoves},
           {.op_type = "Expand",
           .since = 8,
           .takes = "T i",
           .import = ImportExpand,
           .maps_to = "expand_v2; broadcast_tensors",
           .unsigneds = kMoves},
           {.op_type = "Tile",
           .since = 1,
           .takes = "T T? T?",
           .import = ImportTile,
           .maps_to = "tile",
           .unsigneds = kMoves},
           {.op_type = "ConstantOfShape",
           .since = 9,
           .takes = "i0-1",
           .import = ImportConstantOfShape,
           .maps_to = "fill_constant"},
           {.op_type = "Range",
           .since = 11,
           .takes = "n n n",
           .import = ImportRange,
           .maps_to = "range"},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
