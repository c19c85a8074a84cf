#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/check/refused_ops.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/mistakes.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/quantization_notes.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/op_use.h>
#include <coracle/tools/pass_report.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace coracle::tools {
namespace {

struct CheckFlags {
  bool gradients = false;
  bool quantization = false;
  std::string params = {};
  bool json = false;
};

Fields<CheckFlags> CheckFields() {
  return Fields<CheckFlags>("")
      .Add("gradients", &CheckFlags::gradients, "count the ops that lack a gradient, by type")
      .Add("quantization", &CheckFlags::quantization,
           "show which ops compute in integers of 8 bits, and why others do not")
      .Add("params", &CheckFlags::params,
           "`FILE` or directory of the parameters, for --quantization; none: those next to the "
           "program")
      .Add("json", &CheckFlags::json, "print JSON");
}

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

bool IsError(const VerifyProblem& problem) {
  return problem.severity == VerifyProblem::Severity::kError;
}

// The result of the verifier for a program.
struct Findings {
  std::string program;  // the argument
  size_t blocks = 0, ops = 0, errors = 0, warnings = 0, notes = 0;
  std::vector<VerifyProblem> problems;                  // problems other than missing types
  std::vector<Mistake> mistakes;                        // their ops belong to the program
  std::vector<std::pair<std::string, size_t>> missing;  // op types, the most frequent first
  std::vector<OpUse> uses;                              // with --gradients
};

Findings Check(const CheckFlags& flags, const ProgramDesc& program, const std::string& argument) {
  Findings found;
  found.program = argument == "-" ? "standard input" : argument;
  found.blocks = static_cast<size_t>(program.NumBlocks());
  for (int i = 0; i < program.NumBlocks(); ++i) found.ops += program.Block(i).NumOps();
  std::map<std::string, size_t> missing;
  for (VerifyProblem& problem : Verify(program, DefaultOps(), {.max_problems = 1000000})) {
    ++(IsError(problem) ? found.errors : found.notes);
    if (problem.rule == "unknown_op")
      ++missing[problem.op_type];
    else
      found.problems.push_back(std::move(problem));
  }
  found.missing.assign(missing.begin(), missing.end());
  std::stable_sort(found.missing.begin(), found.missing.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (found.errors == 0) found.mistakes = FindMistakes(program, DefaultOps());
  found.warnings = found.mistakes.size();
  if (flags.gradients) found.uses = UsesOf(program, DefaultOps());
  return found;
}

std::string DescribeMissing(const Findings& found) {
  size_t ops = 0;
  for (const auto& entry : found.missing) ops += entry.second;
  std::string text =
      fmt::format("error: {} {} missing ({})\n", Counted(found.missing.size(), "op type"),
                  found.missing.size() == 1 ? "is" : "are", Counted(ops, "op"));
  for (const auto& [type, count] : found.missing) {
    const RefusedOp* refused = FindRefusedOp(type);
    text += fmt::format("  {:>6}  {}{}\n", count, Shown(type),
                        refused ? fmt::format(": {}", refused->reason) : "");
  }
  return text;
}

std::string Describe(const CheckFlags& flags, const Findings& found) {
  std::string text;
  for (const VerifyProblem& problem : found.problems) {
    text += fmt::format("{}: {}\n{}", IsError(problem) ? "error" : "note",
                        PrintableLine(problem.ToString()), Indented(problem.details));
  }
  for (const Mistake& mistake : found.mistakes)
    text += fmt::format("warning: {}\n", PrintableLine(DescribeMistake(mistake)));
  if (!found.missing.empty()) text += DescribeMissing(found);
  if (flags.gradients) text += DescribeLackingGradients(found.uses);
  std::vector<std::string> counts = {found.errors > 0 ? Counted(found.errors, "error")
                                                      : "no errors"};
  if (found.warnings > 0) counts.push_back(Counted(found.warnings, "warning"));
  if (found.notes > 0 || found.errors > 0) counts.push_back(Counted(found.notes, "note"));
  const std::string verdict = counts.size() == 1 ? "no problems" : Join(counts, ", ");
  return text + fmt::format("{}: {}, {}: {}\n", Shown(found.program),
                            Counted(found.blocks, "block"), Counted(found.ops, "op"), verdict);
}

Json ProblemJson(const VerifyProblem& problem) {
  Json json = {{"severity", IsError(problem) ? "error" : "note"},
               {"rule", problem.rule},
               {"message", JsonString(problem.message)}};
  if (!problem.details.empty()) json["details"] = JsonString(problem.details);
  json["block"] = problem.block;
  if (problem.op >= 0) json["op"] = problem.op;
  if (!problem.op_type.empty()) json["op_type"] = JsonString(problem.op_type);
  if (!problem.slot.empty()) json["slot"] = JsonString(problem.slot);
  if (!problem.var.empty()) json["var"] = JsonString(problem.var);
  return json;
}

Json MistakeJson(const Mistake& mistake) {
  Json json = {{"message", JsonString(mistake.message)}};
  if (!mistake.place.empty()) json["place"] = JsonString(mistake.place);
  if (mistake.op) {
    const BlockDesc& block = *mistake.op->block();
    json["block"] = block.idx();
    json["op"] = block.IndexOf(*mistake.op);
    json["op_type"] = JsonString(mistake.op->type());
  }
  if (!mistake.var.empty()) json["var"] = JsonString(mistake.var);
  return json;
}

std::string DescribeAsJson(const CheckFlags& flags, const Findings& found) {
  Json json = JsonDocument("check");
  json["program"] = JsonString(found.program);
  json["blocks"] = found.blocks;
  json["ops"] = found.ops;
  json["errors"] = found.errors;
  json["warnings"] = found.warnings;
  json["notes"] = found.notes;
  json["problems"] = Json::array();
  for (const VerifyProblem& problem : found.problems)
    json["problems"].push_back(ProblemJson(problem));
  json["mistakes"] = Json::array();
  for (const Mistake& mistake : found.mistakes) json["mistakes"].push_back(MistakeJson(mistake));
  json["missing_types"] = Json::array();
  for (const auto& [type, count] : found.missing) {
    Json entry = {{"type", JsonString(type)}, {"ops", count}};
    if (const RefusedOp* refused = FindRefusedOp(type)) entry["reason"] = refused->reason;
    json["missing_types"].push_back(std::move(entry));
  }
  if (!flags.gradients) return JsonText(json);
  json["types_without_gradient"] = Json::array();
  for (const OpUse& use : found.uses) {
    if (LacksGradient(use))
      json["types_without_gradient"].push_back(
          {{"type", JsonString(use.type)}, {"ops", use.count}});
  }
  return JsonText(json);
}

// Compiles the program for inference and returns what became of its quantised values.
std::vector<QuantizationNote> NotesOn(const CheckFlags& flags, const ProgramDesc& program,
                                      const std::string& argument) {
  const std::string params =
      flags.params.empty() ? ParametersNextTo(ProgramFile(argument), program) : flags.params;
  if (params.empty() && !PersistableNames(program).empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("no parameters next to {}: scales of quantized values are parameters; "
                            "name them with --params=FILE",
                            Quote(argument, 300)));
  }
  Scope scope;
  if (!params.empty()) ReadParameters(program, params, scope);
  OptimizeOptions options;
  options.freeze_parameters = true;
  const ScopedQuantizationNotes notes;
  OptimizeProgram(program, scope, FeedsToCompile(program), FetchesToCompile(program, {}), options);
  return notes.notes();
}

const char* NameOf(RunsIn runs_in) {
  switch (runs_in) {
    case RunsIn::kIntegers:
      return "int8";
    case RunsIn::kConverts:
      return "converts";
    case RunsIn::kReals:
      break;
  }
  return "float";
}

size_t CountOf(const std::vector<QuantizationNote>& notes, RunsIn runs_in) {
  return static_cast<size_t>(std::count_if(
      notes.begin(), notes.end(), [&](const auto& note) { return note.runs_in == runs_in; }));
}

std::string DescribeNotes(const std::vector<QuantizationNote>& notes, const std::string& program) {
  if (notes.empty()) return fmt::format("{}: no quantized values\n", Shown(program));
  size_t types = 2, names = 6;
  for (const QuantizationNote& note : notes) {
    types = std::max(types, Shown(note.type).size());
    names = std::max(names, std::min<size_t>(Shown(note.output).size(), 40));
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:<8}  {}\n", "op", types, "result", names,
                                 "computes", "why not in integers");
  for (const QuantizationNote& note : notes) {
    std::string line = fmt::format("{:<{}}  {:<{}}  {:<8}  {}", Shown(note.type), types,
                                   Shown(note.output), names, NameOf(note.runs_in), note.reason);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + fmt::format("{}: {} in int8, {} in floating point, {}\n", Shown(program),
                            Counted(CountOf(notes, RunsIn::kIntegers), "op"),
                            CountOf(notes, RunsIn::kReals),
                            Counted(CountOf(notes, RunsIn::kConverts), "conversion"));
}

std::string NotesAsJson(const std::vector<QuantizationNote>& notes, const std::string& program) {
  Json json = JsonDocument("quantization");
  json["program"] = JsonString(program);
  json["int8_ops"] = CountOf(notes, RunsIn::kIntegers);
  json["float_ops"] = CountOf(notes, RunsIn::kReals);
  json["conversions"] = CountOf(notes, RunsIn::kConverts);
  json["ops"] = Json::array();
  for (const QuantizationNote& note : notes) {
    Json entry = {{"type", JsonString(note.type)},
                  {"result", JsonString(note.output)},
                  {"computes", NameOf(note.runs_in)}};
    if (!note.reason.empty()) entry["reason"] = JsonString(note.reason);
    json["ops"].push_back(std::move(entry));
  }
  return JsonText(json);
}

int RunCheck(const Args& args, const CheckFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const ProgramDesc program = ReadAnyProgram(args[0]);
  if (!flags.quantization && !flags.params.empty())
    throw UsageError("--params is for --quantization");
  if (flags.quantization) {
    if (flags.gradients) throw UsageError("--quantization and --gradients are two reports");
    const std::string shown = args[0] == "-" ? "standard input" : args[0];
    const std::vector<QuantizationNote> notes = NotesOn(flags, program, args[0]);
    flags.json ? PrintData(NotesAsJson(notes, shown)) : Print(DescribeNotes(notes, shown));
    return 0;
  }
  const Findings found = Check(flags, program, args[0]);
  flags.json ? PrintData(DescribeAsJson(flags, found)) : Print(Describe(flags, found));
  return found.errors == 0 ? 0 : 1;
}

}  // namespace

Command CheckCommand() {
  return MakeCommand({"check", "verifies a program and lists all problems",
                      "check PROGRAM [--gradients] [--quantization] [--json]",
                      "  coracle check inference.pdmodel\n  cat model.pb | coracle check -\n"
                      "  coracle check model.int8.onnx --quantization\n"},
                     CheckFields(), RunCheck);
}

}  // namespace coracle::tools
