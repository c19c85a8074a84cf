// Numbers as integers with a scale and a zero point, and products and convolutions of them.
// Intermediate sums are exact.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/elementwise.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <coracle/proto/onnx.pb.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

struct Range {
  double least, most;
};

// The range of an ONNX integer type, including types that are held in another dtype.
Range RangeOf(NodeContext& node, int data_type) {
  switch (data_type) {
    case TensorProto::UINT8:
      return {0, 255};
    case TensorProto::INT8:
      return {-128, 127};
    case TensorProto::UINT16:
      return {0, 65535};
    case TensorProto::INT16:
      return {-32768, 32767};
    case TensorProto::INT32:
      return {-2147483648.0, 2147483647.0};
    case TensorProto::INT4:
      return {-8, 7};
    case TensorProto::UINT4:
      return {0, 15};
    case TensorProto::INT2:
      return {-2, 1};
    case TensorProto::UINT2:
      return {0, 3};
    default:
      node.Refuse(fmt::format("quantized elements of type {}", DataTypeName(data_type)));
  }
}

// Input i, a scale or zero point, in a shape that broadcasts to x: one element, one for each index
// of `axis` or, with a block size, one for each block of elements along it.
Variable Stretched(NodeContext& node, size_t i, const Shape& x, int64_t axis, int64_t block) {
  const Variable v = node.In(i);
  const int rank = node.rank(i);
  if (rank == 0 || (v.shape().IsKnown() && v.shape().numel() == 1)) return node.Reshape(v, {1});
  const int32_t at = node.Axis(axis, x.rank());
  if (rank == 1 && block == 0) {
    std::vector<int64_t> shape(static_cast<size_t>(x.rank()), 1);
    shape[static_cast<size_t>(at)] = -1;
    return node.Reshape(v, shape);
  }
  node.Require(block > 0 && rank == x.rank(),
               "a scale or zero point must be one number, a vector, or of the rank of x with "
               "attribute block_size");
  if (!v.shape().IsKnown() || x[at] < 0) node.Refuse("blocks of an unknown number");
  Shape wide = v.shape(), joined = v.shape();
  wide.Append(block);
  joined[at] = v.shape()[at] * block;
  node.Require(joined[at] >= x[at] && joined[at] - block < std::max<int64_t>(x[at], 1),
               "the number of scales differs from the number of blocks");
  Variable each =
      node.WithXShape("unsqueeze2", v, {{"axes", std::vector<int32_t>{v.shape().rank()}}});
  each = MoveAxis(node, node.BroadcastTo(each, wide), -1, at + 1);
  each = node.Reshape(each, joined.ToVector());
  return joined[at] == x[at] ? each : SliceOf(node, each, at, 0, x[at]);
}

// The rounded x in floats, plus a zero point, clamped to the range of `data_type` and stored in
// its dtype.
Variable Saturated(NodeContext& node, const Variable& x, const Variable& zero_point,
                   int data_type) {
  const Range range = RangeOf(node, data_type);
  // 16-bit floats cannot represent halves exactly.
  const DType wide = IsHalf(x.dtype()) ? DType::kFloat32 : x.dtype();
  Variable y = node.Cast(RoundedToEven(node, node.Cast(x, wide)), DType::kFloat64);
  if (zero_point) y = y + node.Cast(zero_point, DType::kFloat64);
  y = Max(Min(y, range.most), range.least);
  return node.Cast(y, *HoldingDType(data_type));
}

void SetQuantized(NodeContext& node, size_t i, const Variable& y, int data_type, bool scalar) {
  node.SetValue(i, {.var = y, .data_type = data_type, .scalar = scalar});
}

