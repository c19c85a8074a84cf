// Paddle's ops quantize, dequantize and requantize, which programs for oneDNN have. Their scales
// are multipliers: the integer is the number times the scale.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace coracle::onednn_quantize_op {

constexpr int64_t kGrain = 8192;

float Number(const OpItem& op, const char* attr) { return op.Attr<float>(attr); }

void RequireScale(const InferContext& ctx, const char* attr) {
  const float scale = Number(ctx, attr);
  ctx.Require("C1", std::isfinite(scale) && scale != 0, attr, scale);
}
void RequireShift(const InferContext& ctx, const char* attr) {
  const float shift = Number(ctx, attr);
  ctx.Require("C2", shift >= 0 && shift <= 255, attr, shift);
}

// The nearest integer, limited to the range of Q; a nan gives the least one.
template <class Q>
Q Saturated(double value) {
  constexpr double kLeast = std::numeric_limits<Q>::min(), kMost = std::numeric_limits<Q>::max();
  const double q = std::nearbyint(value);
  return q >= kMost   ? std::numeric_limits<Q>::max()
         : q > kLeast ? static_cast<Q>(q)
                      : std::numeric_limits<Q>::min();
}

template <class Out>
Out Stored(double value) {
  if constexpr (std::is_integral_v<Out>)
    return Saturated<Out>(value);
  else if constexpr (sizeof(Out) == 2)
    return ToHalf<Out>(value);
  else
    return static_cast<Out>(value);
}

// Output = Input factor + shift.
template <class T, class Out>
Kernel Scaled(const PrepareContext& ctx, double factor, double shift) {
  const TensorArg x = ctx.Input("Input"), out = ctx.Output("Output");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    Out* to = ws.Data<Out>(out);
    ParallelFor(x.numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double value = 0;
        if constexpr (sizeof(T) == 2)
          value = static_cast<double>(static_cast<float>(in[i]));
        else
          value = static_cast<double>(in[i]);
        to[i] = Stored<Out>(value * factor + shift);
      }
    });
  };
}

// --- quantize ---

void InferQuantize(InferContext& ctx) {
  RequireScale(ctx, "Scale");
  RequireShift(ctx, "Shift");
  VarMeta out = ctx.Input("Input");
  const bool is_signed = ctx.Attr<bool>("is_negative_input") && Number(ctx, "Shift") == 0;
  out.dtype = ctx.Attr<bool>("bfloat16") ? DType::kBFloat16
              : is_signed                ? DType::kInt8
                                         : DType::kUInt8;
  ctx.SetOutput("Output", out);
}

template <class T>
KernelOf<T> Quantize(const PrepareContext& ctx) {
  const auto scale = static_cast<double>(Number(ctx, "Scale"));
  const auto shift = static_cast<double>(Number(ctx, "Shift"));
  switch (ctx.Output("Output").dtype) {
    case DType::kInt8:
      return Scaled<T, int8_t>(ctx, scale, shift);
    case DType::kUInt8:
      return Scaled<T, uint8_t>(ctx, scale, shift);
    default:  // bfloat16, which a kernel of float32 may round afterwards
      return ctx.Output("Output").dtype == DType::kBFloat16 ? Scaled<T, bfloat16>(ctx, scale, shift)
                                                            : Scaled<T, float>(ctx, scale, shift);
  }
}

// --- dequantize ---

// The loop for bfloat16 computes in float32, which is no input.
void RequireIntegers(const InferContext& ctx) {
  const DType dtype = ctx.InputDType("Input");
  ctx.Require("C3", dtype == DType::kInt8 || dtype == DType::kUInt8 || dtype == DType::kBFloat16,
              "Input", dtype);
}

void InferDequantize(InferContext& ctx) {
  RequireIntegers(ctx);
  RequireScale(ctx, "Scale");
  RequireShift(ctx, "Shift");
  VarMeta out = ctx.Input("Input");
  out.dtype = DType::kFloat32;
  ctx.SetOutput("Output", out);
}

template <class T>
KernelOf<T> Dequantize(const PrepareContext& ctx) {
  const auto scale = static_cast<double>(Number(ctx, "Scale"));
  const auto shift = static_cast<double>(Number(ctx, "Shift"));
  return Scaled<T, float>(ctx, 1 / scale, -shift / scale);
}

// --- requantize ---

