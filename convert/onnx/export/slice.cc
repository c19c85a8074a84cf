// Parts of tensors, and padding.
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/operators/tensor/slice_range.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
constexpr int64_t kBeforeBegin = std::numeric_limits<int64_t>::min();

bool Contains(const Ints& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The axes of an attr, normalised to [0, rank).
Ints AxesOf(OpContext& op, const char* attr, int rank) {
  Ints axes = op.IntsAttr(attr);
  for (int64_t& axis : axes) axis = op.Axis(axis, rank);
  return axes;
}

// The bounds of a slice in attrs.
struct Bounds {
  Ints starts, ends, steps;
};

// Paddle writes x[-1] as [-1, 0) of a dropped axis, and an end before element 0, for a negative
// step, as -1. With a negative step and a start before element 0, Paddle takes nothing, but ONNX
// takes element 0.
void ToOnnx(OpContext& op, const Ints& axes, const Ints& dropped, Bounds* b) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool back = b->steps[i] < 0;
    if (Contains(dropped, axes[i]) && b->starts[i] == -1 && b->ends[i] == 0)
      b->ends[i] = back ? -2 : kEnd;
    if (!back) continue;
    if (b->ends[i] == -1) b->ends[i] = kBeforeBegin;
    if (b->starts[i] >= -1) continue;
    const int64_t dim = op.InShape("Input")[static_cast<int>(axes[i])];
    op.Require(dim >= 0,
               "a negative stride from a negative start of an unknown size has no counterpart; "
               "coracle set-shape gives the size");
    if (b->starts[i] + dim < 0) b->starts[i] = b->ends[i] = 0;
  }
}

// Absent if all steps are 1.
Value StepList(OpContext& op, const Ints& steps) {
  const bool plain = std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; });
  return plain ? Value() : op.IntList(steps);
}

// A slice whose bounds are known only at run time. Along a dropped axis it is one element, whose
// index may be negative.
Value SliceAtRunTime(OpContext& op, const Ints& axes, const Ints& dropped, const Ints& steps) {
  const Value starts = op.IntsFrom("StartsTensorList", "StartsTensor", "starts");
  Value part = op.In("Input");
  Ints kept, kept_axes, kept_steps;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (Contains(dropped, axes[i])) {
      const Value index = axes.size() == 1 ? starts : op.Slice(starts, 0, at, at + 1);
      part = op.Node("Gather", {part, index}, {{"axis", axes[i]}});
    } else {
      kept.push_back(at);
      kept_axes.push_back(axes[i]);
      kept_steps.push_back(steps[i]);
    }
  }
  if (kept.empty()) {  // one element needs no end
    op.Ignore("EndsTensorList");
    op.Ignore("EndsTensor");
    return part;
  }
  const auto of_kept = [&](const Value& bounds) {
    return kept.size() == axes.size() ? bounds : op.Node("Gather", {bounds, op.IntList(kept)});
  };
  const Value ends = op.IntsFrom("EndsTensorList", "EndsTensor", "ends");
  return op.Node("Slice", {part, of_kept(starts), of_kept(ends), op.IntList(kept_axes),
                           StepList(op, kept_steps)});
}

void SliceAxes(OpContext& op, bool strided) {
  const int rank = op.Rank("Input");
  const Ints axes = AxesOf(op, "axes", rank), dropped = AxesOf(op, "decrease_axis", rank);
  const bool dynamic_steps = strided && op.GivenByTensors("StridesTensorList", "StridesTensor");
  op.Require(!dynamic_steps, "strides that are tensors have no counterpart");
  const Ints steps = strided ? op.IntsAttr("strides") : Ints(axes.size(), 1);
  Value part;
  if (op.GivenByTensors("StartsTensorList", "StartsTensor") ||
      op.GivenByTensors("EndsTensorList", "EndsTensor")) {
    op.Require(std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step > 0; }),
               "a negative stride from a bound that is a tensor has no counterpart");
    part = SliceAtRunTime(op, axes, dropped, steps);
  } else {
    Bounds b{op.IntsAttr("starts"), op.IntsAttr("ends"), steps};
    ToOnnx(op, axes, dropped, &b);
    part = op.Node("Slice", {op.In("Input"), op.IntList(b.starts), op.IntList(b.ends),
                             op.IntList(axes), StepList(op, steps)});
  }
  const bool none_left = dropped.size() == static_cast<size_t>(rank);
  op.Out("Out", none_left ? op.Reshape(part, {1}) : op.Squeeze(part, dropped));
}
void ExportSlice(OpContext& op) { SliceAxes(op, false); }
void ExportStridedSlice(OpContext& op) { SliceAxes(op, true); }

// --- crop ---

