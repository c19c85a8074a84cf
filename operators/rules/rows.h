#pragma once
// Row traits of ops that take the rows of a batch from one axis and work along the others.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

constexpr const char* kEachBatchRow = "each by itself, if they are axis 0; otherwise mixed";

inline RowEffect EachBatchRow(const RowQuery& query) {
  return query.axis == 0 ? RowRule::kEach : RowRule::kMixes;
}

constexpr const char* kEachSampleOfSteps = "each by itself, if they are axis 1; otherwise mixed";

// For tensors [steps, rows, ...].
inline RowEffect EachSampleOfSteps(const RowQuery& query) {
  return query.axis == 1 ? RowRule::kEach : RowRule::kMixes;
}

// For ops that work along these axes of the first input with rows. Negative axes count from
// the end.
template <class Axes>
RowEffect EachUnlessAlong(const RowQuery& query, const Axes& axes) {
  for (const auto axis : axes) {
    const bool unknown = axis < 0 && query.rank == 0;
    if (unknown || (axis < 0 ? axis + query.rank : axis) == query.axis) return RowRule::kMixes;
  }
  return RowRule::kEach;
}

constexpr const char* kOfShapeRows = "equal on all machines, unless the shape has the rows";

// For values that depend on the shapes of the inputs only.
inline RowEffect OfShapeRows(const RowQuery& query) {
  const std::vector<std::string>& out = query.op.Output(query.output);
  const VarDesc* var =
      query.op.block() && !out.empty() ? query.op.block()->FindVarRecursive(out[0]) : nullptr;
  const bool known = var && var->type() == VarType::kLoDTensor && var->shape().rank() > 0 &&
                     var->shape().IsKnown() && var->lod_level() == 0;
  return known ? RowRule::kSame : RowRule::kEach;
}

}  // namespace coracle::inline internal
