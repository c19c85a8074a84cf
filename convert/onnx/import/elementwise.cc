// Element-wise ops: arithmetic, comparisons, logic, mathematical functions.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/casts.h>
#include <coracle/convert/onnx/import/elementwise.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::onnx {
namespace {

// Whether a result of broadcasting the inputs has rank 0.
bool AllScalars(const NodeContext& node) {
  for (size_t i = 0; i < node.NumInputs(); ++i) {
    if (node.HasInput(i) && !node.IsScalar(i)) return false;
  }
  return true;
}

// The second operand, which broadcasts like NumPy's arrays. Before operator set 7, it broadcast
// only if attribute broadcast is 1, and its first dimension was aligned with X's dimension `axis`
// (by default, its last with X's last).
Variable SecondOperand(NodeContext& node) {
  const Variable y = node.In(1);
  if (node.opset() >= 7) return y;
  const bool broadcast = node.Flag("broadcast", false);
  const int rank = node.rank(0), own = node.rank(1);
  if (!broadcast) {
    node.attributes().Ignore("axis");
    node.Require(rank == own && node.shape(0).CompatibleWith(node.shape(1)),
                 fmt::format("the inputs must have one shape unless attribute broadcast is 1, got "
                             "{} and {}",
                             node.shape(0).ToString(), node.shape(1).ToString()));
    return y;
  }
  node.Require(own <= rank, "the second input must not have more dimensions than the first");
  const int32_t axis = node.HasAttr("axis") ? node.Axis(node.Int("axis"), rank) : rank - own;
  node.Require(axis + own <= rank, fmt::format("attribute axis of {} leaves no room for {} "
                                               "dimensions beside {}",
                                               axis, own, rank));
  std::vector<int32_t> behind;
  for (int i = own; i < rank - axis; ++i) behind.push_back(i);
  return behind.empty() || own == 0 ? y : node.WithXShape("unsqueeze2", y, {{"axes", behind}});
}

void ImportBinary(NodeContext& node) {
  node.Require(node.dtype(0) == node.dtype(1),
               fmt::format("the inputs must have one dtype, got {} and {}", ToString(node.dtype(0)),
                           ToString(node.dtype(1))));
  const Variable y = SecondOperand(node);
  node.Set(0, node.BinaryVia(node.row().maps_to, node.In(0), y), AllScalars(node));
}

// A comparison or a logical op, whose result is bool.
void ImportTest(NodeContext& node) {
  node.Require(node.dtype(0) == node.dtype(1),
               fmt::format("the inputs must have one dtype, got {} and {}", ToString(node.dtype(0)),
                           ToString(node.dtype(1))));
  const Variable y = SecondOperand(node);
  node.Set(0, node.Binary(node.row().maps_to, node.In(0), y), AllScalars(node));
}

// Several inputs of any shapes, combined from the left.
Variable Combined(NodeContext& node, const std::string& type) {
  Variable result = node.In(0);
  for (size_t i = 1; i < node.NumInputs(); ++i) {
    node.Require(node.dtype(i) == node.dtype(0), "the inputs must have one dtype");
    node.Require(node.opset() >= 8 || node.shape(i).CompatibleWith(node.shape(0)),
                 "the inputs must have one shape before operator set 8");
    result = node.BinaryVia(type, result, node.In(i));
  }
  return result;
}

void ImportVariadic(NodeContext& node) {
  if (node.NumInputs() == 1) return node.SetSame(0, 0);
  node.Set(0, Combined(node, node.row().maps_to), AllScalars(node));
}

void ImportMean(NodeContext& node) {
  if (node.NumInputs() == 1) return node.SetSame(0, 0);
  const Variable sum = Combined(node, "elementwise_add");
  node.Set(0, sum / static_cast<double>(node.NumInputs()), AllScalars(node));
}

// C's fmod has the sign of X, elementwise_mod the sign of Y; they agree for positive numbers.
void ImportMod(NodeContext& node) {
  const Variable x = node.In(0), y = node.In(1);
  const bool fmod = node.Flag("fmod", false);
  if (!fmod || x.dtype() == DType::kUInt64) {
    node.Require(!IsFloating(x.dtype()), "attribute fmod must be 1 for floats");
    return node.Set(0, node.BinaryVia("elementwise_mod", x, y), AllScalars(node));
  }
  const Variable rest =
      node.BinaryVia("elementwise_mod", node.UnaryVia("abs", x), node.UnaryVia("abs", y));
  node.Set(0, node.Binary("elementwise_mul", rest, node.UnaryVia("sign", x)), AllScalars(node));
}

// Whether the power is the constant 2 and the result has x's shape.
bool IsSquare(NodeContext& node) {
  const Tensor* y = node.Constant(1);
  return y && y->numel() == 1 && y->shape().rank() <= node.rank(0) &&
         y->Cast(DType::kFloat64).data<double>()[0] == 2;
}

// The result has the dtype of X; if integers and floats are mixed, float64 is used.
void ImportPow(NodeContext& node) {
  const Variable x = node.In(0), y = SecondOperand(node);
  if (IsFloating(x.dtype()) && IsSquare(node)) {
    // x x is the same number, and much faster.
    return node.Set(0, node.UnaryVia("square", x), AllScalars(node));
  }
  DType dtype = x.dtype();
  if (!IsFloating(x.dtype()) && IsFloating(y.dtype())) dtype = DType::kFloat64;
  if (!IsFloating(x.dtype()) && !IsFloating(y.dtype()) && SizeOf(y.dtype()) > SizeOf(dtype))
    dtype = y.dtype();
  const Variable power =
      node.BinaryVia("elementwise_pow", ExactCast(node, x, dtype), ExactCast(node, y, dtype));
  node.Set(0, ExactCast(node, power, x.dtype()), AllScalars(node));
}

// The elements are unsigned, also where a wider dtype holds them.
void ImportBitShift(NodeContext& node) {
  const bool left = node.OneOf("direction", "", {"LEFT", "RIGHT"}) == "LEFT";
  node.Require(node.dtype(0) == node.dtype(1), "the inputs must have one dtype");
  const Variable x = node.In(0), y = node.In(1);
  node.Set(0,
           node.Make(left ? "bitwise_left_shift" : "bitwise_right_shift",
                     {{"X", {x.name()}}, {"Y", {y.name()}}}, {{"is_arithmetic", false}}),
           AllScalars(node));
}

bool IsUnsigned(int data_type) {
  using proto::onnx::TensorProto;
  return data_type == TensorProto::UINT8 || data_type == TensorProto::UINT16 ||
         data_type == TensorProto::UINT32 || data_type == TensorProto::UINT64;
}

// Of unsigned numbers themselves, and 1 of those above 0.
void ImportAbs(NodeContext& node) {
  IsUnsigned(node.InValue(0).data_type) ? node.SetSame(0, 0) : ImportUnary(node);
}
void ImportSign(NodeContext& node) {
  if (!IsUnsigned(node.InValue(0).data_type)) return ImportUnary(node);
  const Variable x = node.In(0);
  node.Set(0, node.BinaryVia("elementwise_min", x, node.ScalarVar(x.dtype(), 1)), node.IsScalar(0));
}

void ImportNeg(NodeContext& node) {
  node.Set(0, node.Unary("scale", node.In(0), {{"scale", -1.0f}}), node.IsScalar(0));
}

void ImportRound(NodeContext& node) {
  node.Set(0, RoundedToEven(node, node.In(0)), node.IsScalar(0));
}

// Beyond this number, asinh and acosh of x differ from log(2 x) by 1 / (4 x^2), which is below the
// rounding error; up to it, the formulas for smaller x do not overflow.
double LogarithmicFrom(DType dtype) { return dtype == DType::kFloat16 ? 100 : 1e8; }

// `by_formula` up to that number, the logarithm above.
Variable WithLogarithm(const Variable& x, const Variable& by_formula) {
  const Variable logarithm = Log(x) + std::log(2.0);
  return Where(Greater(x, LogarithmicFrom(x.dtype())), logarithm, by_formula);
}

// A function of |x| with the sign of x; zeros keep their sign.
void SetOdd(NodeContext& node, const Variable& x, const Variable& magnitude,
            const Variable& of_magnitude) {
  node.Set(0, Where(Greater(magnitude, 0.0), Sign(x) * of_magnitude, x), node.IsScalar(0));
}

// log1p(x^2 / (1 + sqrt(x^2 + 1)) + |x|) with the sign of x, accurate for small x.
void ImportAsinh(NodeContext& node) {
  const Variable x = node.In(0), magnitude = Abs(x);
  const Variable small = Min(magnitude, LogarithmicFrom(x.dtype())), square = Square(small);
  const Variable rest = square / (Sqrt(square + 1.0) + 1.0) + small;
  SetOdd(node, x, magnitude, WithLogarithm(magnitude, node.Unary("log1p", rest)));
}

// log1p(t + sqrt(t) sqrt(t + 2)) with t = x - 1, nan below 0.
void ImportAcosh(NodeContext& node) {
  const Variable x = node.In(0), t = Min(x, LogarithmicFrom(x.dtype())) - 1.0;
  node.Set(0, WithLogarithm(x, node.Unary("log1p", t + Sqrt(t) * Sqrt(t + 2.0))), node.IsScalar(0));
}

// log1p(2 |x| / (1 - |x|)) / 2 with the sign of x: near -1, the quotient of x itself would
// lose digits.
void ImportAtanh(NodeContext& node) {
  const Variable x = node.In(0), magnitude = Abs(x);
  SetOdd(node, x, magnitude, node.Unary("log1p", (magnitude * 2.0) / (1.0 - magnitude)) * 0.5);
}

// A test of one tensor, whose result is bool.
void ImportTestOfOne(NodeContext& node) {
  node.Set(0, node.Unary(node.row().maps_to, node.In(0)), node.IsScalar(0));
}

void ImportIsInf(NodeContext& node) {
  const bool negative = node.Flag("detect_negative", true);
  const bool positive = node.Flag("detect_positive", true);
  const Variable x = node.In(0), infinite = node.Unary("isinf_v2", x);
  if (negative && positive) return node.Set(0, infinite, node.IsScalar(0));
  const Variable zero = node.ScalarVar(x.dtype(), 0);
  const Variable sign = positive   ? node.Binary("greater_than", x, zero)
                        : negative ? node.Binary("less_than", x, zero)
                                   : node.Binary("not_equal", x, x);
  node.Set(0, node.Binary("logical_and", infinite, sign), node.IsScalar(0));
}

// The bounds are attrs (up to operator set 6) or optional inputs; max takes precedence over min.
void ImportClip(NodeContext& node) {
  const bool by_attr = node.opset() < 11;
  Variable x = node.In(0);
  if (by_attr) {
    if (node.HasAttr("min"))
      x = node.Binary("elementwise_max", x,
                      node.ScalarVar(x.dtype(), static_cast<double>(node.Float("min", 0))));
    if (node.HasAttr("max"))
      x = node.Binary("elementwise_min", x,
                      node.ScalarVar(x.dtype(), static_cast<double>(node.Float("max", 0))));
  } else {
    if (node.HasInput(1)) node.RequireOne(1, "min");
    if (node.HasInput(2)) node.RequireOne(2, "max");
    const bool known = node.HasInput(1) && node.HasInput(2) && node.Constant(1) && node.Constant(2);
    if (known && x.dtype() == DType::kFloat32) {
      const float min = node.KnownFloat(1, "min"), max = node.KnownFloat(2, "max");
      if (min <= max)
        return node.Set(0, node.Unary("clip", x, {{"min", min}, {"max", max}}), node.IsScalar(0));
    }
    if (node.HasInput(1)) x = node.Binary("elementwise_max", x, node.In(1));
    if (node.HasInput(2)) x = node.Binary("elementwise_min", x, node.In(2));
  }
  const bool same = by_attr ? !node.HasAttr("min") && !node.HasAttr("max")
                            : !node.HasInput(1) && !node.HasInput(2);
  same ? node.SetSame(0, 0) : node.Set(0, x, node.IsScalar(0));
}

// The op where needs inputs of one shape.
void ImportWhere(NodeContext& node) {
  node.Require(node.dtype(1) == node.dtype(2), "X and Y must have one dtype");
  node.Set(0, BroadcastWhere(node, node.In(0), node.In(1), node.In(2)), AllScalars(node));
}

}  // namespace

