// Ops that reshape, reorder, join, split and repeat tensors.
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

constexpr const char* kUnknownSize =
    "the size along the axis must be known; coracle set-shape gives it";

Ints Range(int64_t begin, int64_t end) {
  Ints range;
  for (int64_t i = begin; i < end; ++i) range.push_back(i);
  return range;
}

// Dims [begin, end) of an input: known ones as constants, else from its shape at run time.
Value KnownDims(OpContext& op, const char* slot, int begin, int end) {
  const Shape& shape = op.InShape(slot);
  const Ints dims(shape.begin() + begin, shape.begin() + end);
  const bool known = std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  return known ? op.IntList(dims) : op.DimsOf(op.In(slot), begin, end);
}

// --- other shapes ---

// Elements of a row; -1 if unknown.
int64_t RowSize(const Shape& shape) {
  int64_t size = 1;
  for (int i = 1; i < shape.rank(); ++i) size = shape[i] < 0 || size < 0 ? -1 : size * shape[i];
  return size;
}

// A reshape keeps LoD only if it keeps the rows. Later ops on sequences refuse the result if that
// is not certain.
void DropUncertainLod(OpContext& op) {
  if (!op.Wants("Out") || op.OutMeta("Out").lod_level == 0) return;
  const Shape& x = op.InShape("X");
  const Shape& out = op.OutShape("Out");
  if (x.rank() == 0 || out.rank() == 0) return;
  const bool same_size = RowSize(x) > 0 && RowSize(x) == RowSize(out);
  const Ints dims = op.IntsAttr("shape");
  const bool copied = !op.GivenByTensors("ShapeTensor", "Shape") && !dims.empty() && dims[0] == 0 &&
                      !op.Attr<bool>("allow_zero");
  if (same_size || copied || (x[0] >= 0 && x[0] == out[0])) return;
  VarMeta meta = op.OutMeta("Out");
  meta.lod_level = 0;
  const std::string& name = op.op().Output("Out")[0];
  op.exporter().BindAs(op.op(), name, op.exporter().ValueOf(op.op(), name), meta);
}

// In both systems, 0 copies a dim (or is one, if an attribute says so) and -1 is inferred.
void ExportReshape(OpContext& op) {
  const Value dims = op.IntsFrom("ShapeTensor", "Shape", "shape");
  if (op.Attr<bool>("allow_zero")) op.RequireOpset(14, "attr allow_zero");
  op.Out("Out", op.Attr<bool>("allow_zero")
                    ? op.Node("Reshape", {op.In("X"), dims}, {{"allowzero", 1}})
                    : op.Node("Reshape", {op.In("X"), dims}));
  DropUncertainLod(op);
}

void ExportFlatten(OpContext& op) {
  op.Out("Out", op.Node("Flatten", {op.In("X")}, {{"axis", op.Attr<int32_t>("axis")}}));
}

void ExportFlattenRange(OpContext& op) {
  const int rank = op.Rank("X");
  if (rank == 0) return op.Out("Out", op.Reshape(op.In("X"), {1}));
  const auto start = static_cast<int>(op.Axis(op.Attr<int32_t>("start_axis"), rank));
  const auto stop = static_cast<int>(op.Axis(op.Attr<int32_t>("stop_axis"), rank));
  Values dims;
  if (start > 0) dims.push_back(op.IntList(Ints(static_cast<size_t>(start), 0)));
  dims.push_back(op.IntList({-1}));
  if (stop + 1 < rank) dims.push_back(KnownDims(op, "X", stop + 1, rank));
  op.Out("Out", op.Node("Reshape", {op.In("X"), op.Concat(dims, 0)}));
}

// Drops listed dims of 1; a listed dim of another size is kept. For an unknown size, the op's shape
// rule decides.
void ExportSqueeze(OpContext& op) {
  const Shape& x = op.InShape("X");
  const auto listed = op.IntsAttr("axes");
  Ints ones, open;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_listed = std::any_of(listed.begin(), listed.end(),
                                       [&](int64_t a) { return op.Axis(a, x.rank()) == i; });
    if (!is_listed && !listed.empty()) continue;
    if (x[i] == 1) ones.push_back(i);
    if (x[i] < 0) open.push_back(i);
  }
  const auto dropped = static_cast<size_t>(x.rank() - op.OutShape("Out").rank());
  if (dropped == ones.size() + open.size()) ones.insert(ones.end(), open.begin(), open.end());
  if (dropped < ones.size()) return op.Out("Out", op.Reshape(op.In("X"), {1}));
  op.Require(dropped == ones.size(), "which of the unknown dims are 1 must be known");
  op.Out("Out", op.Squeeze(op.In("X"), ones));
}

