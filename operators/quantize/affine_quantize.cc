// Real numbers as integers with a scale and a zero point: ONNX's QuantizeLinear.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/rules/dims.h>

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace coracle::affine_quantize_op {

struct Clamp {
  int64_t least, most;
};

// The range of a dtype that Out may have.
Clamp RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return {-128, 127};
    case DType::kUInt8:
      return {0, 255};
    case DType::kInt16:
      return {-32768, 32767};
    case DType::kInt32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    default:
      return {0, -1};
  }
}

// By the attrs qmin and qmax, or the dtype's range.
Clamp ClampOf(const OpItem& op, DType dtype) {
  const Clamp clamp = {op.Attr<int64_t>("qmin"), op.Attr<int64_t>("qmax")};
  return clamp.least == 0 && clamp.most == 0 ? RangeOf(dtype) : clamp;
}

void InferQuantize(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C5", "out_dtype");
  const Clamp range = RangeOf(dtype);
  ctx.Require("C5", range.least < range.most, "out_dtype", dtype);
  RequireAffineSteps(ctx, dtype);
  const Clamp clamp = ClampOf(ctx, dtype);
  ctx.Require("C6",
              range.least <= clamp.least && clamp.least < clamp.most && clamp.most <= range.most,
              "qmin", clamp.least, "qmax", clamp.most, "out_dtype", dtype);
  const int32_t quotient = ctx.Attr<int32_t>("quotient_dtype");
  ctx.Require("C7", quotient == -1 || IsHalf(static_cast<DType>(quotient)), "quotient_dtype",
              quotient);
  VarMeta out = ctx.Input("X");
  out.dtype = dtype;
  ctx.SetOutput("Out", out);
}

// X / Scale as an integer that may lie outside of the range.
template <class Real>
struct Rounding {
  bool away;
  DType quotient;  // of 16 bits, or that of Real

  double operator()(Real x, double scale) const {
    Real ratio = x / static_cast<Real>(scale);
    if (quotient == DType::kFloat16) ratio = static_cast<Real>(Half<float16>(ratio));
    if (quotient == DType::kBFloat16) ratio = static_cast<Real>(Half<bfloat16>(ratio));
    return static_cast<double>(away ? std::round(ratio) : std::nearbyint(ratio));
  }
  template <class To>
  static float Half(Real ratio) {
    return static_cast<float>(ToHalf<To>(ratio));
  }
};

template <class T, class Q>
Kernel QuantizeTo(const PrepareContext& ctx) {
  using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AffineReader reader(ctx);
  const Clamp clamp = ClampOf(ctx, out.dtype);
  const int32_t quotient = ctx.Attr<int32_t>("quotient_dtype");
  const Rounding<Real> rounded = {ctx.Attr<std::string>("round_mode") == "away",
                                  quotient == -1 ? DTypeOf<Real>() : static_cast<DType>(quotient)};
  const AffineSteps steps = reader.steps();
  const int64_t inner = steps.count == 1 ? x.numel : steps.inner;
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    Q* to = ws.Data<Q>(out);
    if (x.numel == 0) return;
    for (int64_t o = 0; o < steps.outer; ++o) {
      for (int64_t a = 0; a < steps.dim; ++a) {
        for (int64_t i = 0; i < inner; ++i) {
          const double q = rounded(static_cast<Real>(*in++), reader.Scale(ws, o, a, i)) +
                           static_cast<double>(reader.ZeroPoint(ws, o, a, i));
          // A nan is not greater than qmin.
          const bool above = q > static_cast<double>(clamp.least);
          *to++ = !above                                ? static_cast<Q>(clamp.least)
                  : q > static_cast<double>(clamp.most) ? static_cast<Q>(clamp.most)
                                                        : static_cast<Q>(q);
        }
      }
    }
  };
}

template <class T>
KernelOf<T> Quantize(const PrepareContext& ctx) {
  switch (ctx.Output("Out").dtype) {
    case DType::kInt8:
      return QuantizeTo<T, int8_t>(ctx);
    case DType::kUInt8:
      return QuantizeTo<T, uint8_t>(ctx);
    case DType::kInt16:
      return QuantizeTo<T, int16_t>(ctx);
    default:
      return QuantizeTo<T, int32_t>(ctx);
  }
}

constexpr int64_t kGrain = 16384;

template <class Q>
Kernel QuantizeFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AffineReader reader(ctx);
  const Shape count = {reader.steps().count};
  const TensorArg scales = ctx.Scratch(DType::kFloat32, count);
  const TensorArg zeros = ctx.Scratch(DType::kInt32, count);
  const Clamp clamp = ClampOf(ctx, out.dtype);
  const IntegerRange range = {static_cast<int32_t>(clamp.least), static_cast<int32_t>(clamp.most),
                              ctx.Attr<std::string>("round_mode") == "away"};
  return [=](Workspace& ws) {
    const float* in = ws.Data<const float>(x);
    auto* scale = ws.Data<float>(scales);
    auto* zero = ws.Data<int32_t>(zeros);
    Q* to = ws.Data<Q>(out);
    if (x.numel == 0) return;  // there may be no scale
    reader.Expand(ws, scale, zero);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      reader.steps().ForEachRun(begin, end, [&](int64_t at, int64_t n, int64_t step, bool each) {
        QuantizeSimd(in + at, n, scale + step, zero + step, each, range, to + at);
      });
    });
  };
}

Kernel Fast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  const DType to = ctx.Output("Out").dtype;
  if (x.dtype != DType::kFloat32 || ctx.Input("Scale").dtype == DType::kFloat64 ||
      ctx.Attr<int32_t>("quotient_dtype") != -1)
    return {};
  if (to == DType::kInt8) return QuantizeFast<int8_t>(ctx);
  return to == DType::kUInt8 ? QuantizeFast<uint8_t>(ctx) : Kernel();
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("affine_quantize")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = min(max(round(X / Scale) + ZeroPoint, qmin), qmax) as integers: ONNX's "
                   "QuantizeLinear. The quotient is a float32, or a float64 of an X in float64 or "
                   "int32; a nan becomes qmin. affine_dequantize is the way back.")
              .Input("X", "tensor of float16, bfloat16, float32, float64 or int32")
              .Apply(DeclareAffineSteps, "Out's")
              .Constraint("C5", "out_dtype must be the number of int8, uint8, int16 or int32")
              .Constraint("C6", "qmin must be less than qmax, and both in the range of out_dtype")
              .Constraint("C7", "quotient_dtype must be -1 or the number of float16 or bfloat16")
              .Output("Out", "tensor of X's shape and of out_dtype")
              .Attr<int32_t>("out_dtype", static_cast<int32_t>(DType::kInt8),
                             "Out's dtype: 1 int16, 2 int32, 20 uint8, 21 int8")
              .Attr<int64_t>("qmin", 0, "least integer; if qmin and qmax are 0, out_dtype's range")
              .Attr<int64_t>("qmax", 0, "largest integer")
              .Attr<std::string>("round_mode", std::string("even"),
                                 "the integer that a number halfway between two becomes: the even "
                                 "one, or the one away from 0")
              .OneOf({"even", "away"})
              .Attr<int32_t>("quotient_dtype", -1,
                             "4 float16 or 22 bfloat16: the quotient is rounded to it before it is "
                             "rounded to an integer")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Tables({"Scale", "ZeroPoint"})
              .Infer(InferQuantize)
              .NotDifferentiable("rounding is piecewise constant")
              .Reference(Quantize<float>, Quantize<double>, Quantize<int32_t>)
              .Fast(Fast));
}

}  // namespace coracle::affine_quantize_op