void ImportQuantize(NodeContext& node) {
  const int64_t axis = node.Int("axis", 1), block = node.Int("block_size", 0);
  const bool saturate = node.Flag("saturate", true);  // of 8-bit floats
  const auto precision = node.Int32("precision", 0);
  const auto wanted = node.Int32("output_dtype", 0);
  int data_type = wanted != 0 ? wanted : static_cast<int>(TensorProto::UINT8);
  if (node.HasInput(2)) data_type = node.InValue(2).data_type;
  node.Require(wanted == 0 || wanted == data_type,
               "attribute output_dtype must be the type of y_zero_point");
  const bool to_floats = !FloatFormat(data_type).empty();
  if (!to_floats) RangeOf(node, data_type);
  DType dtype = precision == 0 ? node.dtype(1) : FromDataType(precision).value_or(DType::kFloat32);
  node.Require(IsFloating(node.dtype(1)) || IsInteger(node.dtype(1)), "the scale must be numbers");
  // For int32, the exact quotient is rounded.
  if (!IsFloating(dtype)) dtype = DType::kFloat64;
  const Variable x = node.Cast(node.In(0), dtype);
  const Shape& shape = x.shape();
  const Variable scale = node.Cast(Stretched(node, 1, shape, axis, block), dtype);
  Variable zero_point;
  if (node.HasInput(2)) zero_point = Stretched(node, 2, shape, axis, block);
  if (to_floats) {
    const Variable y = x / scale;
    const Variable shifted = zero_point ? y + node.Cast(zero_point, dtype) : y;
    return SetQuantized(node, 0, RoundedToFormat(node, shifted, data_type, saturate), data_type,
                        node.IsScalar(0));
  }
  SetQuantized(node, 0, Saturated(node, x / scale, zero_point, data_type), data_type,
               node.IsScalar(0));
}

void ImportDequantize(NodeContext& node) {
  const int64_t axis = node.Int("axis", 1), block = node.Int("block_size", 0);
  const auto wanted = node.Int32("output_dtype", 0);
  const bool of_floats = !FloatFormat(node.InValue(0).data_type).empty();
  if (!of_floats) RangeOf(node, node.InValue(0).data_type);
  const DType exact = of_floats ? DType::kFloat32 : DType::kInt64;
  const Shape shape = node.In(0).shape();
  Variable x = node.Cast(node.In(0), exact);
  if (node.HasInput(2)) x = x - node.Cast(Stretched(node, 2, shape, axis, block), exact);
  const Variable scale = Stretched(node, 1, shape, axis, block);
  const Variable y = node.Cast(x, scale.dtype()) * scale;
  const std::optional<DType> dtype = wanted == 0 ? node.InValue(1).dtype() : FromDataType(wanted);
  node.Require(dtype && IsFloating(*dtype), "attribute output_dtype must be a type of floats");
  node.SetValue(
      0,
      {.var = node.Cast(y, *dtype), .data_type = ToDataType(*dtype), .scalar = node.IsScalar(0)});
}

// The range of x, extended to 0, in 255 steps.
void ImportDynamicQuantize(NodeContext& node) {
  const Variable x = node.In(0);
  const Variable least = Min(node.Unary("reduce_min", x, {{"reduce_all", true}}), 0.0);
  const Variable most = Max(node.Unary("reduce_max", x, {{"reduce_all", true}}), 0.0);
  const Variable range = (most - least) / 255.0;
  // If all elements are 0, any scale will do.
  const Variable scale = range + node.Cast(Equal(range, ZerosLike(range)), x.dtype());
  const Variable zero_point = Saturated(node, -least / scale, {}, TensorProto::UINT8);
  SetQuantized(node, 0, Saturated(node, x / scale, zero_point, TensorProto::UINT8),
               TensorProto::UINT8, node.IsScalar(0));
  node.Set(1, scale, true);
  SetQuantized(node, 2, zero_point, TensorProto::UINT8, true);
}

