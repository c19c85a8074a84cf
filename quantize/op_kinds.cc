#include <coracle/quantize/op_kinds.h>

#include <string_view>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Types = std::unordered_set<std::string_view>;

const Types& Convolutions() {
  static const Types types = {"conv2d", "depthwise_conv2d"};
  return types;
}
const Types& TransposedConvolutions() {
  static const Types types = {"conv2d_transpose", "depthwise_conv2d_transpose"};
  return types;
}
const Types& MatrixProducts() {
  static const Types types = {"mul", "matmul", "matmul_v2"};
  return types;
}
const Types& Moves() {
  static const Types types = {"reshape",
                              "reshape2",
                              "transpose",
                              "transpose2",
                              "flatten",
                              "flatten2",
                              "flatten_contiguous_range",
                              "squeeze",
                              "squeeze2",
                              "unsqueeze",
                              "unsqueeze2",
                              "slice",
                              "split",
                              "pixel_shuffle",
                              "shuffle_channel",
                              "space_to_depth"};
  return types;
}
const Types& Activations() {
  static const Types types = {"relu",  "relu6", "leaky_relu", "sigmoid",  "hard_sigmoid",
                              "swish", "silu",  "hard_swish", "tanh",     "gelu",
                              "elu",   "mish",  "brelu",      "softplus", "clip"};
  return types;
}

bool IsMaxPool(const OpDesc& op) {
  return op.type() == "pool2d" && op.GetAttr<std::string>("pooling_type", "") == "max";
}
bool IsAveragePool(const OpDesc& op) {
  return op.type() == "pool2d" && op.GetAttr<std::string>("pooling_type", "") == "avg";
}

bool TransposesX(const OpDesc& op) {
  return op.GetAttr<bool>(op.type() == "matmul" ? "transpose_X" : "trans_x", false);
}
bool TransposesY(const OpDesc& op) {
  return op.GetAttr<bool>(op.type() == "matmul" ? "transpose_Y" : "trans_y", false);
}

std::optional<ProductAxes> AxesOfMul(const OpDesc& op, const Shape& data, const Shape& weight,
                                     bool weight_is_y) {
  const int x_dims = op.GetAttr<int32_t>("x_num_col_dims", 1);
  const int y_dims = op.GetAttr<int32_t>("y_num_col_dims", 1);
  if (!weight_is_y || x_dims < 1 || x_dims >= data.rank() || y_dims != weight.rank() - 1)
    return std::nullopt;
  return ProductAxes{weight.rank() - 1, weight.rank() - 2, x_dims, data.rank()};
}

std::optional<ProductAxes> AxesOfMatmul(const OpDesc& op, const Shape& data, const Shape& weight,
                                        bool weight_is_y) {
  if (data.rank() < 2 || weight.rank() < 2 || op.GetAttr<int32_t>("head_number", 1) > 1)
    return std::nullopt;
  const int last = weight.rank() - 1, data_last = data.rank() - 1;
  // X [rows, K], Y [K, columns]: the axis of K is the last one of X and the first one of Y.
  const bool x_k_last = !TransposesX(op), y_k_first = !TransposesY(op);
  const int reduced = (weight_is_y ? y_k_first : !x_k_last) ? last - 1 : last;
  const int data_k = (weight_is_y ? x_k_last : !y_k_first) ? data_last : data_last - 1;
  return ProductAxes{reduced == last ? last - 1 : last, reduced, data_k, data_k + 1};
}

}  // namespace

QuantKind KindOf(const OpDesc& op) {
  const std::string& type = op.type();
  if (Convolutions().count(type) || TransposedConvolutions().count(type) ||
      MatrixProducts().count(type))
    return QuantKind::kProduct;
  static const Types connectors = {"elementwise_add", "elementwise_mul", "concat"};
  if (connectors.count(type) || IsAveragePool(op)) return QuantKind::kConnector;
  static const Types nearest = {"nearest_interp", "nearest_interp_v2"};
  if (Moves().count(type) || IsMaxPool(op) || nearest.count(type)) return QuantKind::kMove;
  if (Activations().count(type)) return QuantKind::kActivation;
  return QuantKind::kOther;
}

ProductSlots SlotsOfProduct(const OpDesc& op) {
  if (MatrixProducts().count(op.type())) return {"X", "Y", "", "Out", op.type() != "mul"};
  return {"Input", "Filter", "Bias", "Output", false};
}

std::optional<ProductAxes> AxesOfProduct(const OpDesc& op, const Shape& data, const Shape& weight,
                                         bool weight_is_y) {
  if (op.type() == "mul") return AxesOfMul(op, data, weight, weight_is_y);
  if (MatrixProducts().count(op.type())) return AxesOfMatmul(op, data, weight, weight_is_y);
  if (data.rank() != 4 || weight.rank() != 4) return std::nullopt;
  const int channels = HasChannelsLast(op) ? 3 : 1;
  if (TransposedConvolutions().count(op.type())) return ProductAxes{1, 0, channels, channels + 1};
  return ProductAxes{0, 1, channels, channels + 1};
}

std::vector<std::string> DataInputs(const OpDesc& op) {
  static const Types binary = {"elementwise_add", "elementwise_mul"};
  std::vector<std::string> names = op.Input("X");
  if (binary.count(op.type()))
    for (const std::string& name : op.Input("Y")) names.push_back(name);
  if (op.type() == "slice") names = op.Input("Input");
  return names;
}

std::vector<std::string> DataOutputs(const OpDesc& op) { return op.Output("Out"); }

bool IsHomogeneous(const OpDesc& op) {
  static const Types types = {"relu", "leaky_relu"};
  return types.count(op.type()) > 0;
}
bool IsSum(const OpDesc& op) { return op.type() == "elementwise_add"; }
bool IsLayerNorm(const OpDesc& op) { return op.type() == "layer_norm"; }
bool IsConvolution(const OpDesc& op) { return Convolutions().count(op.type()) > 0; }
bool IsTransposedConvolution(const OpDesc& op) {
  return TransposedConvolutions().count(op.type()) > 0;
}

bool HasChannelsLast(const OpDesc& op) {
  return op.GetAttr<std::string>("data_format", "NCHW") == "NHWC";
}

bool IsQuantizing(const OpDesc& op) {
  const std::string& type = op.type();
  return type.find("quantize") != std::string::npos || type.starts_with("quantized_");
}

}  // namespace coracle::inline internal
