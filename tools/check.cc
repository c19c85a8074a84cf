#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/refused_ops.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <map>

#include "commands.h"
#include "op_use.h"
#include "program_input.h"

DEFINE_bool(gradients, false, "says how many ops lack a gradient, and which types");

namespace coracle::tools {
namespace {

std::string Indented(const std::string& details) {
  std::string text;
  size_t at = 0;
  while (at < details.size()) {
    const size_t end = std::min(details.find('\n', at), details.size());
    text += "    " + details.substr(at, end - at) + "\n";
    at = end + 1;
  }
  return text;
}

// Op types that the registry lacks, the most frequent first.
std::string DescribeMissing(const std::map<std::string, size_t>& missing) {
  std::vector<std::pair<std::string, size_t>> sorted(missing.begin(), missing.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  size_t ops = 0;
  for (const auto& entry : sorted) ops += entry.second;
  std::string text = fmt::format("error: {} {} missing ({})\n", Counted(sorted.size(), "op type"),
                                 sorted.size() == 1 ? "is" : "are", Counted(ops, "op"));
  for (const auto& [type, count] : sorted) {
    const RefusedOp* refused = FindRefusedOp(type);
    text += fmt::format("  {:>6}  {}{}\n", count, Shown(type),
                        refused ? fmt::format(": {}", refused->reason) : "");
  }
  return text;
}

int RunCheck(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const ProgramDesc program = ReadAnyProgram(args[0]);
  const std::vector<VerifyProblem> problems =
      Verify(program, DefaultOps(), {.max_problems = 1000000});
  std::map<std::string, size_t> missing;
  std::string text;
  size_t errors = 0, notes = 0;
  for (const VerifyProblem& problem : problems) {
    const bool is_error = problem.severity == VerifyProblem::Severity::kError;
    ++(is_error ? errors : notes);
    if (problem.rule == "unknown_op") {
      ++missing[problem.op_type];
      continue;
    }
    text += fmt::format("{}: {}\n{}", is_error ? "error" : "note",
                        PrintableLine(problem.ToString()), Indented(problem.details));
  }
  if (!missing.empty()) text += DescribeMissing(missing);
  if (FLAGS_gradients) text += DescribeLackingGradients(UsesOf(program, DefaultOps()));
  size_t ops = 0;
  for (int i = 0; i < program.NumBlocks(); ++i) ops += program.Block(i).NumOps();
  const std::string found = errors > 0  ? Counted(errors, "error") + ", " + Counted(notes, "note")
                            : notes > 0 ? "no errors, " + Counted(notes, "note")
                                        : "no problems";
  text += fmt::format("{}: {}, {}: {}\n", args[0] == "-" ? "standard input" : Shown(args[0]),
                      Counted(static_cast<size_t>(program.NumBlocks()), "block"),
                      Counted(ops, "op"), found);
  Print(text);
  return errors == 0 ? 0 : 1;
}

}  // namespace

Command CheckCommand() {
  return {"check",
          "verifies a program and lists all problems",
          "check PROGRAM [--gradients]",
          "  coracle check inference.pdmodel\n  cat model.pb | coracle check -\n",
          {"gradients"},
          RunCheck};
}

}  // namespace coracle::tools
