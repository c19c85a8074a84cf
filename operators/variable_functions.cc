#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace coracle {

AttrList FillAttrs(const Shape& shape, DType dtype, double value) {
  const auto rounded = static_cast<float>(value);
  AttrList attrs = {
      {"shape", shape.ToVector()}, {"dtype", static_cast<int32_t>(dtype)}, {"value", rounded}};
  // The float attr `value` would round the number.
  if (dtype != DType::kFloat32 && static_cast<double>(rounded) != value)
    attrs.push_back({"str_value", fmt::format("{}", value)});
  return attrs;
}

Variable FillConstant(const Writer& writer, DType dtype, double value, const Shape& shape) {
  return writer.Make("fill_constant", {}, FillAttrs(shape, dtype, value));
}

AttrList CastAttrs(DType from, DType to) {
  return {{"in_dtype", static_cast<int32_t>(from)}, {"out_dtype", static_cast<int32_t>(to)}};
}

namespace variable_functions {
namespace {

Variable Unary(const char* type, const Variable& x, AttrList attrs = {}) {
  return Writer::Of({&x}).Make(type, {{"X", {x.name()}}}, std::move(attrs));
}

Variable Binary(const char* type, const Variable& x, const Variable& y) {
  return Writer::Of({&x, &y}).Make(type, {{"X", {x.name()}}, {"Y", {y.name()}}});
}

template <class T>
bool InRange(double number) {
  return number >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
         number <= static_cast<double>(std::numeric_limits<T>::max());
}

bool Holds(DType dtype, double number) {
  constexpr double kMaxInteger = 9007199254740992;  // 2^53
  if (IsFloating(dtype) || IsComplex(dtype)) return true;
  if (number != std::floor(number)) return false;
  switch (dtype) {
    case DType::kBool:
      return number == 0 || number == 1;
    case DType::kUInt8:
      return InRange<uint8_t>(number);
    case DType::kInt8:
      return InRange<int8_t>(number);
    case DType::kInt16:
      return InRange<int16_t>(number);
    case DType::kInt32:
      return InRange<int32_t>(number);
    default:
      return std::abs(number) <= kMaxInteger;
  }
}

void RequireHolds(const Variable& x, double number) {
  if (Holds(x.dtype(), number)) return;
  ThrowInvalid(fmt::format("the number {} used with {} does not fit {}; Cast the Variable first",
                           number, Quote(x.name()), ToString(x.dtype())));
}

// Whether the op scale, whose attrs are floats, computes with the exact number. The dtypes other
// than float64 and complex128 round the number in any case.
bool FitsAttr(const Variable& x, double number) {
  if (RealOf(x.dtype()) == DType::kFloat32 || IsHalf(x.dtype())) return true;
  return static_cast<double>(static_cast<float>(number)) == number;
}

Variable Number(const Variable& like, double value) {
  RequireHolds(like, value);
  const Writer writer = Writer::Of({&like});
  if (IsHalf(like.dtype())) return Cast(FillConstant(writer, DType::kFloat32, value), like.dtype());
  return FillConstant(writer, like.dtype(), value);
}

// Calls f with the number as a Variable. If f throws, removes the appended ops.
template <class F>
Variable WithNumber(const Variable& like, double value, const F& f) {
  const EditGuard guard(like.program());
  return f(Number(like, value));
}

Variable Shifted(const Variable& x, float scale, double bias) {
  return Unary("scale", x, {{"scale", scale}, {"bias", static_cast<float>(bias)}});
}

Variable Reduced(const char* type, const Variable& x) {
  return Unary(type, x, {{"reduce_all", true}, {"dim", std::vector<int32_t>{0}}});
}

}  // namespace

Variable operator+(const Variable& x, const Variable& y) { return Binary("elementwise_add", x, y); }
Variable operator-(const Variable& x, const Variable& y) { return Binary("elementwise_sub", x, y); }
Variable operator*(const Variable& x, const Variable& y) { return Binary("elementwise_mul", x, y); }
Variable operator/(const Variable& x, const Variable& y) { return Binary("elementwise_div", x, y); }
Variable operator-(const Variable& x) { return x * -1.0; }

Variable operator+(const Variable& x, double y) {
  RequireHolds(x, y);
  return FitsAttr(x, y) ? Shifted(x, 1.0f, y)
                        : WithNumber(x, y, [&](const Variable& n) { return x + n; });
}
Variable operator-(const Variable& x, double y) {
  return Holds(x.dtype(), -y) ? x + -y : WithNumber(x, y, [&](const Variable& n) {
    return x - n;
  });  // an unsigned y cannot be negated
}
Variable operator*(const Variable& x, double y) {
  RequireHolds(x, y);
  if (FitsAttr(x, y)) return Unary("scale", x, {{"scale", static_cast<float>(y)}});
  if (IsComplex(x.dtype())) return Scale(x, FillConstant(Writer::Of({&x}), RealOf(x.dtype()), y));
  return WithNumber(x, y, [&](const Variable& n) { return Scale(x, n); });
}
// x * (1 / y) equals x / y if 1 / y is exact.
Variable operator/(const Variable& x, double y) {
  int exponent = 0;
  const bool power_of_two = std::abs(std::frexp(y, &exponent)) == 0.5;
  if (IsFloating(x.dtype()) && power_of_two && std::abs(exponent) < 100) return x * (1 / y);
  return WithNumber(x, y, [&](const Variable& n) { return x / n; });
}
Variable operator+(double x, const Variable& y) { return y + x; }
Variable operator-(double x, const Variable& y) {
  RequireHolds(y, x);
  return FitsAttr(y, x) && Holds(y.dtype(), -1)
             ? Shifted(y, -1.0f, x)
             : WithNumber(y, x, [&](const Variable& n) { return n - y; });
}
Variable operator*(double x, const Variable& y) { return y * x; }
Variable operator/(double x, const Variable& y) {
  return WithNumber(y, x, [&](const Variable& n) { return n / y; });
}

Variable Abs(const Variable& x) { return Unary("abs", x); }
Variable Cos(const Variable& x) { return Unary("cos", x); }
Variable Exp(const Variable& x) { return Unary("exp", x); }
Variable Floor(const Variable& x) { return Unary("floor", x); }
Variable Log(const Variable& x) { return Unary("log", x); }
Variable Sigmoid(const Variable& x) { return Unary("sigmoid", x); }
Variable Sign(const Variable& x) { return Unary("sign", x); }
Variable Sqrt(const Variable& x) { return Unary("sqrt", x); }
Variable Square(const Variable& x) { return Unary("square", x); }
Variable Cast(const Variable& x, DType dtype) {
  return x.dtype() == dtype ? x : Unary("cast", x, CastAttrs(x.dtype(), dtype));
}
Variable Max(const Variable& x, const Variable& y) { return Binary("elementwise_max", x, y); }
Variable Max(const Variable& x, double y) {
  return WithNumber(x, y, [&](const Variable& n) { return Max(x, n); });
}
Variable Min(const Variable& x, const Variable& y) { return Binary("elementwise_min", x, y); }
Variable Min(const Variable& x, double y) {
  return WithNumber(x, y, [&](const Variable& n) { return Min(x, n); });
}
Variable Pow(const Variable& x, const Variable& y) { return Binary("elementwise_pow", x, y); }
Variable Pow(const Variable& x, double y) {
  const auto factor = static_cast<float>(y);
  if (!IsFloating(x.dtype()) || double{factor} != y)
    return WithNumber(x, y, [&](const Variable& n) { return Pow(x, n); });
  return Unary("pow", x, {{"factor", factor}});
}
Variable Pow(double x, const Variable& y) {
  return WithNumber(y, x, [&](const Variable& n) { return Pow(n, y); });
}
Variable Scale(const Variable& x, const Variable& factor) {
  return Writer::Of({&x, &factor})
      .Make("scale", {{"X", {x.name()}}, {"ScaleTensor", {factor.name()}}});
}

Variable Equal(const Variable& x, const Variable& y) { return Binary("equal", x, y); }
Variable Greater(const Variable& x, const Variable& y) { return Binary("greater_than", x, y); }
Variable Greater(const Variable& x, double y) {
  return WithNumber(x, y, [&](const Variable& n) { return Greater(x, n); });
}
Variable GreaterEqual(const Variable& x, const Variable& y) {
  return Binary("greater_equal", x, y);
}
Variable GreaterEqual(const Variable& x, double y) {
  return WithNumber(x, y, [&](const Variable& n) { return GreaterEqual(x, n); });
}
Variable Less(const Variable& x, const Variable& y) { return Binary("less_than", x, y); }
Variable Less(const Variable& x, double y) {
  return WithNumber(x, y, [&](const Variable& n) { return Less(x, n); });
}
Variable And(const Variable& x, const Variable& y) { return Binary("logical_and", x, y); }
Variable Or(const Variable& x, const Variable& y) { return Binary("logical_or", x, y); }
Variable Not(const Variable& x) { return Unary("logical_not", x); }
Variable IsFinite(const Variable& x) { return Unary("isfinite", x); }
Variable Where(const Variable& condition, const Variable& x, const Variable& y) {
  return Writer::Of({&condition, &x, &y})
      .Make("where", {{"Condition", {condition.name()}}, {"X", {x.name()}}, {"Y", {y.name()}}});
}

Variable Mean(const Variable& x) { return Unary("mean", x); }
Variable Sum(const Variable& x) { return Reduced("reduce_sum", x); }
Variable Max(const Variable& x) { return Reduced("reduce_max", x); }
Variable Sum(const Variable& x, const std::vector<int32_t>& dims, bool keep_dim) {
  AttrList attrs = {{"dim", dims}};
  if (keep_dim) attrs.push_back({"keep_dim", true});
  return Unary("reduce_sum", x, std::move(attrs));
}
Variable AddAll(const std::vector<Variable>& x) {
  if (x.empty()) ThrowInvalid("a sum needs at least one Variable");
  return Writer::Of({&x.front()}).Make("sum", {{"X", NamesOf(x)}});
}
Variable Concat(const std::vector<Variable>& x, int32_t axis) {
  if (x.empty()) ThrowInvalid("a concatenation needs at least one Variable");
  return Writer::Of({&x.front()}).Make("concat", {{"X", NamesOf(x)}}, {{"axis", axis}});
}

Variable Reshape(const Variable& x, const std::vector<int32_t>& shape) {
  return Unary("reshape2", x, {{"shape", shape}});
}
Variable FillLike(const Variable& x, double value) {
  RequireHolds(x, value);
  if (!FitsAttr(x, value)) return ZerosLike(x) + value;
  return Unary("fill_any_like", x, {{"value", static_cast<float>(value)}});
}
Variable ZerosLike(const Variable& x) { return Unary("fill_zeros_like", x); }

}  // namespace variable_functions
}  // namespace coracle
