// The numbers that integers with a scale and a zero point represent: ONNX's DequantizeLinear.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/quantize/affine.h>
#include <coracle/operators/rules/dims.h>

#include <type_traits>

namespace coracle::affine_dequantize_op {

void InferDequantize(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  RequireAffineSteps(ctx, out.dtype);
  out.dtype = ctx.InputDType("Scale");
  const int32_t wanted = ctx.Attr<int32_t>("out_dtype");
  if (wanted != -1) out.dtype = static_cast<DType>(wanted);
  ctx.Require("C5", IsValid(out.dtype) && IsFloating(out.dtype), "out_dtype", wanted);
  ctx.SetOutput("Out", out);
}

template <class T, class Out, class Real>
Kernel DequantizeTo(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AffineReader reader(ctx);
  const AffineSteps steps = reader.steps();
  const int64_t inner = steps.count == 1 ? x.numel : steps.inner;
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    Out* to = ws.Data<Out>(out);
    if (x.numel == 0) return;
    for (int64_t o = 0; o < steps.outer; ++o) {
      for (int64_t a = 0; a < steps.dim; ++a) {
        for (int64_t i = 0; i < inner; ++i) {
          const int64_t difference = int64_t{*in++} - reader.ZeroPoint(ws, o, a, i);
          const Real value =
              static_cast<Real>(difference) * static_cast<Real>(reader.Scale(ws, o, a, i));
          if constexpr (sizeof(Out) == 2)
            *to++ = ToHalf<Out>(value);
          else
            *to++ = static_cast<Out>(value);
        }
      }
    }
  };
}

template <class T>
KernelOf<T> Dequantize(const PrepareContext& ctx) {
  return DispatchDType(ctx.Output("Out").dtype, [&]<class Out>() -> Kernel {
    if constexpr (std::is_integral_v<Out>)
      return {};
    else if (std::is_same_v<Out, double> || ctx.Input("Scale").dtype == DType::kFloat64)
      return DequantizeTo<T, Out, double>(ctx);
    else
      return DequantizeTo<T, Out, float>(ctx);
  });
}

constexpr int64_t kGrain = 16384;

template <class Q>
Kernel DequantizeFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const AffineReader reader(ctx);
  const Shape count = {reader.steps().count};
  const TensorArg scales = ctx.Scratch(DType::kFloat32, count);
  const TensorArg zeros = ctx.Scratch(DType::kInt32, count);
  return [=](Workspace& ws) {
    const Q* in = ws.Data<const Q>(x);
    auto* scale = ws.Data<float>(scales);
    auto* zero = ws.Data<int32_t>(zeros);
    auto* to = ws.Data<float>(out);
    if (x.numel == 0) return;  // there may be no scale
    reader.Expand(ws, scale, zero);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      reader.steps().ForEachRun(begin, end, [&](int64_t at, int64_t n, int64_t step, bool each) {
        DequantizeSimd(in + at, n, scale + step, zero + step, each, to + at);
      });
    });
  };
}

Kernel Fast(const PrepareContext& ctx) {
  const DType from = ctx.Input("X").dtype;
  if (ctx.Output("Out").dtype != DType::kFloat32 || ctx.Input("Scale").dtype == DType::kFloat64)
    return {};
  if (from == DType::kInt8) return DequantizeFast<int8_t>(ctx);
  return from == DType::kUInt8 ? DequantizeFast<uint8_t>(ctx) : Kernel();
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("affine_dequantize")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = (X - ZeroPoint) Scale, in float32, or in float64 if Scale or Out is: "
                   "ONNX's DequantizeLinear.")
              .Input("X", "tensor of int8, uint8, int16 or int32")
              .Apply(DeclareAffineSteps, "X's")
              .Constraint("C5", "out_dtype must be -1 or the number of a dtype of floats")
              .Output("Out", "tensor of X's shape")
              .Attr<int32_t>("out_dtype", -1,
                             "Out's dtype: 4 float16, 5 float32, 6 float64, 22 bfloat16; -1: "
                             "Scale's dtype")
              .Rows(RowRule::kEach)
              .WorksAlong("axis")
              .Tables({"Scale", "ZeroPoint"})
              .Infer(InferDequantize)
              .NoGradient("the scales of integers are constants; networks are trained with "
                          "fake_quantize_dequantize ops")
              .Reference(Dequantize<int8_t>, Dequantize<uint8_t>, Dequantize<int16_t>,
                         Dequantize<int32_t>)
              .Fast(Fast));
}

}  // namespace coracle::affine_dequantize_op
