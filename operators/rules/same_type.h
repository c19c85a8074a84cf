#pragma once
// A check that many shape rules share.

#include <coracle/framework/op/op_context.h>

#include <string_view>

namespace coracle::inline internal {

// Requires the inputs `slot` and `like` to have one dtype.
inline void RequireSameDType(const InferContext& ctx, std::string_view id, std::string_view slot,
                             std::string_view like) {
  const DType a = ctx.InputDType(slot), b = ctx.InputDType(like);
  ctx.Require(id, a == b, slot, a, like, b);
}

// Requires the input `slot` to be int32 or int64.
inline void RequireIndexType(const InferContext& ctx, std::string_view id, std::string_view slot) {
  const DType dtype = ctx.InputDType(slot);
  ctx.Require(id, dtype == DType::kInt32 || dtype == DType::kInt64, dtype);
}

// Requires the input `slot`, a dense tensor or selected rows, to have the dtype and shape of the
// input `like` (if both shapes are known). Does nothing if `slot` is absent.
inline void RequireSameElements(InferContext& ctx, std::string_view id, std::string_view slot,
                                std::string_view like) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta &a = ctx.Input(slot), &b = ctx.Input(like);
  if (a.dtype == b.dtype && a.shape.CompatibleWith(b.shape)) return;
  ctx.Fail(id, slot, a, like, b);
}

// Requires the input `slot` to be a dense tensor with the dtype and shape of the input `like` (if
// both shapes are known). Does nothing if `slot` is absent.
inline void RequireSameType(InferContext& ctx, std::string_view id, std::string_view slot,
                            std::string_view like) {
  if (!ctx.HasInput(slot)) return;
  if (ctx.Input(slot).type != VarType::kLoDTensor) ctx.Fail(id, slot, ctx.Input(slot));
  RequireSameElements(ctx, id, slot, like);
}

// Requires the input `slot` to hold one element of a floating-point dtype, which may differ from
// the dtype of other inputs.
inline void RequireScalar(InferContext& ctx, std::string_view id, std::string_view slot) {
  if (!ctx.HasInput(slot)) return;
  const VarMeta& meta = ctx.Input(slot);
  const bool one = !meta.shape.IsKnown() || meta.shape.numel() == 1;
  const bool kind = meta.type == VarType::kLoDTensor &&
                    (meta.dtype == DType::kFloat32 || meta.dtype == DType::kFloat64);
  ctx.Require(id, one && kind, slot, meta);
}

}  // namespace coracle::inline internal