// Each axis refers to the shape so far; ONNX's axes refer to the final shape.
void ExportUnsqueeze(OpContext& op) {
  if (op.op().type() != "unsqueeze" && op.GivenByTensors("AxesTensorList", "AxesTensor")) {
    // The place of a single axis is the same in both.
    op.Require(op.OutShape("Out").rank() == op.Rank("X") + 1,
               "several axes that are tensors have no counterpart");
    const Value axis = op.IntsFrom("AxesTensorList", "AxesTensor", "");
    return op.Out("Out", op.Node("Unsqueeze", {op.In("X"), axis}));
  }
  std::vector<bool> is_new(static_cast<size_t>(op.Rank("X")), false);
  for (int64_t axis : op.IntsAttr("axes")) {
    const auto at = op.Axis(axis, static_cast<int>(is_new.size()) + 1);
    is_new.insert(is_new.begin() + at, true);
  }
  Ints axes;
  for (size_t i = 0; i < is_new.size(); ++i) {
    if (is_new[i]) axes.push_back(static_cast<int64_t>(i));
  }
  op.Out("Out", op.Unsqueeze(op.In("X"), axes));
}

void ExportTranspose(OpContext& op) {
  Ints permutation = op.IntsAttr("axis");
  for (int64_t& axis : permutation) axis = op.Axis(axis, op.Rank("X"));
  op.Out("Out", op.Transpose(op.In("X"), permutation));
}

// --- joining and splitting ---

void ExportConcat(OpContext& op) {
  op.Require(!op.Has("AxisTensor"), "an axis that is a tensor has no counterpart");
  op.Out("Out", op.Node("Concat", op.Ins("X"), {{"axis", op.Attr<int32_t>("axis")}}));
}

void ExportStack(OpContext& op) {
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("X") + 1);
  Values parts;
  for (const Value& x : op.Ins("X")) parts.push_back(op.Unsqueeze(x, {axis}));
  op.Out("Y", op.Node("Concat", parts, {{"axis", axis}}));
}

// Parts of equal size.
Values SplitEvenly(OpContext& op, const Value& x, int64_t axis, int64_t size, size_t parts) {
  if (parts == 1) return {x};
  NodeAttrs attrs = {{"axis", axis}};
  if (size >= 0) {
    const auto each = size / static_cast<int64_t>(parts);
    return op.Nodes("Split", {x, op.IntList(Ints(parts, each))}, parts, attrs);
  }
  if (op.opset() >= 18) attrs.emplace_back("num_outputs", parts);
  return op.Nodes("Split", {x}, parts, attrs);
}

void ExportSplit(OpContext& op) {
  op.Require(!op.Has("AxisTensor") && !op.Has("SectionsTensorList"),
             "an axis or sections that are tensors have no counterpart");
  const size_t parts = op.NumOutputs("Out");
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("X"));
  const int64_t size = op.InShape("X")[static_cast<int>(axis)];
  Ints sections = op.IntsAttr("sections");
  Values out;
  if (op.Attr<int32_t>("num") > 0 || sections.empty()) {
    out = SplitEvenly(op, op.In("X"), axis, size, parts);
  } else {
    int64_t sum = 0;
    for (int64_t section : sections) sum += std::max<int64_t>(section, 0);
    const auto open = std::find(sections.begin(), sections.end(), -1);
    op.Require(open == sections.end() || size >= 0, kUnknownSize);
    if (open != sections.end()) *open = size - sum;
    out = op.Nodes("Split", {op.In("X"), op.IntList(sections)}, parts, {{"axis", axis}});
  }
  for (size_t i = 0; i < parts; ++i) op.Out("Out", out[i], i);
}

template <const char* kOut>
void ExportUnstack(OpContext& op) {
  const size_t parts = op.NumOutputs(kOut);
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("X"));
  const int64_t size = op.InShape("X")[static_cast<int>(axis)];
  const Values slices = SplitEvenly(op, op.In("X"), axis, size, parts);
  for (size_t i = 0; i < parts; ++i) {
    const Value slice = op.Squeeze(slices[i], {axis});
    op.Out(kOut,
           op.Rank("X") == 1
               ? op.Reshape(slice, Ints(static_cast<size_t>(op.OutShape(kOut, i).rank()), 1))
               : slice,
           i);
  }
}

// --- repeating ---

void ExportTile(OpContext& op) {
  const int rank = op.Rank("X"), out = op.OutShape("Out").rank();
  Value times = op.IntsFrom("repeat_times_tensor", "RepeatTimes", "repeat_times");
  const Value x = op.Unsqueeze(op.In("X"), Range(0, out - rank));
  const bool given = op.GivenByTensors("repeat_times_tensor", "RepeatTimes");
  const size_t numbers =
      op.Has("repeat_times_tensor") ? op.NumInputs("repeat_times_tensor")
      : given ? static_cast<size_t>(std::max<int64_t>(op.InShape("RepeatTimes").numel(), 0))
              : op.IntsAttr("repeat_times").size();
  const int missing = out - static_cast<int>(numbers);
  if (missing > 0) times = op.Concat({op.IntList(Ints(static_cast<size_t>(missing), 1)), times}, 0);
  op.Out("Out", op.Node("Tile", {x, times}));
}

void ExportExpand(OpContext& op) {
  const Value times = op.IntsFrom("expand_times_tensor", "ExpandTimes", "expand_times");
  op.Out("Out", op.Node("Tile", {op.In("X"), times}));
}

