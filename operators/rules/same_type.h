#pragma once
// A check that many shape rules share.

#include <coracle/framework/op/infer_context.h>

#include <string>

namespace coracle {

// Requires the input `slot` to have the dtype and shape of the input `like` (where both shapes are
// known), be it a dense tensor or selected rows. Nothing happens when `slot` is absent.
inline void RequireSameElements(InferContext& ctx, std::string_view id, std::string_view slot,
                                std::string_view like) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta &a = ctx.Input(slot), &b = ctx.Input(like);
  if (a.dtype == b.dtype && a.shape.CompatibleWith(b.shape)) return;
  ctx.FailText(id, std::string(slot) + " must have the shape and dtype of " + std::string(like),
               a.ToString() + " vs " + b.ToString());
}

// Requires the input `slot` to be a dense tensor of the dtype and shape of the input `like` (where
// both shapes are known). Nothing happens when `slot` is absent.
inline void RequireSameType(InferContext& ctx, std::string_view id, std::string_view slot,
                            std::string_view like) {
  if (!ctx.HasInput(slot)) return;
  if (ctx.Input(slot).type != VarType::kLoDTensor)
    ctx.FailText(id, std::string(slot) + " must be a dense tensor", ctx.Input(slot).ToString());
  RequireSameElements(ctx, id, slot, like);
}

// Requires the input `slot` to hold one element (of a floating-point dtype, which may differ from
// the other inputs').
inline void RequireScalar(InferContext& ctx, std::string_view id, std::string_view slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  const bool one = !meta.shape.IsKnown() || meta.shape.numel() == 1;
  const bool kind = meta.type == VarType::kLoDTensor &&
                    (meta.dtype == DType::kFloat32 || meta.dtype == DType::kFloat64);
  if (!one || !kind) {
    ctx.FailText(id, std::string(slot) + " must be one float32 or float64", meta.ToString());
  }
}

}  // namespace coracle
