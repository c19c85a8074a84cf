// Pad, Trilu, EyeLike: padding, and parts of matrices.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;

// For each dim of the input, the number of elements before and after it; negative: removed.
struct Paddings {
  Ints before, after;
};

// Attributes up to operator set 10, then inputs.
Paddings PaddingsOf(NodeContext& node) {
  const auto rank = static_cast<size_t>(node.rank(0));
  Paddings pads = {Ints(rank, 0), Ints(rank, 0)};
  const Ints given = node.opset() < 11
                         ? node.Ints(node.HasAttr("paddings") ? "paddings" : "pads", {})
                         : node.KnownInts(1, "pads");
  Ints axes;
  if (node.opset() >= 18 && node.HasInput(3)) {
    axes = node.KnownInts(3, "axes");
  } else {
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  }
  node.Require(given.size() == 2 * axes.size(),
               fmt::format("pads must have {} numbers, got {}", 2 * axes.size(), given.size()));
  constexpr int64_t kMost = 1 << 30;
  for (int64_t pad : given)
    node.Require(pad >= -kMost && pad <= kMost, fmt::format("a padding of {}", pad));
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(node.Axis(axes[i], node.rank(0)));
    pads.before[axis] = given[i];
    pads.after[axis] = given[axes.size() + i];
  }
  return pads;
}

// The source of the element at `i` of a dim of length n; i may be below 0 or beyond n.
int64_t SourceOf(int64_t i, int64_t n, const std::string& mode) {
  if (mode == "edge" || n == 1) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == "wrap") return ((i % n) + n) % n;
  const int64_t period = 2 * (n - 1), at = ((i % period) + period) % period;
  return at < n ? at : period - at;
}

// SourceOf for indices known only at run time.
Variable SourceOf(NodeContext& node, const Variable& i, const Variable& n,
                  const std::string& mode) {
  const Variable last = Max(n - 1.0, 0.0);
  if (mode == "edge") return Min(Max(i, ZerosLike(i)), last);
  if (mode == "wrap") return node.Binary("elementwise_mod", i, Max(n, 1.0));
  // A dim of one element has no period.
  const Variable period = Max(last * 2.0, 1.0), at = node.Binary("elementwise_mod", i, period);
  return Min(at, Abs(period - at));
}

Variable PadByIndex(NodeContext& node, Variable x, const Paddings& pads, const std::string& mode) {
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (pads.before[a] == 0 && pads.after[a] == 0) continue;
    const int64_t n = x.shape()[axis];
    if (n < 0) {
      const Variable length = DimOf(node, x, axis);
      const auto number = [&](int64_t k) { return node.ConstantVar(Ints{k}); };
      const Variable places =
          Counted(node, number(-pads.before[a]), length + number(pads.after[a]));
      const Variable from = SourceOf(node, places, length, mode);
      x = node.Make("gather", {{"X", {x.name()}}, {"Index", {from.name()}}}, {{"axis", axis}});
      continue;
    }
    node.Require(n > 0, fmt::format("mode {} of a dimension without elements", mode));
    RequireSmallConstant(node, {std::max<int64_t>(0, pads.before[a] + n + pads.after[a])},
                         "a result");
    Ints from;
    for (int64_t i = -pads.before[a]; i < n + pads.after[a]; ++i)
      from.push_back(SourceOf(i, n, mode));
    x = node.Make("gather", {{"X", {x.name()}}, {"Index", {node.ConstantVar(from).name()}}},
                  {{"axis", axis}});
  }
  return x;
}

// --- paddings known only at run time, or of dims of unknown length ---

// For each dim, the numbers of elements before and after it, int64 [1].
struct LatePaddings {
  std::vector<Variable> before, after;
};