void CropTo(OpContext& op, const Value& offsets, const Value& sizes) {
  op.Out("Out", op.Node("Slice", {op.In("X"), offsets, op.Node("Add", {offsets, sizes})}));
}

void ExportCrop(OpContext& op) {
  const auto rank = static_cast<size_t>(op.Rank("X"));
  const bool none = !op.Has("Offsets") && op.IntsAttr("offsets").empty();
  const Value offsets = none ? op.IntList(Ints(rank, 0)) : op.IntsFrom("", "Offsets", "offsets");
  if (op.Has("Y")) return CropTo(op, offsets, op.ShapeOf(op.In("Y")));
  Ints shape = op.IntsAttr("shape");
  if (shape[0] != -1) return CropTo(op, offsets, op.IntList(shape));
  shape.erase(shape.begin());
  CropTo(op, offsets, op.Concat({op.DimsOf(op.In("X"), 0, 1), op.IntList(shape)}, 0));
}

// A size of -1 goes to the end.
void ExportCropTensor(OpContext& op) {
  const auto rank = static_cast<size_t>(op.Rank("X"));
  const bool none =
      !op.GivenByTensors("OffsetsTensor", "Offsets") && op.IntsAttr("offsets").empty();
  const Value offsets =
      none ? op.IntList(Ints(rank, 0)) : op.IntsFrom("OffsetsTensor", "Offsets", "offsets");
  const Value sizes = op.IntsFrom("ShapeTensor", "Shape", "shape");
  const Value to_end = op.Node("Equal", {sizes, op.Int(-1)});
  CropTo(op, offsets, op.Node("Where", {to_end, op.ShapeOf(op.In("X")), sizes}));
}

// --- set_value ---

// Input with the part [start, end) of an axis replaced; the end is not before the start, so that no
// element is repeated.
struct PartOfAxis {
  int64_t axis;
  Value start, end;
};

Value SliceOne(OpContext& op, const Value& x, int64_t axis, const Value& start, const Value& end) {
  return op.Node("Slice", {x, start, end, op.IntList({axis})});
}

// The part between bounds from the run, clamped to [0, dim]. A part of a dropped axis has
// one element.
PartOfAxis PartAtRunTime(OpContext& op, int64_t axis, const Value& start, const Value& end,
                         bool single) {
  const Value dim = op.DimsOf(op.In("Input"), axis, axis + 1), zero = op.IntList({0});
  const auto normal = [&](const Value& bound) {
    const Value from_end = op.Node("Less", {bound, zero});
    const Value place = op.Node("Where", {from_end, op.Node("Add", {bound, dim}), bound});
    return op.Node("Where", {op.Node("Less", {place, zero}), zero, place});
  };
  const Value first = normal(start);
  if (single) return {axis, first, op.Node("Add", {first, op.IntList({1})})};
  const Value last = normal(end);
  return {axis, first, op.Node("Where", {op.Node("Less", {last, first}), first, last})};
}

// The part between bounds from attrs.
PartOfAxis PartOf(OpContext& op, int64_t axis, int64_t start, int64_t end, bool single) {
  const int64_t dim = op.InShape("Input")[static_cast<int>(axis)];
  if (dim >= 0) {
    const AxisRange range = MakeRange(dim, start, end, 1, single);
    return {axis, op.IntList({range.start}), op.IntList({range.start + range.count})};
  }
  if (single && start == -1 && end == 0) end = kEnd;
  const bool ordered = (start < 0) == (end < 0) || end >= std::numeric_limits<int32_t>::max();
  if (!ordered) return PartAtRunTime(op, axis, op.IntList({start}), op.IntList({end}), false);
  return {axis, op.IntList({start}), op.IntList({std::max(start, end)})};
}

// Replaces the part along the axes from index `i` on; elements before and after it are kept.
Value Replaced(OpContext& op, const Value& x, const std::vector<PartOfAxis>& parts, size_t i,
               const std::function<Value(const Value& part)>& value) {
  if (i == parts.size()) return value(x);
  const PartOfAxis& p = parts[i];
  const Value before = SliceOne(op, x, p.axis, op.IntList({0}), p.start);
  const Value part = SliceOne(op, x, p.axis, p.start, p.end);
  const Value behind = SliceOne(op, x, p.axis, p.end, op.IntList({kEnd}));
  return op.Concat({before, Replaced(op, part, parts, i + 1, value), behind}, p.axis);
}

