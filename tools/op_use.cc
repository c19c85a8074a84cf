#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/inspect/json.h>
#include <coracle/tools/command.h>
#include <coracle/tools/op_use.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle::tools {
namespace {

const char* ForwardOf(const OpUse& use) {
  if (use.def) return "yes";
  return use.refused.empty() ? "missing" : "refused";
}

const char* GradientOf(const OpUse& use) {
  if (!use.def) return "no";
  switch (use.def->gradient_kind) {
    case GradientKind::kRule:
      return "yes";
    case GradientKind::kNotDifferentiable:
      return "constant";
    case GradientKind::kNoRule:
      return "no";
    case GradientKind::kForbidden:
      return "forbidden";
  }
  return "no";
}

// An op that expands has the kernels of the ops that it joins.
bool IsFast(const OpUse& use) {
  return use.def && (use.def->HasFastKernel() || use.def->Expands());
}

size_t CountOps(const std::vector<OpUse>& uses, bool (*counts)(const OpUse&)) {
  size_t ops = 0;
  for (const OpUse& use : uses) ops += counts(use) ? use.count : 0;
  return ops;
}

bool IsMissing(const OpUse& use) { return !use.def; }

}  // namespace

std::vector<OpUse> UsesOf(const ProgramDesc& program, const OpRegistry& ops) {
  std::map<std::string, size_t> counts;
  program.ForEachOp([&](const OpDesc& op) { ++counts[op.type()]; });
  std::vector<OpUse> uses;
  for (const auto& [type, count] : counts) {
    OpUse use{type, count, ops.Find(type), ""};
    const RefusedOp* refused = use.def ? nullptr : FindRefusedOp(type);
    if (refused) use.refused = refused->reason;
    uses.push_back(std::move(use));
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const OpUse& a, const OpUse& b) { return a.count > b.count; });
  return uses;
}

bool LacksGradient(const OpUse& use) {
  return !use.def || use.def->gradient_kind == GradientKind::kNoRule ||
         use.def->gradient_kind == GradientKind::kForbidden;
}

std::string TableOfOps(const std::vector<OpUse>& uses) {
  size_t width = 4, ops = 0;
  for (const OpUse& use : uses) {
    width = std::max(width, Shown(use.type).size());
    ops += use.count;
  }
  std::string text = fmt::format("{:>7}  {:<{}}  {:<7}  {:<9}  {}\n", "ops", "type", width,
                                 "forward", "gradient", "fast kernel");
  for (const OpUse& use : uses) {
    text += fmt::format("{:>7}  {:<{}}  {:<7}  {:<9}  {}\n", use.count, Shown(use.type), width,
                        ForwardOf(use), GradientOf(use), IsFast(use) ? "yes" : "no");
    if (!use.refused.empty()) text += fmt::format("{:9}{}\n", "", use.refused);
  }
  return text + fmt::format("{} of {}: {} cannot run, {} without a gradient\n", Counted(ops, "op"),
                            Counted(uses.size(), "type"), CountOps(uses, IsMissing),
                            CountOps(uses, LacksGradient));
}

std::string JsonOfOps(const std::vector<OpUse>& uses) {
  Json document = JsonDocument("program_ops");
  document["types"] = Json::array();
  for (const OpUse& use : uses) {
    Json entry = {{"type", JsonString(use.type)},
                  {"count", use.count},
                  {"forward", ForwardOf(use)},
                  {"gradient", GradientOf(use)},
                  {"fast", IsFast(use)}};
    if (!use.refused.empty()) entry["reason"] = use.refused;
    document["types"].push_back(std::move(entry));
  }
  return JsonText(document);
}

std::string DescribeLackingGradients(const std::vector<OpUse>& uses) {
  std::vector<std::string> types;
  for (const OpUse& use : uses) {
    if (LacksGradient(use)) types.push_back(fmt::format("{} {}", Shown(use.type), use.count));
  }
  if (types.empty()) return "gradients: no op lacks one\n";
  return fmt::format("gradients: {} of {} {} none ({})\n",
                     Counted(CountOps(uses, LacksGradient), "op"), Counted(types.size(), "type"),
                     types.size() == 1 ? "has" : "have", Join(types, ", "));
}

}  // namespace coracle::tools
