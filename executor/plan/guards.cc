#include <coracle/executor/plan/guards.h>
#include <coracle/framework/op/kernel/interpreter.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

bool SameTensor(const VarMeta& a, const VarMeta& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

const Tensor* TensorIn(const VarValue* value) {
  return value ? std::get_if<Tensor>(value) : nullptr;
}

// The previous stage determines which variables are fed, and the values that this stage depends on.
bool Follows(const Plan& plan, const Plan& before) {
  const Guards& guards = plan.guards;
  if (guards.feeds.size() != before.live_out.size()) return false;
  for (FeedId feed : guards.feeds.ids()) {
    if (guards.feeds[feed].name != before.live_out[feed.index()]) return false;
  }
  if (guards.values.size() != before.NumKnownNext()) return false;
  return guards.values.empty() || guards.values.back().name == before.next->shape_var;
}

bool FeedsHold(const Guards& guards, const StageInput& input) {
  for (FeedId feed : guards.feeds.ids()) {
    const VarMeta& meta = guards.feeds[feed].meta;
    const Tensor& fed = input.Feed(feed);
    if (meta.dtype != fed.dtype() || !(meta.shape == fed.shape())) return false;
  }
  return true;
}

bool CellsHold(const Guards& guards, const StageInput& input) {
  for (const CellGuard& guard : guards.cells) {
    const VarValue* value = FindValue(input.cells, guard.cell);
    if ((value != nullptr) != guard.set) return false;
    if (value && !SameType(MetaOfValue(*value), guard.meta)) return false;
  }
  return true;
}

bool ValuesHold(const Guards& guards, const StageInput& input) {
  for (const ValueGuard& guard : guards.values) {
    const Tensor* value = TensorAt(guard.place, guard.name, input);
    // Ops that ran at planning time may have read the LoD too.
    if (!value || !BitEqual(*value, guard.value) || value->lod() != guard.value.lod()) return false;
  }
  return true;
}

bool LodsHold(const Guards& guards, const StageInput& input) {
  return std::all_of(guards.lods.begin(), guards.lods.end(), [&](const LodGuard& guard) {
    return LevelSizesAt(guard.place, guard.name, input) == guard.level_sizes;
  });
}

}  // namespace

const Tensor* TensorAt(const ValuePlace& place, const std::string& name, const StageInput& input) {
  return std::visit(Overloaded{[&](FeedId feed) { return &input.Feed(feed); },
                               [&](CellId cell) { return TensorIn(FindValue(input.cells, cell)); },
                               [&](InScope) { return TensorIn(input.scope.Find(name)); }},
                    place);
}

std::vector<int64_t> LevelSizesAt(const ValuePlace& place, const std::string& name,
                                  const StageInput& input) {
  const Tensor* tensor = TensorAt(place, name, input);
  if (tensor && std::holds_alternative<InScope>(place)) CheckLod(name, *tensor);
  return tensor ? LevelSizes(tensor->lod()) : std::vector<int64_t>();
}

const VarValue* FindValue(const Cells& cells, CellId cell) {
  const VarCell* found = cells.Has(cell) ? cells[cell] : nullptr;
  return found && found->set ? &found->value : nullptr;
}

bool GuardsHold(const Plan& plan, const StageInput& input) {
  if (plan.guards.feeds.size() != input.feeds.size()) return false;
  if (input.before && !Follows(plan, *input.before)) return false;
  return FeedsHold(plan.guards, input) && CellsHold(plan.guards, input) &&
         ValuesHold(plan.guards, input) && LodsHold(plan.guards, input);
}

bool MatchesScope(const Plan& plan, const Scope& scope) {
  for (const PlanPersistable& persistable : plan.persistables) {
    const VarValue* held = scope.Find(persistable.name);
    if (held && !MatchesPersistable(persistable, held)) return false;
  }
  return true;
}

bool MatchesPersistable(const PlanPersistable& persistable, const VarValue* held) {
  const VarMeta& meta = persistable.meta;
  if (!held || std::holds_alternative<std::monostate>(*held)) return !persistable.read_first;
  // A plan that writes the variable before it reads it fits any type in the scope.
  if (const auto* tensor = std::get_if<Tensor>(held)) {
    const bool same = meta.type == VarType::kLoDTensor && tensor->dtype() == meta.dtype &&
                      tensor->shape() == meta.shape;
    return same || !persistable.read_first;
  }
  if (std::holds_alternative<SelectedRows>(*held)) {
    return meta.type == VarType::kSelectedRows &&
           (!persistable.read_first || SameTensor(meta, MetaOfValue(*held)));
  }
  return meta.type != VarType::kLoDTensor && meta.type != VarType::kSelectedRows;
}

ValueGuard GuardValue(const std::string& name, const IdVector<FeedId, FeedGuard>& feeds,
                      CellId cell, const StageInput& input) {
  for (FeedId feed : feeds.ids()) {
    if (feeds[feed].name == name) return {name, feed, input.Feed(feed).Clone()};
  }
  if (const Tensor* tensor = TensorIn(FindValue(input.cells, cell)))
    return {name, cell, tensor->Clone()};
  return {name, InScope(), input.scope.Get(name).Clone()};
}

}  // namespace coracle::inline internal
