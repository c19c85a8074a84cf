// Numbers as integers with a scale and a zero point: the nodes QuantizeLinear, DequantizeLinear
// and DynamicQuantizeLinear.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/quantize.h>
#include <coracle/operators/operators.h>
#include <coracle/proto/onnx.pb.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace coracle::onnx {

using proto::onnx::TensorProto;

namespace {

// The range of an ONNX type that has fewer integers than the dtype that holds it.
struct Range {
  int64_t least, most;
};
std::optional<Range> NarrowRange(int data_type) {
  switch (data_type) {
    case TensorProto::UINT16:
      return Range{0, 65535};
    case TensorProto::INT4:
      return Range{-8, 7};
    case TensorProto::UINT4:
      return Range{0, 15};
    case TensorProto::INT2:
      return Range{-2, 1};
    case TensorProto::UINT2:
      return Range{0, 3};
    default:
      return std::nullopt;
  }
}

// A scale or zero point; one element gets the shape [1].
Variable StepIn(NodeContext& node, size_t i) {
  const Variable v = node.In(i);
  const Shape& shape = v.shape();
  const bool one = node.rank(i) == 0 || (shape.IsKnown() && shape.numel() == 1);
  return one && shape != Shape{1} ? node.Reshape(v, {1}) : v;
}

}  // namespace

bool IsByteType(int data_type) {
  return data_type == TensorProto::INT8 || data_type == TensorProto::UINT8;
}

bool HasBytes(NodeContext& node, size_t i) { return IsByteType(node.InValue(i).data_type); }

void RequireQuantizedType(NodeContext& node, int data_type) {
  const bool whole =
      IsByteType(data_type) || data_type == TensorProto::INT16 || data_type == TensorProto::INT32;
  if (!whole && !NarrowRange(data_type))
    node.Refuse(fmt::format("quantized elements of type {}", DataTypeName(data_type)));
}

Variable ScaleIn(NodeContext& node, size_t i) {
  return node.Cast(StepIn(node, i), DType::kFloat32);
}

Variable ZeroPointIn(NodeContext& node, size_t i) {
  return node.HasInput(i) ? StepIn(node, i) : Variable();
}

void AddSlot(SlotList& slots, const std::string& name, const Variable& var) {
  if (var) slots.push_back({name, {var.name()}});
}

Variable Quantized(NodeContext& node, const Variable& x, const Affine& affine, int data_type,
                   AttrList attrs) {
  RequireQuantizedType(node, data_type);
  attrs.push_back({"out_dtype", DTypeAttr(*HoldingDType(data_type))});
  if (const std::optional<Range> range = NarrowRange(data_type)) {
    attrs.push_back({"qmin", range->least});
    attrs.push_back({"qmax", range->most});
  }
  SlotList inputs = {{"X", {x.name()}}, {"Scale", {affine.scale.name()}}};
  AddSlot(inputs, "ZeroPoint", affine.zero_point);
  return node.Make("affine_quantize", std::move(inputs), std::move(attrs));
}

Variable Dequantized(NodeContext& node, const Variable& x, const Affine& affine, DType dtype,
                     AttrList attrs) {
  if (affine.scale.dtype() != dtype) attrs.push_back({"out_dtype", static_cast<int32_t>(dtype)});
  SlotList inputs = {{"X", {x.name()}}, {"Scale", {affine.scale.name()}}};
  AddSlot(inputs, "ZeroPoint", affine.zero_point);
  return node.Make("affine_dequantize", std::move(inputs), std::move(attrs));
}

Variable RealIn(NodeContext& node, size_t i, DType dtype) {
  RequireQuantizedType(node, node.InValue(i).data_type);
  return Dequantized(node, node.In(i), {ScaleIn(node, i + 1), ZeroPointIn(node, i + 2)}, dtype);
}

void SetQuantized(NodeContext& node, size_t i, const Variable& y, int data_type, bool scalar) {
  node.SetValue(i, {.var = y, .data_type = data_type, .scalar = scalar});
}

DynamicBytes QuantizedByRange(NodeContext& node, const Variable& x) {
  const std::string scale_name = node.NewName("scale"), zero_name = node.NewName("zero_point");
  node.writer().Append("dynamic_scale", {{"X", {node.Cast(x, DType::kFloat32).name()}}},
                       {{"Scale", {scale_name}}, {"ZeroPoint", {zero_name}}});
  const Variable scale = node.writer().Var(scale_name), zero = node.writer().Var(zero_name);
  return {Quantized(node, x, {scale, zero}, TensorProto::UINT8), {scale, zero}};
}

