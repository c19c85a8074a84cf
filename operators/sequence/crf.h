#pragma once
// Shared by linear_chain_crf and crf_decoding: emissions of a batch of sequences, and
// transition weights.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/sequence/sequence_batch.h>

namespace coracle::inline internal {

// Checks Emission and Transition; returns the shape of the steps, [rows] or [batch, time].
inline Shape RequireCrf(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("Emission"), &transition = ctx.Input("Transition");
  const bool padded = ctx.HasInput("Length");
  const int rank = padded ? 3 : 2;
  ctx.Require("C1", x.shape.rank() == rank && x.shape[rank - 1] != 0, x);
  const int64_t tags = x.shape[rank - 1];
  const Shape& w = transition.shape;
  ctx.Require("C2",
              transition.dtype == x.dtype && w.rank() == 2 &&
                  InferContext::Matches(w[0], AddDims(tags, 2)) &&
                  InferContext::Matches(w[1], tags),
              "Transition", transition, "Emission", x);
  return padded ? Shape{x.shape[0], x.shape[1]} : Shape{x.shape[0]};
}

inline void DeclareCrfConstraints(OpDef& def) {
  def.Constraint("C1",
                 "Emission must be [steps, tags], or [batch, time, tags] with Length, and have at "
                 "least one tag")
      .Constraint("C2", "Transition must be [tags + 2, tags], of Emission's dtype");
}

inline void DeclareCrf(OpDef& def) {
  def.Input("Emission",
            "floating-point tensor [steps, tags] with LoD, or [batch, time, tags] with "
            "Length: the score of each tag")
      .Input("Transition",
             "tensor [tags + 2, tags] of Emission's dtype: weights of the first tag, "
             "of the last, then [i][j] from tag i to tag j");
}

}  // namespace coracle::inline internal