void ImportUnary(NodeContext& node) {
  node.Set(0, node.UnaryVia(node.row().maps_to, node.In(0)), node.IsScalar(0));
}

// The op round rounds halves away from 0. A half is twice a quarter, whose rounding is unambiguous.
Variable RoundedToEven(NodeContext& node, const Variable& x) {
  const Variable half = node.Make(
      "equal", {{"X", {(x - Floor(x)).name()}}, {"Y", {node.ScalarVar(x.dtype(), 0.5).name()}}});
  const Variable even = node.Unary("round", x * 0.5) * 2.0;
  return Where(half, even, node.Unary("round", x));
}

namespace {

constexpr auto kMoves = Unsigned::kMoves, kWraps = Unsigned::kWraps;

// A row that maps to one op names its type, which the shared importers read.
// clang-format off
const NodeImporter kElementwiseRows[] = {
    {.op_type = "Add", .since = 1, .takes = "n n",
     .import = ImportBinary, .maps_to = "elementwise_add", .unsigneds = kWraps},
    {.op_type = "Sub", .since = 1, .takes = "n n",
     .import = ImportBinary, .maps_to = "elementwise_sub", .unsigneds = kWraps},
    {.op_type = "Mul", .since = 1, .takes = "n n",
     .import = ImportBinary, .maps_to = "elementwise_mul", .unsigneds = kWraps},
    {.op_type = "Div", .since = 1, .takes = "n n",
     .import = ImportBinary, .maps_to = "elementwise_div", .unsigneds = kMoves},
    {.op_type = "Pow", .since = 1, .takes = "n n", .import = ImportPow,
     .maps_to = "elementwise_pow; square", .unsigneds = kMoves, .composed = true},
    {.op_type = "Mod", .takes = "n n",
     .import = ImportMod, .maps_to = "elementwise_mod", .unsigneds = kMoves, .composed = true},
    {.op_type = "BitwiseAnd", .since = 18, .takes = "i i",
     .import = ImportBinary, .maps_to = "bitwise_and", .unsigneds = kMoves},
    {.op_type = "BitwiseOr", .since = 18, .takes = "i i",
     .import = ImportBinary, .maps_to = "bitwise_or", .unsigneds = kMoves},
    {.op_type = "BitwiseXor", .since = 18, .takes = "i i",
     .import = ImportBinary, .maps_to = "bitwise_xor", .unsigneds = kMoves},
    {.op_type = "BitwiseNot", .since = 18, .takes = "i",
     .import = ImportUnary, .maps_to = "bitwise_not", .unsigneds = kWraps},
    {.op_type = "BitShift", .since = 11, .takes = "i i", .import = ImportBitShift,
     .maps_to = "bitwise_left_shift; bitwise_right_shift", .unsigneds = kWraps},
    {.op_type = "And", .since = 1, .takes = "b b", .import = ImportTest, .maps_to = "logical_and"},
    {.op_type = "Or", .since = 1, .takes = "b b", .import = ImportTest, .maps_to = "logical_or"},
    {.op_type = "Xor", .since = 1, .takes = "b b", .import = ImportTest, .maps_to = "logical_xor"},
    {.op_type = "Not", .since = 1, .takes = "b",
     .import = ImportTestOfOne, .maps_to = "logical_not"},
    {.op_type = "Equal", .since = 1, .takes = "T T",
     .import = ImportTest, .maps_to = "equal", .unsigneds = kMoves},
    {.op_type = "Less", .since = 1, .takes = "n n",
     .import = ImportTest, .maps_to = "less_than", .unsigneds = kMoves},
    {.op_type = "LessOrEqual", .takes = "n n",
     .import = ImportTest, .maps_to = "less_equal", .unsigneds = kMoves},
    {.op_type = "Greater", .since = 1, .takes = "n n",
     .import = ImportTest, .maps_to = "greater_than", .unsigneds = kMoves},
    {.op_type = "GreaterOrEqual", .takes = "n n",
     .import = ImportTest, .maps_to = "greater_equal", .unsigneds = kMoves},
    {.op_type = "Max", .since = 1, .takes = "n n*",
     .import = ImportVariadic, .maps_to = "elementwise_max", .unsigneds = kMoves},
    {.op_type = "Min", .since = 1, .takes = "n n*",
     .import = ImportVariadic, .maps_to = "elementwise_min", .unsigneds = kMoves},
    {.op_type = "Sum", .since = 1, .takes = "n n*",
     .import = ImportVariadic, .maps_to = "elementwise_add", .composed = true},
    {.op_type = "Mean", .since = 1, .takes = "n n*",
     .import = ImportMean, .maps_to = "elementwise_add, scale", .composed = true},
    {.op_type = "Where", .takes = "b T T",
     .import = ImportWhere, .maps_to = "where, broadcast_tensors", .unsigneds = kMoves},
    {.op_type = "Clip", .since = 1, .takes = "n n? n?", .import = ImportClip,
     .maps_to = "clip; elementwise_max, elementwise_min", .unsigneds = kMoves},
    {.op_type = "Abs", .since = 1, .takes = "n",
     .import = ImportAbs, .maps_to = "abs", .unsigneds = kMoves},
    {.op_type = "Neg", .since = 1, .takes = "n", .import = ImportNeg, .maps_to = "scale"},
    {.op_type = "Sign", .takes = "n",
     .import = ImportSign, .maps_to = "sign", .unsigneds = kMoves},
    {.op_type = "Ceil", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "ceil"},
    {.op_type = "Floor", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "floor"},
    {.op_type = "Round", .takes = "n",
     .import = ImportRound, .maps_to = "round, where (halves to even)", .composed = true},
    {.op_type = "Reciprocal", .since = 1, .takes = "n",
     .import = ImportUnary, .maps_to = "reciprocal"},
    {.op_type = "Sqrt", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "sqrt"},
    {.op_type = "Exp", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "exp"},
    {.op_type = "Log", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "log"},
    {.op_type = "Erf", .takes = "n", .import = ImportUnary, .maps_to = "erf"},
    {.op_type = "Sin", .takes = "n", .import = ImportUnary, .maps_to = "sin"},
    {.op_type = "Cos", .takes = "n", .import = ImportUnary, .maps_to = "cos"},
    {.op_type = "Tan", .takes = "n", .import = ImportUnary, .maps_to = "tan"},
    {.op_type = "Asin", .takes = "n", .import = ImportUnary, .maps_to = "asin"},
    {.op_type = "Acos", .takes = "n", .import = ImportUnary, .maps_to = "acos"},
    {.op_type = "Atan", .takes = "n", .import = ImportUnary, .maps_to = "atan"},
    {.op_type = "Sinh", .takes = "n", .import = ImportUnary, .maps_to = "sinh"},
    {.op_type = "Cosh", .takes = "n", .import = ImportUnary, .maps_to = "cosh"},
    {.op_type = "Tanh", .since = 1, .takes = "n", .import = ImportUnary, .maps_to = "tanh"},
    {.op_type = "Asinh", .since = 9, .takes = "n",
     .import = ImportAsinh, .maps_to = "log1p, sqrt, log", .composed = true},
    {.op_type = "Acosh", .since = 9, .takes = "n",
     .import = ImportAcosh, .maps_to = "log1p, sqrt, log", .composed = true},
    {.op_type = "Atanh", .since = 9, .takes = "n",
     .import = ImportAtanh, .maps_to = "log1p", .composed = true},
    {.op_type = "IsNaN", .since = 9, .takes = "f",
     .import = ImportTestOfOne, .maps_to = "isnan_v2"},
    {.op_type = "IsInf", .since = 10, .takes = "f", .import = ImportIsInf, .maps_to = "isinf_v2"},
};
// clang-format on

}  // namespace

void AddElementwiseImporters(NodeImporters& importers) {
  for (const NodeImporter& row : kElementwiseRows) importers.Add(row);
}

}  // namespace coracle::onnx
