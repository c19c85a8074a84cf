#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot/snapshot.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct DiffFlags {
  bool values = false;
  std::optional<double> rtol = {};
  std::optional<double> atol = {};
  std::vector<std::string> params = {};
  bool json = false;
  LimitFlags limits = {};
};

Fields<DiffFlags> DiffFields() {
  return Fields<DiffFlags>("")
      .Add("values", &DiffFlags::values, "also compare the values of parameters")
      .Add("rtol", &DiffFlags::rtol,
           "relative tolerance of values: `NUMBER` times the magnitude of B's element "
           "(default: 0)",
           ZeroOrMore())
      .Add("atol", &DiffFlags::atol,
           "absolute tolerance of values: `NUMBER` added to the relative one (default: 0)",
           ZeroOrMore())
      .Add("params", &DiffFlags::params,
           "`A,B`: the parameters of the first and of the second program")
      .Add("json", &DiffFlags::json, "print JSON")
      .Inline(&DiffFlags::limits, LimitFields());
}

struct DiffSide {
  ProgramDesc program;
  Scope values;
};

// `params` is the value of --params; if it is "", reads the parameters next to the program.
void ReadValues(const std::string& file, std::string params, DiffSide* side) {
  if (params.empty()) params = ParametersNextTo(file);
  if (params.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("no parameters next to {}; name both with --params=A,B", Quote(file, 300)));
  }
  ReadParameters(side->program, params, side->values);
}

DiffSide ReadSide(const DiffFlags& flags, const std::string& path, const std::string& params) {
  DiffSide side;
  const std::string snapshot = path == "-" ? "" : FindSnapshot(path);
  if (!snapshot.empty()) {
    SavedSnapshot saved = ReadSnapshot(snapshot);
    return {std::move(saved.main), std::move(saved.variables)};
  }
  const std::string file = ProgramFile(path);
  if (IsJob(file)) {
    side.program = BuildPrograms(ReadJob(file), TrainOptions()).train.program;
    if (flags.values) throw UsageError("--values: a job has no values; give its snapshots");
    return side;
  }
  side.program = ReadAnyProgram(path);
  if (flags.values) ReadValues(file, params, &side);
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

int Diff(const DiffFlags& flags, const std::vector<std::string>& args) {
  const std::vector<std::string>& params = flags.params;
  const DiffSide a = ReadSide(flags, args[0], params.empty() ? "" : params[0]);
  const DiffSide b = ReadSide(flags, args[1], params.empty() ? "" : params[1]);
  const ProgramDiff diff = DiffPrograms(a.program, b.program, DefaultOps());
  std::vector<ValueDiff> values;
  if (flags.values) {
    values = DiffValues(diff, a.program, a.values, b.program, b.values,
                        {.relative = flags.rtol.value_or(0),
                         .absolute = flags.atol.value_or(0),
                         .exact_integers = !flags.rtol && !flags.atol});
  }
  flags.json ? PrintData(DiffJson(diff, a.program, b.program, values))
             : Print(Report(args, a, b, diff, values));
  return diff.empty() && values.empty() ? 0 : 1;
}

int RunDiff(const Args& args, const DiffFlags& flags) {
  FailAsTrouble();
  RequireArgs(args, 2, 2, "two PROGRAMs");
  if (args[0] == "-" && args[1] == "-")
    throw UsageError("only one of the two can be standard input");
  if (!flags.params.empty() && flags.params.size() != 2)
    throw UsageError("--params takes A,B: the parameters of the first and of the second");
  if (!flags.params.empty() && !flags.values) throw UsageError("--params needs --values");
  if ((flags.rtol || flags.atol) && !flags.values)
    throw UsageError("--rtol and --atol need --values");
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  return Diff(flags, args);
}

}  // namespace

Command DiffCommand() {
  return MakeCommand({"diff", "shows the differences between two programs, by their graphs",
                      "diff A B [--values] [--json]",
                      "  coracle diff before.pb after.pb\n"
                      "  coracle diff runs/1/snapshots runs/2/snapshots --values --rtol=1e-5\n"
                      "  coracle diff old.pdmodel new.pdmodel --json\n"},
                     DiffFields(), RunDiff);
}

}  // namespace coracle::tools
