// Convolutions and pools of integers: ConvInteger and QLinearConv; of com.microsoft, QLinearConv,
// QLinearAveragePool and QLinearGlobalAveragePool.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/convert/onnx/import/quantize.h>
#include <coracle/convert/onnx/import/windows.h>
#include <coracle/operators/operators.h>
#include <coracle/proto/onnx.pb.h>

#include <utility>

namespace coracle::onnx {
namespace {

using proto::onnx::TensorProto;

// --- layouts ---

// The axes of [N, spatial..., C] in the order [N, C, spatial...], and back.
Variable ChannelsFirst(NodeContext& node, const Variable& x) {
  const int rank = x.shape().rank();
  std::vector<int32_t> perm = {0, rank - 1};
  for (int i = 1; i + 1 < rank; ++i) perm.push_back(i);
  return node.Transpose(x, perm);
}
Variable ChannelsLast(NodeContext& node, const Variable& x) {
  std::vector<int32_t> perm = {0};
  for (int i = 2; i < x.shape().rank(); ++i) perm.push_back(i);
  perm.push_back(1);
  return node.Transpose(x, perm);
}

// Input 0, with its channels first.
struct Images {
  Variable x;
  bool channels_last;

  explicit Images(NodeContext& node)
      : x(node.In(0)), channels_last(node.Flag("channels_last", false)) {
    node.Require(x.shape().rank() >= 3, "the input must have rank 3 or more");
    if (channels_last) x = ChannelsFirst(node, x);
  }
  Variable InItsLayout(NodeContext& node, const Variable& y) const {
    return channels_last ? ChannelsLast(node, y) : y;
  }
};

// --- convolutions ---

// The windows of filters w on x. A dim of 1 is added to images of one axis.
struct Convolution {
  Variable x, w;
  AttrList attrs;
  bool one_dim;
};

Convolution ConvolutionOf(NodeContext& node, Variable x, Variable w) {
  const int rank = x.shape().rank();
  node.Require(rank >= 3 && w.shape().rank() == rank, "x and w must have one rank of 3 or more");
  if (rank > 5) node.Refuse("a convolution over more than three axes");
  if (!w.shape().IsKnown()) node.Refuse("filters of unknown shape");
  Windows windows = WindowsOf(node, x.shape(), {w.shape().begin() + 2, w.shape().end()});
  if (rank == 3) {
    x = WithHeight(node, x);
    w = WithHeight(node, w);
    windows = WithHeight(windows);
  }
  AttrList attrs = {{"strides", ToInt32(windows.strides, "a window")},
                    {"paddings", Interleaved(windows.before, windows.after)},
                    {"padding_algorithm", std::string(windows.same ? "SAME" : "EXPLICIT")},
                    {"dilations", ToInt32(windows.dilations, "a window")},
                    {"groups", node.Int32("group", 1)}};
  return {x, w, std::move(attrs), rank == 3};
}

bool HasConvOp(NodeContext& node, size_t w) {
  return node.rank(0) <= 4 && HasBytes(node, 0) && HasBytes(node, w);
}

Variable ConvolvedByOp(NodeContext& node, const Convolution& conv, SlotList slots, DType out) {
  AttrList attrs = conv.attrs;
  attrs.push_back({"out_dtype", DTypeAttr(out)});
  slots.push_back({"Input", {conv.x.name()}});
  slots.push_back({"Filter", {conv.w.name()}});
  const Variable y = node.Make("quantized_conv2d", std::move(slots), std::move(attrs), "Output");
  return conv.one_dim ? WithoutHeight(node, y) : y;
}

// The convolution of integers in float64, which is exact.
Variable ConvolvedByParts(NodeContext& node, const Variable& x, const Variable& w) {
  const Convolution conv = ConvolutionOf(node, x, w);
  const char* type = conv.x.shape().rank() == 5 ? "conv3d" : "conv2d";
  const Variable y = node.Make(type, {{"Input", {conv.x.name()}}, {"Filter", {conv.w.name()}}},
                               conv.attrs, "Output");
  return conv.one_dim ? WithoutHeight(node, y) : y;
}

Variable Wide(NodeContext& node, const Variable& x) { return node.Cast(x, DType::kFloat64); }

Variable CentredWide(NodeContext& node, const Variable& x, int data_type, const Variable& zero) {
  RequireQuantizedType(node, data_type);
  return zero ? Wide(node, x) - Wide(node, zero) : Wide(node, x);
}

// A scale or zero point of filters, for dimension `axis` of a tensor of that rank.
Variable OfFilters(NodeContext& node, size_t i, int rank, int axis) {
  const Variable v = node.In(i);
  if (v.shape().IsKnown() && v.shape().numel() == 1) return node.Reshape(v, {1});
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = -1;
  return node.Reshape(v, shape);
}

// The sums at images `x`, filters in input `w` and zero points in the other inputs.
Variable SumsByParts(NodeContext& node, const Variable& x, size_t x_zero, size_t w, size_t w_zero) {
  Variable of_x, of_w;
  if (node.HasInput(x_zero)) of_x = node.In(x_zero);
  if (node.HasInput(w_zero)) of_w = OfFilters(node, w_zero, node.rank(w), 0);
  return ConvolvedByParts(node, CentredWide(node, x, node.InValue(0).data_type, of_x),
                          CentredWide(node, node.In(w), node.InValue(w).data_type, of_w));
}

void ImportConvInteger(NodeContext& node) {
  if (!HasConvOp(node, 1))
    return node.Set(0, node.Cast(SumsByParts(node, node.In(0), 2, 1, 3), DType::kInt32));
  SlotList slots;
  AddSlot(slots, "InputZeroPoint", ZeroPointIn(node, 2));
  AddSlot(slots, "FilterZeroPoint", ZeroPointIn(node, 3));
  const Convolution conv = ConvolutionOf(node, node.In(0), node.In(1));
  node.Set(0, ConvolvedByOp(node, conv, std::move(slots), DType::kInt32));
}

Variable QLinearConvByParts(NodeContext& node, const Variable& x, int data_type) {
  const int rank = x.shape().rank();
  Variable y = SumsByParts(node, x, 2, 3, 5);
  if (node.HasInput(8)) y = y + Wide(node, OfFilters(node, 8, rank, 1));
  const Variable scale = Wide(node, node.In(1)) * Wide(node, OfFilters(node, 4, rank, 1));
  return Quantized(node, y * scale, {Wide(node, ScaleIn(node, 6)), ZeroPointIn(node, 7)},
                   data_type);
}

// Inputs x, its scale and zero point, w, its scale and zero point, scale and zero point of y, and a
// bias of scale x_scale w_scale.
void ImportQLinearConv(NodeContext& node) {
  const Images images(node);
  const int data_type = node.InValue(7).data_type;
  RequireQuantizedType(node, data_type);
  Variable y;
  if (HasConvOp(node, 3) && IsByteType(data_type)) {
    SlotList slots;
    AddSlot(slots, "InputScale", ScaleIn(node, 1));
    AddSlot(slots, "InputZeroPoint", ZeroPointIn(node, 2));
    AddSlot(slots, "FilterScale", ScaleIn(node, 4));
    AddSlot(slots, "FilterZeroPoint", ZeroPointIn(node, 5));
    AddSlot(slots, "OutScale", ScaleIn(node, 6));
    AddSlot(slots, "OutZeroPoint", ZeroPointIn(node, 7));
    if (node.HasInput(8)) AddSlot(slots, "Bias", node.In(8));
    const Convolution conv = ConvolutionOf(node, images.x, node.In(3));
    y = ConvolvedByOp(node, conv, std::move(slots), *HoldingDType(data_type));
  } else {
    y = QLinearConvByParts(node, images.x, data_type);
  }
  SetQuantized(node, 0, images.InItsLayout(node, y), data_type, false);
}

// --- pools: inputs X, its scale and zero point, scale and zero point of Y ---

Variable PooledByOp(NodeContext& node, const Variable& x, AttrList attrs) {
  SlotList slots = {{"X", {x.name()}}};
  AddSlot(slots, "XScale", ScaleIn(node, 1));
  AddSlot(slots, "XZeroPoint", ZeroPointIn(node, 2));
  AddSlot(slots, "OutScale", ScaleIn(node, 3));
  AddSlot(slots, "OutZeroPoint", ZeroPointIn(node, 4));
  attrs.push_back({"pooling_type", std::string("avg")});
  attrs.push_back({"out_dtype", static_cast<int32_t>(x.dtype())});
  return node.Make("quantized_pool2d", std::move(slots), std::move(attrs));
}

// `pool` of the numbers that X represents.
template <class Pool>
Variable PooledByParts(NodeContext& node, const Variable& x, const Pool& pool) {
  const Variable real =
      Dequantized(node, x, {ScaleIn(node, 1), ZeroPointIn(node, 2)}, DType::kFloat32);
  return Quantized(node, pool(real), {ScaleIn(node, 3), ZeroPointIn(node, 4)},
                   node.InValue(0).data_type);
}

void SetPooled(NodeContext& node, const Images& images, const Variable& y) {
  SetQuantized(node, 0, images.InItsLayout(node, y), node.InValue(0).data_type, false);
}

void ImportQLinearAveragePool(NodeContext& node) {
  const Images images(node);
  const bool with_padding = node.Flag("count_include_pad", false);
  Windows windows = WindowsOf(node, images.x.shape());
  windows.ceil = node.Flag("ceil_mode", false);
  if (windows.IsDilated()) node.Refuse("attribute dilations");
  if (windows.rank() > 3) node.Refuse("a pool over more than three axes");
  const bool one_dim = windows.rank() == 1;
  const Variable x = one_dim ? WithHeight(node, images.x) : images.x;
  if (one_dim) windows = WithHeight(windows);
  AttrList attrs = {{"ksize", ToInt32(windows.kernel, "a window")},
                    {"strides", ToInt32(windows.strides, "a window")},
                    {"paddings", Interleaved(windows.before, windows.after)},
                    {"ceil_mode", windows.ceil},
                    {"exclusive", !with_padding}};
  if (windows.same) attrs.push_back({"padding_algorithm", std::string("SAME")});
  Variable y;
  if (windows.rank() == 2 && HasBytes(node, 0)) {
    y = PooledByOp(node, x, std::move(attrs));
  } else {
    attrs.push_back({"pooling_type", std::string("avg")});
    y = PooledByParts(node, x, [&](const Variable& real) {
      return node.Unary(windows.rank() == 3 ? "pool3d" : "pool2d", real, attrs);
    });
  }
  y = WithoutLateWindows(node, y, x, windows);
  SetPooled(node, images, one_dim ? WithoutHeight(node, y) : y);
}

void ImportQLinearGlobalAveragePool(NodeContext& node) {
  const Images images(node);
  const int rank = images.x.shape().rank();
  if (rank <= 4 && HasBytes(node, 0)) {
    const Variable x = rank == 3 ? WithHeight(node, images.x) : images.x;
    const Variable y =
        PooledByOp(node, x, {{"ksize", std::vector<int32_t>{1, 1}}, {"global_pooling", true}});
    return SetPooled(node, images, rank == 3 ? WithoutHeight(node, y) : y);
  }
  std::vector<int32_t> dims;
  for (int i = 2; i < rank; ++i) dims.push_back(i);
  SetPooled(node, images, PooledByParts(node, images.x, [&](const Variable& real) {
              return node.Unary("reduce_mean", real, {{"dim", dims}, {"keep_dim", true}});
            }));
}

}  // namespace

void AddQuantizedConvImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to, const char* domain = "") {
    importers.Add({.op_type = type,
                   .since = *domain ? 1 : 10,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = Unsigned::kMoves,
                   .domain = domain});
  };
  const char* microsoft = "com.microsoft";
  const char* conv = "quantized_conv2d; elementwise_sub, conv3d, affine_quantize";
  const char* conv_inputs = "i3+ f i i3+ f0-1 i0-1 f i i1?";
  add("ConvInteger", "i3+ i3+ i? i0-1?", ImportConvInteger,
      "quantized_conv2d; elementwise_sub, conv3d");
  add("QLinearConv", conv_inputs, ImportQLinearConv, conv);
  add("QLinearConv", conv_inputs, ImportQLinearConv, conv, microsoft);
  add("QLinearAveragePool", "i3+ f i? f i?", ImportQLinearAveragePool,
      "quantized_pool2d; affine_dequantize, pool3d, affine_quantize", microsoft);
  add("QLinearGlobalAveragePool", "i3+ f i? f i?", ImportQLinearGlobalAveragePool,
      "quantized_pool2d; affine_dequantize, reduce_mean, affine_quantize", microsoft);
}

}  // namespace coracle::onnx
