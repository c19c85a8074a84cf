// The scale and zero point of a tensor whose range only a run knows.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/range_simd.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::dynamic_scale_op {

void InferDynamicScale(InferContext& ctx) {
  ctx.SetOutput("Scale", DType::kFloat32, {1});
  ctx.SetOutput("ZeroPoint", DType::kUInt8, {1});
}

// The results for numbers that lie between `least` and `most`, which may be nan.
struct UInt8Steps {
  float scale;
  uint8_t zero;

  UInt8Steps(float least, float most) {
    scale = (most - least) / 255.0f;
    if (scale == 0) scale = 1;
    const float q = std::nearbyint(-least / scale);
    zero = static_cast<uint8_t>(q > 0 ? std::min(q, 255.0f) : 0.0f);
  }
};

struct DynamicScaleArgs {
  TensorArg x, scale, zero;

  explicit DynamicScaleArgs(const PrepareContext& ctx)
      : x(ctx.Input("X")), scale(ctx.Output("Scale")), zero(ctx.Output("ZeroPoint")) {}
  void Set(const Workspace& ws, FloatRange range) const {
    const UInt8Steps steps(std::min(range.least, 0.0f), std::max(range.most, 0.0f));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    *ws.Data<float>(scale) = range.has_nan ? nan : steps.scale;
    *ws.Data<uint8_t>(zero) = range.has_nan ? 0 : steps.zero;
  }
};

KernelOf<float> DynamicScale(const PrepareContext& ctx) {
  return {[a = DynamicScaleArgs(ctx)](Workspace& ws) {
    const auto* x = ws.Data<const float>(a.x);
    FloatRange range;
    for (int64_t i = 0; i < a.x.numel; ++i) range.Add({x[i], x[i], std::isnan(x[i])});
    a.Set(ws, range);
  }};
}

Kernel DynamicScaleFast(const PrepareContext& ctx) {
  const DynamicScaleArgs a(ctx);
  if (a.x.dtype != DType::kFloat32) return {};
  constexpr int64_t kPart = 65536;
  const int64_t parts = (a.x.numel + kPart - 1) / kPart;
  const TensorArg found = ctx.Scratch(DType::kFloat32, {parts * 3});
  return [=](Workspace& ws) {
    const auto* x = ws.Data<const float>(a.x);
    float* of_parts = ws.Data<float>(found);
    ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const FloatRange r = RangeOf(x + i * kPart, std::min(kPart, a.x.numel - i * kPart));
        float* to = of_parts + i * 3;
        to[0] = r.least;
        to[1] = r.most;
        to[2] = r.has_nan ? 1 : 0;
      }
    });
    FloatRange range;
    for (int64_t i = 0; i < parts; ++i) {
      const float* r = of_parts + i * 3;
      range.Add({r[0], r[1], r[2] != 0});
    }
    a.Set(ws, range);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("dynamic_scale")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("The scale and the zero point of uint8 for the range of X in this run: ONNX's "
                   "DynamicQuantizeLinear. With l = min(0, min X) and h = max(0, max X), Scale = "
                   "(h - l) / 255, or 1 if that is 0, and ZeroPoint = round(-l / Scale), ties to "
                   "even, limited to [0, 255]. If X has a nan, Scale is nan. If Scale is not "
                   "finite, ZeroPoint is 0. An X without elements has the range of 0.")
              .Input("X", "tensor of float32")
              .Output("Scale", "float32 [1]")
              .Output("ZeroPoint", "uint8 [1]")
              .NoLod()
              .Rows(RowRule::kMixes)
              .Infer(InferDynamicScale)
              .NotDifferentiable("quantisation is piecewise constant")
              .Reference(DynamicScale)
              .Fast(DynamicScaleFast));
}

}  // namespace coracle::dynamic_scale_op