bool IsShifted(const OpItem& op) {
  return Number(op, "Shift_in") != 0 || Number(op, "Shift_out") != 0;
}

void InferRequantize(InferContext& ctx) {
  RequireIntegers(ctx);
  for (const char* attr : {"Scale_in", "Scale_out"}) RequireScale(ctx, attr);
  for (const char* attr : {"Shift_in", "Shift_out"}) RequireShift(ctx, attr);
  VarMeta out = ctx.Input("Input");
  ctx.Require("C4", Number(ctx, "Shift_in") == 0 || out.dtype == DType::kUInt8, "Shift_in",
              Number(ctx, "Shift_in"), "Input", out.dtype);
  if (IsShifted(ctx)) out.dtype = DType::kUInt8;
  ctx.SetOutput("Output", out);
}

template <class T>
KernelOf<T> Requantize(const PrepareContext& ctx) {
  const auto in = static_cast<double>(Number(ctx, "Scale_in"));
  const auto ratio = static_cast<double>(Number(ctx, "Scale_out")) / in;
  const double moved = static_cast<double>(Number(ctx, "Shift_out")) -
                       ratio * static_cast<double>(Number(ctx, "Shift_in"));
  const double shift = std::clamp(std::round(moved), 0.0, 255.0);
  if (IsShifted(ctx)) return Scaled<T, uint8_t>(ctx, ratio, shift);
  return Scaled<T, T>(ctx, ratio, 0);
}

// --- declarations ---

OpDef Def(const char* type, const std::string& doc) {
  OpDef def(type);
  def.Doc(doc)
      .Constraint("C1", "a scale must be finite and not 0")
      .Constraint("C2", "a shift must lie in [0, 255]")
      .Output("Output", "tensor of Input's shape")
      .Rows(RowRule::kEach);
  return def;
}

void DeclareIntegers(OpDef& def) {
  def.Constraint("C3", "Input must be int8, uint8 or bfloat16")
      .Input("Input", "tensor of int8, uint8 or bfloat16");
}

void Register(OpRegistry& ops) {
  ops.Add(Def("quantize",
              "Output = round(Scale Input + Shift), halves to the even integer, limited to the "
              "range of its dtype: int8 if is_negative_input is set and Shift is 0, else uint8; a "
              "nan gives the least integer. With bfloat16, Output is Scale Input + Shift in that "
              "dtype.")
              .Input("Input", "float32 tensor")
              .Attr<float>("Scale", 1.0f, "integers for 1")
              .Attr<float>("Shift", 0.0f, "the integer for 0")
              .Attr<bool>("is_negative_input", false, "whether Input may be negative")
              .Attr<std::string>("output_format", std::string("NHWC"), "not read")
              .Attr<bool>("bfloat16", false, "whether Output is bfloat16")
              .NotDifferentiable("rounding is piecewise constant")
              .Infer(InferQuantize)
              .Reference(Quantize<float>));
  ops.Add(Def("dequantize", "Output = (Input - Shift) / Scale.")
              .Apply(DeclareIntegers)
              .Attr<float>("Scale", 1.0f, "integers for 1")
              .Attr<float>("Shift", 0.0f, "the integer for 0")
              .NoGradient("it dequantizes values of an inference program")
              .Infer(InferDequantize)
              .Reference(Dequantize<int8_t>, Dequantize<uint8_t>, Dequantize<float>));
  ops.Add(Def("requantize",
              "Output = round(r Input + s) with r = Scale_out / Scale_in and the integer s nearest "
              "to Shift_out - r Shift_in (halves away from 0), limited to [0, 255]. Output is "
              "uint8 if a shift is not 0 (they are 1 by default), else of Input's dtype, and "
              "limited to its range.")
              .Apply(DeclareIntegers)
              .Constraint("C4", "with a Shift_in, Input must be uint8")
              .Attr<float>("Scale_in", 1.0f, "Input's integers for 1")
              .Attr<float>("Scale_out", 1.0f, "Output's integers for 1")
              .Attr<float>("Shift_in", 1.0f, "Input's integer for 0")
              .Attr<float>("Shift_out", 1.0f, "Output's integer for 0")
              .NotDifferentiable("rounding is piecewise constant")
              .Infer(InferRequantize)
              .Reference(Requantize<int8_t>, Requantize<uint8_t>, Requantize<float>));
}

}  // namespace coracle::onednn_quantize_op
