// Activation ops.

#include <coracle/convert/onnx/import/elementwise.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

void ImportElu(NodeContext& node) {
  node.Set(0, node.Unary("elu", node.In(0), {{"alpha", node.Float("alpha", 1.0f)}}),
           node.IsScalar(0));
}

void ImportSelu(NodeContext& node) {
  const bool first = node.opset() < 6;  // defaults have four digits
  node.Set(
      0,
      node.Unary("selu", node.In(0),
                 {{"scale", node.Float("gamma", first ? 1.0507f : 1.05070102214813232421875f)},
                  {"alpha", node.Float("alpha", first ? 1.6732f : 1.67326319217681884765625f)}}),
      node.IsScalar(0));
}

// max(0, x) + min(0, alpha (e^(x / alpha) - 1)).
void ImportCelu(NodeContext& node) {
  const Variable x = node.In(0);
  const double alpha = static_cast<double>(node.Float("alpha", 1.0f));
  const Variable below = node.Unary("expm1", x / alpha) * alpha;
  node.Set(0, Max(x, 0.0) + Min(below, 0.0), node.IsScalar(0));
}

void ImportLeakyRelu(NodeContext& node) {
  node.Set(0, node.Unary("leaky_relu", node.In(0), {{"alpha", node.Float("alpha", 0.01f)}}),
           node.IsScalar(0));
}

void ImportThresholdedRelu(NodeContext& node) {
  node.Set(0,
           node.Unary("thresholded_relu", node.In(0), {{"threshold", node.Float("alpha", 1.0f)}}),
           node.IsScalar(0));
}

void ImportHardSigmoid(NodeContext& node) {
  node.Set(0,
           node.Unary("hard_sigmoid", node.In(0),
                      {{"slope", node.Float("alpha", 0.2f)}, {"offset", node.Float("beta", 0.5f)}}),
           node.IsScalar(0));
}

void ImportGelu(NodeContext& node) {
  const bool tanh = node.OneOf("approximate", "none", {"none", "tanh"}) == "tanh";
  node.Set(0, node.Unary("gelu", node.In(0), {{"approximate", tanh}}), node.IsScalar(0));
}

// gelu of the sum of X and a bias, which is optional in FastGelu.
void SetGeluOfSum(NodeContext& node, bool approximate) {
  const Variable x = node.HasInput(1) ? node.In(0) + node.In(1) : node.In(0);
  node.Set(0, node.Unary("gelu", x, {{"approximate", approximate}}));
}

void ImportBiasGelu(NodeContext& node) {
  node.InValue(1);
  SetGeluOfSum(node, false);
}

void ImportFastGelu(NodeContext& node) { SetGeluOfSum(node, true); }

// The first half of the last axis of X plus a bias, times gelu of the second half.
void ImportBiasSplitGelu(NodeContext& node) {
  const Variable x = node.In(0) + node.In(1);
  const int last = x.shape().rank() - 1;
  const int64_t width = x.shape()[last];
  if (width < 0) node.RefuseUnknown("the width of X", "where its halves are");
  node.Require(width % 2 == 0, fmt::format("a width of {} has no halves", width));
  const Variable left = SliceOf(node, x, last, 0, width / 2);
  const Variable right = SliceOf(node, x, last, width / 2, width);
  node.Set(0, left * node.Unary("gelu", right, {{"approximate", false}}));
}

// swish of the gate A, times B.
void ImportSwiGlu(NodeContext& node) {
  const Shape a = node.shape(0), b = node.shape(1);
  node.Require(
      a.rank() == b.rank() && (!a.IsKnown() || !b.IsKnown() || a == b),
      fmt::format("A and B must have one shape, got {} and {}", a.ToString(), b.ToString()));
  const Variable gate = node.Unary("swish", node.In(0), {{"beta", node.Float("alpha", 1.0f)}});
  node.Set(0, gate * node.In(1), node.IsScalar(0));
}

// x sigmoid(alpha x).
void ImportQuickGelu(NodeContext& node) {
  node.Set(0, node.Unary("swish", node.In(0), {{"beta", node.Float("alpha", 1.702f)}}),
           node.IsScalar(0));
}

void ImportSwish(NodeContext& node) {
  node.Set(0, node.Unary("swish", node.In(0), {{"beta", node.Float("alpha", 1.0f)}}),
           node.IsScalar(0));
}

void ImportShrink(NodeContext& node) {
  const double bias = static_cast<double>(node.Float("bias", 0.0f));
  const double lambd = static_cast<double>(node.Float("lambd", 0.5f));
  const DType own = node.dtype(0);
  const DType dtype = IsFloating(own) ? own : DType::kFloat64;
  const Variable x = node.Cast(node.In(0), dtype), zeros = ZerosLike(x);
  const Variable lower = node.Binary("less_than", x, node.ScalarVar(dtype, -lambd));
  const Variable upper = node.Binary("greater_than", x, node.ScalarVar(dtype, lambd));
  const Variable shrunk = Where(lower, x + bias, Where(upper, x - bias, zeros));
  node.Set(0, node.Cast(shrunk, own), node.IsScalar(0));
}

