#include <coracle/operators/operators.h>
#include <coracle/operators/reduce/axes.h>

#include <algorithm>

namespace coracle::inline internal {

ReducedAxes MakeReducedAxes(const Shape& x, const std::vector<int32_t>& dims, bool all, bool keep) {
  ReducedAxes axes;
  for (int32_t dim : dims) {
    int axis;
    if (x.NormalizeAxis(dim, &axis)) axes.reduce[axis] = true;
  }
  if (all || dims.empty()) std::fill_n(axes.reduce, x.rank(), true);
  for (int i = 0; i < x.rank(); ++i) {
    axes.spread.Append(axes.reduce[i] ? 1 : x[i]);
    if (keep || !axes.reduce[i]) axes.out.Append(axes.spread[i]);
  }
  if (axes.out.rank() == 0) axes.out.Append(1);
  return axes;
}

void CheckDims(const InferContext& ctx, const Shape& x, const AxisAttrs& attrs) {
  if (ctx.Attr<bool>("reduce_all") || x.rank() == 0) return;
  bool seen[Shape::kMaxRank] = {};
  for (int32_t dim : ctx.Attr<std::vector<int32_t>>(attrs.dims)) {
    const int axis = ctx.Axis("C1", dim, x.rank());
    ctx.Require("C2", !seen[axis], dim);
    seen[axis] = true;
  }
}

Variable Spread(GradientContext& g, const Variable& value, const ReducedAxes& axes) {
  std::vector<int32_t> reduced;
  for (int i = 0; i < axes.spread.rank(); ++i) {
    if (axes.reduce[i]) reduced.push_back(i);
  }
  const bool all = static_cast<int>(reduced.size()) == axes.spread.rank();
  // A value of one element broadcasts without a change of shape.
  if (all || axes.out.rank() == axes.spread.rank()) return value;
  return g.Make("unsqueeze2", {{"X", {value.name()}}}, {{"axes", reduced}});
}

Variable OfRankLike(const Variable& x, const Variable& value) {
  const bool extra = x.shape().rank() == 0 && value.shape().rank() > 0;
  return extra ? Reshape(value, {}) : value;
}

}  // namespace coracle::inline internal