namespace {

// The attrs of several scales or zero points (inputs 1 and 2): one for each index of `axis` or,
// with block_size, for each block along it.
AttrList StepAttrs(NodeContext& node) {
  const int64_t axis = node.Int("axis", 1), block = node.Int("block_size", 0);
  const int rank = node.rank(0);
  bool several = false;
  for (size_t i = 1; i <= 2; ++i) {
    if (!node.HasInput(i)) continue;
    const Shape shape = node.shape(i);
    const bool one = shape.IsKnown() && shape.numel() == 1;
    several = several || !one;
    node.Require(one || (block == 0 ? shape.rank() <= 1 : shape.rank() == rank),
                 "a scale or zero point must be one number, a vector, or of the rank of x with "
                 "attribute block_size");
  }
  node.Require(block >= 0, "attribute block_size must not be negative");
  if (!several || rank == 0) return {};
  AttrList attrs = {{"axis", node.Axis(axis, rank)}};
  if (block > 0) attrs.push_back({"block_size", block});
  return attrs;
}

// --- small floats, which are rounded by an op of their own ---

// Input i, a scale or zero point, in a shape that broadcasts to x: one element, one for each index
// of `axis` or, with a block size, one for each block of elements along it.
Variable Stretched(NodeContext& node, size_t i, const Shape& x, int64_t axis, int64_t block) {
  const Variable v = StepIn(node, i);
  const int rank = node.rank(i);
  if (v.shape() == Shape{1}) return v;
  const int32_t at = node.Axis(axis, x.rank());
  if (rank == 1 && block == 0) {
    std::vector<int64_t> shape(static_cast<size_t>(x.rank()), 1);
    shape[static_cast<size_t>(at)] = -1;
    return node.Reshape(v, shape);
  }
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

void QuantizeToFloats(NodeContext& node, const Variable& x, DType dtype, int data_type,
                      bool saturate) {
  const int64_t axis = node.Int("axis", 1), block = node.Int("block_size", 0);
  Variable y = x / node.Cast(Stretched(node, 1, x.shape(), axis, block), dtype);
  if (node.HasInput(2)) y = y + node.Cast(Stretched(node, 2, x.shape(), axis, block), dtype);
  SetQuantized(node, 0, RoundedToFormat(node, y, data_type, saturate), data_type, node.IsScalar(0));
}

Variable DequantizedFloats(NodeContext& node) {
  const int64_t axis = node.Int("axis", 1), block = node.Int("block_size", 0);
  const Shape shape = node.In(0).shape();
  Variable x = node.Cast(node.In(0), DType::kFloat32);
  if (node.HasInput(2)) x = x - node.Cast(Stretched(node, 2, shape, axis, block), DType::kFloat32);
  const Variable scale = Stretched(node, 1, shape, axis, block);
  return node.Cast(x, scale.dtype()) * scale;
}

// --- importers ---

void ImportQuantize(NodeContext& node) {
  const bool saturate = node.Flag("saturate", true);  // of 8-bit floats
  const auto precision = node.Int32("precision", 0);
  const auto wanted = node.Int32("output_dtype", 0);
  int data_type = wanted != 0 ? wanted : static_cast<int>(TensorProto::UINT8);
  if (node.HasInput(2)) data_type = node.InValue(2).data_type;
  node.Require(wanted == 0 || wanted == data_type,
               "attribute output_dtype must be the type of y_zero_point");
  const bool to_floats = !FloatFormat(data_type).empty();
  if (!to_floats) RequireQuantizedType(node, data_type);
  DType dtype = precision == 0 ? node.dtype(1) : FromDataType(precision).value_or(DType::kFloat32);
  node.Require(IsFloating(node.dtype(1)) || IsInteger(node.dtype(1)), "the scale must be numbers");
  // For int32, the exact quotient is rounded.
  if (!IsFloating(dtype)) dtype = DType::kFloat64;
  AttrList attrs = StepAttrs(node);
  const Variable x = node.Cast(node.In(0), dtype);
  if (to_floats) return QuantizeToFloats(node, x, dtype, data_type, saturate);
  if (IsHalf(dtype)) attrs.push_back({"quotient_dtype", static_cast<int32_t>(dtype)});
  // A float64 scale is exact for every type.
  Affine affine = {node.Cast(StepIn(node, 1), dtype), ZeroPointIn(node, 2)};
  if (IsHalf(dtype)) affine.scale = node.Cast(affine.scale, DType::kFloat32);
  SetQuantized(node, 0, Quantized(node, x, affine, data_type, std::move(attrs)), data_type,
               node.IsScalar(0));
}

void ImportDequantize(NodeContext& node) {
  const auto wanted = node.Int32("output_dtype", 0);
  const std::optional<DType> dtype = wanted == 0 ? node.InValue(1).dtype() : FromDataType(wanted);
  node.Require(dtype && IsFloating(*dtype), "attribute output_dtype must be a type of floats");
  AttrList attrs = StepAttrs(node);
  Variable y;
  if (!FloatFormat(node.InValue(0).data_type).empty()) {
    y = node.Cast(DequantizedFloats(node), *dtype);
  } else {
    RequireQuantizedType(node, node.InValue(0).data_type);
    const Variable scale = StepIn(node, 1);
    const Affine affine = {IsFloating(scale.dtype()) ? scale : node.Cast(scale, DType::kFloat64),
                           ZeroPointIn(node, 2)};
    y = Dequantized(node, node.In(0), affine, *dtype, std::move(attrs));
  }
  node.SetValue(0, {.var = y, .data_type = ToDataType(*dtype), .scalar = node.IsScalar(0)});
}

void ImportDynamicQuantize(NodeContext& node) {
  const DynamicBytes y = QuantizedByRange(node, node.In(0));
  SetQuantized(node, 0, y.numbers, TensorProto::UINT8, node.IsScalar(0));
  node.Set(1, y.affine.scale, true);
  SetQuantized(node, 2, y.affine.zero_point, TensorProto::UINT8, true);
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
  const char* microsoft = "com.microsoft";
  const char* quantize = "affine_quantize; round_to_format";
  const char* dequantize = "affine_dequantize; elementwise_mul";
  add("QuantizeLinear", "n T T?", ImportQuantize, quantize);
  add("DequantizeLinear", "T T T?", ImportDequantize, dequantize);
  add("DynamicQuantizeLinear", "f", ImportDynamicQuantize, "dynamic_scale, affine_quantize");
  add("QuantizeLinear", "n f i?", ImportQuantize, "affine_quantize", microsoft);
  add("DequantizeLinear", "i f i?", ImportDequantize, "affine_dequantize", microsoft);
  AddQuantizedConvImporters(importers);
  AddQuantizedElementImporters(importers);
}

}  // namespace coracle::onnx