// The value given by attrs.
Tensor ValueOfAttrs(OpContext& op) {
  const auto dtype = static_cast<DType>(op.Attr<int32_t>("dtype"));
  const Shape shape(op.IntsAttr("shape"));
  const auto make = [&]<class T>(const std::vector<T>& values) {
    return Tensor::Of<T>(shape, values).Cast(dtype);
  };
  switch (dtype) {
    case DType::kFloat32:
      return make(op.Attr<std::vector<float>>("fp32_values"));
    case DType::kFloat64:
      return make(op.Attr<std::vector<double>>("fp64_values"));
    case DType::kInt64:
      return make(op.Attr<std::vector<int64_t>>("int64_values"));
    case DType::kInt32:
      return make(op.Attr<std::vector<int32_t>>("int32_values"));
    default:
      return make(op.Attr<std::vector<int32_t>>("bool_values"));
  }
}

// Inserts the dims of 1 that the value lacks because the part has one element there.
Value Undropped(OpContext& op, Value value, int value_rank, const Ints& dropped, int rank) {
  if (dropped.empty() || value_rank == 0) return value;
  Ints axes;
  for (int64_t axis : dropped) {
    const int64_t from_end = axis - rank;
    if (-from_end <= value_rank + static_cast<int64_t>(dropped.size())) axes.push_back(from_end);
  }
  return op.Unsqueeze(value, axes);
}

void ExportSetValue(OpContext& op) {
  const int rank = op.Rank("Input");
  const Ints axes = AxesOf(op, "axes", rank), dropped = AxesOf(op, "decrease_axes", rank);
  const Ints steps = op.IntsAttr("steps");
  op.Require(!op.Has("StepsTensorList") && op.IntsAttr("none_axes").empty() &&
                 std::all_of(steps.begin(), steps.end(), [](int64_t s) { return s == 1; }),
             "steps other than 1, and none_axes, have no counterpart");
  const Ints starts = op.IntsAttr("starts"), ends = op.IntsAttr("ends");
  const auto bound = [&](const char* list, const Ints& fixed, size_t i) {
    return op.Has(list)
               ? op.Reshape(op.Cast(op.In(list, i), op.InType(list, i), DType::kInt64), {1})
               : op.IntList({fixed[i]});
  };
  const bool lists = op.Has("StartsTensorList") || op.Has("EndsTensorList");
  std::vector<PartOfAxis> parts;
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool single = Contains(dropped, axes[i]);
    parts.push_back(lists ? PartAtRunTime(op, axes[i], bound("StartsTensorList", starts, i),
                                          bound("EndsTensorList", ends, i), single)
                          : PartOf(op, axes[i], starts[i], ends[i], single));
  }
  const DType dtype = op.InType("Input");
  Value value;
  if (op.Has("ValueTensor")) {
    value = Undropped(op, op.In("ValueTensor"), op.Rank("ValueTensor"), dropped, rank);
  } else {
    const Tensor given = ValueOfAttrs(op);
    value = Undropped(op, op.Constant(given.Cast(dtype)), given.shape().rank(), dropped, rank);
  }
  op.Out("Out", Replaced(op, op.In("Input"), parts, 0, [&](const Value& part) {
           return op.Node("Expand", {value, op.ShapeOf(part)});
         }));
}

// --- padding and order ---

Value PadWith(OpContext& op, const Value& x, const Value& pads, const char* mode, float value) {
  const std::string name = mode;
  if (name == "constant")
    return op.Node("Pad", {x, pads, op.Scalar(value, op.InType("X"))}, {{"mode", name}});
  return op.Node("Pad", {x, pads}, {{"mode", name}});
}

void ExportPad(OpContext& op) {
  const Ints paddings = op.IntsAttr("paddings");
  const Value pads = op.IntList(PadsOf(paddings, static_cast<size_t>(op.Rank("X"))));
  op.Out("Out", PadWith(op, op.In("X"), pads, "constant", op.Attr<float>("pad_value")));
}

// Converts {top, bottom, left, right} to ONNX's pads of all four dims.
void ExportPad2d(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const Value x = ToChannelsFirst(op, op.In("X"), 4, last);
  const Value given = op.IntsFrom("", "Paddings", "paddings");
  const Value order = op.IntList({0, 2, 1, 3});
  const Value pads = op.Node("Gather", {given, order});
  const Value none = op.IntList({0, 0});
  const Value all = op.Concat({none, op.Slice(pads, 0, 0, 2), none, op.Slice(pads, 0, 2, 4)}, 0);
  const Value padded =
      PadWith(op, x, all, op.Attr<std::string>("mode").c_str(), op.Attr<float>("pad_value"));
  op.Out("Out", FromChannelsFirst(op, padded, 4, last));
}

