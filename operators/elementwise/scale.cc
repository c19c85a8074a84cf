#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/lane_kernel.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/kernels/sweep.h>

namespace coracle::scale_op {

void InferScale(InferContext& ctx) {
  if (ctx.HasInput("ScaleTensor")) {
    const Shape& shape = ctx.InputShape("ScaleTensor");
    ctx.Require("C1", !shape.IsKnown() || shape.numel() == 1, "ScaleTensor", shape);
    const DType dtype = ctx.InputDType("ScaleTensor");
    const bool same = dtype == ctx.InputDType("X") && !IsComplex(dtype);
    ctx.Require("C2", same || dtype == DType::kFloat32 || dtype == DType::kFloat64, "ScaleTensor",
                dtype, "X", ctx.InputDType("X"));
  }
  ctx.Require("C3", ctx.Input("X").type == VarType::kLoDTensor || ctx.Attr<float>("bias") == 0,
              ctx.Attr<float>("bias"));
  ctx.SetOutput("Out", ctx.Input("X"));
}

// The scale: the tensor's element, else the attr.
struct ScaleValue {
  explicit ScaleValue(const PrepareContext& ctx)
      : tensor(ctx.Input("ScaleTensor")), attr(ctx.Attr<float>("scale")) {}
  double operator()(Workspace& ws) const {
    if (!tensor) return attr;
    return DispatchDType(
        tensor.dtype, [&]<class S>() { return static_cast<double>(ws.Data<const S>(tensor)[0]); });
  }
  TensorArg tensor;
  float attr;
};

// Whether elements of T must be multiplied in double, because T cannot represent the
// tensor's value.
template <class T>
bool IsWide(const ScaleValue& scale, double value) {
  if constexpr (std::is_integral_v<T> || kIsComplex<T>)
    return false;
  else
    return scale.tensor && !IsFactorOf<T>(value);
}
template <class T>
T WideProduct(double scale, T x) {
  if constexpr (std::is_integral_v<T> || kIsComplex<T>)
    return x;
  else
    return SaturateTo<T>(scale * static_cast<double>(static_cast<Wide<T>>(x)));
}

template <class T>
Kernel ScaleRows(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  const ScaleValue scale(ctx);
  return [=](Workspace& ws) {
    const RowsView in = x(ws);
    T* o = out.MakeSame(ws, in).value.template data<T>();
    const T* from = in.data<T>();
    const double value = scale(ws);
    const T s = SaturateTo<T>(value);
    const bool wide = IsWide<T>(scale, value);
    ParallelFor(in.count() * in.width, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        o[i] = wide ? WideProduct(value, from[i]) : WrapMul(s, from[i]);
    });
  };
}

template <class T>
Kernel ScaleReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return ScaleRows<T>(ctx);
  const std::vector<TensorArg> x = ctx.Inputs("X"), out = ctx.Outputs("Out");
  const ScaleValue scale(ctx);
  const T bias = SaturateTo<T>(static_cast<double>(ctx.Attr<float>("bias")));
  const bool after = ctx.Attr<bool>("bias_after_scale"), unbiased = ctx.Attr<float>("bias") == 0;
  return [=](Workspace& ws) {
    const double value = scale(ws);
    const T s = SaturateTo<T>(value);
    const bool wide = unbiased && IsWide<T>(scale, value);
    for (size_t k = 0; k < x.size(); ++k) {
      const T* in = ws.Data<const T>(x[k]);
      T* o = ws.Data<T>(out[k]);
      if (wide) {
        for (int64_t i = 0; i < x[k].numel; ++i) o[i] = WideProduct(value, in[i]);
        continue;
      }
      if (in == o && unbiased && s == T(1)) continue;
      for (int64_t i = 0; i < x[k].numel; ++i)
        o[i] = after ? WrapAdd(WrapMul(s, in[i]), bias) : WrapMul(s, WrapAdd(in[i], bias));
    }
  };
}

Kernel ScaleFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32 || IsSparse(ctx.Input("X"))) return {};
  const ScaleValue scale(ctx);
  const float bias = ctx.Attr<float>("bias");
  const simd::Unary op =
      ctx.Attr<bool>("bias_after_scale") ? simd::Unary::kScale : simd::Unary::kShiftScale;
  const simd::UnaryLoop loop = simd::FindUnary(op);
  Kernel sweep = SweepItems(ctx, 65536, [=](const PrepareContext& item) -> TensorWork {
    const TensorArg x = item.Input("X"), out = item.Output("Out");
    return {x.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) {
              const float* in = ws.Data<const float>(x);
              float* o = ws.Data<float>(out);
              const double value = scale(ws);
              if (bias == 0 && IsWide<float>(scale, value)) {
                for (int64_t i = begin; i < end; ++i) o[i] = WideProduct(value, in[i]);
                return;
              }
              const simd::Params params{static_cast<float>(value), bias, 0};
              if (in == o && params.a == 1.0f && params.b == 0.0f) return;
              loop(in + begin, o + begin, end - begin, params);
            },
            nullptr};
  });
  if (scale.tensor || ctx.NumItems() != 1) return sweep;
  return LaneKernel{
      {{simd::FindLanes(op), {scale.attr, bias, 0}, ctx.Input("X"), {}, ctx.Output("Out")}},
      std::move(sweep)};
}

// dX = scale dOut.
void ScaleGradient(GradientContext& g) {
  SlotList inputs = {{"X", {g.OutputGrad("Out")}}};
  if (g.HasInput("ScaleTensor")) inputs.push_back({"ScaleTensor", {g.Input("ScaleTensor")}});
  g.Append("scale", std::move(inputs), {{"Out", {g.InputGrad("X")}}},
           {{"scale", g.Attr<float>("scale")}, {"bias", 0.0f}, {"bias_after_scale", true}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("scale")
              .Doc("Out = scale X + bias, or scale (X + bias) when bias_after_scale is false. "
                   "Scale and bias are first converted to X's dtype (to an integer: truncated); if "
                   "a ScaleTensor has more digits than a 16-bit X, or is not a normal number in "
                   "X's dtype, the product is computed in float64 and rounded.")
              .Constraint("C1", "ScaleTensor must hold one element")
              .Constraint("C2",
                          "ScaleTensor must have X's dtype and be real, or have float32 or float64")
              .Constraint("C3", "bias must be 0 where X is selected rows")
              .Input("X", "tensor or selected rows")
              .OptionalInput("ScaleTensor", "tensor [1]; replaces attr scale")
              .Output("Out", "same kind of value as X, with its shape and dtype")
              .Takes(VarType::kSelectedRows, {"X"})
              .Attr<float>("scale", 1.0f, "factor")
              .Attr<float>("bias", 0.0f, "summand")
              .Attr<bool>("bias_after_scale", true, "whether the bias is added after scaling")
              .NoGradientTo({"ScaleTensor"})
              .MultiTensor({"ScaleTensor"})
              .Inplace("X", "Out")
              .Elementwise()
              .Linear({"X"})
              .Infer(InferScale)
              .Gradient(ScaleGradient)
              .Reference<float, double, int32_t, int64_t, int16_t, int8_t, uint8_t, float16,
                         bfloat16, complex64, complex128>(
                  []<class T>(const PrepareContext& c) { return ScaleReference<T>(c); })
              .Fast(ScaleFast));
}

}  // namespace coracle::scale_op
