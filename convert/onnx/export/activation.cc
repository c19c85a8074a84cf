#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <coracle/operators/conv/conv_activation.h>
#include <coracle/operators/operators.h>

#include <cmath>
#include <numbers>
#include <unordered_map>

namespace coracle::onnx {

Value Truncate(OpContext& op, const Value& x) {
  return op.Node("Mul", {op.Node("Sign", {x}), op.Node("Floor", {op.Node("Abs", {x})})});
}

namespace {

// An activation of x: reads its attrs from `op`. If another op applies the activation, the slots of
// `op` are not the activation's.
struct Activation {
  OpContext& op;
  Value x;
  DType dtype;

  Value Node(const char* type, const Values& inputs, const NodeAttrs& attrs = {}) const {
    return op.Node(type, inputs, attrs);
  }
  Value Scalar(double value) const { return op.Scalar(value, dtype); }
  float Attr(const char* name) const { return op.Attr<float>(name); }
  Value AttrScalar(const char* name) const { return Scalar(Attr(name)); }
  Value Times(const Value& a, double b) const {
    return b == 1 ? a : op.Node("Mul", {a, Scalar(b)});
  }
  Value Plus(const Value& a, double b) const { return op.Node("Add", {a, Scalar(b)}); }
  Value Clip(const Value& a, double low, double high) const {
    return op.Node("Clip", {a, Scalar(low), Scalar(high)});
  }
};
using Formula = Value (*)(const Activation& a);

template <const char* kType>
Value Plain(const Activation& a) {
  return a.Node(kType, {a.x});
}

Value Relu6(const Activation& a) { return a.Clip(a.x, 0, a.Attr("threshold")); }
Value Brelu(const Activation& a) { return a.Clip(a.x, a.Attr("t_min"), a.Attr("t_max")); }
Value Square(const Activation& a) { return a.Node("Mul", {a.x, a.x}); }
Value Rsqrt(const Activation& a) { return a.Node("Reciprocal", {a.Node("Sqrt", {a.x})}); }
Value LogOf(const Activation& a, double base) {
  return a.Node("Div", {a.Node("Log", {a.x}), a.Scalar(std::log(base))});
}
Value Log2(const Activation& a) { return LogOf(a, 2); }
Value Log10(const Activation& a) { return LogOf(a, 10); }

// With u = 1 + x rounded, log(u) x / (u - 1) corrects the rounding error (Goldberg 1991, theorem
// 4). From |x| = 1 on, no correction is needed.
Value Log1p(const Activation& a) {
  const Value u = a.Plus(a.x, 1);
  const Value log = a.Node("Log", {u});
  const Value lost = a.Node("Sub", {u, a.Scalar(1)});
  const Value exact = a.Node("Div", {a.Node("Mul", {log, a.x}), lost});
  const Value small = a.Node("Less", {a.Node("Abs", {a.x}), a.Scalar(1)});
  const Value is_x = a.Node("Equal", {u, a.Scalar(1)});
  return a.Node("Where", {is_x, a.x, a.Node("Where", {small, exact, log})});
}

// e^x - 1 = 2 e^(x / 2) sinh(x / 2), without cancellation. The product of factors 0 and -inf would
// be nan, so x is clamped where the result has become -1 and both factors are still in range.
Value Expm1(const Activation& a) {
  const double least = a.dtype == DType::kFloat16 ? -8 : -40;
  const Value half = a.Node("Max", {a.Times(a.x, 0.5), a.Scalar(least)});
  return a.Times(a.Node("Mul", {a.Node("Exp", {half}), a.Node("Sinh", {half})}), 2);
}

// Rounds halves away from 0 (ONNX's Round rounds them to even).
Value Round(const Activation& a) {
  const Value size = a.Node("Abs", {a.x});
  const Value whole = a.Node("Floor", {size});
  const Value up = a.Node("GreaterOrEqual", {a.Node("Sub", {size, whole}), a.Scalar(0.5)});
  const Value rounded = a.Node("Add", {whole, a.op.Cast(up, DType::kBool, a.dtype)});
  const Value out = a.Node("Mul", {a.Node("Sign", {a.x}), rounded});
  a.op.exporter().graph().SetMaker(out, "round", {a.x});
  return out;
}

Value Trunc(const Activation& a) { return IsFloating(a.dtype) ? Truncate(a.op, a.x) : a.x; }

Value Elu(const Activation& a) { return a.Node("Elu", {a.x}, {{"alpha", a.Attr("alpha")}}); }
Value Selu(const Activation& a) {
  return a.Node("Selu", {a.x}, {{"alpha", a.Attr("alpha")}, {"gamma", a.Attr("scale")}});
}
Value LeakyRelu(const Activation& a) {
  return a.Node("LeakyRelu", {a.x}, {{"alpha", a.Attr("alpha")}});
}
Value HardSigmoid(const Activation& a) {
  return a.Node("HardSigmoid", {a.x}, {{"alpha", a.Attr("slope")}, {"beta", a.Attr("offset")}});
}

Value HardSwish(const Activation& a) {
  const float threshold = a.Attr("threshold"), scale = a.Attr("scale"), offset = a.Attr("offset");
  if (a.op.opset() >= 14 && threshold == 6 && scale == 6 && offset == 3)
    return a.Node("HardSwish", {a.x});
  const Value gate = a.Clip(a.Plus(a.x, offset), 0, threshold);
  return a.Node("Div", {a.Node("Mul", {a.x, gate}), a.Scalar(scale)});
}

Value Gated(const Activation& a, double beta) {
  return a.Node("Mul", {a.x, a.Node("Sigmoid", {a.Times(a.x, beta)})});
}
Value Silu(const Activation& a) { return Gated(a, 1); }
Value Swish(const Activation& a) { return Gated(a, a.Attr("beta")); }

Value Gelu(const Activation& a) {
  const double root = std::numbers::sqrt2;
  Value phi;
  if (a.op.Attr<bool>("approximate")) {
    const Value cube = a.Node("Mul", {a.Node("Mul", {a.x, a.x}), a.x});
    const Value inner = a.Node("Add", {a.x, a.Times(cube, 0.044715)});
    phi = a.Node("Tanh", {a.Times(inner, root * std::numbers::inv_sqrtpi)});
  } else {
    phi = a.Node("Erf", {a.Node("Div", {a.x, a.Scalar(root)})});
  }
  return a.Times(a.Node("Mul", {a.x, a.Plus(phi, 1)}), 0.5);
}

// log(1 + e^x), and x beyond `threshold`. From 15 on, the difference is below the precision
// of float32.
Value SoftplusUpTo(const Activation& a, const Value& x, double threshold) {
  const Value soft = a.Node("Softplus", {x});
  if (threshold >= 15) return soft;
  return a.Node("Where", {a.Node("Greater", {x, a.Scalar(threshold)}), x, soft});
}
Value Softplus(const Activation& a) {
  const double beta = a.Attr("beta");
  const Value soft = SoftplusUpTo(a, a.Times(a.x, beta), a.Attr("threshold"));
  return beta == 1 ? soft : a.Node("Div", {soft, a.Scalar(beta)});
}
Value Mish(const Activation& a) {
  return a.Node("Mul", {a.x, a.Node("Tanh", {SoftplusUpTo(a, a.x, a.Attr("threshold"))})});
}
Value SoftRelu(const Activation& a) {
  const double threshold = a.Attr("threshold");
  return a.Node("Softplus", {a.Clip(a.x, -threshold, threshold)});
}
Value LogSigmoid(const Activation& a) {
  return a.Node("Neg", {a.Node("Softplus", {a.Node("Neg", {a.x})})});
}
Value Stanh(const Activation& a) {
  return a.Times(a.Node("Tanh", {a.Times(a.x, a.Attr("scale_a"))}), a.Attr("scale_b"));
}
Value TanhShrink(const Activation& a) { return a.Node("Sub", {a.x, a.Node("Tanh", {a.x})}); }
Value Softshrink(const Activation& a) {
  const double lambda = a.Attr("lambda");
  return a.Node("Sub", {a.x, a.Clip(a.x, -lambda, lambda)});
}
// 0 where `size` is at most the threshold; a nan fails the comparison and stays.
Value ZeroUpTo(const Activation& a, const Value& size) {
  const Value zero = a.Node("LessOrEqual", {size, a.AttrScalar("threshold")});
  return a.Node("Where", {zero, a.Scalar(0), a.x});
}
Value HardShrink(const Activation& a) { return ZeroUpTo(a, a.Node("Abs", {a.x})); }
Value ThresholdedRelu(const Activation& a) { return ZeroUpTo(a, a.x); }

constexpr char kAbs[] = "Abs", kAcos[] = "Acos", kAsin[] = "Asin", kAtan[] = "Atan",
               kCeil[] = "Ceil", kCos[] = "Cos", kCosh[] = "Cosh", kErf[] = "Erf", kExp[] = "Exp",
               kFloor[] = "Floor", kLog[] = "Log", kReciprocal[] = "Reciprocal", kRelu[] = "Relu",
               kSigmoid[] = "Sigmoid", kSign[] = "Sign", kSin[] = "Sin", kSinh[] = "Sinh",
               kSoftsign[] = "Softsign", kSqrt[] = "Sqrt", kTan[] = "Tan", kTanh[] = "Tanh";

struct Row {
  const char* op_type;
  Formula formula;
  const char* maps_to;
};

constexpr Row kRows[] = {
    {"abs", Plain<kAbs>, "Abs"},
    {"acos", Plain<kAcos>, "Acos"},
    {"asin", Plain<kAsin>, "Asin"},
    {"atan", Plain<kAtan>, "Atan"},
    {"brelu", Brelu, "Clip"},
    {"ceil", Plain<kCeil>, "Ceil"},
    {"cos", Plain<kCos>, "Cos"},
    {"cosh", Plain<kCosh>, "Cosh"},
    {"elu", Elu, "Elu"},
    {"erf", Plain<kErf>, "Erf"},
    {"exp", Plain<kExp>, "Exp"},
    {"expm1", Expm1, "Exp, Sinh, Mul"},
    {"floor", Plain<kFloor>, "Floor"},
    {"gelu", Gelu, "Erf or Tanh, Mul, Add, Div"},
    {"hard_shrink", HardShrink, "Abs, LessOrEqual, Where"},
    {"hard_sigmoid", HardSigmoid, "HardSigmoid"},
    {"hard_swish", HardSwish, "HardSwish, or Add, Clip, Mul, Div"},
    {"leaky_relu", LeakyRelu, "LeakyRelu"},
    {"log", Plain<kLog>, "Log"},
    {"log10", Log10, "Log, Div"},
    {"log1p", Log1p, "Add, Log, Mul, Div, Where"},
    {"log2", Log2, "Log, Div"},
    {"logsigmoid", LogSigmoid, "Neg, Softplus"},
    {"mish", Mish, "Softplus, Tanh, Mul"},
    {"reciprocal", Plain<kReciprocal>, "Reciprocal"},
    {"relu", Plain<kRelu>, "Relu"},
    {"relu6", Relu6, "Clip"},
    {"round", Round, "Abs, Floor, Sign, Add, Mul"},
    {"rsqrt", Rsqrt, "Sqrt, Reciprocal"},
    {"selu", Selu, "Selu"},
    {"sigmoid", Plain<kSigmoid>, "Sigmoid"},
    {"sign", Plain<kSign>, "Sign"},
    {"silu", Silu, "Sigmoid, Mul"},
    {"sin", Plain<kSin>, "Sin"},
    {"sinh", Plain<kSinh>, "Sinh"},
    {"soft_relu", SoftRelu, "Clip, Softplus"},
    {"softplus", Softplus, "Softplus, Mul, Div, Where"},
    {"softshrink", Softshrink, "Clip, Sub"},
    {"softsign", Plain<kSoftsign>, "Softsign"},
    {"sqrt", Plain<kSqrt>, "Sqrt"},
    {"square", Square, "Mul"},
    {"stanh", Stanh, "Tanh, Mul"},
    {"swish", Swish, "Sigmoid, Mul"},
    {"tan", Plain<kTan>, "Tan"},
    {"tanh", Plain<kTanh>, "Tanh"},
    {"tanh_shrink", TanhShrink, "Tanh, Sub"},
    {"thresholded_relu", ThresholdedRelu, "LessOrEqual, Where"},
    {"trunc", Trunc, "Sign, Abs, Floor, Mul; no node of integers"},
};

const Row* FindActivation(const std::string& type) {
  for (const Row& row : kRows) {
    if (row.op_type == type) return &row;
  }
  return nullptr;
}

void ExportActivation(OpContext& op) {
  const Activation activation{op, op.In("X"), op.InType("X")};
  op.Out("Out", FindActivation(op.op().type())->formula(activation));
}

void ExportPow(OpContext& op) {
  const DType dtype = op.InType("X");
  const Value factor = op.Has("FactorTensor") ? op.AsScalar(op.In("FactorTensor")) : [&] {
    const float value = op.Attr<float>("factor");
    op.Require(IsFloating(dtype) || value == std::trunc(value),
               "integers to a fractional power have no counterpart");
    return op.Scalar(value, dtype);
  }();
  op.Out("Out", op.Node("Pow", {op.In("X"), factor}));
}

// ONNX's slopes align with the last dims of X.
void ExportPrelu(OpContext& op) {
  const auto mode = op.Attr<std::string>("mode");
  const int rank = op.Rank("X");
  Value alpha = op.In("Alpha");
  if (mode == "all") {
    alpha = op.Reshape(alpha, {1});
  } else if (mode == "channel") {
    Ints dims(static_cast<size_t>(rank) - 1, 1);
    dims[0] = -1;
    alpha = op.Reshape(alpha, dims);
  } else {
    Ints leading;
    for (int i = 0; i < op.Rank("Alpha") - rank; ++i) leading.push_back(i);
    alpha = op.Squeeze(alpha, leading);
  }
  op.Out("Out", op.Node("PRelu", {op.In("X"), alpha}));
}

void ExportSoftmax(OpContext& op) {
  const char* type = op.op().type() == "softmax" ? "Softmax" : "LogSoftmax";
  op.Out("Out", op.Node(type, {op.In("X")}, {{"axis", op.Attr<int32_t>("axis")}}));
}

void ExportMaxout(OpContext& op) {
  const Shape& x = op.InShape("X");
  const auto axis = static_cast<int>(op.Axis(op.Attr<int32_t>("axis"), x.rank()));
  const int64_t groups = op.Attr<int32_t>("groups");
  op.Require(x[axis] > 0, "the number of channels must be known");
  Ints dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) {
      dims.push_back(x[axis] / groups);
      dims.push_back(groups);
    } else {
      op.Require(i < axis || x[i] >= 0, "dims after the channels must be known");
      dims.push_back(i < axis ? 0 : x[i]);
    }
  }
  op.Out("Out", op.Reduce("ReduceMax", op.Reshape(op.In("X"), dims), {axis + 1}, false));
}

}  // namespace

