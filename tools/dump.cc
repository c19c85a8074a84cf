#include <coracle/framework/base/error.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/file_use.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/program_json.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <optional>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

DECLARE_bool(json);
DEFINE_string(
    format, "",
    "`KIND` of the output; dump: text, a readable listing, or pbtxt, the program as protobuf "
    "text; graph: dot or svg");
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

// Lists the files that a run would refuse to access.
std::string FilesText(const ProgramDesc& program) {
  std::string text;
  for (const FileUse& use : FilesOf(program, DefaultOps()))
    text += fmt::format("  {} ({}): {}\n", Locate(*use.op), use.op->type(), Quote(use.path, 300));
  return text.empty() ? "" : "\nfiles that ops read or write (see --allow_files of run)\n" + text;
}

// The selection of --ops and --vars, for PrintOptions and ProgramJsonOptions.
class Filter {
 public:
  Filter() : ops_(RegexOf("ops", FLAGS_ops)), vars_(RegexOf("vars", FLAGS_vars)) {}

  template <class Options>
  void Apply(Options* options) const {
    if (vars_)
      options->keep_var = [this](const VarDesc& var) { return vars_->MatchesPart(var.name()); };
    if (ops_ || vars_) {
      options->keep_op = [this](const OpDesc& op) {
        return (!ops_ || ops_->MatchesPart(op.type())) && (!vars_ || UsesAny(op, *vars_));
      };
    }
  }

 private:
  std::optional<Regex> ops_, vars_;
};

void CheckFlags() {
  const bool as_pbtxt = FLAGS_format == "pbtxt";
  if (!as_pbtxt && !FLAGS_format.empty() && FLAGS_format != "text")
    throw UsageError("--format of dump is text or pbtxt, got " + Quote(FLAGS_format));
  if (as_pbtxt && (FLAGS_json || !FLAGS_ops.empty() || !FLAGS_vars.empty() || FLAGS_block >= 0))
    throw UsageError("--json, --ops, --vars and --block do not go with --format=pbtxt");
  if (FLAGS_block < -1)
    throw UsageError(fmt::format("--block takes the number of a block, got {}", FLAGS_block));
}

std::string Json(const ProgramDesc& program, const Filter& filter) {
  ProgramJsonOptions options;
  if (FLAGS_block >= 0) options.blocks = {FLAGS_block};
  filter.Apply(&options);
  return ProgramJson(program, DefaultOps(), options);
}

std::string Text(const ProgramDesc& program, const Filter& filter) {
  PrintOptions options;
  options.block = FLAGS_block;
  options.hide_attr = [](const OpDesc& op, const NamedAttr& attr) {
    return IsDefaultAttr(DefaultOps(), op, attr);
  };
  filter.Apply(&options);
  return PrintProgram(program, options) + FilesText(program);
}

int RunDump(const std::vector<std::string>& args) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  CheckFlags();
  const Filter filter;
  const ProgramDesc program = ReadAnyProgram(args[0]);
  if (FLAGS_block >= program.NumBlocks())
    ThrowInvalid(fmt::format("no block {}: the program has {}", FLAGS_block, program.NumBlocks()));
  if (FLAGS_format == "pbtxt")
    PrintData(ProgramToText(program));
  else
    FLAGS_json ? PrintData(Json(program, filter)) : Print(Text(program, filter));
  return 0;
}

}  // namespace

Command DumpCommand() {
  return {"dump",
          "prints a program: inputs, outputs, one line per op, and parameters",
          "dump PROGRAM [--format=text|pbtxt] [--json] [--ops=REGEX] [--vars=REGEX] [--block=N]",
          "  coracle dump inference.pdmodel\n"
          "  coracle dump model.pb --ops='conv2d|pool2d'\n"
          "  coracle dump trained.pb --vars='^fc_0.*@GRAD'\n"
          "  coracle dump inference.pdmodel --format=pbtxt > model.pbtxt\n"
          "  coracle dump inference.pdmodel --json > model.json\n",
          {"format", "json", "ops", "vars", "block"},
          RunDump};
}

}  // namespace coracle::tools
