// Element-wise ops: arithmetic, comparisons, logic, and compositions of them.
#include <coracle/convert/onnx/export/activation.h>
#include <coracle/convert/onnx/export/broadcast.h>
#include <coracle/convert/onnx/export/quantize.h>
#include <coracle/convert/onnx/export/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

// Aligns the operand of lower rank at `axis` of the other one by appending dims of 1. If it would
// extend past the end, its last dims are 1 and are dropped (see operators/kernels/broadcast.h).
Value Aligned(OpContext& op, const char* slot, int rank, int axis) {
  const Value value = op.In(slot);
  const int own = op.Rank(slot);
  if (axis < 0 || own == 0) return value;
  const int too_many = std::max(0, axis + own - rank);
  Ints axes;
  for (int i = own - too_many; i < own; ++i) axes.push_back(i);
  const Value kept = op.Squeeze(value, axes);
  axes.clear();
  for (int i = own - too_many; i < rank - axis; ++i) axes.push_back(i);
  return op.Unsqueeze(kept, axes);
}

}  // namespace

Operands Align(OpContext& op, int axis) {
  const int x = op.Rank("X"), y = op.Rank("Y");
  if (x >= y) return {op.In("X"), Aligned(op, "Y", x, axis)};
  return {Aligned(op, "X", y, axis), op.In("Y")};
}
Operands Align(OpContext& op) { return Align(op, op.Attr<int32_t>("axis")); }