Value Activate(OpContext& op, const std::string& type, const AttrList& attrs, const Value& x,
               DType dtype) {
  const OpDesc desc(type, {}, {}, attrs);
  OpContext inner(op.exporter(), DefaultOps().Get(type), desc);
  const Activation activation{inner, x, dtype};
  if (type == "clip") return activation.Clip(x, activation.Attr("min"), activation.Attr("max"));
  const Row* row = FindActivation(type);
  if (!row) op.Refuse("the activation " + type + " has no counterpart");
  return row->formula(activation);
}

Value FusedActivation(OpContext& op, const Value& x, DType dtype) {
  const auto name = op.Attr<std::string>("fuse_activation");
  if (name.empty()) return x;
  const auto fused =
      ActivationOpOf(name, op.Attr<float>("fuse_alpha"), op.Attr<float>("fuse_beta"));
  return Activate(op, fused.type, fused.attrs, x, dtype);
}

ExportRows ActivationRows() {
  static const std::vector<ExportRow> rows = [] {
    std::vector<ExportRow> all;
    for (const Row& row : kRows) all.push_back({row.op_type, ExportActivation, row.maps_to});
    all.push_back({"log_softmax", ExportSoftmax, "LogSoftmax"});
    all.push_back({"maxout", ExportMaxout, "Reshape, ReduceMax"});
    all.push_back({"pow", ExportPow, "Pow"});
    all.push_back({"prelu", ExportPrelu, "PRelu"});
    all.push_back({"softmax", ExportSoftmax, "Softmax"});
    return all;
  }();
  return rows;
}

}  // namespace coracle::onnx
