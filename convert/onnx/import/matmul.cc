// Matrix products and determinants.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::onnx {
namespace {

void ImportMatMul(NodeContext& node) {
  node.Require(node.rank(0) > 0 && node.rank(1) > 0, "A and B must have a dimension");
  const bool vectors = node.rank(0) == 1 && node.rank(1) == 1;
  node.Set(0, node.BinaryVia("matmul_v2", node.In(0), node.In(1)), vectors);
}

// --- Gemm: alpha A' B' + beta C ---

Variable Scaled(NodeContext& node, const Variable& x, float factor) {
  if (factor == 1.0f) return x;
  if (!IsFloating(x.dtype()) && factor != std::trunc(factor))
    node.Refuse("a fractional alpha or beta with integers");
  return x * static_cast<double>(factor);
}

// A transposed constant B is computed when the program is compiled, and a product without trans_y
// is fused with the addition to an fc.
Variable Gemm(NodeContext& node, bool stretches) {
  const float alpha = node.Float("alpha", 1.0f), beta = node.Float("beta", 1.0f);
  const bool trans_a = node.Flag("transA", false);
  bool trans_b = node.Flag("transB", false);
  node.Require(node.rank(0) == 2 && node.rank(1) == 2, "A and B must be matrices");
  const DType own = node.dtype(0), dtype = node.ComputeDType("matmul_v2", own);
  const Variable a = node.Cast(node.In(0), dtype);
  Variable b = node.Cast(node.In(1), dtype);
  if (trans_b && node.Constant(1)) {
    b = node.Transpose(b, {1, 0});
    trans_b = false;
  }
  Variable y = node.Make("matmul_v2", {{"X", {a.name()}}, {"Y", {b.name()}}},
                         {{"trans_x", trans_a}, {"trans_y", trans_b}});
  y = Scaled(node, y, alpha);
  if (node.HasInput(2) && beta != 0.0f) {
    node.Require(stretches || node.rank(2) == 2,
                 "C must have the product's shape unless attribute broadcast is 1");
    const Shape& c = node.In(2).shape();
    const Shape ab = y.shape();
    node.Require(c.rank() <= 2, "C must not have more than two dimensions");
    for (int i = 1; i <= c.rank(); ++i) {
      const int64_t dim = c[c.rank() - i], want = ab[2 - i];
      node.Require(dim == 1 || dim == -1 || want == -1 || dim == want,
                   "C cannot be broadcast to the product's shape");
    }
    y = y + Scaled(node, node.Cast(node.In(2), dtype), beta);
  }
  return node.Cast(y, own);
}

void ImportGemm(NodeContext& node) {
  node.Set(0, Gemm(node, node.opset() >= 7 || node.Flag("broadcast", false)));
}

// The activation that an attribute names, with the defaults of the op of that name.
Variable GemmActivated(NodeContext& node, const Variable& x) {
  const std::string name = node.String("activation", "");
  const auto number = [&](const char* attr, float otherwise) {
    return node.Float(attr, otherwise);
  };
  node.Require(!name.empty(),
               "attribute activation is missing: set it, or use the op type Gemm, which has none");
  const char* alpha = "activation_alpha";
  for (const char* attr : {alpha, "activation_beta", "activation_gamma"})
    node.attributes().Ignore(attr);
  if (name == "Relu") return node.Unary("relu", x);
  if (name == "Sigmoid") return node.Unary("sigmoid", x);
  if (name == "Tanh") return node.Unary("tanh", x);
  if (name == "Softplus") return node.Unary("softplus", x);
  if (name == "Softsign") return node.Unary("softsign", x);
  if (name == "Elu") return node.Unary("elu", x, {{"alpha", number(alpha, 1.0f)}});
  if (name == "LeakyRelu") return node.Unary("leaky_relu", x, {{"alpha", number(alpha, 0.01f)}});
  if (name == "ThresholdedRelu")
    return node.Unary("thresholded_relu", x, {{"threshold", number(alpha, 1.0f)}});
  if (name == "HardSigmoid") {
    return node.Unary(
        "hard_sigmoid", x,
        {{"slope", number(alpha, 0.2f)}, {"offset", number("activation_beta", 0.5f)}});
  }
  if (name == "Selu") {
    return node.Unary("selu", x,
                      {{"alpha", number(alpha, 1.67326319217681884765625f)},
                       {"scale", number("activation_gamma", 1.05070102214813232421875f)}});
  }
  node.Refuse(fmt::format("attribute activation of {}", Quote(name)));
}

void ImportFusedGemm(NodeContext& node) { node.Set(0, GemmActivated(node, Gemm(node, true))); }

// alpha A' B' over batches; batch dimensions are never transposed.
void ImportFusedMatMul(NodeContext& node) {
  const float alpha = node.Float("alpha", 1.0f);
  if (node.Flag("transBatchA", false) || node.Flag("transBatchB", false))
    node.Refuse("attributes transBatchA and transBatchB of 1");
  node.Require(node.rank(0) > 0 && node.rank(1) > 0, "A and B must have a dimension");
  // A vector is not transposed.
  const bool a = node.Flag("transA", false) && node.rank(0) > 1;
  const bool b = node.Flag("transB", false) && node.rank(1) > 1;
  const Variable y =
      node.Make("matmul_v2", {{"X", {node.In(0).name()}}, {"Y", {node.In(1).name()}}},
                {{"trans_x", a}, {"trans_y", b}});
  node.Set(0, Scaled(node, y, alpha), node.rank(0) == 1 && node.rank(1) == 1);
}

// --- Det ---

using Ints = std::vector<int32_t>;

struct Elimination {
  Variable matrices;     // [batch, m, m] not yet eliminated
  Variable determinant;  // [batch], of the eliminated rows
};

// One step of Gaussian elimination: swaps the row with the largest element of the first column with
// the first row (which changes the sign) and subtracts it from the others.
Elimination Eliminated(NodeContext& node, const Elimination& from, int64_t m) {
  const Variable a = from.matrices;
  const DType dtype = a.dtype();
  const Variable column = SliceOf(node, a, 2, 0, 1);
  const Variable at =
      node.Unary("arg_max", node.Reshape(Abs(column), {-1, m}), {{"axis", int64_t{1}}});
  const Variable hot =
      node.Make("one_hot_v2", {{"X", {at.name()}}},
                {{"depth", ToInt32(m, "a matrix")}, {"dtype", static_cast<int32_t>(dtype)}});
  const Variable chosen = node.Reshape(hot, {-1, m, 1});
  const Variable row = Sum(a * chosen, Ints{1}, true);  // [batch, 1, m]
  const Variable pivot = SliceOf(node, row, 2, 0, 1);   // [batch, 1, 1]
  // 1 if the first row is the chosen one, else -1.
  const Variable sign = SliceOf(node, hot, 1, 0, 1) * 2.0 - 1.0;
  const Variable factor = node.Reshape(pivot, {-1}) * node.Reshape(sign, {-1});
  Elimination next;
  next.determinant = from.determinant ? from.determinant * factor : factor;
  if (m == 1) return next;
  // In the other rows, the first row replaces the chosen one.
  const Variable first = SliceOf(node, a, 1, 0, 1), moved = SliceOf(node, chosen, 1, 1, m);
  const Variable others = SliceOf(node, a, 1, 1, m) * (1.0 - moved) + first * moved;
  // A column of zeros gives determinant 0; the quotient is not needed.
  const Variable zero = node.Cast(Equal(pivot, ZerosLike(pivot)), dtype);
  const Variable ratio = SliceOf(node, others, 2, 0, 1) / (pivot + zero);
  next.matrices = SliceOf(node, others - ratio * row, 2, 1, m);
  return next;
}

void ImportDet(NodeContext& node) {
  const Shape shape = node.shape(0);
  const int rank = shape.rank();
  node.Require(rank >= 2, "X must have two dimensions");
  const int64_t n = shape[rank - 1];
  if (n < 0 || shape[rank - 2] < 0)
    node.RefuseUnknown("the size of the matrices", "the number of steps");
  node.Require(n == shape[rank - 2], "X must hold square matrices");
  if (n == 0 || n > 64) node.Refuse("matrices without elements, or of more than 64 rows");
  const DType own = node.dtype(0);
  Elimination state{node.Reshape(node.Cast(node.In(0), DType::kFloat64), {-1, n, n}), {}};
  for (int64_t m = n; m > 0; --m) state = Eliminated(node, state, m);
  const Variable out = node.Cast(state.determinant, own);
  if (rank == 2) return node.Set(0, out, true);
  node.Set(0, Reshaped(node, out, Shape(std::span<const int64_t>(shape.begin(), rank - 2))));
}

}  // namespace

