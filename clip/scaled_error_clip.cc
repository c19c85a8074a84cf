#include <coracle/clip/error_clip.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/tensor/half_array.h>

namespace coracle {
namespace {

// A variable of `block` that holds what the op gives.
std::string Append(BlockDesc& block, const std::string& like, const char* type, SlotList inputs,
                   AttrList attrs = {}) {
  std::string out = block.program().UniqueName(like);
  block.Var(out).SetStopGradient(true);
  const OpDesc& op = block.AppendOp(type, std::move(inputs), {{"Out", {out}}}, std::move(attrs));
  InferOp(block, op, DefaultOps());
  return out;
}

AttrList CastAttrs(DType from, DType to) {
  return {{"in_dtype", static_cast<int32_t>(from)}, {"out_dtype", static_cast<int32_t>(to)}};
}

std::string Times(BlockDesc& block, const std::string& scale, double factor) {
  return Append(block, "error_clip.threshold", "scale", {{"X", {scale}}},
                {{"scale", static_cast<float>(factor)}});
}

// The clip's own ops on the true gradient, and back.
void ClipUnscaled(BlockDesc& block, const BaseErrorClipAttr& clip, const std::string& grad,
                  const std::string& scale, const AroundErrorClip& around) {
  const DType dtype = block.FindVarRecursive(grad)->dtype();
  const std::string one = Append(block, "error_clip.one", "fill_constant", {},
                                 {{"shape", std::vector<int64_t>{1}},
                                  {"dtype", static_cast<int32_t>(DType::kFloat32)},
                                  {"value", 1.0f}});
  const std::string inverse =
      Append(block, "error_clip.inverse", "elementwise_div", {{"X", {one}}, {"Y", {scale}}});
  std::string wide = grad;
  if (IsHalf(dtype))
    wide = Append(block, "error_clip.wide", "cast", {{"X", {grad}}},
                  CastAttrs(dtype, DType::kFloat32));
  const std::string unscaled =
      Append(block, "error_clip.unscaled", "scale", {{"X", {wide}}, {"ScaleTensor", {inverse}}});
  around(unscaled, [&] { clip.AppendClipOp(block, unscaled); });
  if (!IsHalf(dtype)) {
    block.AppendOp("scale", {{"X", {unscaled}}, {"ScaleTensor", {scale}}}, {{"Out", {grad}}});
    return;
  }
  const std::string back =
      Append(block, "error_clip.scaled", "scale", {{"X", {unscaled}}, {"ScaleTensor", {scale}}});
  block.AppendOp("cast", {{"X", {back}}}, {{"Out", {grad}}}, CastAttrs(DType::kFloat32, dtype));
}

}  // namespace

void AppendScaledErrorClip(BlockDesc& block, const BaseErrorClipAttr& clip, const std::string& grad,
                           const std::string& scale, const std::string& finite,
                           const AroundErrorClip& around) {
  const std::string ok = Append(block, "error_clip.finite", "isfinite", {{"X", {grad}}});
  block.AppendOp("logical_and", {{"X", {finite}}, {"Y", {ok}}}, {{"Out", {finite}}});
  const bool is_double = block.FindVarRecursive(grad)->dtype() == DType::kFloat64;
  if (const auto* value = dynamic_cast<const ErrorClipByValue*>(&clip); value && !is_double) {
    const std::string min = Times(block, scale, value->min());
    const std::string max = Times(block, scale, value->max());
    around(grad, [&] {
      block.AppendOp(
          "clip", {{"X", {grad}}, {"Min", {min}}, {"Max", {max}}}, {{"Out", {grad}}},
          {{"min", static_cast<float>(value->min())}, {"max", static_cast<float>(value->max())}});
    });
  } else if (const auto* norm = dynamic_cast<const ErrorClipByNorm*>(&clip)) {
    const std::string max_norm = Times(block, scale, norm->max_norm());
    around(grad, [&] {
      block.AppendOp("clip_by_norm", {{"X", {grad}}, {"MaxNorm", {max_norm}}}, {{"Out", {grad}}},
                     {{"max_norm", static_cast<float>(norm->max_norm())}});
    });
  } else {
    ClipUnscaled(block, clip, grad, scale, around);
  }
}

}  // namespace coracle
