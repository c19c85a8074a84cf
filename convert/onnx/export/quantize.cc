#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/quantize.h>

#include <algorithm>

namespace coracle::onnx {
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

// One number as a scalar.
Value ScalarOf(OpContext& op, const Value& value) {
  const Tensor* constant = GraphOf(op).ConstantOf(value);
  return constant ? op.Constant(constant->Reshaped(Shape())) : op.AsScalar(value);
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

// The numbers that were rounded and clamped to the range of `to`, and their zero point.
struct Rounded {
  Value number, zero_point;
};

std::optional<Rounded> RoundedOf(OpContext& op, const Value& value, DType to) {
  const double least = to == DType::kInt8 ? -128 : 0;
  const Value high = WithNumber(op, value, "Max", least);
  Value sum = high.empty() ? high : WithNumber(op, high, "Min", least + 255);
  if (sum.empty()) return std::nullopt;
  Value zero_point;
  if (const Value last = InputOf(op, sum, "Add", 1); !last.empty()) {
    zero_point = CastFrom(op, last, to);
    if (zero_point.empty()) return std::nullopt;
    sum = InputOf(op, sum, "Add");
  }
  if (const Value narrow = CastFrom(op, sum, DType::kFloat32); !narrow.empty()) sum = narrow;
  const Value number = InputOf(op, sum, "Round");
  if (number.empty()) return std::nullopt;
  return Rounded{number, zero_point};
}

// The only zero point, as an input of a node: 0 if there is none.
Value ZeroPointOf(OpContext& op, const Rounded& rounded, DType to) {
  return rounded.zero_point.empty() ? op.Scalar(0, to) : One(op, rounded.zero_point);
}

// Scales of a product of integers: (first second) / result, in float64.
struct Scales {
  Value first, second, result;
};

std::optional<Scales> ScalesOf(OpContext& op, const Value& quotient) {
  const Value product = InputOf(op, quotient, "Div");
  const Scales s = {CastFrom(op, InputOf(op, product, "Mul"), DType::kFloat32),
                    CastFrom(op, InputOf(op, product, "Mul", 1), DType::kFloat32),
                    CastFrom(op, InputOf(op, quotient, "Div", 1), DType::kFloat32)};
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

Value QLinearConv(OpContext& op, const Rounded& y, DType to) {
  const std::optional<Scales> scales = ScalesOf(op, InputOf(op, y.number, "Mul", 1));
  const std::optional<Sums> sums = SumsOf(op, InputOf(op, y.number, "Mul"));
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
                   ZeroPointOf(op, y, to)};
  if (!AllFound(inputs)) return "";
  if (!sums->bias.empty()) inputs.push_back(sums->bias);
  const Value out = op.Node("QLinearConv", inputs, conv.attrs);
  return sums->dropped.empty() ? out : op.Node("Squeeze", {out, sums->dropped});
}

Value QLinearMatMul(OpContext& op, const Rounded& y, DType to) {
  const std::optional<Scales> scales = ScalesOf(op, InputOf(op, y.number, "Mul", 1));
  const Value sums = CastFrom(op, InputOf(op, y.number, "Mul"), DType::kInt32);
  Values in = GraphOf(op).InputsOf(sums, "MatMulInteger");
  if (!scales || in.size() < 2) return "";
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
                         AlongDim(op, scales->result, -2),
                         y.zero_point.empty() ? op.Scalar(0, to) : AlongDim(op, y.zero_point, -2)};
  return AllFound(inputs) ? op.Node("QLinearMatMul", inputs) : "";
}

// (a - its zero point) times its scale, in float64; nothing if a has another dtype than `to`.
Values Real(OpContext& op, const Value& value, DType to) {
  const Value scale = One(op, CastFrom(op, InputOf(op, value, "Mul", 1), DType::kFloat32));
  const std::optional<Centred> x = CentredOf(op, InputOf(op, value, "Mul"));
  if (scale.empty() || !x || GraphOf(op).TypeOf(x->integers) != to) return {};
  const Value zero = x->zero_point.empty() ? op.Scalar(0, to) : One(op, x->zero_point);
  return {x->integers, scale, zero};
}

Value QLinearPair(OpContext& op, const Rounded& y, DType to) {
  const Value pair = InputOf(op, y.number, "Div");
  const Value scale = One(op, CastFrom(op, InputOf(op, y.number, "Div", 1), DType::kFloat32));
  for (const std::string type : {"Add", "Mul"}) {
    Values inputs = Real(op, InputOf(op, pair, type.c_str()), to);
    const Values b = Real(op, InputOf(op, pair, type.c_str(), 1), to);
    if (inputs.empty() || b.empty() || scale.empty()) continue;
    inputs.insert(inputs.end(), b.begin(), b.end());
    inputs.push_back(scale);
    inputs.push_back(ZeroPointOf(op, y, to));
    if (AllFound(inputs)) return op.Node("com.microsoft.QLinear" + type, inputs);
  }
  return "";
}

// The x whose range, extended to 0, is divided into 255 steps of this scale, and its least element.
struct Range {
  Value x, least;
};

std::optional<Range> RangeOf(OpContext& op, const Value& scale) {
  const Value range = InputOf(op, scale, "Add"), if_zero = InputOf(op, scale, "Add", 1);
  const Value is_zero = CastFrom(op, if_zero, DType::kBool);
  const Value zeros = InputOf(op, is_zero, "Equal", 1);
  if (range.empty() || InputOf(op, is_zero, "Equal") != range ||
      InputOf(op, zeros, "fill_zeros_like") != range)
    return std::nullopt;
  const Value width = WithNumber(op, range, "Div", 255);
  const Value most = WithNumber(op, InputOf(op, width, "Sub"), "Max", 0);
  const Value least = InputOf(op, width, "Sub", 1);
  const Value low = InputOf(op, WithNumber(op, least, "Min", 0), "whole ReduceMin");
  const Value high = InputOf(op, most, "whole ReduceMax");
  if (low.empty() || low != high) return std::nullopt;
  return Range{low, least};
}

constexpr const char* kDynamicScale = "scale of DynamicQuantizeLinear";
constexpr const char* kDynamicZeroPoint = "zero point of DynamicQuantizeLinear";

// The scale and the zero point come before the quantized elements. Here they have the shape [1].
Value DynamicQuantizeLinear(OpContext& op, const Rounded& y) {
  Graph& graph = op.exporter().graph();
  const Value scale = InputOf(op, y.number, "Div", 1), x = InputOf(op, y.number, "Div");
  const Value quantized = InputOf(op, scale, kDynamicScale);
  if (!quantized.empty()) {
    const bool same = InputOf(op, y.zero_point, kDynamicZeroPoint) == quantized &&
                      InputOf(op, quantized, "DynamicQuantizeLinear") == x;
    return same ? quantized : "";
  }
  const std::optional<Range> range = RangeOf(op, scale);
  if (!range || !y.zero_point.empty() || WithNumber(op, x, "Mul", -1) != range->least) return "";
  // Nodes outside of this body cannot read a scale that is made in it.
  if (op.exporter().IsBoundOutside(scale)) return "";
  const Values results = op.Nodes("DynamicQuantizeLinear", {range->x}, 3);
  const Value step = op.Reshape(results[1], {1}), zero_point = op.Reshape(results[2], {1});
  graph.SetMaker(step, kDynamicScale, {results[0]});
  graph.SetMaker(zero_point, kDynamicZeroPoint, {results[0]});
  graph.SetShape(step, {1});
  op.exporter().Rebind(scale, step);
  return zero_point;
}

Value QuantizeLinear(OpContext& op, const Rounded& y, DType to) {
  const Value x = InputOf(op, y.number, "Div"), divisor = InputOf(op, y.number, "Div", 1);
  const Graph& graph = GraphOf(op);
  const bool floats =
      graph.TypeOf(x) == DType::kFloat32 && graph.TypeOf(divisor) == DType::kFloat32;
  const std::optional<PerDim> scale = floats ? PerDimOf(op, divisor) : std::nullopt;
  if (!scale) return "";
  if (scale->dim < 0) {
    const Value zero = ZeroPointOf(op, y, to);
    return zero.empty() ? "" : op.Node("QuantizeLinear", {x, scale->value, zero});
  }
  const std::optional<PerDim> zero = PerDimOf(op, y.zero_point);
  const std::optional<Shape> shape = graph.ShapeOf(x);
  if (!zero || zero->dim != scale->dim || zero->rank != scale->rank || !shape ||
      shape->rank() != scale->rank)
    return "";
  return op.Node("QuantizeLinear", {x, scale->value, zero->value}, {{"axis", scale->dim}});
}

}  // namespace

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

