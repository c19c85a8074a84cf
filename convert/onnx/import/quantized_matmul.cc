// Products of integers: MatMulInteger and QLinearMatMul; of com.microsoft, QGemm,
// MatMulIntegerToFloat and DynamicQuantizeMatMul.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/quantize.h>
#include <coracle/convert/onnx/import/quantized_matmul.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <utility>

namespace coracle::onnx {
namespace {

Variable Wide(NodeContext& node, const Variable& x) { return node.Cast(x, DType::kFloat64); }

void RequireBytes(NodeContext& node, size_t i) {
  const DType dtype = node.InValue(i).dtype();
  node.Require(dtype == DType::kInt8 || dtype == DType::kUInt8,
               fmt::format("input {} must have integers of 8 bits, got {}", i, ToString(dtype)));
}

bool IsOne(const Shape& shape) { return shape.IsKnown() && shape.numel() == 1; }

// A matrix of integers, its scale (none for sums of integers) and zero point.
struct Operand {
  Variable matrix;
  Affine affine;
};

SlotList ProductSlots(const Operand& a, const Operand& b) {
  SlotList slots = {{"X", {a.matrix.name()}}};
  AddSlot(slots, "XScale", a.affine.scale);
  AddSlot(slots, "XZeroPoint", a.affine.zero_point);
  slots.push_back({"Y", {b.matrix.name()}});
  AddSlot(slots, "YScale", b.affine.scale);
  AddSlot(slots, "YZeroPoint", b.affine.zero_point);
  return slots;
}

Variable Product(NodeContext& node, SlotList slots, DType out, AttrList attrs = {}) {
  attrs.push_back({"out_dtype", DTypeAttr(out)});
  return node.Make("quantized_matmul", std::move(slots), std::move(attrs));
}

// --- by casts and a product in int32, for what quantized_matmul does not take: integers of other
// types, and scales of the columns of each matrix ---

// A scale or zero point of the rows of A: a vector becomes a column.
Variable OfRows(NodeContext& node, size_t i) {
  const Variable v = node.In(i);
  return node.rank(i) == 1 && !IsOne(v.shape()) ? node.Reshape(v, {-1, 1}) : v;
}

Variable CentredInt(NodeContext& node, size_t i, const Variable& zero) {
  RequireQuantizedType(node, node.InValue(i).data_type);
  const Variable x = node.Cast(node.In(i), DType::kInt32);
  return zero ? x - node.Cast(zero, DType::kInt32) : x;
}

Variable SumsByParts(NodeContext& node, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  const Variable x = CentredInt(node, a, node.HasInput(a_zero) ? OfRows(node, a_zero) : Variable());
  const Variable y = CentredInt(node, b, node.HasInput(b_zero) ? node.In(b_zero) : Variable());
  return node.Binary("matmul_v2", x, y);
}

// Whether each is one number or a vector: of the rows of A, or of the columns of B.
bool AreLines(NodeContext& node, std::initializer_list<size_t> inputs) {
  for (size_t i : inputs)
    if (node.HasInput(i) && node.rank(i) > 1 && !IsOne(node.shape(i))) return false;
  return true;
}

Variable SumsOf(NodeContext& node, size_t a, size_t a_zero, size_t b, size_t b_zero) {
  if (!HasBytes(node, a) || !HasBytes(node, b) || !AreLines(node, {b_zero}))
    return SumsByParts(node, a, a_zero, b, b_zero);
  return Product(node,
                 ProductSlots({node.In(a), {{}, ZeroPointIn(node, a_zero)}},
                              {node.In(b), {{}, ZeroPointIn(node, b_zero)}}),
                 DType::kInt32);
}

void ImportMatMulInteger(NodeContext& node) {
  node.Set(0, SumsOf(node, 0, 2, 1, 3), node.rank(0) == 1 && node.rank(1) == 1);
}

// The sums times the scales in float64, rounded once. Scales of the rows of the result become
// vectors along its last axis but one.
Variable QLinearMatMulByParts(NodeContext& node, int data_type) {
  const Variable sums = Wide(node, SumsOf(node, 0, 2, 3, 5));
  const Variable real = sums * (Wide(node, OfRows(node, 1)) * Wide(node, node.In(4)));
  AttrList attrs;
  if (real.shape().rank() >= 2) attrs = {{"axis", real.shape().rank() - 2}};
  const bool lines = AreLines(node, {6, 7});
  if (lines)
    return Quantized(node, real, {Wide(node, ScaleIn(node, 6)), ZeroPointIn(node, 7)}, data_type,
                     attrs);
  node.Refuse(
      "scales or zero points of the result (inputs 6 and 7) that are not one number or a "
      "vector");
}

// Inputs a, its scale and zero point, b, its scale and zero point, scale and zero point of y.
void ImportQLinearMatMul(NodeContext& node) {
  const int data_type = node.InValue(7).data_type;
  RequireQuantizedType(node, data_type);
  const bool scalar = node.rank(0) == 1 && node.rank(3) == 1;
  const bool one = IsOne(node.In(6).shape()) && IsOne(node.In(7).shape());
  if (!one || !IsByteType(data_type) || !HasBytes(node, 0) || !HasBytes(node, 3) ||
      !AreLines(node, {4, 5}))
    return SetQuantized(node, 0, QLinearMatMulByParts(node, data_type), data_type, scalar);
  SlotList slots = ProductSlots({node.In(0), {ScaleIn(node, 1), ZeroPointIn(node, 2)}},
                                {node.In(3), {ScaleIn(node, 4), ZeroPointIn(node, 5)}});
  AddSlot(slots, "OutScale", ScaleIn(node, 6));
  AddSlot(slots, "OutZeroPoint", ZeroPointIn(node, 7));
  SetQuantized(node, 0, Product(node, std::move(slots), *HoldingDType(data_type)), data_type,
               scalar);
}

// --- results in floats ---

// The only element of input i. If only a run knows the number of elements, the reshape checks it.
Variable OneIn(NodeContext& node, size_t i) {
  if (!node.HasInput(i)) return Variable();
  const Shape shape = node.shape(i);
  if (shape.IsKnown() && shape.numel() != 1) {
    node.Refuse(
        fmt::format("{} scales or zero points for the columns of A (input {}): quantize A with one "
                    "scale and one zero point",
                    shape.numel(), i));
  }
  const Variable v = node.In(i);
  return v.shape() == Shape{1} ? v : node.Reshape(v, {1});
}

Variable ProductOfReals(NodeContext& node, const Operand& a, const Operand& b,
                        const Variable& bias) {
  SlotList slots = ProductSlots(a, b);
  if (bias) AddSlot(slots, "Bias", node.Cast(bias, DType::kFloat32));
  return Product(node, std::move(slots), DType::kFloat32);
}
Variable BiasIn(NodeContext& node, size_t i) { return node.HasInput(i) ? node.In(i) : Variable(); }

}  // namespace

Variable RealProduct(NodeContext& node, const ProductInputs& at, const Variable& bias) {
  for (size_t i : {at.a, at.b}) RequireBytes(node, i);
  node.InValue(at.a_scale);
  const Variable scale = node.Cast(OneIn(node, at.a_scale), DType::kFloat32);
  return ProductOfReals(node, {node.In(at.a), {scale, OneIn(node, at.a_zero)}},
                        {node.In(at.b), {ScaleIn(node, at.b_scale), ZeroPointIn(node, at.b_zero)}},
                        bias);
}

namespace {

// Inputs A, B, their scales, their zero points, a bias. A vector belongs to the columns of B.
void ImportMatMulIntegerToFloat(NodeContext& node) {
  node.Set(0, RealProduct(node, {0, 1, 2, 3, 4, 5}, BiasIn(node, 6)));
}

// Inputs A in floats, B, its scale and zero point, a bias.
void ImportDynamicQuantizeMatMul(NodeContext& node) {
  RequireBytes(node, 1);
  const DynamicBytes a = QuantizedByRange(node, node.Cast(node.In(0), DType::kFloat32));
  const Operand b = {node.In(1), {ScaleIn(node, 2), ZeroPointIn(node, 3)}};
  node.Set(0, ProductOfReals(node, {a.numbers, a.affine}, b, BiasIn(node, 4)));
}

// --- QGemm ---

// Whether C (input 6) has an element for each column of the result.
bool IsRowOfC(NodeContext& node, int64_t columns) {
  const Shape c = node.shape(6);
  if (columns < 0 || !c.IsKnown() || c.rank() > 2) return false;
  return c.numel() == columns && (c.rank() <= 1 || c[0] == 1);
}

// alpha a_scale, [1].
Variable ScaleOfA(NodeContext& node) {
  const float alpha = node.Float("alpha", 1.0f);
  node.RequireOne(1, "a_scale");
  const Variable scale = ScaleIn(node, 1);
  return alpha == 1.0f ? scale : scale * static_cast<double>(alpha);
}

// The sums plus a C of any shape as integers, then times the scales.
Variable GemmOfAnyC(NodeContext& node, const Operand& a, const Operand& b, const AttrList& attrs,
                    DType dtype) {
  const Variable sums = Product(
      node,
      ProductSlots({a.matrix, {{}, a.affine.zero_point}}, {b.matrix, {{}, b.affine.zero_point}}),
      DType::kInt32, attrs);
  const Variable scale = Wide(node, a.affine.scale) * Wide(node, b.affine.scale);
  return Dequantized(node, sums + node.In(6), {scale, {}}, dtype, {{"axis", 1}});
}

// Inputs A, its scale and zero point, B, its scale and zero point, C in units of alpha a_scale
// b_scale, scale and zero point of Y. Without a scale, Y is in float32.
void ImportQGemm(NodeContext& node) {
  for (size_t i : {0, 3}) RequireBytes(node, i);
  node.RequireOne(2, "a_zero_point");
  node.Require(node.HasInput(7) == node.HasInput(8) || !node.HasInput(8),
               "y_zero_point (input 8) needs y_scale (input 7)");
  const bool trans_a = node.Flag("transA", false), trans_b = node.Flag("transB", false);
  const AttrList attrs = {{"trans_x", trans_a}, {"trans_y", trans_b}};
  const Operand a = {node.In(0), {ScaleOfA(node), ZeroPointIn(node, 2)}};
  const Operand b = {node.In(3), {ScaleIn(node, 4), ZeroPointIn(node, 5)}};
  const bool floats = !node.HasInput(7);
  Affine y;
  if (!floats) y = {ScaleIn(node, 7), ZeroPointIn(node, 8)};
  const int data_type = node.HasInput(8) ? node.InValue(8).data_type : node.InValue(0).data_type;
  if (!floats && !IsByteType(data_type)) node.Refuse("a result of other than 8 bits");
  if (node.HasInput(6) && !IsRowOfC(node, node.shape(3)[trans_b ? 0 : 1])) {
    const DType dtype = floats ? DType::kFloat32 : DType::kFloat64;
    const Variable real = GemmOfAnyC(node, a, b, attrs, dtype);
    if (floats) return node.Set(0, real);
    y.scale = Wide(node, y.scale);
    return SetQuantized(node, 0, Quantized(node, real, y, data_type), data_type);
  }
  SlotList slots = ProductSlots(a, b);
  if (node.HasInput(6)) {
    const Variable c = node.In(6);
    AddSlot(slots, "Bias", node.rank(6) == 1 ? c : node.Reshape(c, {-1}));
  }
  AddSlot(slots, "OutScale", y.scale);
  AddSlot(slots, "OutZeroPoint", y.zero_point);
  if (floats) return node.Set(0, Product(node, std::move(slots), DType::kFloat32, attrs));
  SetQuantized(node, 0, Product(node, std::move(slots), *HoldingDType(data_type), attrs),
               data_type);
}

}  // namespace

void AddQuantizedMatmulImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to, const char* domain = "com.microsoft") {
    importers.Add({.op_type = type,
                   .since = *domain ? 1 : 10,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = *domain ? Unsigned::kRefuse : Unsigned::kMoves,
                   .composed = *domain != 0,
                   .domain = domain});
  };
  const char* by_parts = "quantized_matmul; elementwise_sub, matmul_v2";
  add("MatMulInteger", "i1+ i1+ i? i?", ImportMatMulInteger, by_parts, "");
  add("QLinearMatMul", "i1+ f i i1+ f i f i", ImportQLinearMatMul,
      "quantized_matmul; elementwise_sub, matmul_v2, affine_quantize", "");
  add("MatMulIntegerToFloat", "i1+ i1+ f f0-1 i? i0-1? f1?", ImportMatMulIntegerToFloat,
      "quantized_matmul");
  add("DynamicQuantizeMatMul", "f1+ i1+ f0-1 i0-1? f1?", ImportDynamicQuantizeMatMul,
      "dynamic_scale, affine_quantize, quantized_matmul");
  add("QGemm", "i2 f0-1 i0-1 i2 f0-1 i0-1 i? f0-1? i0-1?", ImportQGemm,
      "quantized_matmul; affine_dequantize, affine_quantize");
}

}  // namespace coracle::onnx