// Inputs A, its scale and zero point, the same of B, scale and zero point of the result.
void SetQuantizedPair(NodeContext& node, Variable (*combine)(const Variable&, const Variable&)) {
  const auto real = [&](size_t i) {
    RangeOf(node, node.InValue(i).data_type);
    Variable x = node.Cast(node.In(i), DType::kFloat64);
    if (node.HasInput(i + 2)) x = x - node.Cast(node.In(i + 2), DType::kFloat64);
    return x * node.Cast(node.In(i + 1), DType::kFloat64);
  };
  const Variable y = combine(real(0), real(3)) / node.Cast(node.In(6), DType::kFloat64);
  const int data_type = node.InValue(0).data_type;
  const Variable zero_point = node.HasInput(7) ? node.In(7) : Variable();
  SetQuantized(node, 0, Saturated(node, y, zero_point, data_type), data_type, false);
}

void ImportQLinearAdd(NodeContext& node) {
  SetQuantizedPair(node, [](const Variable& a, const Variable& b) { return a + b; });
}

void ImportQLinearMul(NodeContext& node) {
  SetQuantizedPair(node, [](const Variable& a, const Variable& b) { return a * b; });
}

// --- products ---

// A scale or zero point of the rows of A: a vector becomes a column.
Variable OfRows(NodeContext& node, size_t i) {
  const Variable v = node.In(i);
  const bool one = v.shape().IsKnown() && v.shape().numel() == 1;
  return node.rank(i) == 1 && !one ? node.Reshape(v, {-1, 1}) : v;
}

// Operand `i` minus its zero point.
Variable Centred(NodeContext& node, size_t i, const Variable& zero_point, DType dtype) {
  RangeOf(node, node.InValue(i).data_type);
  const Variable x = node.Cast(node.In(i), dtype);
  return zero_point ? x - node.Cast(zero_point, dtype) : x;
}

void ImportMatMulInteger(NodeContext& node) {
  Variable a_zero, b_zero;
  if (node.HasInput(2)) a_zero = OfRows(node, 2);
  if (node.HasInput(3)) b_zero = node.In(3);
  const Variable a = Centred(node, 0, a_zero, DType::kInt32);
  const Variable b = Centred(node, 1, b_zero, DType::kInt32);
  node.Set(0, node.Binary("matmul_v2", a, b), node.rank(0) == 1 && node.rank(1) == 1);
}

Variable Double(NodeContext& node, const Variable& x) { return node.Cast(x, DType::kFloat64); }

// Inputs a, its scale and zero point, b, its scale and zero point, scale and zero point of y.
void ImportQLinearMatMul(NodeContext& node) {
  const Variable a = Centred(node, 0, OfRows(node, 2), DType::kInt32);
  const Variable b = Centred(node, 3, node.In(5), DType::kInt32);
  const Variable product = Double(node, node.Binary("matmul_v2", a, b));
  const Variable scale =
      Double(node, OfRows(node, 1)) * Double(node, node.In(4)) / Double(node, OfRows(node, 6));
  const int data_type = node.InValue(7).data_type;
  SetQuantized(node, 0, Saturated(node, product * scale, OfRows(node, 7), data_type), data_type,
               node.rank(0) == 1 && node.rank(3) == 1);
}

// --- convolutions ---

// The convolution of integers in float64, which is exact.
Variable Convolved(NodeContext& node, Variable x, Variable w) {
  const int rank = x.shape().rank();
  node.Require(rank >= 3 && w.shape().rank() == rank, "x and w must have one rank of 3 or more");
  if (rank > 5) node.Refuse("a convolution over more than three axes");
  if (!w.shape().IsKnown()) node.Refuse("filters of unknown shape");
  Windows windows = WindowsOf(node, x.shape(), {w.shape().begin() + 2, w.shape().end()});
  const auto group = node.Int32("group", 1);
  if (rank == 3) {
    x = WithHeight(node, x);
    w = WithHeight(node, w);
    windows = WithHeight(windows);
  }
  const Variable y =
      node.Make(rank == 5 ? "conv3d" : "conv2d", {{"Input", {x.name()}}, {"Filter", {w.name()}}},
                {{"strides", ToInt32(windows.strides, "a window")},
                 {"paddings", Interleaved(windows.before, windows.after)},
                 {"padding_algorithm", std::string(windows.same ? "SAME" : "EXPLICIT")},
                 {"dilations", ToInt32(windows.dilations, "a window")},
                 {"groups", group}},
                "Output");
  return rank == 3 ? WithoutHeight(node, y) : y;
}

