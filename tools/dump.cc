#include <coracle/framework/base/error.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/file_use.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <optional>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(format, "text",
              "`KIND`: text, a listing made for reading; or pbtxt, the program as protobuf text");
DEFINE_string(ops, "", "only ops whose type matches this `REGEX` (RE2's syntax)");
DEFINE_string(vars, "",
              "only variables whose name matches this `REGEX`, and the ops that use them");
DEFINE_int32(block, -1, "only block `N`; -1: all");

namespace coracle::tools {
namespace {

std::optional<Regex> RegexOf(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  try {
    return Regex(text);
  } catch (const Error& e) {
    throw UsageError(fmt::format("--{}: {}", flag, e.message()));
  }
}

bool UsesAny(const OpDesc& op, const Regex& pattern) {
  auto matches = [&](const std::string& name) { return pattern.MatchesPart(name); };
  return op.AnyInput(matches) || op.AnyOutput(matches);
}

// What a run would refuse.
std::string FilesText(const ProgramDesc& program) {
  std::string text;
  for (const FileUse& use : FilesOf(program, DefaultOps()))
    text += fmt::format("  {} ({}): {}\n", Locate(*use.op), use.op->type(), Quote(use.path, 300));
  return text.empty() ? "" : "\nfiles that ops read or write (see --allow_files of run)\n" + text;
}

int RunDump(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  const bool as_pbtxt = FLAGS_format == "pbtxt";
  if (!as_pbtxt && FLAGS_format != "text")
    throw UsageError("--format is text or pbtxt, got " + Quote(FLAGS_format));
  if (as_pbtxt && (!FLAGS_ops.empty() || !FLAGS_vars.empty() || FLAGS_block >= 0))
    throw UsageError("--ops, --vars and --block go with --format=text");
  if (FLAGS_block < -1)
    throw UsageError(fmt::format("--block takes the number of a block, got {}", FLAGS_block));
  const std::optional<Regex> ops = RegexOf("ops", FLAGS_ops), vars = RegexOf("vars", FLAGS_vars);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  if (as_pbtxt) {
    PrintData(ProgramToText(program));
    return 0;
  }
  if (FLAGS_block >= program.NumBlocks())
    ThrowInvalid(fmt::format("no block {}: the program has {}", FLAGS_block, program.NumBlocks()));
  PrintOptions options;
  options.block = FLAGS_block;
  options.hide_attr = [](const OpDesc& op, const NamedAttr& attr) {
    return IsDefaultAttr(DefaultOps(), op, attr);
  };
  if (vars) options.keep_var = [&](const VarDesc& var) { return vars->MatchesPart(var.name()); };
  if (ops || vars) {
    options.keep_op = [&](const OpDesc& op) {
      return (!ops || ops->MatchesPart(op.type())) && (!vars || UsesAny(op, *vars));
    };
  }
  Print(PrintProgram(program, options) + FilesText(program));
  return 0;
}

}  // namespace

Command DumpCommand() {
  return {"dump",
          "prints a program: parameters, and one line per op",
          "dump PROGRAM [--format=text|pbtxt] [--ops=REGEX] [--vars=REGEX] [--block=N]",
          "  coracle dump inference.pdmodel\n"
          "  coracle dump model.pb --ops='conv2d|pool2d'\n"
          "  coracle dump trained.pb --vars='^fc_0.*@GRAD'\n"
          "  coracle dump inference.pdmodel --format=pbtxt > model.pbtxt\n",
          {"format", "ops", "vars", "block"},
          RunDump};
}

}  // namespace coracle::tools