namespace {

Value NotZero(OpContext& op, const Value& value, DType dtype) {
  return op.Node("Not", {op.Node("Equal", {value, op.Scalar(0, dtype)})});
}

// The remainder with the sign of y. ONNX's Mod computes it for integers, but C's fmod for floats.
Value Remainder(OpContext& op, const Operands& v, DType dtype) {
  if (!IsFloating(dtype)) return op.Node("Mod", {v.x, v.y});
  const Value rest = op.Node("Mod", {v.x, v.y}, {{"fmod", 1}});
  const Value zero = op.Scalar(0, dtype);
  const Value other_sign =
      op.Node("Xor", {op.Node("Less", {rest, zero}), op.Node("Less", {v.y, zero})});
  const Value move = op.Node("And", {NotZero(op, rest, dtype), other_sign});
  return op.Node("Where", {move, op.Node("Add", {rest, v.y}), rest});
}

Value FloorQuotient(OpContext& op, const Operands& v, DType dtype) {
  if (IsFloating(dtype)) return op.Node("Floor", {op.Node("Div", {v.x, v.y})});
  // Div truncates; with a remainder, a negative quotient is decreased by one. No step overflows
  // the dtype.
  const Value quotient = op.Node("Div", {v.x, v.y}), zero = op.Scalar(0, dtype);
  const Value below = op.Node("Xor", {op.Node("Less", {v.x, zero}), op.Node("Less", {v.y, zero})});
  const Value rest = NotZero(op, op.Node("Mod", {v.x, v.y}), dtype);
  const Value less = op.Node("Sub", {quotient, op.Scalar(1, dtype)});
  return op.Node("Where", {op.Node("And", {rest, below}), less, quotient});
}

Value Long(OpContext& op, int64_t value) {
  return op.Constant(Tensor::Of<int64_t>(Shape(), {value}));
}

// A double as an integer of this dtype, truncated and saturated: Cast is unspecified for values out
// of range.
Value Saturate(OpContext& op, const Value& x, DType dtype) {
  const int bits = 8 * static_cast<int>(SizeOf(dtype));
  const bool is_signed = dtype != DType::kUInt8;
  const int64_t largest = is_signed ? INT64_MAX >> (64 - bits) : 255;
  const int64_t least = is_signed ? -largest - 1 : 0;
  const auto bound = [&](int64_t n) { return op.Scalar(static_cast<double>(n), DType::kFloat64); };
  const Value low = op.Node("LessOrEqual", {x, bound(least)});
  const Value high = op.Node("GreaterOrEqual", {x, bound(largest)});
  const Value outside = op.Node("Or", {low, high});
  const Value inside =
      op.Cast(op.Node("Where", {outside, bound(0), x}), DType::kFloat64, DType::kInt64);
  const Value above = op.Node("Where", {low, Long(op, least), inside});
  return op.Cast(op.Node("Where", {high, Long(op, largest), above}), DType::kInt64, dtype);
}

void RequireSigned(OpContext& op, DType dtype) {
  op.Require(
      dtype != DType::kUInt64,
      "ONNX has no counterpart for a negative number or a power with uint64; cast X to int64");
}

// Integers are computed in double, as in the op.
Value Power(OpContext& op, const Operands& v, DType dtype) {
  if (IsFloating(dtype)) return op.Node("Pow", {v.x, v.y});
  RequireSigned(op, dtype);
  const Value wide =
      op.Node("Pow", {op.Cast(v.x, dtype, DType::kFloat64), op.Cast(v.y, dtype, DType::kFloat64)});
  return Saturate(op, wide, dtype);
}

template <const char* kType>
void Binary(OpContext& op) {
  const Operands v = Align(op);
  op.Out("Out", op.Node(kType, {v.x, v.y}));
}
template <Value (*kFormula)(OpContext& op, const Operands& v, DType dtype)>
void BinaryFormula(OpContext& op) {
  op.Out("Out", kFormula(op, Align(op), op.InType("X")));
}

// ONNX can order only numbers.
template <const char* kType>
void Compare(OpContext& op) {
  Operands v = Align(op);
  if (op.InType("X") == DType::kBool) {
    for (Value* value : {&v.x, &v.y}) *value = op.Cast(*value, DType::kBool, DType::kInt32);
  }
  op.Out("Out", op.Node(kType, {v.x, v.y}));
}
void NotEqual(OpContext& op) {
  const Operands v = Align(op);
  op.Out("Out", op.Node("Not", {op.Node("Equal", {v.x, v.y})}));
}

// A number is true if it is not 0.
Value Truth(OpContext& op, const char* slot) {
  return op.Cast(op.In(slot), op.InType(slot), DType::kBool);
}
template <const char* kType>
void Logical(OpContext& op) {
  op.Out("Out", op.Node(kType, {Truth(op, "X"), Truth(op, "Y")}));
}
void LogicalNot(OpContext& op) { op.Out("Out", op.Node("Not", {Truth(op, "X")})); }

template <const char* kType>
void Bitwise(OpContext& op) {
  const bool logical = op.InType("X") == DType::kBool;
  if (!logical) op.RequireOpset(18, "an operation on bits");
  const std::string type = (logical ? "" : "Bitwise") + std::string(kType);
  op.Out("Out",
         op.Has("Y") ? op.Node(type, {op.In("X"), op.In("Y")}) : op.Node(type, {op.In("X")}));
}

// Attrs are converted to X's dtype first.
void Scale(OpContext& op) {
  const DType dtype = op.InType("X");
  const bool bias_last = op.Attr<bool>("bias_after_scale");
  const float scale = op.Attr<float>("scale"), bias = op.Attr<float>("bias");
  if ((scale < 0 && !op.Has("ScaleTensor")) || bias < 0) RequireSigned(op, dtype);
  Value value = op.In("X");
  const Value factor = op.Has("ScaleTensor") ? op.Cast(op.AsScalar(op.In("ScaleTensor")),
                                                       op.InType("ScaleTensor"), dtype)
                       : scale == 1          ? Value()
                                             : op.Scalar(scale, dtype);
  const auto add = [&] {
    if (bias != 0) value = op.Node("Add", {value, op.Scalar(bias, dtype)});
  };
  if (!bias_last) add();
  if (!factor.empty()) value = op.Node("Mul", {value, factor});
  if (bias_last) add();
  op.Out("Out", value);
}

void Increment(OpContext& op) {
  if (op.Attr<float>("step") < 0) RequireSigned(op, op.InType("X"));
  const Value step = op.Scalar(op.Attr<float>("step"), op.InType("X"));
  op.Out("Out", op.Node("Add", {op.In("X"), step}));
}

Value Bound(OpContext& op, const char* slot, const char* attr) {
  const DType dtype = op.InType("X");
  if (!op.Has(slot) && op.Attr<float>(attr) < 0) RequireSigned(op, dtype);
  if (!op.Has(slot)) return op.Scalar(op.Attr<float>(attr), dtype);
  return op.Cast(op.AsScalar(op.In(slot)), op.InType(slot), dtype);
}
void Clip(OpContext& op) {
  op.Out("Out", op.Node("Clip", {op.In("X"), Bound(op, "Min", "min"), Bound(op, "Max", "max")}));
}

void Where(OpContext& op) {
  const Value rounded = RoundedToEven(op, op.In("Condition"), op.In("X"), op.In("Y"));
  op.Out("Out", rounded.empty() ? op.Node("Where", {op.In("Condition"), op.In("X"), op.In("Y")})
                                : rounded);
}

void Minus(OpContext& op) { op.Out("Out", op.Node("Sub", {op.In("X"), op.In("Y")})); }

void Sum(OpContext& op) {
  const Values x = op.Ins("X");
  Value sum = x[0];
  if (x.size() > 1 && IsFloating(op.InType("X"))) {
    sum = op.Node("Sum", x);
  } else {
    for (size_t i = 1; i < x.size(); ++i) sum = op.Node("Add", {sum, x[i]});
  }
  op.Out("Out", sum);
}

// unary(binary(X, Y)) or binary(X, unary(Y)).
void FusedElementwise(OpContext& op) {
  const auto functors = op.Attr<std::vector<std::string>>("functor_list");
  const DType dtype = op.InType("X");
  const auto is_binary = [](const std::string& f) { return f.starts_with("elementwise_"); };
  const auto unary = [&](const std::string& f, const Value& x) {
    const AttrList attrs = f == "gelu" ? AttrList{{"approximate", true}} : AttrList{};
    if (f == "scale") return op.Node("Mul", {x, op.Scalar(op.Attr<float>("scale"), dtype)});
    return Activate(op, f, attrs, x, dtype);
  };
  const auto binary = [&](const std::string& f, const Operands& v) {
    return op.Node(f == "elementwise_add" ? "Add" : "Mul", {v.x, v.y});
  };
  Operands v = Align(op);
  if (is_binary(functors[1])) {
    const Value inner = binary(functors[1], v);
    op.Out("IntermediateOut", inner);
    op.Out("Out", unary(functors[0], inner));
  } else {
    v.y = unary(functors[1], v.y);
    op.Out("IntermediateOut", v.y);
    op.Out("Out", binary(functors[0], v));
  }
}

Value IsInf(OpContext& op) { return op.Node("IsInf", {op.In("X")}); }
Value IsNan(OpContext& op) { return op.Node("IsNaN", {op.In("X")}); }
Value IsFinite(OpContext& op) { return op.Node("Not", {op.Node("Or", {IsInf(op), IsNan(op)})}); }

// Tests each element.
template <Value (*kTest)(OpContext&)>
void TestElements(OpContext& op) {
  op.Require(op.InType("X") == DType::kFloat32, "only float32 has a counterpart");
  op.Out("Out", kTest(op));
}
// Whether all (any) elements pass the test, as [1].
template <Value (*kTest)(OpContext&), bool kAll>
void TestTensor(OpContext& op) {
  op.Require(op.InType("X") == DType::kFloat32, "only float32 has a counterpart");
  const Value numbers = op.Cast(kTest(op), DType::kBool, DType::kInt32);
  const Value found =
      op.Reduce(kAll ? "ReduceMin" : "ReduceMax", op.Reshape(numbers, {-1}), {0}, true);
  op.Out("Out", op.Cast(found, DType::kInt32, DType::kBool));
}

constexpr char kAdd[] = "Add", kSub[] = "Sub", kMul[] = "Mul", kDiv[] = "Div", kMax[] = "Max",
               kMin[] = "Min", kEqual[] = "Equal", kLess[] = "Less", kGreater[] = "Greater",
               kLessOrEqual[] = "LessOrEqual", kGreaterOrEqual[] = "GreaterOrEqual", kAnd[] = "And",
               kOr[] = "Or", kXor[] = "Xor", kNot[] = "Not";

constexpr ExportRow kRows[] = {
    {"bitwise_and", Bitwise<kAnd>, "BitwiseAnd; And of bool"},
    {"bitwise_not", Bitwise<kNot>, "BitwiseNot; Not of bool"},
    {"bitwise_or", Bitwise<kOr>, "BitwiseOr; Or of bool"},
    {"bitwise_xor", Bitwise<kXor>, "BitwiseXor; Xor of bool"},
    {"clip", Clip, "Clip"},
    {"elementwise_add", Binary<kAdd>, "Add"},
    {"elementwise_div", Binary<kDiv>, "Div"},
    {"elementwise_floordiv", BinaryFormula<FloorQuotient>,
     "Div, Floor; Div, Mod, Where of integers"},
    {"elementwise_max", Binary<kMax>, "Max"},
    {"elementwise_min", Binary<kMin>, "Min"},
    {"elementwise_mod", BinaryFormula<Remainder>, "Mod"},
    {"elementwise_mul", Binary<kMul>, "Mul; DequantizeLinear"},
    {"elementwise_pow", BinaryFormula<Power>, "Pow; Pow, Cast, Where of integers"},
    {"elementwise_sub", Binary<kSub>, "Sub"},
    {"equal", Binary<kEqual>, "Equal"},
    {"fused_elemwise_activation", FusedElementwise, "Add or Mul, and the activation"},
    {"fused_elemwise_add_activation", FusedElementwise, "Add or Mul, and the activation"},
    {"greater_equal", Compare<kGreaterOrEqual>, "GreaterOrEqual"},
    {"greater_than", Compare<kGreater>, "Greater"},
    {"increment", Increment, "Add"},
    {"isfinite", TestTensor<IsFinite, true>, "IsInf, IsNaN, Or, Not, ReduceMin"},
    {"isfinite_v2", TestElements<IsFinite>, "IsInf, IsNaN, Or, Not"},
    {"isinf", TestTensor<IsInf, false>, "IsInf, ReduceMax"},
    {"isinf_v2", TestElements<IsInf>, "IsInf"},
    {"isnan", TestTensor<IsNan, false>, "IsNaN, ReduceMax"},
    {"isnan_v2", TestElements<IsNan>, "IsNaN"},
    {"less_equal", Compare<kLessOrEqual>, "LessOrEqual"},
    {"less_than", Compare<kLess>, "Less"},
    {"logical_and", Logical<kAnd>, "And"},
    {"logical_not", LogicalNot, "Not"},
    {"logical_or", Logical<kOr>, "Or"},
    {"logical_xor", Logical<kXor>, "Xor"},
    {"minus", Minus, "Sub"},
    {"not_equal", NotEqual, "Equal, Not"},
    {"scale", Scale, "Mul, Add"},
    {"sum", Sum, "Sum; Add of integers"},
    {"where", Where, "Where; Round"},
};

}  // namespace

ExportRows ArithmeticRows() { return kRows; }

}  // namespace coracle::onnx