// A scale or zero point of filters, for dimension `axis` of a tensor of that rank.
Variable OfFilters(NodeContext& node, size_t i, int rank, int axis) {
  const Variable v = node.In(i);
  if (v.shape().IsKnown() && v.shape().numel() == 1) return node.Reshape(v, {1});
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = -1;
  return node.Reshape(v, shape);
}

void ImportConvInteger(NodeContext& node) {
  Variable x_zero, w_zero;
  if (node.HasInput(2)) x_zero = node.In(2);
  if (node.HasInput(3)) w_zero = OfFilters(node, 3, node.rank(1), 0);
  const Variable y = Convolved(node, Centred(node, 0, x_zero, DType::kFloat64),
                               Centred(node, 1, w_zero, DType::kFloat64));
  node.Set(0, node.Cast(y, DType::kInt32));
}

// Inputs x, its scale and zero point, w, its scale and zero point, scale and zero point of y, and a
// bias of scale x_scale w_scale.
void ImportQLinearConv(NodeContext& node) {
  const int rank = node.rank(0);
  const Variable x = Centred(node, 0, node.In(2), DType::kFloat64);
  const Variable w = Centred(node, 3, OfFilters(node, 5, rank, 0), DType::kFloat64);
  Variable y = Convolved(node, x, w);
  if (node.HasInput(8)) y = y + Double(node, OfFilters(node, 8, rank, 1));
  const Variable scale = Double(node, node.In(1)) * Double(node, OfFilters(node, 4, rank, 1)) /
                         Double(node, node.In(6));
  const int data_type = node.InValue(7).data_type;
  SetQuantized(node, 0, Saturated(node, y * scale, node.In(7), data_type), data_type, false);
}

}  // namespace

void AddQuantizeImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to, const char* domain = "") {
    importers.Add({.op_type = type,
                   .since = *domain ? 1 : 10,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = Unsigned::kMoves,
                   .composed = import == ImportDequantize || import == ImportDynamicQuantize,
                   .domain = domain});
  };
  add("QuantizeLinear", "n T T?", ImportQuantize, "elementwise_div, round, cast; round_to_format");
  add("DequantizeLinear", "T T T?", ImportDequantize, "elementwise_sub, elementwise_mul");
  add("DynamicQuantizeLinear", "f", ImportDynamicQuantize, "reduce_min, reduce_max, round, cast");
  add("MatMulInteger", "i1+ i1+ i? i?", ImportMatMulInteger, "elementwise_sub, matmul_v2");
  add("QLinearMatMul", "i1+ f i i1+ f i f i", ImportQLinearMatMul,
      "elementwise_sub, matmul_v2, round");
  add("ConvInteger", "i3+ i3+ i? i0-1?", ImportConvInteger, "elementwise_sub, conv2d; conv3d");
  add("QLinearConv", "i3+ f i i3+ f0-1 i0-1 f i i1?", ImportQLinearConv,
      "elementwise_sub, conv2d, round; conv3d");
  const char* microsoft = "com.microsoft";
  add("QuantizeLinear", "n f i?", ImportQuantize, "elementwise_div, round, cast", microsoft);
  add("DequantizeLinear", "i f i?", ImportDequantize, "elementwise_sub, elementwise_mul",
      microsoft);
  add("QLinearAdd", "i f i? i f i? f i?", ImportQLinearAdd,
      "elementwise_sub, elementwise_add, round", microsoft);
  add("QLinearMul", "i f i? i f i? f i?", ImportQLinearMul,
      "elementwise_sub, elementwise_mul, round", microsoft);
}

}  // namespace coracle::onnx
