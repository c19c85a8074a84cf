#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct MergeFlags {
  std::vector<std::string> connect = {};
  std::string prefix = "b.";
  ModelFlags model = {};
  LimitFlags limits = {};
};

Fields<MergeFlags> MergeFields() {
  return Fields<MergeFlags>("")
      .Add("connect", &MergeFlags::connect,
           "`OUTPUT:INPUT,...` that feed the second program; none: by name, or by order")
      .Add("prefix", &MergeFlags::prefix,
           "`TEXT` to put before names of the second program that clash")
      .Inline(&MergeFlags::model, ModelFields())
      .Inline(&MergeFlags::limits, LimitFields());
}

// Splits "a_out:b_in" where both names are known, or else at the first colon: names may
// have colons.
std::pair<std::string, std::string> ParseConnection(const ProgramDesc& first,
                                                    const ProgramDesc& second,
                                                    const std::string& text) {
  size_t at = text.find(':');
  if (at == text.npos || at == 0 || at + 1 == text.size())
    throw UsageError("--connect takes OUTPUT:INPUT,..., got " + Quote(text));
  for (size_t other = at; other != text.npos; other = text.find(':', other + 1)) {
    if (!first.Root().FindVar(text.substr(0, other))) continue;
    if (!second.Root().FindVar(text.substr(other + 1))) continue;
    at = other;
    break;
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

std::string Describe(const MergedProgram& merged) {
  std::string text;
  for (const auto& [output, input] : merged.connections)
    text += fmt::format("connected {} -> {}\n", Shown(output), Shown(input));
  if (!merged.prefix.empty()) {
    size_t prefixed = 0;
    for (const auto& [from, to] : merged.renamed) prefixed += to == merged.prefix + from;
    text += fmt::format("{} of the second program got the prefix {}\n",
                        Counted(prefixed, "variable"), Quote(merged.prefix));
  }
  for (const std::string& note : merged.notes) text += note + "\n";
  text += DescribeVars("inputs", merged.program, merged.inputs);
  return text + DescribeVars("outputs", merged.program, merged.outputs);
}

// Moves the values of B to A, under the names of the merged program. Throws if one program came
// with parameters and the other without.
void JoinValues(const MergedProgram& merged, ModelFiles& a, ModelFiles& b) {
  const bool needed =
      a.has_values ? !PersistableNames(a.program).empty() : !PersistableNames(b.program).empty();
  if (a.has_values != b.has_values && needed) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("merge: the {} program came without parameters, and the other with; "
                            "--params=FILE_OF_A,FILE_OF_B gives them",
                            a.has_values ? "second" : "first"));
  }
  a.has_values = a.has_values && b.has_values;
  a.read.insert(a.read.end(), b.read.begin(), b.read.end());
  RenameValues(merged.renamed, b.values);
  for (const std::string& name : b.values.LocalNames())
    a.values.Var(name) = std::move(b.values.Var(name));
}

int RunMerge(const Args& args, const MergeFlags& flags) {
  RequireArgs(args, 2, 2, "the programs A and B");
  if (args[0] == "-" && args[1] == "-") throw UsageError("A and B cannot both be standard input");
  CheckModelFlags(flags.model);
  std::vector<std::string> params = Split(flags.model.params, ',');
  if (!params.empty() && params.size() != 2)
    throw UsageError("--params takes FILE_OF_A,FILE_OF_B, got " + Quote(flags.model.params));
  params.resize(2);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  ModelFiles a = ReadModel(args[0], params[0]), b = ReadModel(args[1], params[1]);
  MergeOptions options = {{}, flags.prefix};
  for (const std::string& text : flags.connect)
    options.connections.push_back(ParseConnection(a.program, b.program, text));
  MergedProgram merged = MergePrograms(a.program, b.program, DefaultOps(), options);
  JoinValues(merged, a, b);
  a.program = merged.program;
  const std::string report = WriteModel(a, flags.model);
  if (!report.empty()) Print(report + Describe(merged));
  return 0;
}

}  // namespace

Command MergeCommand() {
  return MakeCommand(
      {"merge", "makes one program of two: the outputs of A feed B",
       "merge A B [--connect=OUTPUT:INPUT,...] -o OUT [--prefix=TEXT] "
       "[--params=FILE_OF_A,FILE_OF_B] [--save_params=FILE]",
       "  coracle merge head.pdmodel tail.pdmodel -o whole.pdmodel\n"
       "  coracle merge detector.pdmodel classifier.pdmodel --connect=crops:x -o both.pdmodel\n"},
      MergeFields(), RunMerge);
}

}  // namespace coracle::tools
