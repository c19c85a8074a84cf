#pragma once
// The slots of quantised tensors: X has XScale and XZeroPoint, Out has OutScale and OutZeroPoint.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/rules/dims.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

// --- shape rules ---

inline bool HoldsOne(const VarMeta& meta) { return InferContext::Matches(NumelOf(meta.shape), 1); }

// Requires the input to have 8 bits, and its parameters to hold one number each.
inline void RequireQuantized(const InferContext& ctx, std::string_view id, const std::string& slot,
                             size_t i = 0) {
  const VarMeta& x = ctx.Input(slot, i);
  const std::string scale_slot = slot + "Scale", zero_slot = slot + "ZeroPoint";
  const VarMeta& scale = ctx.Input(scale_slot, i);
  const bool fits = IsByte(x.dtype) && scale.dtype == DType::kFloat32 && HoldsOne(scale);
  ctx.Require(id, fits, slot, x, scale_slot, scale);
  if (!ctx.HasInput(zero_slot)) return;
  const VarMeta& zero = ctx.Input(zero_slot, i);
  ctx.Require(id, zero.dtype == x.dtype && HoldsOne(zero), slot, x, zero_slot, zero);
}

// The dtype of an Out that is int8, uint8 or float32. Integers need OutScale, float32 forbids it.
inline DType RequireOutQuantization(const InferContext& ctx, std::string_view id) {
  const auto dtype = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  const bool has_scale = ctx.HasInput("OutScale"), has_zero = ctx.HasInput("OutZeroPoint");
  const bool fits = IsByte(dtype) ? has_scale : dtype == DType::kFloat32 && !has_scale && !has_zero;
  ctx.Require(id, fits, "out_dtype", ctx.Attr<int32_t>("out_dtype"), "OutScale",
              has_scale ? "given" : "absent", "OutZeroPoint", has_zero ? "given" : "absent");
  if (!has_scale) return dtype;
  const VarMeta& scale = ctx.Input("OutScale");
  ctx.Require(id, scale.dtype == DType::kFloat32 && HoldsOne(scale), "OutScale", scale);
  if (!has_zero) return dtype;
  const VarMeta& zero = ctx.Input("OutZeroPoint");
  ctx.Require(id, zero.dtype == dtype && HoldsOne(zero), "OutZeroPoint", zero);
  return dtype;
}

constexpr const char* kQuantizedText =
    "must be int8 or uint8, with a Scale of one float32 and a ZeroPoint, if given, of one element "
    "of its dtype";
constexpr const char* kOutText =
    "out_dtype must name int8 or uint8, with an OutScale of one float32 and an OutZeroPoint, "
    "if given, of one element of Out's dtype; or float32 without OutScale and OutZeroPoint";

inline void DeclareQuantizedInput(OpDef& def, const std::string& slot, std::string_view doc) {
  def.Input(slot, doc)
      .Input(slot + "Scale", "scale of " + slot + ", float32 [1]")
      .OptionalInput(slot + "ZeroPoint",
                     "zero point of " + slot + ", of its dtype [1]; 0 if absent");
}

inline void DeclareOutQuantization(OpDef& def) {
  def.OptionalInput("OutScale", "scale of Out, float32 [1]")
      .OptionalInput("OutZeroPoint", "zero point of Out, of its dtype [1]; 0 if absent")
      .Attr<int32_t>("out_dtype", "dtype of Out, by its number in Paddle's VarType");
}

// --- kernels ---

// Scale and zero point of a tensor, [1] each.
struct Quantization {
  TensorArg scale, zero;

  Quantization() = default;
  Quantization(const PrepareContext& ctx, const std::string& slot, size_t i = 0)
      : scale(ctx.Input(slot + "Scale", i)), zero(ctx.Input(slot + "ZeroPoint", i)) {}

  // 1 if there is none.
  float Scale(const Workspace& ws) const { return scale ? *ws.Data<const float>(scale) : 1; }
  int32_t Zero(const Workspace& ws) const {
    return zero ? IntegerAt(zero.dtype, ws.Data<const void>(zero), 0) : 0;
  }
};

// Stores real values as elements of Out, one at a time: the reference.
class RealStore {
 public:
  RealStore(const Workspace& ws, const TensorArg& out, const Quantization& q)
      : data_(ws.Data<void>(out)), dtype_(out.dtype), scale_(q.Scale(ws)), zero_(q.Zero(ws)) {}
  void operator()(int64_t i, double value) const {
    if (dtype_ == DType::kFloat32)
      static_cast<float*>(data_)[i] = static_cast<float>(value);
    else if (dtype_ == DType::kInt8)
      static_cast<int8_t*>(data_)[i] = QuantizeTo<int8_t>(value / scale_, zero_);
    else
      static_cast<uint8_t*>(data_)[i] = QuantizeTo<uint8_t>(value / scale_, zero_);
  }

 private:
  void* data_;
  DType dtype_;
  double scale_;
  int32_t zero_;
};

}  // namespace coracle::inline internal
