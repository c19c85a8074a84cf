// QLinearAdd, QLinearMul, QLinearConcat and other ops of com.microsoft whose operands are integers
// with a scale and a zero point.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/quantize.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <utility>

namespace coracle::onnx {
namespace {

// --- Add and Mul: A, its scale and zero point, the same of B, scale and zero point of C ---

template <class Combine>
void SetPair(NodeContext& node, const char* type, const Combine& combine) {
  const int data_type = node.InValue(0).data_type;
  const Affine out = {ScaleIn(node, 6), ZeroPointIn(node, 7)};
  if (!IsByteType(data_type) || !HasBytes(node, 3)) {
    const Variable real =
        combine(RealIn(node, 0, DType::kFloat64), RealIn(node, 3, DType::kFloat64));
    return SetQuantized(node, 0, Quantized(node, real, out, data_type), data_type);
  }
  SlotList slots = {{"X", {node.In(0).name()}}};
  AddSlot(slots, "XScale", ScaleIn(node, 1));
  AddSlot(slots, "XZeroPoint", ZeroPointIn(node, 2));
  AddSlot(slots, "Y", node.In(3));
  AddSlot(slots, "YScale", ScaleIn(node, 4));
  AddSlot(slots, "YZeroPoint", ZeroPointIn(node, 5));
  AddSlot(slots, "OutScale", out.scale);
  AddSlot(slots, "OutZeroPoint", out.zero_point);
  const Variable y =
      node.Make(type, std::move(slots), {{"out_dtype", DTypeAttr(*HoldingDType(data_type))}});
  SetQuantized(node, 0, y, data_type, node.IsScalar(0) && node.IsScalar(3));
}

void ImportQLinearAdd(NodeContext& node) {
  SetPair(node, "quantized_add", [](const Variable& a, const Variable& b) { return a + b; });
}

void ImportQLinearMul(NodeContext& node) {
  SetPair(node, "quantized_mul", [](const Variable& a, const Variable& b) { return a * b; });
}

// --- Concat: scale and zero point of Y, then each tensor with its scale and zero point ---

void ImportQLinearConcat(NodeContext& node) {
  const size_t count = node.NumInputs();
  node.Require(count >= 5 && count % 3 == 2,
               fmt::format("the inputs must be a scale, a zero point, and three for each tensor, "
                           "got {}",
                           count));
  const int data_type = node.InValue(1).data_type;
  if (!IsByteType(data_type)) node.Refuse("quantized elements of other than 8 bits");
  std::vector<std::string> x, scales, zeros;
  for (size_t i = 2; i < count; i += 3) {
    node.Require(node.rank(i) >= 1 && node.rank(i) == node.rank(2),
                 fmt::format("input {} must have the rank of input 2, which is 1 or more", i));
    node.Require(IsFloating(node.InValue(i + 1).dtype()),
                 fmt::format("input {} must be a scale", i + 1));
    x.push_back(node.In(i).name());
    scales.push_back(ScaleIn(node, i + 1).name());
    zeros.push_back(ZeroPointIn(node, i + 2).name());
  }
  SlotList slots = {{"X", x}, {"XScale", scales}, {"XZeroPoint", zeros}};
  AddSlot(slots, "OutScale", ScaleIn(node, 0));
  AddSlot(slots, "OutZeroPoint", ZeroPointIn(node, 1));
  const Variable y = node.Make("quantized_concat", std::move(slots),
                               {{"axis", node.Axis(node.Int("axis"), node.rank(2))},
                                {"out_dtype", DTypeAttr(*HoldingDType(data_type))}});
  SetQuantized(node, 0, y, data_type);
}

// --- a float op between a dequantization and a quantization ---

// Sets the result of X (inputs 0 to 2), with scale and zero point in inputs 3 and 4.
template <class Function>
void SetFunction(NodeContext& node, const Function& function) {
  const int data_type = node.InValue(0).data_type;
  const Variable real = function(RealIn(node, 0));
  SetQuantized(node, 0, Quantized(node, real, {ScaleIn(node, 3), ZeroPointIn(node, 4)}, data_type),
               data_type, node.IsScalar(0));
}

void ImportQLinearSigmoid(NodeContext& node) {
  SetFunction(node, [&](const Variable& x) { return node.Unary("sigmoid", x); });
}

void ImportQLinearLeakyRelu(NodeContext& node) {
  const float alpha = node.Float("alpha", 0.01f);
  SetFunction(node, [&](const Variable& x) {
    return node.Unary("leaky_relu", x, {{"alpha", alpha}});
  });
}

// Attribute `opset` chooses the meaning of Softmax: up to 12, the dims from `axis` on are joined.
void ImportQLinearSoftmax(NodeContext& node) {
  const bool joined = node.Int("opset") < 13;
  const int rank = node.rank(0);
  node.Require(rank >= 1, "X must not be a scalar");
  const int32_t axis = node.Axis(node.Int("axis", -1), rank);
  SetFunction(node, [&](const Variable& x) {
    if (!joined || axis == rank - 1) return node.Unary("softmax", x, {{"axis", axis}});
    const Variable rows = node.WithXShape("flatten2", x, {{"axis", axis}});
    Dims dims;
    dims.Add(node.In(0), 0, rank);
    return Reshaped(node, node.Unary("softmax", rows, {{"axis", 1}}), dims);
  });
}

void ImportQLinearReduceMean(NodeContext& node) {
  const int rank = node.rank(0);
  const bool keep = node.Flag("keepdims", true);
  std::vector<int32_t> dims;
  for (int64_t axis : node.Ints("axes", {})) dims.push_back(node.Axis(axis, rank));
  AttrList attrs = {{"keep_dim", keep}};
  if (dims.empty())
    attrs.push_back({"reduce_all", true});
  else
    attrs.push_back({"dim", dims});
  const bool all = dims.empty() || static_cast<int>(dims.size()) == rank;
  const int data_type = node.InValue(0).data_type;
  const Variable real = node.Unary("reduce_mean", RealIn(node, 0), attrs);
  SetQuantized(node, 0, Quantized(node, real, {ScaleIn(node, 3), ZeroPointIn(node, 4)}, data_type),
               data_type, all && !keep);
}

// --- Where: a condition, X with scale and zero point, the same of Y, scale and zero point of Z ---

void ImportQLinearWhere(NodeContext& node) {
  const int data_type = node.InValue(1).data_type;
  const Affine z = {ScaleIn(node, 7), ZeroPointIn(node, 8)};
  const auto converted = [&](size_t i) { return Quantized(node, RealIn(node, i), z, data_type); };
  const Variable x = converted(1), y = converted(4);
  SetQuantized(node, 0, BroadcastWhere(node, node.In(0), x, y), data_type,
               node.IsScalar(0) && node.IsScalar(1) && node.IsScalar(4));
}

}  // namespace

void AddQuantizedElementImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = Unsigned::kMoves,
                   .domain = "com.microsoft"});
  };
  const char* unary = "i f i? f i?";
  add("QLinearAdd", "i f i? i f i? f i?", ImportQLinearAdd, "quantized_add");
  add("QLinearMul", "i f i? i f i? f i?", ImportQLinearMul, "quantized_mul");
  add("QLinearConcat", "f i T*", ImportQLinearConcat, "quantized_concat");
  add("QLinearSigmoid", unary, ImportQLinearSigmoid, "affine_dequantize, sigmoid, affine_quantize");
  add("QLinearLeakyRelu", unary, ImportQLinearLeakyRelu,
      "affine_dequantize, leaky_relu, affine_quantize");
  add("QLinearSoftmax", unary, ImportQLinearSoftmax, "affine_dequantize, softmax, affine_quantize");
  add("QLinearReduceMean", unary, ImportQLinearReduceMean,
      "affine_dequantize, reduce_mean, affine_quantize");
  add("QLinearWhere", "b i f i i f i f i", ImportQLinearWhere,
      "affine_dequantize, affine_quantize, where");
}

}  // namespace coracle::onnx
