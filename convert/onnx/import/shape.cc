// Reshaping, cutting, joining and repeating: Reshape, Squeeze, Concat, Slice, Expand, ...

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

// A bound of a slice, which may be arbitrarily far outside of a tensor.
int32_t Clamped(int64_t value) {
  return ToInt32(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                     std::numeric_limits<int32_t>::max()),
                 "a bound");
}

// A new tensor without elements, in any shape that contains a 0.
Variable EmptyTensor(NodeContext& node, DType dtype, const Shape& shape) {
  return FillConstant(node.writer(), dtype, 0, shape);
}

// The number of elements of the vector in input i: the rank of a shape.
int LengthOf(NodeContext& node, size_t i, const char* what) {
  if (const auto values = node.ConstantInts(i)) return static_cast<int>(values->size());
  const Shape shape = node.shape(i);
  node.Require(shape.rank() == 1, fmt::format("{} must be a vector", what));
  if (shape[0] < 0) return static_cast<int>(node.KnownInts(i, what).size());
  node.Require(shape[0] <= Shape::kMaxRank, fmt::format("{} is too long", what));
  return static_cast<int>(shape[0]);
}

// --- reshaping ---

void ReshapeTo(NodeContext& node, const Ints& wanted, bool allow_zero) {
  const Variable x = node.In(0);
  if (wanted.empty()) return node.Set(0, node.Reshape(x, {1}), true);
  const bool has_zero = std::find(wanted.begin(), wanted.end(), 0) != wanted.end();
  if (!has_zero || !allow_zero) return node.Set(0, node.Reshape(x, wanted));
  if (!x.shape().IsKnown()) node.Refuse("attribute allowzero with an input of unknown shape");
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
  if (allow_zero) return ReshapeTo(node, node.KnownInts(1, "shape"), true);
  const int rank = LengthOf(node, 1, "shape");
  if (rank == 0) return ReshapeTo(node, {}, false);
  const std::string out = node.NewName("reshape2");
  const Variable x = node.In(0), shape = node.In(1);
  node.writer().block().Var(out).SetShape(Shape(Ints(static_cast<size_t>(rank), -1)));
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

void ImportSqueeze(NodeContext& node) {
  const Shape shape = node.shape(0);
  auto axes = node.Axes("axes", 1, 12, shape.rank());
  if (!axes) {
    if (!shape.IsKnown()) node.Refuse("axes that are not given, for an input of unknown shape");
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

void ImportUnsqueeze(NodeContext& node) {
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

// --- several tensors ---

void ImportConcat(NodeContext& node) {
  const int64_t given = node.opset() < 4 ? node.Int("axis", 1) : node.Int("axis");
  const int32_t axis = node.Axis(given, node.rank(0));
  const std::vector<Variable> x = node.AllInputs();
  node.Set(0, node.Make("concat", {{"X", variable_functions::NamesOf(x)}}, {{"axis", axis}}));
}

// Input 1 of operator set 1, whose floats have X's dtype; integers are accepted too.
Ints SectionsOfFirstSplit(NodeContext& node) {
  if (!IsFloating(node.InValue(1).dtype())) return node.KnownInts(1, "split");
  Ints sizes;
  for (float size : node.KnownFloats(1, "split")) {
    node.Require(size >= 0 && size == std::floor(size) && size <= 0x1p31f,
                 fmt::format("a part must have a whole number of elements, got {}", size));
    sizes.push_back(static_cast<int64_t>(size));
  }
  return sizes;
}

// The sizes in the attribute or input `split`, if present.
std::optional<Ints> GivenSections(NodeContext& node) {
  if (node.opset() >= 13) {
    if (!node.HasInput(1)) return std::nullopt;
    const DType dtype = node.InValue(1).dtype();
    node.Require(dtype == DType::kInt64 || dtype == DType::kInt32,
                 fmt::format("split (input 1) must hold integers, got {}", ToString(dtype)));
    return node.KnownInts(1, "split");
  }
  node.Require(node.opset() == 1 || !node.HasInput(1),
               "split is an attribute in operator sets 2 to 12, not input 1");
  if (auto sizes = node.attributes().Ints("split")) return sizes;
  if (node.HasInput(1)) return SectionsOfFirstSplit(node);
  return std::nullopt;
}

// The sizes of the parts; {} for equal parts of an unknown dimension.
Ints Sections(NodeContext& node, int64_t dim) {
  if (const auto sizes = GivenSections(node)) return *sizes;
  const auto parts = static_cast<int64_t>(node.NumOutputs());
  if (node.opset() >= 18) {
    const int64_t num = node.Int("num_outputs");
    node.Require(num == parts,
                 fmt::format("attribute num_outputs is {}, but there are {} outputs", num, parts));
  }
  if (dim < 0 && node.opset() >= 18 && parts > 1)
    node.Refuse("parts of a dimension of unknown length");  // the last one may be smaller
  if (dim < 0) return {};
  if (node.opset() < 18) {
    node.Require(dim % parts == 0,
                 fmt::format("{} cannot be split into {} equal parts", dim, parts));
  }
  const int64_t size = (dim + parts - 1) / parts;  // the last part may be smaller
  Ints sizes(static_cast<size_t>(parts), size);
  for (int64_t rest = dim; int64_t & part : sizes) {
    part = std::min(part, rest);
    rest -= part;
  }
  return sizes;
}

void ImportSplit(NodeContext& node) {
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  const Ints sizes = Sections(node, node.shape(0)[axis]);
  node.Require(sizes.empty() || sizes.size() == node.NumOutputs(),
               fmt::format("{} parts for {} outputs", sizes.size(), node.NumOutputs()));
  std::vector<std::string> names;
  for (size_t i = 0; i < node.NumOutputs(); ++i) names.push_back(node.NewName("split"));
  AttrList attrs = {{"axis", axis}};
  std::vector<int32_t> sections;
  for (int64_t size : sizes) {
    node.Require(size >= 0, "a part must not have a negative size");
    sections.push_back(ToInt32(size, "a part"));
  }
  if (sizes.empty())
    attrs.push_back({"num", static_cast<int>(names.size())});
  else
    attrs.push_back({"sections", sections});
  node.writer().Append("split", {{"X", {node.In(0).name()}}}, {{"Out", names}}, attrs);
  for (size_t i = 0; i < names.size(); ++i) node.Set(i, node.writer().Var(names[i]));
}

// --- Slice ---

struct SliceBounds {
  std::vector<int32_t> axes, steps;
  // std::nullopt: given at run time by inputs 1 and 2.
  std::optional<Ints> starts, ends;
};

SliceBounds SliceAttrs(NodeContext& node) {
  SliceBounds bounds;
  bounds.starts = node.attributes().Ints("starts");
  bounds.ends = node.attributes().Ints("ends");
  node.Require(bounds.starts && bounds.ends, "attributes starts and ends must be given");
  Ints axes(bounds.starts->size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  for (int64_t axis : node.Ints("axes", axes)) bounds.axes.push_back(node.Axis(axis, node.rank(0)));
  bounds.steps.assign(bounds.axes.size(), 1);
  return bounds;
}

SliceBounds SliceInputs(NodeContext& node) {
  SliceBounds bounds;
  const auto count = static_cast<size_t>(LengthOf(node, 1, "starts"));
  if (node.HasInput(3)) {
    for (int64_t axis : node.KnownInts(3, "axes"))
      bounds.axes.push_back(node.Axis(axis, node.rank(0)));
  } else {
    for (size_t i = 0; i < count; ++i)
      bounds.axes.push_back(node.Axis(static_cast<int64_t>(i), node.rank(0)));
  }
  bounds.steps.assign(count, 1);
  if (node.HasInput(4)) {
    bounds.steps.clear();
    for (int64_t step : node.KnownInts(4, "steps")) bounds.steps.push_back(Clamped(step));
  }
  bounds.starts = node.ConstantInts(1);
  bounds.ends = node.ConstantInts(2);
  node.Require(bounds.axes.size() == count && bounds.steps.size() == count,
               "starts, axes and steps must be equally long");
  return bounds;
}

// With a negative step, an end of -1 means before element 0 in strided_slice, but the last element
// in ONNX, after which nothing is left; an end before all elements becomes -1 here. Unlike
// strided_slice, ONNX treats a start before all elements as 0 (the spec of Slice).
void TurnBackward(NodeContext& node, SliceBounds* bounds) {
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < bounds->axes.size(); ++i) {
    if (bounds->steps[i] > 0) continue;
    const int64_t dim = node.shape(0)[bounds->axes[i]];
    if (bounds->ends) {
      int64_t& end = bounds->ends->at(i);
      end = end == -1 ? kMost : end < (dim < 0 ? kLeast : -dim) ? -1 : end;
    }
    if (bounds->starts && dim >= 0) bounds->starts->at(i) = std::max(bounds->starts->at(i), -dim);
  }
}

// Like TurnBackward, for bounds that are known only at run time.
Variable BackwardEnds(NodeContext& node, const SliceBounds& bounds) {
  const size_t count = bounds.axes.size();
  Ints added(count, 0);
  for (size_t i = 0; i < count; ++i)
    if (bounds.steps[i] < 0) added[i] = std::numeric_limits<int32_t>::max();
  const Variable ends = node.Cast(node.In(2), DType::kInt64);
  const Variable last = Equal(ends, node.ConstantVar(Ints(count, -1)));
  return ends + node.Cast(last, DType::kInt64) * node.ConstantVar(added);
}

Variable BackwardStarts(NodeContext& node, const SliceBounds& bounds) {
  std::vector<std::string> least;
  for (size_t i = 0; i < bounds.axes.size(); ++i) {
    const Variable none = node.ConstantVar(Ints{std::numeric_limits<int64_t>::min()});
    const Variable dim = DimOf(node, node.In(0), bounds.axes[i]);
    least.push_back((bounds.steps[i] > 0 ? none : -dim).name());
  }
  const Variable lows = node.Make("concat", {{"X", least}}, {{"axis", 0}});
  const Variable starts =
      bounds.starts ? node.ConstantVar(*bounds.starts) : node.Cast(node.In(1), DType::kInt64);
  return node.Binary("elementwise_max", starts, lows);
}

// Whether a start may be before all elements of an axis with a negative step.
bool MayStartBefore(NodeContext& node, const SliceBounds& bounds) {
  for (size_t i = 0; i < bounds.axes.size(); ++i) {
    if (bounds.steps[i] > 0) continue;
    if (!bounds.starts) return true;
    if (bounds.starts->at(i) < -1 && node.shape(0)[bounds.axes[i]] < 0) return true;
  }
  return false;
}

void ImportSlice(NodeContext& node) {
  SliceBounds bounds = node.opset() < 10 ? SliceAttrs(node) : SliceInputs(node);
  for (const std::optional<Ints>* values : {&bounds.starts, &bounds.ends}) {
    node.Require(!*values || (*values)->size() == bounds.axes.size(),
                 "starts, ends and axes must be equally long");
  }
  if (bounds.axes.empty()) return node.SetSame(0, 0);
  node.Require(std::count(bounds.steps.begin(), bounds.steps.end(), 0) == 0,
               "a step must not be 0");
  const bool backward =
      std::any_of(bounds.steps.begin(), bounds.steps.end(), [](int32_t step) { return step < 0; });
  const bool plain =
      std::all_of(bounds.steps.begin(), bounds.steps.end(), [](int32_t step) { return step == 1; });
  AttrList attrs = {{"axes", bounds.axes}};
  SlotList inputs = {{"Input", {node.In(0).name()}}};
  const auto add = [&](const std::optional<Ints>& values, const char* attr, const char* slot,
                       const std::function<Variable()>& tensor) {
    if (!values) return inputs.push_back({slot, {tensor().name()}});
    std::vector<int32_t> clamped;
    for (int64_t value : *values) clamped.push_back(Clamped(value));
    attrs.push_back({attr, clamped});
  };
  if (backward) TurnBackward(node, &bounds);
  const bool before = backward && MayStartBefore(node, bounds);
  add(before ? std::nullopt : bounds.starts, "starts", "StartsTensor",
      [&] { return before ? BackwardStarts(node, bounds) : node.In(1); });
  add(bounds.ends, "ends", "EndsTensor",
      [&] { return backward ? BackwardEnds(node, bounds) : node.In(2); });
  if (!plain) attrs.push_back({"strides", bounds.steps});
  node.Set(0, node.Make(plain ? "slice" : "strided_slice", std::move(inputs), std::move(attrs)));
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
  if (!shape.IsKnown()) node.Refuse("repeats of 0 of a tensor of unknown shape");
  node.Set(0, EmptyTensor(node, x.dtype(), shape));
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
           .maps_to = "squeeze2; slice",
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
           {.op_type = "Concat",
           .since = 1,
           .takes = "T T*",
           .import = ImportConcat,
           .maps_to = "concat",
           .unsigneds = kMoves},
           {.op_type = "Split",
           .since = 1,
           .takes = "T T?",
           .import = ImportSplit,
           .maps_to = "split",
           .unsigneds = kMoves},
           {.op_type = "Slice",
           .since = 1,
           .takes = "T i? i? i? i?",
           .import = ImportSlice,
           .maps_to = "slice; strided_slice",
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
