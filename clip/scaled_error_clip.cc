#include <coracle/clip/clip.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/operators.h>

namespace coracle {
namespace {

// Applies the clip's own ops to the true gradient, then scales it again.
void ClipUnscaled(const Writer& w, const BaseErrorClipAttr& clip, const Variable& grad,
                  const Variable& scale, const AroundErrorClip& around) {
  const DType dtype = grad.dtype();
  const bool is_double = dtype == DType::kFloat64;
  const Variable by = is_double ? w.Named("scale", Cast(scale, dtype)) : scale;
  const Variable one = w.Named("one", FillConstant(w, by.dtype(), 1));
  const Variable inverse = w.Named("inverse", one / by);
  const bool half = IsHalf(dtype);
  const Variable wide = half ? w.Named("wide", Cast(grad, DType::kFloat32)) : grad;
  const Variable unscaled = w.Named("unscaled", Scale(wide, inverse));
  around(unscaled.name(), [&] { clip.AppendClipOp(w.block(), unscaled.name()); });
  const SlotList scaled = {{"X", {unscaled.name()}}, {"ScaleTensor", {by.name()}}};
  if (!half) {
    w.Into(grad.name(), "scale", scaled);
    return;
  }
  const Variable back = w.Named("scaled", Scale(unscaled, scale));
  w.Into(grad.name(), "cast", {{"X", {back.name()}}}, CastAttrs(DType::kFloat32, dtype));
}

}  // namespace

void AppendScaledErrorClip(BlockDesc& block, const BaseErrorClipAttr& clip,
                           const std::string& grad_name, const std::string& scale_name,
                           const std::string& finite, const AroundErrorClip& around) {
  const EditGuard guard(block.program());
  const Writer w(block, DefaultOps(),
                 {.mark = {.stage = TrainingStage::kErrorClip},
                  .prefix = "error_clip",
                  .stop_gradient = true});
  const Variable grad = w.Var(grad_name), scale = w.Var(scale_name);
  const Variable ok = w.Named("finite", IsFinite(grad));
  w.Part(TrainingPart::kFinite).Into(finite, "logical_and", {{"X", {finite}}, {"Y", {ok.name()}}});
  const auto threshold = [&](double limit) { return w.Named("threshold", scale * limit).name(); };
  const bool is_double = grad.dtype() == DType::kFloat64;
  if (const auto* value = dynamic_cast<const ErrorClipByValue*>(&clip); value && !is_double) {
    const std::string min = threshold(value->min()), max = threshold(value->max());
    around(grad_name, [&] {
      w.Into(
          grad_name, "clip", {{"X", {grad_name}}, {"Min", {min}}, {"Max", {max}}},
          {{"min", static_cast<float>(value->min())}, {"max", static_cast<float>(value->max())}});
    });
  } else if (const auto* norm = dynamic_cast<const ErrorClipByNorm*>(&clip); norm && !is_double) {
    const std::string max_norm = threshold(norm->max_norm());
    around(grad_name, [&] {
      w.Into(grad_name, "clip_by_norm", {{"X", {grad_name}}, {"MaxNorm", {max_norm}}},
             {{"max_norm", static_cast<float>(norm->max_norm())}});
    });
  } else {
    ClipUnscaled(w, clip, grad, scale, around);
  }
}

}  // namespace coracle
