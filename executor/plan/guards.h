#pragma once
// Guards: whether a plan fits the state that a stage finds. Internal to executor/.

#include <coracle/executor/plan/plan.h>
#include <coracle/framework/tensor/tensor.h>

#include <span>
#include <string>

namespace coracle::inline internal {

// The cells of an activation; nullptr for cells that the caller did not bind.
using Cells = IdVector<CellId, VarCell*>;

// The value in a cell; nullptr if it has none.
const VarValue* FindValue(const Cells& cells, CellId cell);

// The state that a stage finds when it begins.
struct StageInput {
  // The plan of the previous stage, whose live-out values are the feeds; nullptr for the
  // first stage.
  const Plan* before = nullptr;
  std::span<const Tensor> feeds;
  const Cells& cells;
  const Scope& scope;

  const Tensor& Feed(FeedId feed) const { return feeds[feed.index()]; }
};

// The tensor in a feed, in a cell, or in the scope under `name`; nullptr if there is none.
const Tensor* TensorAt(const ValuePlace& place, const std::string& name, const StageInput& input);
// The level sizes of its LoD, which must be valid in the case of a tensor of the scope.
std::vector<int64_t> LevelSizesAt(const ValuePlace& place, const std::string& name,
                                  const StageInput& input);

// Whether feeds, cells and values satisfy the plan's guards. Looks up a name only for a value in
// the scope that shapes depend on.
bool GuardsHold(const Plan& plan, const StageInput& input);
// Whether the scope's persistables have the plan's types; a missing one counts as matching.
bool MatchesScope(const Plan& plan, const Scope& scope);
// `held`: the scope's value; nullptr if it has none.
bool MatchesPersistable(const PlanPersistable& persistable, const VarValue* held);

// Makes a guard on the value that a variable has when the stage begins: among the feeds (under the
// names in `feeds`), in its cell, or in the scope. Throws kNotFound if it is in none of these.
ValueGuard GuardValue(const std::string& name, const IdVector<FeedId, FeedGuard>& feeds,
                      CellId cell, const StageInput& input);

}  // namespace coracle::inline internal
