// Ops whose operands are integers with scales: as nodes of the same meaning where ONNX or ONNX
// Runtime (com.microsoft) has one, otherwise as a node of floats with DequantizeLinear before it
// and QuantizeLinear after it.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/broadcast.h>
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/quantize.h>
#include <coracle/convert/onnx/export/rows.h>

namespace coracle::onnx {
namespace {

bool IsByte(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kUInt8; }

bool IsOne(const Shape& shape) { return shape.IsKnown() && shape.numel() == 1; }

// The scale and the zero point of `slot`: scalars if they have one element.
struct Affine {
  Value scale, zero_point;  // zero_point: 0 if there is none
  bool scale_is_one = true, zero_is_one = true;
};

Affine AffineOf(OpContext& op, const std::string& slot, DType integers, size_t i = 0) {
  const std::string scale = slot + "Scale", zero = slot + "ZeroPoint";
  Affine affine;
  affine.scale_is_one = IsOne(op.InShape(scale, i));
  affine.scale = affine.scale_is_one ? ScalarOf(op, op.In(scale, i)) : op.In(scale, i);
  if (!op.Has(zero)) {
    affine.zero_point = op.Scalar(0, integers);
    return affine;
  }
  affine.zero_is_one = IsOne(op.InShape(zero, i));
  affine.zero_point = affine.zero_is_one ? ScalarOf(op, op.In(zero, i)) : op.In(zero, i);
  return affine;
}
// The zero point alone, of integers without a scale.
Value ZeroPointOf(OpContext& op, const std::string& slot) {
  const std::string zero = slot + "ZeroPoint";
  if (!op.Has(zero)) return "";
  return IsOne(op.InShape(zero)) ? ScalarOf(op, op.In(zero)) : op.In(zero);
}

// One number or vector like another scale or zero point, which is a vector.
Value Expanded(OpContext& op, const Value& value, const Value& like) {
  return op.Node("Expand", {value, op.ShapeOf(like)});
}

// Converts integers to floats. If `vectors` is false, scales broadcast to the integers.
Value Dequantized(OpContext& op, const Value& x, DType integers, Affine affine, int64_t axis,
                  bool vectors = true) {
  if (affine.scale_is_one && affine.zero_is_one)
    return op.Node("DequantizeLinear", {x, affine.scale, affine.zero_point});
  if (!vectors) {
    const DType real = DType::kFloat32;
    const Value centred =
        op.Node("Sub", {op.Cast(x, integers, real), op.Cast(affine.zero_point, integers, real)});
    return op.Node("Mul", {centred, affine.scale});
  }
  if (affine.scale_is_one) affine.scale = Expanded(op, affine.scale, affine.zero_point);
  if (affine.zero_is_one) affine.zero_point = Expanded(op, affine.zero_point, affine.scale);
  return op.Node("DequantizeLinear", {x, affine.scale, affine.zero_point}, {{"axis", axis}});
}
Value Dequantized(OpContext& op, const char* slot, size_t i = 0) {
  const DType integers = op.InType(slot, i);
  return Dequantized(op, op.In(slot, i), integers, AffineOf(op, slot, integers, i), 0);
}

// The numbers as Out: float32, or integers of OutScale.
Value Finished(OpContext& op, const Value& real, DType out) {
  if (out == DType::kFloat32) return real;
  const Affine affine = AffineOf(op, "Out", out);
  return op.Node("QuantizeLinear", {real, affine.scale, affine.zero_point});
}

bool IsActivated(OpContext& op) { return !op.Attr<std::string>("fuse_activation").empty(); }

// The activation and, before it, what is added.
Value WithAddends(OpContext& op, Value real, const Value& bias, const Value& residual) {
  if (!bias.empty()) real = op.Node("Add", {real, bias});
  if (!residual.empty()) real = op.Node("Add", {real, residual});
  return FusedActivation(op, real, DType::kFloat32);
}

Value ResidualOf(OpContext& op) {
  if (!op.Has("Residual")) return "";
  return op.InType("Residual") == DType::kFloat32 ? op.In("Residual") : Dequantized(op, "Residual");
}

// Bias as floats; integers are in units of both scales.
Value BiasOf(OpContext& op, const char* x_scale, const char* w_scale) {
  if (!op.Has("Bias")) return "";
  if (op.InType("Bias") == DType::kFloat32) return op.In("Bias");
  // A scale for each row of X becomes a column.
  const Shape rows = op.InShape(x_scale);
  const Value x =
      IsOne(rows) || rows.rank() != 1 ? op.In(x_scale) : op.Reshape(op.In(x_scale), {-1, 1});
  const Value scale = op.Node("Mul", {x, op.In(w_scale)});
  return op.Node("Mul", {op.Cast(op.In("Bias"), DType::kInt32, DType::kFloat32), scale});
}

bool HasIntegerBias(OpContext& op) { return op.Has("Bias") && op.InType("Bias") == DType::kInt32; }

// --- quantized_matmul ---

struct Matrices {
  Value x, y;
  int rank_x, rank_y;
  bool vectors() const { return rank_x == 1 && rank_y == 1; }
};

Matrices MatricesOf(OpContext& op) {
  const int rx = op.Rank("X"), ry = op.Rank("Y");
  return {op.Attr<bool>("trans_x") ? op.SwapLast(op.In("X"), rx) : op.In("X"),
          op.Attr<bool>("trans_y") ? op.SwapLast(op.In("Y"), ry) : op.In("Y"), rx, ry};
}

Value Sums(OpContext& op, const Matrices& m) {
  Value sums = op.Node("MatMulInteger", {m.x, m.y, ZeroPointOf(op, "X"), ZeroPointOf(op, "Y")});
  if (m.vectors()) sums = op.Reshape(sums, {1});
  return op.Has("Bias") ? op.Node("Add", {sums, op.In("Bias")}) : sums;
}

// QLinearMatMul, MatMulIntegerToFloat or QGemm; "" if none of them computes this.
Value ProductNode(OpContext& op, const Matrices& m, DType out) {
  if (op.Has("Residual") || IsActivated(op)) return "";
  Affine x = AffineOf(op, "X", op.InType("X")), y = AffineOf(op, "Y", op.InType("Y"));
  for (Affine* each : {&x, &y}) {
    // ONNX Runtime requires one zero point for each scale.
    if (!each->scale_is_one && each->zero_is_one)
      each->zero_point = Expanded(op, each->zero_point, each->scale);
  }
  const bool integer_bias = HasIntegerBias(op), floats = out == DType::kFloat32;
  const bool one = x.scale_is_one && x.zero_is_one;
  if (!floats && !op.Has("Bias")) {
    const Affine to = AffineOf(op, "Out", out);
    return op.Node("QLinearMatMul", {m.x, x.scale, x.zero_point, m.y, y.scale, y.zero_point,
                                     to.scale, to.zero_point});
  }
  if (floats && !integer_bias && one)
    return op.Node("com.microsoft.MatMulIntegerToFloat",
                   {m.x, m.y, x.scale, y.scale, x.zero_point, y.zero_point,
                    op.Has("Bias") ? op.In("Bias") : ""});
  if (!integer_bias || !one || m.rank_x != 2 || m.rank_y != 2) return "";
  Values inputs = {op.In("X"),
                   x.scale,
                   x.zero_point,
                   op.In("Y"),
                   y.scale,
                   y.zero_point,
                   op.Reshape(op.In("Bias"), {-1})};
  if (!floats) {
    const Affine to = AffineOf(op, "Out", out);
    inputs.insert(inputs.end(), {to.scale, to.zero_point});
  }
  return op.Node(
      "com.microsoft.QGemm", inputs,
      {{"transA", op.Attr<bool>("trans_x") ? 1 : 0}, {"transB", op.Attr<bool>("trans_y") ? 1 : 0}});
}

Value ProductOfFloats(OpContext& op, const Matrices& m, DType out) {
  const DType tx = op.InType("X"), ty = op.InType("Y");
  const bool lines = op.InShape("XScale").rank() <= 1 && m.rank_x >= 2 &&
                     (!op.Has("XZeroPoint") || op.InShape("XZeroPoint").rank() <= 1);
  const Value x = Dequantized(op, m.x, tx, AffineOf(op, "X", tx), m.rank_x - 2, lines);
  const Value y = Dequantized(op, m.y, ty, AffineOf(op, "Y", ty), m.rank_y - 1);
  const Value product = op.Node("MatMul", {x, y});
  const Value real = WithAddends(op, product, BiasOf(op, "XScale", "YScale"), ResidualOf(op));
  return Finished(op, real, out);
}

void QuantizedMatmul(OpContext& op) {
  const Matrices m = MatricesOf(op);
  const DType out = op.OutType("Out");
  if (out == DType::kInt32) return op.Out("Out", Sums(op, m));
  Value y = ProductNode(op, m, out);
  if (y.empty()) y = ProductOfFloats(op, m, out);
  op.Out("Out", m.vectors() ? op.Reshape(y, {1}) : y);
}

// --- quantized_conv2d ---

// A vector of the filters, along the channels of images.
Value OfChannels(OpContext& op, const Value& vector) { return op.Reshape(vector, {1, -1, 1, 1}); }

Value ConvSums(OpContext& op, const Value& x) {
  const Value zero = ZeroPointOf(op, "Filter");
  const Value sums =
      op.Node("ConvInteger", {x, op.In("Filter"), ZeroPointOf(op, "Input"), zero}, ConvAttrsOf(op));
  return op.Has("Bias") ? op.Node("Add", {sums, OfChannels(op, op.In("Bias"))}) : sums;
}

Value ConvNode(OpContext& op, const Value& x, DType out) {
  const bool float_bias = op.Has("Bias") && !HasIntegerBias(op);
  if (!IsByte(out) || op.Has("Residual") || IsActivated(op) || float_bias) return "";
  const Affine in = AffineOf(op, "Input", op.InType("Input")), to = AffineOf(op, "Out", out);
  Affine w = AffineOf(op, "Filter", op.InType("Filter"));
  if (!w.scale_is_one && w.zero_is_one) w.zero_point = Expanded(op, w.zero_point, w.scale);
  if (w.scale_is_one && !w.zero_is_one) w.scale = Expanded(op, w.scale, w.zero_point);
  Values inputs = {x,       in.scale,     in.zero_point, op.In("Filter"),
                   w.scale, w.zero_point, to.scale,      to.zero_point};
  if (op.Has("Bias")) inputs.push_back(op.In("Bias"));
  return op.Node("QLinearConv", inputs, ConvAttrsOf(op));
}

Value ConvOfFloats(OpContext& op, const Value& image, DType out, bool last) {
  const DType tx = op.InType("Input"), tw = op.InType("Filter");
  const Value x = Dequantized(op, image, tx, AffineOf(op, "Input", tx), 0);
  const Value w = Dequantized(op, op.In("Filter"), tw, AffineOf(op, "Filter", tw), 0);
  const Value sums = op.Node("Conv", {x, w}, ConvAttrsOf(op));
  Value bias = BiasOf(op, "InputScale", "FilterScale"), residual = ResidualOf(op);
  if (!bias.empty()) bias = OfChannels(op, bias);
  if (!residual.empty()) residual = ToChannelsFirst(op, residual, 4, last);
  return Finished(op, WithAddends(op, sums, bias, residual), out);
}

void QuantizedConv2d(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const DType out = op.OutType("Output");
  const Value x = ToChannelsFirst(op, op.In("Input"), 4, last);
  Value y = out == DType::kInt32 ? ConvSums(op, x) : ConvNode(op, x, out);
  if (y.empty()) y = ConvOfFloats(op, x, out, last);
  op.Out("Output", FromChannelsFirst(op, y, 4, last));
}

// --- elements ---

// X and Y with their scales and zero points, and Out's, as inputs of a node, which computes in
// one type.
template <const char* kType>
void QuantizedPair(OpContext& op) {
  const DType out = op.OutType("Out");
  const Operands v = Align(op);
  const bool same = op.InType("X") == out && op.InType("Y") == out;
  const Affine x = AffineOf(op, "X", op.InType("X")), y = AffineOf(op, "Y", op.InType("Y"));
  if (IsByte(out) && same && !IsActivated(op)) {
    const Affine to = AffineOf(op, "Out", out);
    return op.Out("Out", op.Node(std::string("com.microsoft.QLinear") + kType,
                                 {v.x, x.scale, x.zero_point, v.y, y.scale, y.zero_point, to.scale,
                                  to.zero_point}));
  }
  const Value a = Dequantized(op, v.x, op.InType("X"), x, 0);
  const Value b = Dequantized(op, v.y, op.InType("Y"), y, 0);
  const Value real = FusedActivation(op, op.Node(kType, {a, b}), DType::kFloat32);
  op.Out("Out", Finished(op, real, out));
}

void QuantizedConcat(OpContext& op) {
  const DType out = op.OutType("Out");
  bool same = IsByte(out);
  for (size_t i = 0; i < op.NumInputs("X"); ++i) same = same && op.InType("X", i) == out;
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("X"));
  Values inputs;
  if (!same) {
    for (size_t i = 0; i < op.NumInputs("X"); ++i) inputs.push_back(Dequantized(op, "X", i));
    return op.Out("Out", Finished(op, op.Node("Concat", inputs, {{"axis", axis}}), out));
  }
  const Affine to = AffineOf(op, "Out", out);
  inputs = {to.scale, to.zero_point};
  for (size_t i = 0; i < op.NumInputs("X"); ++i) {
    const Affine x = AffineOf(op, "X", op.InType("X", i), i);
    inputs.insert(inputs.end(), {op.In("X", i), x.scale, x.zero_point});
  }
  op.Out("Out", op.Node("com.microsoft.QLinearConcat", inputs, {{"axis", axis}}));
}

// The pool of floats; as a node of integers if it is one node.
void QuantizedPool2d(OpContext& op) {
  const DType in = op.InType("X"), out = op.OutType("Out");
  const Affine x = AffineOf(op, "X", in);
  const Value real = Dequantized(op, op.In("X"), in, x, 0);
  const Value pooled = Pooled(op, real);
  const Maker* maker = op.exporter().graph().MakerOf(pooled);
  const bool global = maker && maker->op_type == "GlobalAveragePool";
  const bool windows = maker && maker->op_type == "AveragePool";
  if (in != out || !IsByte(in) || !(global || windows) || maker->inputs[0] != real)
    return op.Out("Out", Finished(op, pooled, out));
  const NodeAttrs attrs = maker->attrs;
  const Affine to = AffineOf(op, "Out", out);
  op.Out("Out", op.Node(global ? "com.microsoft.QLinearGlobalAveragePool"
                               : "com.microsoft.QLinearAveragePool",
                        {op.In("X"), x.scale, x.zero_point, to.scale, to.zero_point}, attrs));
}

void QuantizedLookup(OpContext& op) {
  const DType in = op.InType("X");
  Value index = op.Cast(op.In("X"), in, DType::kInt64);
  if (in == DType::kInt8) index = op.Node("Add", {index, op.Int(128)});
  op.Out("Out", op.Node("Gather", {op.In("Table"), index}));
}

// --- Paddle's quantize_linear and dequantize_linear ---

// Scale / Q, for the integers from -Q - 1 to Q; the axis of several scales.
struct Threshold {
  Value step;
  NodeAttrs attrs;
};

Threshold ThresholdOf(OpContext& op) {
  op.Ignore("ZeroPoint");
  for (const char* slot : {"InAccum", "InState"}) op.Ignore(slot);
  op.Require(!op.Attr<bool>("only_observer"), "only_observer has no counterpart");
  op.Require(op.Attr<int32_t>("bit_length") == 8,
             "integers of other than 8 bits have no counterpart");
  const DType dtype = op.InType("Scale");
  const Value scale = op.Cast(op.In("Scale"), dtype, DType::kFloat32);
  const auto axis = op.Attr<int32_t>("quant_axis");
  Threshold threshold;
  threshold.step =
      op.Node("Div", {axis < 0 ? ScalarOf(op, scale) : scale, op.Scalar(127, DType::kFloat32)});
  if (axis >= 0) threshold.attrs.emplace_back("axis", axis);
  return threshold;
}

void QuantizeLinear(OpContext& op) {
  op.Require(op.Attr<bool>("is_test"),
             "scales that a run finds (is_test false) have no counterpart");
  op.Require(op.Attr<int32_t>("round_type") == 0,
             "halves that go away from 0 (round_type 1) have no counterpart");
  const DType dtype = op.InType("X");
  const Threshold threshold = ThresholdOf(op);
  const Value x = op.Cast(op.In("X"), dtype, DType::kFloat32);
  const Shape shape = op.Attr<int32_t>("quant_axis") < 0 ? Shape{} : op.InShape("Scale");
  op.Require(shape.IsKnown(), "the number of scales must be known; coracle set-shape gives it");
  const Value zero = op.Constant(Tensor::Zeros(DType::kInt8, shape));
  const Value q = op.Node("QuantizeLinear", {x, threshold.step, zero}, threshold.attrs);
  op.Out("Y", op.Cast(q, DType::kInt8, dtype));
  op.Out("OutScale", op.In("Scale"));
}

void DequantizeLinear(OpContext& op) {
  const DType from = op.InType("X");
  const Threshold threshold = ThresholdOf(op);
  Value y;
  if (from == DType::kInt8) {
    y = op.Node("DequantizeLinear", {op.In("X"), threshold.step}, threshold.attrs);
  } else {  // floats, whose values need not be integers
    Ints dims(static_cast<size_t>(op.Rank("X")), 1);
    const auto axis = op.Attr<int32_t>("quant_axis");
    if (axis >= 0) dims[static_cast<size_t>(axis)] = -1;
    const Value step = axis < 0 ? threshold.step : op.Reshape(threshold.step, dims);
    y = op.Node("Mul", {op.Cast(op.In("X"), from, DType::kFloat32), step});
  }
  op.Out("Y", op.Cast(y, DType::kFloat32, op.OutType("Y")));
  op.Out("OutScale", op.In("Scale"));
}

constexpr char kAdd[] = "Add", kMul[] = "Mul";

constexpr ExportRow kRows[] = {
    {"dequantize_linear", DequantizeLinear, "Div, DequantizeLinear; Div, Mul"},
    {"quantize_linear", QuantizeLinear, "Div, QuantizeLinear"},
    {"quantized_add", QuantizedPair<kAdd>, "QLinearAdd; DequantizeLinear, Add, QuantizeLinear"},
    {"quantized_concat", QuantizedConcat,
     "QLinearConcat; DequantizeLinear, Concat, QuantizeLinear"},
    {"quantized_conv2d", QuantizedConv2d,
     "QLinearConv; ConvInteger, Add; DequantizeLinear, Conv, Add, QuantizeLinear"},
    {"quantized_lookup", QuantizedLookup, "Cast, Add, Gather"},
    {"quantized_matmul", QuantizedMatmul,
     "QLinearMatMul; QGemm; MatMulIntegerToFloat; MatMulInteger, Add; DequantizeLinear, MatMul, "
     "Add, QuantizeLinear"},
    {"quantized_mul", QuantizedPair<kMul>, "QLinearMul; DequantizeLinear, Mul, QuantizeLinear"},
    {"quantized_pool2d", QuantizedPool2d,
     "QLinearAveragePool; QLinearGlobalAveragePool; DequantizeLinear, AveragePool, "
     "QuantizeLinear"},
};

}  // namespace

ExportRows QuantizedRows() { return kRows; }

}  // namespace coracle::onnx
