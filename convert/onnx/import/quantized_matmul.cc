// Products of integers with results in floats: MatMulIntegerToFloat and DynamicQuantizeMatMul, both
// of com.microsoft.

#include <coracle/convert/onnx/import/elementwise.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/quantized_matmul.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

Variable Wide(NodeContext& node, const Variable& x) { return node.Cast(x, DType::kFloat64); }

}  // namespace

Variable Centred(NodeContext& node, size_t i, const Variable& zero) {
  const DType dtype = node.InValue(i).dtype();
  node.Require(dtype == DType::kInt8 || dtype == DType::kUInt8,
               fmt::format("input {} must have integers of 8 bits, got {}", i, ToString(dtype)));
  const Variable x = Wide(node, node.In(i));
  return zero ? x - zero : x;
}

Variable WideIn(NodeContext& node, size_t i) {
  return node.HasInput(i) ? Wide(node, node.In(i)) : Variable();
}

namespace {

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
  return node.Reshape(Wide(node, node.In(i)), {1});
}

void SetProduct(NodeContext& node, const Variable& a, const Variable& b, const Variable& scale,
                size_t bias) {
  Variable y = node.Binary("matmul_v2", a, b) * scale;
  if (node.HasInput(bias)) y = y + Wide(node, node.In(bias));
  node.Set(0, node.Cast(y, DType::kFloat32));
}

// Inputs A, B, their scales, their zero points, a bias. A vector belongs to the columns of B.
void ImportMatMulIntegerToFloat(NodeContext& node) {
  node.InValue(2);
  const Variable scale = OneIn(node, 2);
  const Variable a = Centred(node, 0, OneIn(node, 4)), b = Centred(node, 1, WideIn(node, 5));
  SetProduct(node, a, b, scale * Wide(node, node.In(3)), 6);
}

// A as integers from 0 to 255, minus their zero point, with one scale: as DynamicQuantizeLinear
// rounds it.
struct Quantized {
  Variable numbers, scale;
};

Quantized QuantizedInput(NodeContext& node) {
  const Variable x = node.In(0);
  const Variable least = Min(node.Unary("reduce_min", x, {{"reduce_all", true}}), 0.0);
  const Variable most = Max(node.Unary("reduce_max", x, {{"reduce_all", true}}), 0.0);
  const Variable range = (most - least) / 255.0;
  // If all elements are 0, any scale will do.
  const Variable scale = range + node.Cast(Equal(range, ZerosLike(range)), x.dtype());
  const Variable zero = RoundedToEven(node, Max(Min(-least / scale, 255.0), 0.0));
  const Variable rounded = RoundedToEven(node, x / scale) + zero;
  return {Max(Min(rounded, 255.0), 0.0) - zero, scale};
}

// Inputs A in floats, B, its scale and zero point, a bias.
void ImportDynamicQuantizeMatMul(NodeContext& node) {
  const Quantized a = QuantizedInput(node);
  const Variable scale = Wide(node, a.scale) * Wide(node, node.In(2));
  SetProduct(node, Wide(node, a.numbers), Centred(node, 1, WideIn(node, 3)), scale, 4);
}

}  // namespace

void AddQuantizedMatmulImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "com.microsoft"});
  };
  add("MatMulIntegerToFloat", "i1+ i1+ f f0-1 i? i0-1? f1?", ImportMatMulIntegerToFloat,
      "elementwise_sub, matmul_v2, elementwise_mul");
  add("DynamicQuantizeMatMul", "f1+ i1+ f0-1 i0-1? f1?", ImportDynamicQuantizeMatMul,
      "reduce_min, reduce_max, round, matmul_v2");
}

}  // namespace coracle::onnx
