#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/inspect.h>
#include <coracle/inspect/json.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/pass_report.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

DECLARE_string(fetch);

namespace coracle::tools {
namespace {

TypeCounts CountTypes(const ProgramDesc& program) {
  TypeCounts counts;
  program.ForEachOp([&](const OpDesc& op) { ++counts[op.type()]; });
  return counts;
}

int64_t Total(const TypeCounts& counts) {
  int64_t total = 0;
  for (const auto& [type, count] : counts) total += count;
  return total;
}

// The total of all passes as one row.
PassEffect Sum(const std::vector<PassEffect>& effects) {
  PassEffect sum{"all", {}, {}};
  if (effects.empty()) return sum;
  sum.before = effects.front().before;
  sum.after = effects.back().after;
  for (const PassEffect& effect : effects) sum.milliseconds += effect.milliseconds;
  return sum;
}

// Puts the changes after the other columns, in lines of at most 100 columns.
std::string Line(const PassEffect& effect) {
  constexpr size_t kColumns = 100;
  std::string line = fmt::format("{:<26} {:>6} {:>6} {:>8.2f}", effect.name, Total(effect.before),
                                 Total(effect.after), effect.milliseconds);
  const std::string indent(line.size() + 2, ' ');
  std::string text, between = "  ";
  for (const auto& [type, count] : effect.Changes()) {
    const std::string change = fmt::format("{:+} {}", count, type);
    if (line.size() + between.size() + change.size() < kColumns) {
      line += between + change;
    } else {
      text += line + (between == "  " ? "\n" : ",\n");
      line = indent + change;
    }
    between = ", ";
  }
  return text + line + "\n";
}

}  // namespace

TypeCounts PassEffect::Changes() const {
  TypeCounts changes = after;
  for (const auto& [type, count] : before) changes[type] -= count;
  std::erase_if(changes, [](const auto& change) { return change.second == 0; });
  return changes;
}

PassEffect EffectOf(const PassRun& run) {
  return {run.pass.name, CountTypes(run.before), CountTypes(run.after), 1e3 * run.seconds};
}

std::string EffectsText(const std::vector<PassEffect>& effects) {
  std::string text =
      fmt::format("{:<26} {:>6} {:>6} {:>8}  {}\n", "pass", "before", "after", "ms", "changes");
  for (const PassEffect& effect : effects) text += Line(effect);
  return text + Line(Sum(effects));
}

std::string EffectsJson(const std::vector<PassEffect>& effects) {
  Json list = Json::array();
  for (const PassEffect& effect : effects) {
    Json changes = Json::object();
    for (const auto& [type, count] : effect.Changes()) AddMember(changes, type, count);
    list.push_back({{"pass", effect.name},
                    {"ops_before", Total(effect.before)},
                    {"ops_after", Total(effect.after)},
                    {"milliseconds", effect.milliseconds},
                    {"changes", changes}});
  }
  Json json = JsonDocument("passes");
  json["passes"] = std::move(list);
  return JsonText(json);
}

std::string ExplainPass(const PassRun& run) {
  std::string text = fmt::format("{}: {}\n", run.pass.name, run.pass.reason);
  // Most passes change nothing, and to see that takes a fraction of the time of a diff.
  if (run.before == run.after) return text + "  changes nothing\n";
  const ProgramDiff diff = DiffPrograms(run.before, run.after, DefaultOps());
  if (diff.empty()) {
    return text + (diff.reordered > 0 ? fmt::format("  moves {} ops\n", diff.reordered)
                                      : "  changes nothing\n");
  }
  return text + DiffText(diff, run.before, run.after, DefaultOps());
}

std::string ListProgram(const ProgramDesc& program) {
  return PrintProgram(program, ShortListing(DefaultOps()));
}

void FillMissingParameters(const ProgramDesc& program, Scope& scope) {
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (var.persistable() && var.type() == VarType::kLoDTensor && var.shape().IsKnown() &&
        IsValid(var.dtype()) && !scope.Find(var.name()))
      scope.Set(var.name(), Tensor::Zeros(var.dtype(), var.shape()));
  }
}

std::vector<std::string> FeedsToCompile(const ProgramDesc& program) {
  const bool has = HasOpOfKind(program.Root(), OpKind::kFeed, DefaultOps());
  return has ? std::vector<std::string>() : InputNames(program, DefaultOps());
}

std::vector<std::string> FetchesToCompile(const ProgramDesc& program,
                                          const std::vector<std::string>& fetches) {
  const bool has = HasOpOfKind(program.Root(), OpKind::kFetch, DefaultOps());
  return fetches.empty() && !has ? OutputNames(program, DefaultOps()) : fetches;
}

}  // namespace coracle::tools
