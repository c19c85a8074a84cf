#pragma once
// Shared by losses over classes: the shape rule of logits (or probabilities) and labels.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/loss/labels.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/same_type.h>

#include <string_view>

namespace coracle::inline internal {

// `scores`: [.., n, ..] with n classes along `axis`. Soft labels have the same type; hard labels
// are int32 or int64 with size 1 along the axis. Returns the shape of the loss: the scores' shape
// with size 1 along the axis. Fails with `id`.
inline Shape InferClassLoss(InferContext& ctx, std::string_view id, std::string_view scores,
                            std::string_view label, int axis, bool soft_label) {
  Shape loss = ctx.InputShape(scores);
  loss[axis] = 1;
  if (soft_label) {
    RequireSameType(ctx, id, label, scores);
    return loss;
  }
  const VarMeta& meta = ctx.Input(label);
  if (meta.type != VarType::kLoDTensor || !IsIndexType(meta.dtype) ||
      !meta.shape.CompatibleWith(loss)) {
    ctx.Fail(id, label, meta, scores, ctx.Input(scores));
  }
  return loss;
}

}  // namespace coracle::inline internal