// Numbers for all dims, from those for `axes`.
Variable ForAllDims(NodeContext& node, const Variable& numbers) {
  const int rank = node.rank(0);
  Variable axes = node.Cast(node.In(3), DType::kInt64);
  axes = axes + node.Cast(Less(axes, ZerosLike(axes)), DType::kInt64) * static_cast<double>(rank);
  const Variable none = node.ConstantVar(Ints(static_cast<size_t>(rank), 0));
  return node.Make("scatter",
                   {{"X", {none.name()}}, {"Ids", {axes.name()}}, {"Updates", {numbers.name()}}},
                   {{"overwrite", true}});
}

LatePaddings LatePaddingsOf(NodeContext& node) {
  const int rank = node.rank(0);
  const Variable given = node.Cast(node.In(1), DType::kInt64);
  const bool some = node.opset() >= 18 && node.HasInput(3);
  node.Require(
      some || given.shape().CompatibleWith({2 * rank}),
      fmt::format("pads must have {} numbers, got {}", 2 * rank, given.shape().ToString()));
  const Variable count = some ? DimOf(node, node.In(3), 0) : node.ScalarVar(DType::kInt64, rank);
  const Variable zero = node.ScalarVar(DType::kInt64, 0);
  Variable before = SliceBetween(node, given, 0, zero, count);
  Variable after = SliceBetween(node, given, 0, count, count + count);
  if (some) {
    before = ForAllDims(node, before);
    after = ForAllDims(node, after);
  }
  LatePaddings pads;
  for (int axis = 0; axis < rank; ++axis) {
    pads.before.push_back(SliceOf(node, before, 0, axis, axis + 1));
    pads.after.push_back(SliceOf(node, after, 0, axis, axis + 1));
  }
  return pads;
}

Variable PadByIndexLate(NodeContext& node, Variable x, const LatePaddings& pads,
                        const std::string& mode) {
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    const Variable n = DimOf(node, x, axis);
    const Variable places = Counted(node, -pads.before[a], n + pads.after[a]);
    const Variable from = SourceOf(node, places, n, mode);
    x = node.Make("gather", {{"X", {x.name()}}, {"Index", {from.name()}}}, {{"axis", axis}});
  }
  return x;
}

// x without its first `head` and last `tail` elements along an axis, int64 [1]. If that is more
// than there are, the gather stops the run: its only valid index is 0.
Variable WithoutEnds(NodeContext& node, const Variable& x, int axis, const Variable& head,
                     const Variable& tail) {
  const Variable n = DimOf(node, x, axis), removed = head + tail;
  const Variable too_many = node.Cast(Less(n, removed), DType::kInt64);
  const Variable checked = node.Make(
      "gather", {{"X", {removed.name()}}, {"Index", {too_many.name()}}}, {{"axis", int32_t{0}}});
  return SliceBetween(node, x, axis, checked - tail, n - tail);
}

// x with `value` [1] before and after it along each axis.
Variable PadByValueLate(NodeContext& node, Variable x, const LatePaddings& pads,
                        const Variable& value) {
  const int rank = x.shape().rank();
  for (int axis = 0; axis < rank; ++axis) {
    const auto a = static_cast<size_t>(axis);
    const Variable inside =
        WithoutEnds(node, x, axis, Max(-pads.before[a], 0.0), Max(-pads.after[a], 0.0));
    const auto some = [&](const Variable& count) {
      Dims dims;
      dims.Add(x, 0, axis).AddNumber(Max(count, 0.0)).Add(x, axis + 1, rank);
      return BroadcastTo(node, value, dims);
    };
    x = variable_functions::Concat({some(pads.before[a]), inside, some(pads.after[a])}, axis);
  }
  return x;
}

Variable PaddingValue(NodeContext& node, DType dtype) {
  if (node.opset() >= 11 && node.HasInput(2))
    return node.Reshape(node.Cast(node.In(2), dtype), {1});
  return node.ScalarVar(dtype, node.opset() < 11 ? static_cast<double>(node.Float("value", 0)) : 0);
}

void PadLate(NodeContext& node, const std::string& mode) {
  if (node.IsScalar(0)) return node.SetSame(0, 0);
  const Variable x = node.In(0);
  const LatePaddings pads = LatePaddingsOf(node);
  node.Set(0, mode == "constant" ? PadByValueLate(node, x, pads, PaddingValue(node, x.dtype()))
                                 : PadByIndexLate(node, x, pads, mode));
}

