// Joining and cutting: Concat, Split, Slice.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

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

// The sizes of parts of which some are known only at run time: given by input 1, or equal ones of
// which the last may be smaller.
std::vector<std::string> LateSections(NodeContext& node, int32_t axis) {
  std::vector<std::string> sizes;
  const auto parts = static_cast<int64_t>(node.NumOutputs());
  if (node.HasInput(1)) {
    const DType dtype = node.InValue(1).dtype();
    node.Require(dtype == DType::kInt64 || dtype == DType::kInt32,
                 fmt::format("split (input 1) must hold integers, got {}", ToString(dtype)));
    const Variable given = node.Cast(node.In(1), DType::kInt64);
    node.Require(given.shape().rank() == 1 && given.shape().CompatibleWith({parts}),
                 fmt::format("split (input 1) must have {} numbers, one for each output", parts));
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(SliceOf(node, given, 0, i, i + 1).name());
    return sizes;
  }
  node.Require(node.Int("num_outputs") == parts,
               fmt::format("attribute num_outputs must be {}, the number of outputs", parts));
  const Variable dim = DimOf(node, node.In(0), axis);
  const Variable number = node.ScalarVar(DType::kInt64, static_cast<double>(parts));
  const Variable size =
      node.Binary("elementwise_floordiv", dim + static_cast<double>(parts - 1), number);
  for (int64_t i = 0; i < parts; ++i) {
    const Variable rest = Max(dim - size * static_cast<double>(i), 0.0);
    sizes.push_back(Min(rest, size).name());
  }
  return sizes;
}

bool HasLateSections(NodeContext& node, int32_t axis) {
  if (node.HasInput(1)) return node.opset() >= 13 && !node.Constant(1);
  return node.opset() >= 18 && node.NumOutputs() > 1 && node.shape(0)[axis] < 0;
}

void ImportSplit(NodeContext& node) {
  node.Require(node.NumOutputs() >= 1, "the node has no outputs, give one for each part");
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  const bool late = HasLateSections(node, axis);
  const Ints sizes = late ? Ints() : Sections(node, node.shape(0)[axis]);
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
  SlotList inputs = {{"X", {node.In(0).name()}}};
  if (late)
    inputs.push_back({"SectionsTensorList", LateSections(node, axis)});
  else if (sizes.empty())
    attrs.push_back({"num", static_cast<int>(names.size())});
  else
    attrs.push_back({"sections", sections});
  node.writer().Append("split", std::move(inputs), {{"Out", names}}, attrs);
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

// Whether axes, steps or the number of bounds are known only at run time.
bool IsLate(const NodeContext& node) {
  for (size_t i = 3; i <= 4; ++i)
    if (node.HasInput(i) && !node.Constant(i)) return true;
  return !node.Constant(1) && node.rank(1) == 1 && node.shape(1)[0] < 0;
}

// Bounds for all axes: those of input i at `axes`, `otherwise` at the others.
Variable ForAllAxes(NodeContext& node, size_t i, const Variable& axes, int64_t otherwise) {
  const Ints all(static_cast<size_t>(node.rank(0)), otherwise);
  const Variable given = node.Cast(node.In(i), DType::kInt64);
  return node.Make(
      "scatter",
      {{"X", {node.ConstantVar(all).name()}}, {"Ids", {axes.name()}}, {"Updates", {given.name()}}},
      {{"overwrite", true}});
}

// The slice with bounds for every axis, all known only at run time. See TurnBackward.
void SliceLate(NodeContext& node) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const Variable x = node.In(0);
  const int rank = node.rank(0);
  Dims lengths;
  const Variable dims = lengths.Add(x, 0, rank).ToVector(node);
  Variable axes = Counted(node, DimOf(node, node.In(1), 0));
  if (node.HasInput(3)) {
    axes = node.Cast(node.In(3), DType::kInt64);
    axes = axes + node.Cast(Less(axes, ZerosLike(axes)), DType::kInt64) * static_cast<double>(rank);
  }
  Variable starts = ForAllAxes(node, 1, axes, 0), ends = ForAllAxes(node, 2, axes, kMost);
  const Ints ones(static_cast<size_t>(rank), 1);
  const Variable steps = node.HasInput(4) ? ForAllAxes(node, 4, axes, 1) : node.ConstantVar(ones);
  const Variable backward = Less(steps, ZerosLike(steps));
  const Variable last = And(backward, Equal(ends, ZerosLike(ends) - 1.0));
  ends = Where(last, ZerosLike(ends) + static_cast<double>(kMost), ends);
  starts = Where(backward, Max(starts, -dims), starts);
  std::vector<int32_t> all;
  for (int i = 0; i < rank; ++i) all.push_back(i);
  node.Set(0, node.Make("strided_slice",
                        {{"Input", {x.name()}},
                         {"StartsTensor", {starts.name()}},
                         {"EndsTensor", {ends.name()}},
                         {"StridesTensor", {steps.name()}}},
                        {{"axes", all}}));
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
  if (node.opset() >= 10 && IsLate(node)) return SliceLate(node);
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

}  // namespace

void AddSliceImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
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
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
