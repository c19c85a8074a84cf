// Quantized numbers: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear.
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/quantize.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/framework/tensor/half_array.h>

#include <algorithm>
#include <optional>

namespace coracle::onnx {

Value ScalarOf(OpContext& op, const Value& value) {
  const Tensor* constant = op.exporter().graph().ConstantOf(value);
  return constant ? op.Constant(constant->Reshaped(Shape())) : op.AsScalar(value);
}

namespace {

const Graph& GraphOf(OpContext& op) { return op.exporter().graph(); }

// Input `i` of the node that made the value, if it is of this type; else "".
Value InputOf(OpContext& op, const Value& value, const char* op_type, size_t i = 0) {
  const Values inputs = GraphOf(op).InputsOf(value, op_type);
  return i < inputs.size() ? inputs[i] : Value();
}

bool IsNumber(OpContext& op, const Value& value, double number) {
  const Tensor* constant = GraphOf(op).ConstantOf(value);
  return constant && constant->numel() == 1 && constant->dtype() != DType::kString &&
         constant->Cast(DType::kFloat64).data<double>()[0] == number;
}

// The x of "x op number".
Value WithNumber(OpContext& op, const Value& value, const char* op_type, double number) {
  const Value second = InputOf(op, value, op_type, 1);
  return !second.empty() && IsNumber(op, second, number) ? InputOf(op, value, op_type) : Value();
}

// What Cast made the value of, if that has this dtype.
Value CastFrom(OpContext& op, const Value& value, DType from) {
  const Value x = InputOf(op, value, "Cast");
  return !x.empty() && GraphOf(op).TypeOf(x) == from ? x : Value();
}

bool IsOne(OpContext& op, const Value& value) {
  const std::optional<Shape> shape = GraphOf(op).ShapeOf(value);
  return shape && shape->IsKnown() && shape->numel() == 1;
}

// A scale, bias or zero point: one number, or a vector that lies along a dim of the tensor.
struct PerDim {
  Value value;
  int64_t dim = -1;  // -1: one number
  int64_t rank = 1;  // of the shape that was given to a vector
};

std::optional<PerDim> PerDimOf(OpContext& op, const Value& value) {
  if (value.empty()) return std::nullopt;
  if (IsOne(op, value)) return PerDim{ScalarOf(op, value)};
  const Value vector = InputOf(op, value, "Reshape"), dims = InputOf(op, value, "Reshape", 1);
  const std::optional<Shape> shape = GraphOf(op).ShapeOf(vector.empty() ? value : vector);
  if (!shape || shape->rank() != 1) return std::nullopt;
  if (vector.empty()) return PerDim{value, 0, 1};
  const Tensor* list = GraphOf(op).ConstantOf(dims);
  if (!list || list->dtype() != DType::kInt64) return std::nullopt;
  PerDim found{vector, -1, list->numel()};
  for (int64_t i = 0; i < list->numel(); ++i) {
    if (list->data<int64_t>()[i] == 1) continue;
    if (found.dim >= 0) return std::nullopt;
    found.dim = i;
  }
  if (found.dim < 0) return std::nullopt;
  return found;
}

// The same if a vector lies along that dim; a negative one counts from the end.
Value AlongDim(OpContext& op, const Value& value, int64_t dim) {
  const std::optional<PerDim> found = PerDimOf(op, value);
  if (!found) return "";
  const bool fits = found->dim < 0 || dim == (dim < 0 ? found->dim - found->rank : found->dim);
  return fits ? found->value : Value();
}

Value One(OpContext& op, const Value& value) {
  return !value.empty() && IsOne(op, value) ? ScalarOf(op, value) : Value();
}

bool AllFound(const Values& values) {
  return std::none_of(values.begin(), values.end(), [](const Value& v) { return v.empty(); });
}

// --- products in float64 that are quantized ---

// Scales of a product of integers, which are multiplied by first and second, in float64.
struct Scales {
  Value first, second, result;
};

std::optional<Scales> ScalesOf(OpContext& op, const Value& product) {
  const Scales s = {CastFrom(op, InputOf(op, product, "Mul"), DType::kFloat32),
                    CastFrom(op, InputOf(op, product, "Mul", 1), DType::kFloat32),
                    CastFrom(op, op.In("Scale"), DType::kFloat32)};
  return AllFound({s.first, s.second, s.result}) ? std::optional(s) : std::nullopt;
}

// A convolution of int32, which may have got a dim of 1 first, and its bias.
struct Sums {
  const Maker* maker = nullptr;
  Value bias, dropped;  // "" if there is none
};

// ONNX's bias is a vector of all filters.
Value BiasOf(OpContext& op, const Value& bias, const Value& filters) {
  if (!IsOne(op, bias)) return AlongDim(op, bias, 1);
  const std::optional<Shape> shape = GraphOf(op).ShapeOf(filters);
  return shape && (*shape)[0] == 1 ? op.Reshape(bias, {1}) : "";
}

std::optional<Sums> SumsOf(OpContext& op, Value value) {
  Sums sums;
  const Value bias = InputOf(op, value, "Add", 1);
  if (!bias.empty()) value = InputOf(op, value, "Add");
  sums.dropped = InputOf(op, value, "Squeeze", 1);
  if (!sums.dropped.empty()) value = InputOf(op, value, "Squeeze");
  sums.maker = GraphOf(op).MakerOf(CastFrom(op, value, DType::kInt32));
  if (!sums.maker || sums.maker->op_type != "ConvInteger" || sums.maker->inputs.size() != 4)
    return std::nullopt;
  if (bias.empty()) return sums;
  sums.bias = BiasOf(op, CastFrom(op, bias, DType::kInt32), sums.maker->inputs[1]);
  return sums.bias.empty() ? std::nullopt : std::optional(sums);
}

// The zero point of the result: 0 if there is none.
Value ResultZeroPoint(OpContext& op) {
  return op.Has("ZeroPoint") ? op.In("ZeroPoint") : op.Scalar(0, op.OutType("Out"));
}

// A convolution over three axes, whose sums are in float64.
Value QLinearConv(OpContext& op) {
  const std::optional<Scales> scales = ScalesOf(op, InputOf(op, op.In("X"), "Mul", 1));
  const std::optional<Sums> sums = SumsOf(op, InputOf(op, op.In("X"), "Mul"));
  if (!scales || !sums) return "";
  const Maker conv = *sums->maker;
  const Values& in = conv.inputs;
  Values inputs = {in[0],
                   One(op, scales->first),
                   in[2],
                   in[1],
                   AlongDim(op, scales->second, 1),
                   in[3],
                   One(op, scales->result),
                   One(op, ResultZeroPoint(op))};
  if (!AllFound(inputs)) return "";
  if (!sums->bias.empty()) inputs.push_back(sums->bias);
  const Value out = op.Node("QLinearConv", inputs, conv.attrs);
  return sums->dropped.empty() ? out : op.Node("Squeeze", {out, sums->dropped});
}

// A product of matrices with a scale for each row of the result.
Value QLinearMatMul(OpContext& op) {
  const std::optional<Scales> scales = ScalesOf(op, InputOf(op, op.In("X"), "Mul", 1));
  const Value sums = CastFrom(op, InputOf(op, op.In("X"), "Mul"), DType::kInt32);
  Values in = GraphOf(op).InputsOf(sums, "MatMulInteger");
  const int rank = op.Rank("X");
  if (!scales || in.size() < 2 || rank < 2 || op.Axis(op.Attr<int32_t>("axis"), rank) != rank - 2)
    return "";
  in.resize(4);
  for (size_t i = 0; i < 2; ++i) {
    const MaybeDType type = GraphOf(op).TypeOf(in[i]);
    if (in[i + 2].empty() && type) in[i + 2] = op.Scalar(0, *type);
  }
  const Values inputs = {in[0],
                         AlongDim(op, scales->first, -2),
                         in[2],
                         in[1],
                         AlongDim(op, scales->second, -1),
                         in[3],
                         scales->result,
                         ResultZeroPoint(op)};
  return AllFound(inputs) ? op.Node("QLinearMatMul", inputs) : "";
}

// --- DynamicQuantizeLinear ---

constexpr const char* kDynamicScale = "scale of DynamicQuantizeLinear";
constexpr const char* kDynamicZeroPoint = "zero point of DynamicQuantizeLinear";

bool HasRangeOf(OpContext& op, DType to) {
  return op.OutType("Out") == to && op.Attr<int64_t>("qmin") == 0 &&
         op.Attr<int64_t>("qmax") == 0 && op.Attr<std::string>("round_mode") == "even";
}

// The integers that the node of dynamic_scale gave; "" if this is another quantization.
Value DynamicQuantizeLinear(OpContext& op) {
  if (!HasRangeOf(op, DType::kUInt8) || op.InType("X") != DType::kFloat32) return "";
  const Value quantized = InputOf(op, op.In("Scale"), kDynamicScale);
  const bool same = !quantized.empty() && op.Has("ZeroPoint") &&
                    InputOf(op, op.In("ZeroPoint"), kDynamicZeroPoint) == quantized &&
                    InputOf(op, quantized, "DynamicQuantizeLinear") == op.In("X");
  return same ? quantized : "";
}

// The node also quantizes X, which the op affine_quantize does here.
void ExportDynamicScale(OpContext& op) {
  Graph& graph = op.exporter().graph();
  const Value x = op.Cast(op.In("X"), op.InType("X"), DType::kFloat32);
  const Values results = op.Nodes("DynamicQuantizeLinear", {x}, 3);
  const Value scale = op.Reshape(results[1], {1}), zero_point = op.Reshape(results[2], {1});
  graph.SetMaker(scale, kDynamicScale, {results[0]});
  graph.SetMaker(zero_point, kDynamicZeroPoint, {results[0]});
  graph.SetShape(scale, {1});
  op.Out("Scale", scale);
  op.Out("ZeroPoint", zero_point);
}

// --- scales and zero points of the ops affine_quantize and affine_dequantize ---

bool HasOne(OpContext& op, const char* slot) {
  const Shape& shape = op.InShape(slot);
  return shape.IsKnown() && shape.numel() == 1;
}
bool IsVector(OpContext& op, const char* slot) { return op.Has(slot) && !HasOne(op, slot); }

// The value in `dtype`; "" if its elements may not have that type.
Value Narrowed(OpContext& op, const Value& value, DType from, DType dtype) {
  if (from == dtype) return value;
  if (const Value narrow = CastFrom(op, value, dtype); !narrow.empty()) return narrow;
  const Tensor* constant = GraphOf(op).ConstantOf(value);
  if (!constant) return "";
  const Tensor narrow = constant->Cast(dtype);
  return BitEqual(narrow.Cast(from), *constant) ? op.Constant(narrow) : "";
}

// The scales and zero points as inputs of a node: of one shape.
struct Steps {
  Value scale, zero_point;
  NodeAttrs attrs;
};

// `dtype`: of the scale. "" if it cannot have it.
Steps StepsOf(OpContext& op, DType integers, DType dtype) {
  Steps steps;
  const DType from = op.InType("Scale");
  steps.scale = IsHalf(dtype) ? Narrowed(op, op.In("Scale"), from, dtype)
                              : op.Cast(op.In("Scale"), from, dtype);
  if (steps.scale.empty()) return steps;
  if (op.Has("ZeroPoint")) steps.zero_point = op.In("ZeroPoint");
  const bool scales = IsVector(op, "Scale"), zeros = IsVector(op, "ZeroPoint");
  if (!scales && !zeros) {
    steps.scale = ScalarOf(op, steps.scale);
    steps.zero_point =
        steps.zero_point.empty() ? op.Scalar(0, integers) : ScalarOf(op, steps.zero_point);
    return steps;
  }
  const Value shape = op.ShapeOf(scales ? steps.scale : steps.zero_point);
  if (!scales) steps.scale = op.Node("Expand", {ScalarOf(op, steps.scale), shape});
  if (steps.zero_point.empty()) {
    const Shape& known = op.InShape("Scale");
    steps.zero_point = known.IsKnown() ? op.Constant(Tensor::Zeros(integers, known))
                                       : op.Node("Expand", {op.Scalar(0, integers), shape});
  } else if (!zeros) {
    steps.zero_point = op.Node("Expand", {ScalarOf(op, steps.zero_point), shape});
  }
  steps.attrs.emplace_back("axis", op.Axis(op.Attr<int32_t>("axis"), op.Rank("X")));
  if (const auto block = op.Attr<int64_t>("block_size"); block != 0)
    steps.attrs.emplace_back("block_size", block);
  return steps;
}

// A scale or zero point in `dtype` and in a shape that broadcasts to X.
Value Broadcast(OpContext& op, const char* slot, DType dtype) {
  const Value value = op.Cast(op.In(slot), op.InType(slot), dtype);
  if (!IsVector(op, slot)) return ScalarOf(op, value);
  op.Require(op.Attr<int64_t>("block_size") == 0,
             "a scale for each block has no counterpart with these types");
  Ints dims(static_cast<size_t>(op.Rank("X")), 1);
  dims[static_cast<size_t>(op.Axis(op.Attr<int32_t>("axis"), op.Rank("X")))] = -1;
  return op.Reshape(value, dims);
}

// Before opset 21, no node has a scale for each block, whatever the types are.
void RequireBlocks(OpContext& op) {
  const bool several = IsVector(op, "Scale") || IsVector(op, "ZeroPoint");
  if (several && op.Attr<int64_t>("block_size") != 0) op.RequireOpset(21, "a scale for each block");
}

// The integers that QuantizeLinear and DequantizeLinear have.
bool HasLinear(OpContext& op, DType integers) {
  return integers == DType::kInt8 || integers == DType::kUInt8 ||
         (integers == DType::kInt16 && op.opset() >= 21);
}

// --- affine_quantize ---

// In this dtype the quotient is computed.
DType QuotientType(OpContext& op) {
  return op.InType("X") == DType::kFloat64 || op.InType("X") == DType::kInt32 ? DType::kFloat64
                                                                              : DType::kFloat32;
}

// QuantizeLinear; "" if it computes something else.
Value QuantizeLinear(OpContext& op) {
  const DType to = op.OutType("Out"), from = op.InType("X");
  if (!HasLinear(op, to) || !HasRangeOf(op, to) || QuotientType(op) != DType::kFloat32) return "";
  const auto quotient = op.Attr<int32_t>("quotient_dtype");
  const bool in_half = quotient != -1;
  if (in_half && (static_cast<DType>(quotient) != from || op.opset() < 19)) return "";
  const DType dtype = in_half ? from : DType::kFloat32;
  const Steps steps = StepsOf(op, to, dtype);
  if (steps.scale.empty()) return "";
  const Value x = op.Cast(op.In("X"), from, dtype);
  return op.Node("QuantizeLinear", {x, steps.scale, steps.zero_point}, steps.attrs);
}

struct Bounds {
  double least, most;
};
Bounds BoundsOf(OpContext& op, DType to) {
  const auto least = op.Attr<int64_t>("qmin"), most = op.Attr<int64_t>("qmax");
  if (least != 0 || most != 0) return {static_cast<double>(least), static_cast<double>(most)};
  if (to == DType::kUInt8) return {0, 255};
  if (to == DType::kInt8) return {-128, 127};
  return to == DType::kInt16 ? Bounds{-32768, 32767} : Bounds{-2147483648.0, 2147483647.0};
}

// By single nodes, which give the same integers.
Value QuantizedByParts(OpContext& op) {
  const DType to = op.OutType("Out"), real = QuotientType(op), wide = DType::kFloat64;
  const Value x = op.Cast(op.In("X"), op.InType("X"), real);
  Value q = op.Node("Div", {x, Broadcast(op, "Scale", real)});
  if (const auto quotient = op.Attr<int32_t>("quotient_dtype"); quotient != -1) {
    const auto half = static_cast<DType>(quotient);
    q = op.Cast(op.Cast(q, real, half), half, real);
  }
  q = op.Attr<std::string>("round_mode") == "even" ? op.Node("Round", {q})
                                                   : Activate(op, "round", {}, q, real);
  q = op.Cast(q, real, wide);
  if (op.Has("ZeroPoint")) q = op.Node("Add", {q, Broadcast(op, "ZeroPoint", wide)});
  const Bounds bounds = BoundsOf(op, to);
  const Value least = op.Scalar(bounds.least, wide);
  // A nan is not greater than the least integer.
  q = op.Node("Where", {op.Node("Greater", {q, least}), q, least});
  return op.Cast(op.Node("Min", {q, op.Scalar(bounds.most, wide)}), wide, to);
}

void ExportAffineQuantize(OpContext& op) {
  RequireBlocks(op);
  Value found = DynamicQuantizeLinear(op);
  if (found.empty() && op.InType("X") == DType::kFloat64 && HasRangeOf(op, op.OutType("Out"))) {
    found = QLinearConv(op);
    if (found.empty()) found = QLinearMatMul(op);
  }
  if (found.empty()) found = QuantizeLinear(op);
  op.Out("Out", found.empty() ? QuantizedByParts(op) : found);
}

// --- affine_dequantize ---

// Lets the node read a parameter of 4 bits and zero points of its type instead of bytes.
void UseFourBits(OpContext& op, const Steps& steps, Value* x, Value* zero) {
  const Value numbers = FourBitsOf(op, *x, op.InShape("X"));
  if (numbers.empty()) return;
  Value zeros;
  if (op.Has("ZeroPoint")) {
    const Shape& shape = op.InShape(IsVector(op, "Scale") ? "Scale" : "ZeroPoint");
    zeros = FourBitZeros(op, "ZeroPoint", steps.attrs.empty() ? Shape() : shape);
    if (zeros.empty()) return;
  }
  *x = numbers;
  *zero = zeros;
}

Value DequantizeLinear(OpContext& op) {
  const DType from = op.InType("X"), to = op.OutType("Out"), scale = op.InType("Scale");
  const bool sums = from == DType::kInt32 && !op.Has("ZeroPoint");
  if (!(HasLinear(op, from) || sums) || to == DType::kFloat64 || scale == DType::kFloat64)
    return "";
  // Products of 16-bit floats are rounded once, so the node may compute in them.
  DType dtype = DType::kFloat32;
  if (IsHalf(to) && op.opset() >= 19 && from != DType::kInt32 && from != DType::kInt16 &&
      !Narrowed(op, op.In("Scale"), scale, to).empty())
    dtype = to;
  const Steps steps = StepsOf(op, from, dtype);
  Value zero = sums || !op.Has("ZeroPoint") ? "" : steps.zero_point;
  // Fusions of ONNX Runtime require one zero point for each scale.
  const Shape scales = op.InShape("Scale");
  if (zero.empty() && !sums && SizeOf(from) == 1 && scales.IsKnown() && scales.numel() > 1)
    zero = op.Constant(Tensor::Zeros(from, scales));
  Value x = op.In("X");
  if (op.opset() >= 21 && SizeOf(from) == 1) UseFourBits(op, steps, &x, &zero);
  const Value y = op.Node("DequantizeLinear", {x, steps.scale, zero}, steps.attrs);
  op.exporter().graph().SetType(y, dtype);
  return op.Cast(y, dtype, to);
}

Value DequantizedByParts(OpContext& op) {
  const DType to = op.OutType("Out"), wide = DType::kInt64;
  const bool doubles = to == DType::kFloat64 || op.InType("Scale") == DType::kFloat64;
  const DType real = doubles ? DType::kFloat64 : DType::kFloat32;
  Value x = op.Cast(op.In("X"), op.InType("X"), wide);
  if (op.Has("ZeroPoint")) x = op.Node("Sub", {x, Broadcast(op, "ZeroPoint", wide)});
  const Value y = op.Node("Mul", {op.Cast(x, wide, real), Broadcast(op, "Scale", real)});
  return op.Cast(y, real, to);
}

void ExportAffineDequantize(OpContext& op) {
  RequireBlocks(op);
  const Value found = DequantizeLinear(op);
  op.Out("Out", found.empty() ? DequantizedByParts(op) : found);
}

constexpr ExportRow kRows[] = {
    {"affine_dequantize", ExportAffineDequantize, "DequantizeLinear; Cast, Sub, Mul"},
    {"affine_quantize", ExportAffineQuantize,
     "QuantizeLinear; DynamicQuantizeLinear; Div, Round, Add, Where, Min, Cast"},
    {"dynamic_scale", ExportDynamicScale, "DynamicQuantizeLinear"},
};

}  // namespace

ExportRows QuantizeRows() { return kRows; }

std::optional<Centred> CentredOf(OpContext& op, const Value& value) {
  const auto integers = [&](const Value& wide) {
    const Value from = InputOf(op, wide, "Cast");
    const MaybeDType type = from.empty() ? std::nullopt : GraphOf(op).TypeOf(from);
    return type == DType::kInt8 || type == DType::kUInt8 ? from : Value();
  };
  const Values difference = GraphOf(op).InputsOf(value, "Sub");
  const Value x = integers(difference.empty() ? value : difference[0]);
  const Value zero = difference.empty() ? "" : integers(difference[1]);
  if (x.empty() || zero.empty() != difference.empty()) return std::nullopt;
  if (!zero.empty() && GraphOf(op).TypeOf(x) != GraphOf(op).TypeOf(zero)) return std::nullopt;
  return Centred{x, zero};
}

Value RoundedToEven(OpContext& op, const Value& condition, const Value& x, const Value& y) {
  const Value rest = WithNumber(op, condition, "Equal", 0.5);
  const Value value = InputOf(op, rest, "Sub");
  const Value half = InputOf(op, WithNumber(op, x, "Mul", 2), "round");
  if (value.empty() || InputOf(op, InputOf(op, rest, "Sub", 1), "Floor") != value ||
      InputOf(op, y, "round") != value || WithNumber(op, half, "Mul", 0.5) != value)
    return "";
  const DType type = GraphOf(op).TypeOf(value).value_or(DType::kString);
  const bool takes = IsFloating(type) && type != DType::kBFloat16;
  return takes ? op.Node("Round", {value}) : "";
}

}  // namespace coracle::onnx