Value IntegerProduct(OpContext& op, const Value& x, const Value& y) {
  const auto a = CentredOf(op, x), b = CentredOf(op, y);
  if (!a || !b) return "";
  const Value a_zero = a->zero_point.empty() ? "" : AlongDim(op, a->zero_point, -2);
  const Value b_zero = b->zero_point.empty() ? "" : AlongDim(op, b->zero_point, -1);
  if (a_zero.empty() != a->zero_point.empty() || b_zero.empty() != b->zero_point.empty()) return "";
  return op.Node("MatMulInteger", {a->integers, b->integers, a_zero, b_zero});
}

Value Quantized(OpContext& op, const Value& x, DType to) {
  if (to != DType::kInt8 && to != DType::kUInt8) return "";
  const std::optional<Rounded> y = RoundedOf(op, x, to);
  if (!y) return "";
  Value found = QLinearConv(op, *y, to);
  if (found.empty()) found = QLinearMatMul(op, *y, to);
  if (found.empty()) found = QLinearPair(op, *y, to);
  if (found.empty() && to == DType::kUInt8) found = DynamicQuantizeLinear(op, *y);
  if (found.empty()) found = QuantizeLinear(op, *y, to);
  return found;
}

Value Dequantized(OpContext& op, const Value& x, const Value& y) {
  const Graph& graph = GraphOf(op);
  if (graph.TypeOf(x) != DType::kFloat32 || graph.TypeOf(y) != DType::kFloat32) return "";
  const Value difference = CastFrom(op, x, DType::kInt64);
  const std::optional<Centred> centred = CentredOf(op, difference);
  const std::optional<PerDim> scale = centred ? PerDimOf(op, y) : std::nullopt;
  if (!scale) return "";
  if (scale->dim < 0) {
    const Value zero = centred->zero_point.empty() ? "" : One(op, centred->zero_point);
    if (zero.empty() != centred->zero_point.empty()) return "";
    return op.Node("DequantizeLinear", {centred->integers, scale->value, zero});
  }
  const std::optional<Shape> shape = graph.ShapeOf(centred->integers);
  if (!shape || shape->rank() != scale->rank) return "";
  Value zero;
  if (!centred->zero_point.empty()) {
    const std::optional<PerDim> found = PerDimOf(op, centred->zero_point);
    if (!found || found->dim != scale->dim || found->rank != scale->rank) return "";
    zero = found->value;
  }
  return op.Node("DequantizeLinear", {centred->integers, scale->value, zero},
                 {{"axis", scale->dim}});
}

}  // namespace coracle::onnx