void ExportExpandAs(OpContext& op) {
  const Value times = op.Node("Div", {op.ShapeOf(op.In("target_tensor")), op.ShapeOf(op.In("X"))});
  op.Out("Out", op.Node("Tile", {op.In("X"), times}));
}

// A -1 keeps X's dim, like a 1 in ONNX.
void ExportExpandV2(OpContext& op) {
  Value dims;
  if (op.GivenByTensors("expand_shapes_tensor", "Shape")) {
    dims = op.IntsFrom("expand_shapes_tensor", "Shape", "shape");
    const Value keeps = op.Node("Equal", {dims, op.Int(-1)});
    dims = op.Node("Where", {keeps, op.Int(1), dims});
  } else {
    Ints shape = op.IntsAttr("shape");
    std::replace(shape.begin(), shape.end(), int64_t{-1}, int64_t{1});
    dims = op.IntList(shape);
  }
  op.Out("Out", op.Node("Expand", {op.In("X"), dims}));
}

void ExportExpandAsV2(OpContext& op) {
  if (op.Has("Y")) return op.Out("Out", op.Node("Expand", {op.In("X"), op.ShapeOf(op.In("Y"))}));
  op.Out("Out", op.Node("Expand", {op.In("X"), op.IntList(op.IntsAttr("target_shape"))}));
}

void ExportBroadcastTensors(OpContext& op) {
  const Values x = op.Ins("X");
  for (size_t i = 0; i < x.size(); ++i) {
    Value grown = x[i];
    for (size_t k = 0; k < x.size(); ++k) {
      if (k != i) grown = op.Node("Expand", {grown, op.ShapeOf(x[k])});
    }
    op.Out("Out", grown, i);
  }
}

void ExportMeshgrid(OpContext& op) {
  const Values x = op.Ins("X");
  Values sizes;
  for (const Value& v : x) sizes.push_back(op.ShapeOf(op.Reshape(v, {-1})));
  const Value dims = op.Concat(sizes, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    Ints along(x.size(), 1);
    along[i] = -1;
    op.Out("Out", op.Node("Expand", {op.Reshape(x[i], along), dims}), i);
  }
}

// --- images ---

// Out[n, c, h r + a, w r + b] = X[n, c r^2 + a r + b, h, w].
void ExportPixelShuffle(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const Value x = ToChannelsFirst(op, op.In("X"), 4, last);
  const Value shuffled = op.Node(
      "DepthToSpace", {x}, {{"blocksize", op.Attr<int32_t>("upscale_factor")}, {"mode", "CRD"}});
  op.Out("Out", FromChannelsFirst(op, shuffled, 4, last));
}

// The index of the group becomes the minor index of a channel.
void ExportShuffleChannel(OpContext& op) {
  const Shape& x = op.InShape("X");
  const int64_t group = op.Attr<int32_t>("group");
  op.Require(x[1] > 0, "the number of channels must be known");
  const Value in = op.In("X");
  const Value grouped =
      op.Node("Reshape",
              {in, op.Concat({op.IntList({0, group, x[1] / group}), KnownDims(op, "X", 2, 4)}, 0)});
  const Value shuffled = op.Transpose(grouped, {0, 2, 1, 3, 4});
  op.Out("Out", op.Node("Reshape", {shuffled, op.ShapeOf(in)}));
}

constexpr char kY[] = "Y", kOut[] = "Out";

constexpr ExportRow kRows[] = {
    {"broadcast_tensors", ExportBroadcastTensors, "Expand"},
    {"concat", ExportConcat, "Concat"},
    {"expand", ExportExpand, "Tile"},
    {"expand_as", ExportExpandAs, "Shape, Div, Tile"},
    {"expand_as_v2", ExportExpandAsV2, "Expand"},
    {"expand_v2", ExportExpandV2, "Expand"},
    {"flatten", ExportFlatten, "Flatten"},
    {"flatten2", ExportFlatten, "Flatten"},
    {"flatten_contiguous_range", ExportFlattenRange, "Reshape"},
    {"meshgrid", ExportMeshgrid, "Reshape, Expand"},
    {"pixel_shuffle", ExportPixelShuffle, "DepthToSpace"},
    {"reshape", ExportReshape, "Reshape"},
    {"reshape2", ExportReshape, "Reshape"},
    {"shuffle_channel", ExportShuffleChannel, "Reshape, Transpose"},
    {"split", ExportSplit, "Split"},
    {"squeeze", ExportSqueeze, "Squeeze"},
    {"squeeze2", ExportSqueeze, "Squeeze"},
    {"stack", ExportStack, "Unsqueeze, Concat"},
    {"tile", ExportTile, "Tile"},
    {"transpose", ExportTranspose, "Transpose"},
    {"transpose2", ExportTranspose, "Transpose"},
    {"unbind", ExportUnstack<kOut>, "Split, Squeeze"},
    {"unsqueeze", ExportUnsqueeze, "Unsqueeze"},
    {"unsqueeze2", ExportUnsqueeze, "Unsqueeze"},
    {"unstack", ExportUnstack<kY>, "Split, Squeeze"},
};

}  // namespace

ExportRows ShapeRows() { return kRows; }

}  // namespace coracle::onnx