// x without the elements that negative paddings remove. ONNX lets a padding remove elements that
// the other one adds, which is refused.
Variable Cropped(NodeContext& node, Variable x, const Paddings& pads) {
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (pads.before[a] >= 0 && pads.after[a] >= 0) continue;
    const int64_t head = std::max<int64_t>(0, -pads.before[a]);
    const int64_t tail = std::max<int64_t>(0, -pads.after[a]), dim = x.shape()[axis];
    if (dim < 0) {
      x = WithoutEnds(node, x, axis, node.ConstantVar(Ints{head}), node.ConstantVar(Ints{tail}));
      continue;
    }
    if (head + tail > dim)
      node.Refuse(fmt::format("negative pads that remove {} elements of axis {}, which has {}",
                              head + tail, axis, dim));
    x = SliceOf(node, x, axis, head, dim - tail);
  }
  return x;
}

// Pads with `value`, which the op's float attr can represent.
Variable PadByValue(NodeContext& node, const Variable& x, const Paddings& pads, float value) {
  std::vector<int32_t> around;
  for (size_t i = 0; i < pads.before.size(); ++i) {
    around.push_back(ToInt32(std::max<int64_t>(0, pads.before[i]), "a padding"));
    around.push_back(ToInt32(std::max<int64_t>(0, pads.after[i]), "a padding"));
  }
  if (std::count(around.begin(), around.end(), 0) == static_cast<ptrdiff_t>(around.size()))
    return x;
  return node.Unary("pad", x, {{"paddings", around}, {"pad_value", value}});
}

// The value, if it is known and the float attr represents it and each integer near it exactly.
std::optional<float> ExactValue(NodeContext& node) {
  if (node.opset() < 11) return node.Float("value", 0);
  if (!node.HasInput(2)) return 0.0f;
  const Tensor* value = node.Constant(2);
  if (!value || value->numel() != 1) return std::nullopt;
  if (!IsFloating(value->dtype())) {
    constexpr int64_t kMost = int64_t{1} << 24;
    const int64_t whole = value->Cast(DType::kInt64).Item<int64_t>();
    if (value->dtype() == DType::kUInt64 && whole < 0) return std::nullopt;
    if (whole < -kMost || whole > kMost) return std::nullopt;
    return static_cast<float>(whole);
  }
  const auto wide = value->Cast(DType::kFloat64).Item<double>();
  const auto narrow = static_cast<float>(wide);
  const bool exact = static_cast<double>(narrow) == wide || std::isnan(narrow);
  return exact ? std::optional<float>(narrow) : std::nullopt;
}

// x with `value` [1] around it. A sum of products with 0 and 1 would give nan for an
// infinite value.
Variable PadBySelection(NodeContext& node, const Variable& x, const Paddings& pads,
                        const Variable& value) {
  const Variable inside =
      PadByValue(node, node.Unary("fill_any_like", x, {{"value", 1.0f}}), pads, 0);
  const Variable padded = PadByValue(node, x, pads, 0);
  return Where(node.Cast(inside, DType::kBool), padded, ZerosLike(padded) + value);
}

Variable PadConstant(NodeContext& node, const Variable& x, const Paddings& pads) {
  const DType own = x.dtype();
  const DType dtype = own == DType::kBool ? DType::kInt32 : node.ComputeDType("pad", own);
  const Variable cropped = node.Cast(Cropped(node, x, pads), dtype);
  if (const std::optional<float> value = ExactValue(node))
    return node.Cast(PadByValue(node, cropped, pads, *value), own);
  const Variable value = node.Reshape(node.Cast(node.In(2), dtype), {1});
  return node.Cast(PadBySelection(node, cropped, pads, value), own);
}

