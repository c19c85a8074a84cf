#include <coracle/framework/op/op_def.h>

#include <algorithm>

namespace coracle {
namespace {

bool IsGradientOp(const OpSpec& spec) { return spec.type.ends_with("_grad"); }

}  // namespace

RowEffect RowEffectOf(const RowQuery& query) {
  const RowTrait& trait = query.spec.rows;
  if (trait.fn) return trait.fn(query);
  if (trait.effect.rule != RowRule::kUndeclared) return trait.effect;
  return query.spec.elementwise || IsGradientOp(query.spec) ? RowRule::kEach : RowRule::kUndeclared;
}

std::vector<std::string> LinearWith(const OpSpec& spec, std::string_view slot) {
  for (const std::vector<std::string>& slots : spec.rows.linear)
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) return slots;
  const bool moved = spec.rows.effect.rule == RowRule::kMoves && !spec.inputs.empty() &&
                     spec.inputs.front().name == slot;
  return moved ? std::vector<std::string>{std::string(slot)} : std::vector<std::string>();
}

}  // namespace coracle
