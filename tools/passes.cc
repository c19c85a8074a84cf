#include <coracle/executor/compiled_program.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/program_ends.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "command_limits.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DECLARE_string(fetch);
DECLARE_string(params);
DECLARE_bool(json);
DEFINE_bool(frozen, true, "parameters that no op writes are constants, as for run");
DEFINE_bool(program, false, "the program as it is after the passes too");

namespace coracle::tools {
namespace {

using Json = nlohmann::ordered_json;
using TypeCounts = std::map<std::string, int64_t>;

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

struct PassEffect {
  std::string name;
  TypeCounts before, after;
  double milliseconds = 0;

  // By type how many ops there are more, or fewer (negative); only types that changed.
  TypeCounts Changes() const {
    TypeCounts changes = after;
    for (const auto& [type, count] : before) changes[type] -= count;
    std::erase_if(changes, [](const auto& change) { return change.second == 0; });
    return changes;
  }
};

// Zeros for parameters that no file gave: how passes act hardly depends on their values.
void FillMissing(const ProgramDesc& program, Scope& scope) {
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumVars(); ++i) {
    const VarDesc& var = root.var(i);
    if (var.persistable() && var.type() == VarType::kLoDTensor && var.shape().IsKnown() &&
        IsValid(var.dtype()) && !scope.Find(var.name()))
      scope.Set(var.name(), Tensor::Zeros(var.dtype(), var.shape()));
  }
}

// All passes as one.
PassEffect Sum(const std::vector<PassEffect>& effects) {
  PassEffect sum{"all", {}, {}};
  if (effects.empty()) return sum;
  sum.before = effects.front().before;
  sum.after = effects.back().after;
  for (const PassEffect& effect : effects) sum.milliseconds += effect.milliseconds;
  return sum;
}

// Lists the changes behind the other columns, in lines of at most 100 columns.
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

std::string Text(const std::vector<PassEffect>& effects) {
  std::string text =
      fmt::format("{:<26} {:>6} {:>6} {:>8}  {}\n", "pass", "before", "after", "ms", "changes");
  for (const PassEffect& effect : effects) text += Line(effect);
  return text + Line(Sum(effects));
}

std::string JsonText(const std::vector<PassEffect>& effects) {
  Json list = Json::array();
  for (const PassEffect& effect : effects) {
    Json changes = Json::object();
    for (const auto& [type, count] : effect.Changes()) changes[type] = count;
    list.push_back({{"pass", effect.name},
                    {"ops_before", Total(effect.before)},
                    {"ops_after", Total(effect.after)},
                    {"milliseconds", effect.milliseconds},
                    {"changes", changes}});
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunPassesCommand(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const CompileOptions options = CompileOptionsFromFlags();
  const CommandLimits limits(CommandLimits::Time::kCommand);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  const BlockDesc& root = program.Root();
  std::vector<std::string> fetches = ListFlag(FLAGS_fetch), feeds;
  if (fetches.empty() && !HasOpOfKind(root, OpKind::kFetch, DefaultOps()))
    fetches = OutputNames(program, DefaultOps());
  if (!HasOpOfKind(root, OpKind::kFeed, DefaultOps())) feeds = InputNames(program, DefaultOps());
  Scope scope;
  const std::string params =
      FLAGS_params.empty() ? ParametersBeside(ProgramFile(args[0])) : FLAGS_params;
  if (!params.empty()) LoadParameters(program, params, scope);
  FillMissing(program, scope);
  std::vector<PassEffect> effects;
  const auto note = [&](const PassRun& run) {
    effects.push_back(
        {run.pass.name, CountTypes(run.before), CountTypes(run.after), 1e3 * run.seconds});
  };
  const CompiledProgram compiled(program, feeds, fetches, options, DefaultOps(),
                                 {FLAGS_frozen ? &scope : nullptr, nullptr}, note);
  FLAGS_json ? PrintData(JsonText(effects)) : Print(Text(effects));
  if (FLAGS_program && !FLAGS_json) {
    PrintOptions print;
    print.hide_attr = [](const OpDesc& op, const NamedAttr& attr) {
      return IsDefaultAttr(DefaultOps(), op, attr);
    };
    Print("\n" + PrintProgram(compiled.program(), print));
  }
  return 0;
}

}  // namespace

Command PassesCommand() {
  return {"passes",
          "compiles a program and tells what each pass of the compiler did",
          "passes PROGRAM [--params=DIR|FILE] [--fetch=a,b] [--nofrozen] [--program] [--json]",
          "  coracle passes inference.pdmodel\n"
          "  coracle passes train.pb --fetch=loss --nofrozen --program\n"
          "  coracle passes inference.pdmodel --json\n",
          WithCompileFlags({"params", "fetch", "frozen", "program", "json"}),
          RunPassesCommand};
}

}  // namespace coracle::tools