void ImportPad(NodeContext& node) {
  const std::string mode = node.OneOf("mode", "constant", {"constant", "reflect", "edge", "wrap"});
  if (node.opset() >= 11 && (!node.Constant(1) || (node.HasInput(3) && !node.Constant(3))))
    return PadLate(node, mode);
  const Paddings pads = PaddingsOf(node);
  if (node.IsScalar(0)) return node.SetSame(0, 0);
  if (mode == "constant") return node.Set(0, PadConstant(node, node.In(0), pads));
  node.attributes().Ignore("value");
  node.Set(0, PadByIndex(node, node.In(0), pads, mode));
}

// Rows and columns whose numbers are the last two dims of x.
std::pair<Variable, Variable> Grid(NodeContext& node, const Variable& x) {
  const int rank = x.shape().rank();
  return {AlongAxis(node, PlacesOn(node, x, rank - 2), 0, 2),
          AlongAxis(node, PlacesOn(node, x, rank - 1), 1, 2)};
}

void ImportTrilu(NodeContext& node) {
  const bool upper = node.Flag("upper", true);
  if (node.HasInput(1) && !node.Constant(1)) {
    node.RequireOne(1, "k");
    const auto [row, column] = Grid(node, node.In(0));
    const Variable k = NumberOf(node, 1), at = column - row;
    const Variable kept = upper ? GreaterEqual(at, k) : GreaterEqual(k, at);
    return node.Set(0, BroadcastWhere(node, kept, node.In(0), node.ScalarVar(node.dtype(0), 0)));
  }
  Ints k = {0};
  if (node.HasInput(1)) k = node.KnownInts(1, "k");
  node.Require(k.size() == 1, "k must be one number");
  const DType own = node.dtype(0);
  const DType dtype = own == DType::kBool ? own : node.ComputeDType("tril_triu", own);
  const auto diagonal = ToInt32(std::clamp<int64_t>(k[0], -(1 << 30), 1 << 30), "k");
  const Variable part = node.Unary("tril_triu", node.Cast(node.In(0), dtype),
                                   {{"diagonal", diagonal}, {"lower", !upper}});
  node.Set(0, node.Cast(part, own));
}

void ImportEyeLike(NodeContext& node) {
  const int64_t k = node.Int("k", 0);
  const int32_t data_type = node.Int32("dtype", node.InValue(0).data_type);
  const auto dtype = FromDataType(data_type);
  if (!dtype) node.Refuse("attribute dtype " + DataTypeName(data_type));
  const Shape shape = node.shape(0);
  node.Require(shape.rank() == 2, "the input must be a matrix");
  if (!shape.IsKnown()) {
    const auto [row, column] = Grid(node, node.In(0));
    const Variable ones = Equal(column - row, node.ConstantVar(Ints{k}));
    return node.SetValue(0, {.var = node.Cast(ones, *dtype), .data_type = data_type});
  }
  RequireSmallConstant(node, shape.ToVector(), "a matrix");
  Tensor ones = Tensor::Full<float>(shape, 0);
  // Diagonals beyond these are outside, too.
  const int64_t at = std::clamp(k, -shape[0], shape[1]);
  for (int64_t i = std::max<int64_t>(0, -at); i < shape[0] && i + at < shape[1]; ++i)
    ones.data<float>()[i * shape[1] + i + at] = 1;
  node.SetValue(0, {.constant = ones.Cast(*dtype), .data_type = data_type});
}

}  // namespace

void AddPadImporters(NodeImporters& importers) {
  constexpr auto kMoves = Unsigned::kMoves;
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "Pad",
         .since = 1,
         .takes = "T i1? T? i1?",
         .import = ImportPad,
         .maps_to = "pad; gather; concat",
         .unsigneds = kMoves},
           {.op_type = "Trilu",
           .since = 14,
           .takes = "T2+ i?",
           .import = ImportTrilu,
           .maps_to = "tril_triu; where",
           .unsigneds = kMoves},
           {.op_type = "EyeLike",
           .since = 9,
           .takes = "T2",
           .import = ImportEyeLike,
           .maps_to = "assign_value; equal"},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