void AddMatmulImporters(NodeImporters& importers) {
  for (const NodeImporter& row : std::initializer_list<NodeImporter>{
           {.op_type = "MatMul",
         .since = 1,
         .takes = "n1+ n1+",
         .import = ImportMatMul,
         .maps_to = "matmul_v2",
         .unsigneds = Unsigned::kWraps},
           {.op_type = "Gemm",
           .since = 1,
           .takes = "n2 n2 n0-2?",
           .import = ImportGemm,
           .maps_to = "matmul_v2, elementwise_add (fc when compiled)",
           .unsigneds = Unsigned::kWraps,
           .composed = true},
           {.op_type = "FusedGemm",
           .since = 1,
           .takes = "f2 f2 f0-2?",
           .import = ImportFusedGemm,
           .maps_to = "matmul_v2, elementwise_add and the activation",
           .composed = true,
           .domain = "com.microsoft"},
           {.op_type = "FusedMatMul",
           .since = 1,
           .takes = "f1+ f1+",
           .import = ImportFusedMatMul,
           .maps_to = "matmul_v2, scale",
           .composed = true,
           .domain = "com.microsoft"},
           {.op_type = "Det",
           .since = 11,
           .takes = "f2+",
           .import = ImportDet,
           .maps_to = "arg_max, elementwise_sub (elimination)"},
       })
    importers.Add(row);
}

}  // namespace coracle::onnx
