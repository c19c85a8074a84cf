// Attention ops.
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>
#include <limits>

namespace coracle::onnx {
namespace {

// The operands as [..., rows, columns].
struct Attention {
  Value q, k, v;
  bool rows_first;  // [B, rows, H, columns] in the program
};

Attention OperandsOf(OpContext& op) {
  const auto layout = op.Attr<std::string>("layout");
  const auto by_heads = [&](const Value& x) { return op.Transpose(x, {0, 2, 1, 3}); };
  if (layout == "BHSD") return {op.In("Q"), op.In("K"), op.In("V"), false};
  if (layout == "BSHD")
    return {by_heads(op.In("Q")), by_heads(op.In("K")), by_heads(op.In("V")), true};
  const Values parts = op.Nodes("Split", {op.In("Q"), op.IntList({1, 1, 1})}, 3, {{"axis", 2}});
  const auto part = [&](size_t i) { return by_heads(op.Squeeze(parts[i], {2})); };
  return {part(0), part(1), part(2), true};
}

// Row i sees the keys up to i + keys - rows; the others become -inf.
Value Causal(OpContext& op, const Value& scores, int rank, DType dtype) {
  const auto size = [&](int axis) { return op.AsScalar(op.DimsOf(scores, axis, axis + 1)); };
  const Value rows = size(rank - 2), keys = size(rank - 1);
  const auto count = [&](const Value& n) { return op.Node("Range", {op.Int(0), n, op.Int(1)}); };
  const Value last = op.Node("Add", {count(rows), op.Node("Sub", {keys, rows})});
  const Value hidden = op.Node("Greater", {count(keys), op.Unsqueeze(last, {1})});
  return op.Node("Where",
                 {hidden, op.Scalar(-std::numeric_limits<double>::infinity(), dtype), scores});
}

void ExportAttention(OpContext& op) {
  const DType dtype = op.InType("Q");
  const float p = op.Attr<float>("dropout_prob");
  op.Require(p == 0 || op.Attr<bool>("is_test"),
             std::string("it drops elements, as in training. ") + kInferenceOnly);
  const int rank = op.OutShape("Out").rank();
  const Attention a = OperandsOf(op);
  Value scores = op.Node("MatMul", {a.q, op.SwapLast(a.k, rank)});
  scores = op.Node("Mul", {scores, op.Scalar(op.Attr<float>("scale"), dtype)});
  if (op.Has("Mask"))
    scores = op.Node("Add", {scores, op.Cast(op.In("Mask"), op.InType("Mask"), dtype)});
  if (op.Attr<bool>("is_causal"))
    scores = Causal(op, scores, std::max(rank, op.Has("Mask") ? op.Rank("Mask") : 0), dtype);
  Value weights = op.Node("Softmax", {scores}, {{"axis", -1}});
  if (p != 0 && op.Attr<std::string>("dropout_implementation") == "downgrade_in_infer")
    weights = op.Node("Mul", {weights, op.Scalar(1.0f - p, dtype)});
  const Value out = op.Node("MatMul", {weights, a.v});
  op.Out("Out", a.rows_first ? op.Transpose(out, {0, 2, 1, 3}) : out);
}

// q, k and v of all heads are columns of a single product.
void ExportMultiheadMatmul(OpContext& op) {
  const Shape& w = op.InShape("W");
  const int64_t heads = op.Attr<int32_t>("head_number");
  op.Require(w[0] > 0 && w[2] > 0, "the size of W must be known");
  const Value columns = op.Reshape(op.In("W"), {w[0], 3 * w[2]});
  const Value product = op.Node("MatMul", {op.In("Input"), columns});
  const Value sums = op.Node("Add", {product, op.Reshape(op.In("Bias"), {-1})});
  const Value parts =
      op.Transpose(op.Reshape(sums, {0, 0, 3, heads, w[2] / heads}), {2, 0, 3, 1, 4});
  const auto part = [&](int64_t i) { return op.Node("Gather", {parts, op.Int(i)}); };
  Value scores = op.Node("MatMul", {part(0), op.SwapLast(part(1), 4)});
  scores = op.Node("Mul", {scores, op.Scalar(op.Attr<float>("alpha"), op.InType("Input"))});
  const Value weights =
      op.Node("Softmax", {op.Node("Add", {scores, op.In("BiasQK")})}, {{"axis", -1}});
  const Value out = op.Transpose(op.Node("MatMul", {weights, part(2)}), {0, 2, 1, 3});
  op.Out("Out", op.Reshape(out, {0, 0, w[2]}));
}

constexpr ExportRow kRows[] = {
    {"multihead_matmul", ExportMultiheadMatmul, "MatMul, Add, Softmax, Transpose"},
    {"scaled_dot_product_attention", ExportAttention, "MatMul, Mul, Add, Softmax, Transpose"},
};

}  // namespace

ExportRows AttentionRows() { return kRows; }

}  // namespace coracle::onnx
