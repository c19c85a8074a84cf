#include <coracle/framework/op/kernel/kept_outputs.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// Calls f(input slot, output slot).
template <class F>
void ForEachLackingPair(const OpSpec& spec, const OpDesc& op, const F& f) {
  if (spec.keeps_outputs.empty()) return;
  if (!spec.keeps_attr.empty() && op.GetAttr<bool>(spec.keeps_attr, false) != spec.keeps_value)
    return;
  for (const auto& [in, out] : spec.inplace) {
    const auto& kept = spec.keeps_outputs;
    const bool keeps = std::find(kept.begin(), kept.end(), out) != kept.end();
    if (keeps && op.HasOutput(out) && !op.HasInput(in)) f(in, out);
  }
}

}  // namespace

bool LacksKeptInput(const OpSpec& spec, const OpDesc& op) {
  bool lacks = false;
  ForEachLackingPair(spec, op, [&](const std::string&, const std::string&) { lacks = true; });
  return lacks;
}

void AddKeptInputs(const OpSpec& spec, OpDesc& op,
                   const std::function<bool(const std::string&)>& has_value) {
  ForEachLackingPair(spec, op, [&](const std::string& in, const std::string& out) {
    const std::vector<std::string> vars = op.Output(out);
    if (std::all_of(vars.begin(), vars.end(), has_value)) op.SetInput(in, vars);
  });
}

}  // namespace coracle::inline internal
