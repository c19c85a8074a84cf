#pragma once
// The dims that a reduction removes, and their restoration in gradient rules.

#include <coracle/framework/op/op_context.h>

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

struct ReducedAxes {
  bool reduce[Shape::kMaxRank] = {};
  Shape out;     // [1] if no dim is left
  Shape spread;  // with 1 for every reduced dim
};
// Skips dims outside of the rank, which CheckDims rejects in shape rules. An empty list means
// all dims.
ReducedAxes MakeReducedAxes(const Shape& x, const std::vector<int32_t>& dims, bool all, bool keep);

// The attrs of the axes, in addition to reduce_all.
struct AxisAttrs {
  const char *dims, *keep;
};
inline constexpr AxisAttrs kReduceAttrs = {"dim", "keep_dim"};

template <class Context>
ReducedAxes AxesOf(const Context& ctx, const Shape& x, const AxisAttrs& attrs = kReduceAttrs) {
  return MakeReducedAxes(x, ctx.template Attr<std::vector<int32_t>>(attrs.dims),
                         ctx.template Attr<bool>("reduce_all"),
                         ctx.template Attr<bool>(attrs.keep));
}

// C1: each dim must lie in [-rank, rank). C2: no dim may be named twice.
void CheckDims(const InferContext& ctx, const Shape& x, const AxisAttrs& attrs = kReduceAttrs);

// For gradient rules: a value of Out's shape with 1s for the reduced dims, so that it broadcasts
// against X.
Variable Spread(GradientContext& g, const Variable& value, const ReducedAxes& axes);
// Returns `value`; if x has rank 0, without the dim of a value of shape [1].
Variable OfRankLike(const Variable& x, const Variable& value);

}  // namespace coracle::inline internal