// Pads each axis with elements from its other end.
Value PadCircular(OpContext& op, Value x, const Ints& paddings) {
  for (int64_t i = 0; i < 3; ++i) {
    const auto k = static_cast<size_t>(2 * i);  // {left, right, top, bottom, front, back}
    const int64_t axis = 4 - i, before = paddings[k], after = paddings[k + 1];
    Values parts = {x};
    if (before > 0) parts.insert(parts.begin(), op.Slice(x, axis, -before, kEnd));
    if (after > 0) parts.push_back(op.Slice(x, axis, 0, after));
    x = op.Concat(parts, axis);
  }
  return x;
}

void ExportPad3d(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const auto mode = op.Attr<std::string>("mode");
  const Value x = ToChannelsFirst(op, op.In("X"), 5, last);
  Value padded;
  if (mode == "circular") {
    op.Require(!op.Has("Paddings"), "circular paddings that are a tensor have no counterpart");
    const Ints paddings = op.IntsAttr("paddings");
    const Shape shape = ChannelsFirst(op.InShape("X"), last);
    for (size_t i = 0; i < paddings.size(); ++i) {
      const int64_t size = shape[4 - static_cast<int>(i / 2)];
      op.Require(paddings[i] == 0 || (size >= 0 && paddings[i] <= size),
                 "circular paddings beyond the size, or of an unknown one, have no counterpart");
    }
    padded = PadCircular(op, x, paddings);
  } else {
    const Value given = op.IntsFrom("", "Paddings", "paddings");
    const Value none = op.IntList({0, 0});
    const Value before = op.Node("Gather", {given, op.IntList({4, 2, 0})});
    const Value after = op.Node("Gather", {given, op.IntList({5, 3, 1})});
    padded = PadWith(op, x, op.Concat({none, before, none, after}, 0),
                     mode == "replicate" ? "edge" : mode.c_str(), op.Attr<float>("value"));
  }
  op.Out("Out", FromChannelsFirst(op, padded, 5, last));
}

void ExportFlip(OpContext& op) {
  const char* attr = op.IntsAttr("axis").empty() ? "dims" : "axis";
  const Ints axes = AxesOf(op, attr, op.Rank("X"));
  if (axes.empty()) return op.Out("Out", op.In("X"));
  const size_t n = axes.size();
  op.Out("Out",
         op.Node("Slice", {op.In("X"), op.IntList(Ints(n, -1)), op.IntList(Ints(n, kBeforeBegin)),
                           op.IntList(axes), op.IntList(Ints(n, -1))}));
}

Value RollAlong(OpContext& op, const Value& x, int64_t axis, int64_t size, int64_t shift) {
  op.Require(size >= 0, "the size along the axis must be known; coracle set-shape gives it");
  const int64_t moved = size == 0 ? 0 : (shift % size + size) % size;
  if (moved == 0) return x;
  return op.Concat({op.Slice(x, axis, size - moved, kEnd), op.Slice(x, axis, 0, size - moved)},
                   axis);
}

void ExportRoll(OpContext& op) {
  const char* attr = op.IntsAttr("axis").empty() ? "dims" : "axis";
  const Shape& shape = op.InShape("X");
  const Ints axes = AxesOf(op, attr, shape.rank()), shifts = op.IntsAttr("shifts");
  Value x = op.In("X");
  if (axes.empty()) {
    op.Require(shape.IsKnown(), "the size of X must be known; coracle set-shape gives it");
    const Value rolled = RollAlong(op, op.Reshape(x, {-1}), 0, shape.numel(), shifts[0]);
    return op.Out("Out", op.Reshape(rolled, shape.ToVector()));
  }
  for (size_t i = 0; i < axes.size(); ++i)
    x = RollAlong(op, x, axes[i], shape[static_cast<int>(axes[i])], shifts[i]);
  op.Out("Out", x);
}

void ExportTrilTriu(OpContext& op) {
  op.RequireOpset(14, "Trilu");
  op.Out("Out", op.Node("Trilu", {op.In("X"), op.Int(op.Attr<int32_t>("diagonal"))},
                        {{"upper", !op.Attr<bool>("lower")}}));
}

constexpr ExportRow kRows[] = {
    {"crop", ExportCrop, "Slice"},
    {"crop_tensor", ExportCropTensor, "Slice"},
    {"flip", ExportFlip, "Slice"},
    {"pad", ExportPad, "Pad"},
    {"pad2d", ExportPad2d, "Pad"},
    {"pad3d", ExportPad3d, "Pad; Slice, Concat for circular"},
    {"roll", ExportRoll, "Slice, Concat"},
    {"set_value", ExportSetValue, "Slice, Expand, Concat"},
    {"slice", ExportSlice, "Slice, Squeeze; Gather"},
    {"strided_slice", ExportStridedSlice, "Slice, Squeeze"},
    {"tril_triu", ExportTrilTriu, "Trilu"},
};

}  // namespace

ExportRows SliceRows() { return kRows; }

}  // namespace coracle::onnx