bool IsOneForEachChannel(const Shape& slope, const Shape& x) {
  if (x.rank() < 2 || slope.rank() != x.rank() - 1 || !slope.IsKnown()) return false;
  return slope[0] == x[1] && slope.numel() == slope[0];
}

// The slope broadcasts to X like NumPy's arrays, which prelu's modes support in part. Before
// operator set 7 it has one element, or one for each channel.
void ImportPRelu(NodeContext& node) {
  const Variable x = node.In(0);
  Variable slope = node.In(1);
  if (node.opset() < 7 && node.rank(0) > 2 && slope.shape().rank() == 1) {
    std::vector<int64_t> channels(static_cast<size_t>(node.rank(0)) - 1, 1);
    channels[0] = -1;
    slope = node.Reshape(slope, channels);
  }
  const bool one = slope.shape().IsKnown() && slope.shape().numel() == 1;
  const bool floats = IsFloating(x.dtype());
  if (floats && (one || IsOneForEachChannel(slope.shape(), x.shape()))) {
    const Variable alpha = node.Reshape(slope, {one ? 1 : slope.shape()[0]});
    return node.Set(0,
                    node.Make("prelu", {{"X", {x.name()}}, {"Alpha", {alpha.name()}}},
                              {{"mode", std::string(one ? "all" : "channel")}}),
                    node.IsScalar(0));
  }
  node.Set(0, Max(x, 0.0) + Min(x, 0.0) * slope, node.IsScalar(0));
}

// A row that maps to one op names its type, which ImportUnary reads.
// clang-format off
const NodeImporter kActivationRows[] = {
    {.op_type = "Relu", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "relu"},
    {.op_type = "Sigmoid", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "sigmoid"},
    {.op_type = "Softplus", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "softplus"},
    {.op_type = "Softsign", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "softsign"},
    {.op_type = "Mish", .since = 18, .takes = "n", .import = ImportUnary, .maps_to = "mish"},
    {.op_type = "HardSwish", .since = 14, .takes = "n",
     .import = ImportUnary, .maps_to = "hard_swish"},
    {.op_type = "Elu", .since = 1, .takes = "n", .import = ImportElu, .maps_to = "elu"},
    {.op_type = "Selu", .since = 1, .takes = "n", .import = ImportSelu, .maps_to = "selu"},
    {.op_type = "Celu", .since = 12, .takes = "n",
     .import = ImportCelu, .maps_to = "expm1, elementwise_max, elementwise_min", .composed = true},
    {.op_type = "LeakyRelu", .since = 1, .takes = "n",
     .import = ImportLeakyRelu, .maps_to = "leaky_relu"},
    {.op_type = "ThresholdedRelu", .since = 10, .takes = "n",
     .import = ImportThresholdedRelu, .maps_to = "thresholded_relu"},
    {.op_type = "PRelu", .since = 1, .takes = "n n", .import = ImportPRelu,
     .maps_to = "prelu; elementwise_max, elementwise_min", .composed = true},
    {.op_type = "HardSigmoid", .since = 1, .takes = "n",
     .import = ImportHardSigmoid, .maps_to = "hard_sigmoid"},
    {.op_type = "Gelu", .since = 20, .takes = "n", .import = ImportGelu, .maps_to = "gelu"},
    {.op_type = "Gelu", .since = 1, .takes = "n",
     .import = ImportGelu, .maps_to = "gelu", .domain = "com.microsoft"},
    {.op_type = "BiasGelu", .since = 1, .takes = "f f", .import = ImportBiasGelu,
     .maps_to = "elementwise_add, gelu", .composed = true, .domain = "com.microsoft"},
    {.op_type = "FastGelu", .since = 1, .takes = "f f?", .import = ImportFastGelu,
     .maps_to = "elementwise_add, gelu", .composed = true, .domain = "com.microsoft"},
    {.op_type = "BiasSplitGelu", .since = 1, .takes = "f3 f1", .import = ImportBiasSplitGelu,
     .maps_to = "elementwise_add, slice, gelu, elementwise_mul", .composed = true,
     .domain = "com.microsoft"},
    {.op_type = "QuickGelu", .since = 1, .takes = "n",
     .import = ImportQuickGelu, .maps_to = "swish", .domain = "com.microsoft"},
    {.op_type = "Swish", .since = 24, .takes = "n", .import = ImportSwish, .maps_to = "swish"},
    {.op_type = "SwiGLU", .since = 28, .takes = "f f", .import = ImportSwiGlu,
     .maps_to = "swish, elementwise_mul", .composed = true},
    {.op_type = "Shrink", .since = 9, .takes = "n",
     .import = ImportShrink, .maps_to = "where", .composed = true},
};
// clang-format on

}  // namespace

void AddActivationImporters(NodeImporters& importers) {
  for (const NodeImporter& row : kActivationRows) importers.Add(row);
}

}  // namespace coracle::onnx
