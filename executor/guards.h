#pragma once
// Guards: whether a plan may run on what a stage finds. Internal to executor/.

#include <coracle/executor/plan.h>
#include <coracle/framework/tensor/tensor.h>

#include <span>
#include <string>

namespace coracle {

// The cells of an activation; nullptr where the caller gave none.
using Cells = IdVector<CellId, VarCell*>;

// The value in a cell; nullptr when it has none.
const VarValue* FindValue(const Cells& cells, CellId cell);

// What a stage finds when it begins.
struct StageInput {
  // The plan of the stage before, whose live-out values are the feeds; nullptr for the first stage.
  const Plan* before = nullptr;
  std::span<const Tensor> feeds;
  const Cells& cells;
  const Scope& scope;

  const Tensor& Feed(FeedId feed) const { return feeds[feed.index()]; }
};

// The tensor that is fed, in a cell, or in the scope under `name`; nullptr when there is none.
const Tensor* TensorAt(const ValuePlace& place, const std::string& name, const StageInput& input);
// The level sizes of its LoD, which a tensor of the scope must have right.
std::vector<int64_t> LevelSizesAt(const ValuePlace& place, const std::string& name,
                                  const StageInput& input);

// Whether feeds, cells and values are as the plan relies on them. Looks up a name only for a value
// in the scope that shapes depend on.
bool GuardsHold(const Plan& plan, const StageInput& input);
// Whether the scope's persistables have the plan's types; one that is not there fits.
bool MatchesScope(const Plan& plan, const Scope& scope);
// `held`: what the scope has; nullptr for nothing.
bool MatchesPersistable(const PlanPersistable& persistable, const VarValue* held);

// A guard on the value that a variable has when the stage begins: among the feeds (called as in
// `feeds`), in its cell, or in the scope. Throws kNotFound when it is in none.
ValueGuard GuardValue(const std::string& name, const IdVector<FeedId, FeedGuard>& feeds,
                      CellId cell, const StageInput& input);

}  // namespace coracle
