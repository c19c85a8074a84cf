#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/diff.h>
#include <coracle/operators/operators.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include "command_limits.h"
#include "command_line.h"
#include "commands.h"
#include "flags.h"
#include "program_input.h"

DECLARE_bool(json);
DECLARE_string(params);
DEFINE_bool(values, false, "also compare the values of parameters");

namespace coracle::tools {
namespace {

struct DiffSide {
  ProgramDesc program;
  Scope values;
};

// `params` is the value of --params; if it is "", reads the parameters next to the program.
void ReadValues(const std::string& file, std::string params, DiffSide* side) {
  if (params.empty()) params = ParametersBeside(file);
  if (params.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("no parameters next to {}; name both with --params=A,B", Quote(file, 300)));
  }
  ReadParameters(side->program, params, side->values);
}

DiffSide ReadSide(const std::string& path, const std::string& params) {
  DiffSide side;
  const std::string snapshot = path == "-" ? "" : FindSnapshot(path);
  if (!snapshot.empty()) {
    SavedSnapshot saved = ReadSnapshot(snapshot);
    return {std::move(saved.main), std::move(saved.variables)};
  }
  const std::string file = ProgramFile(path);
  if (IsJob(file)) {
    side.program = BuildPrograms(ReadJob(file), TrainOptions()).train.program;
    if (FLAGS_values) throw UsageError("--values: a job has no values; give its snapshots");
    return side;
  }
  side.program = ReadAnyProgram(path);
  if (FLAGS_values) ReadValues(file, params, &side);
  return side;
}

std::string Report(const std::vector<std::string>& args, const DiffSide& a, const DiffSide& b,
                   const ProgramDiff& diff, const std::vector<ValueDiff>& values) {
  if (diff.empty() && values.empty()) {
    const std::string note =
        diff.reordered == 0
            ? ""
            : fmt::format(" ({} {} moved, which changes nothing)", Counted(diff.reordered, "op"),
                          diff.reordered == 1 ? "has" : "have");
    return "no differences" + note + "\n";
  }
  return fmt::format("--- {}\n+++ {}\n", PrintableLine(args[0]), PrintableLine(args[1])) +
         DiffText(diff, a.program, b.program, DefaultOps(), values);
}

int Diff(const std::vector<std::string>& args) {
  const std::vector<std::string> params = ListFlag(FLAGS_params);
  const DiffSide a = ReadSide(args[0], params.empty() ? "" : params[0]);
  const DiffSide b = ReadSide(args[1], params.empty() ? "" : params[1]);
  const ProgramDiff diff = DiffPrograms(a.program, b.program, DefaultOps());
  std::vector<ValueDiff> values;
  if (FLAGS_values) {
    const bool given = IsGiven("rtol") || IsGiven("atol");
    values = DiffValues(diff, a.program, a.values, b.program, b.values,
                        {.relative = IsGiven("rtol") ? FLAGS_rtol : 0,
                         .absolute = IsGiven("atol") ? FLAGS_atol : 0,
                         .exact_integers = !given});
  }
  FLAGS_json ? PrintData(DiffJson(diff, a.program, b.program, values))
             : Print(Report(args, a, b, diff, values));
  return diff.empty() && values.empty() ? 0 : 1;
}

int RunDiff(const std::vector<std::string>& args) {
  FailAsTrouble();
  RequireArgs(args, 2, 2, "two PROGRAMs");
  if (args[0] == "-" && args[1] == "-")
    throw UsageError("only one of the two can be standard input");
  if (!FLAGS_params.empty() && ListFlag(FLAGS_params).size() != 2)
    throw UsageError("--params takes A,B: the parameters of the first and of the second");
  if (!FLAGS_params.empty() && !FLAGS_values) throw UsageError("--params needs --values");
  if (!(FLAGS_rtol >= 0) || !(FLAGS_atol >= 0))
    throw UsageError("--rtol and --atol must not be negative");
  const CommandLimits limits(CommandLimits::Time::kCommand);
  return Diff(args);
}

}  // namespace

Command DiffCommand() {
  return {"diff",
          "shows the differences between two programs, by their graphs",
          "diff A B [--values] [--json]",
          "  coracle diff before.pb after.pb\n"
          "  coracle diff runs/1/snapshots runs/2/snapshots --values --rtol=1e-5\n"
          "  coracle diff old.pdmodel new.pdmodel --json\n",
          WithLimitFlags({"values", "rtol", "atol", "params", "json"}),
          RunDiff};
}

}  // namespace coracle::tools
