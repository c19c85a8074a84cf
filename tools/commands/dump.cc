#include <coracle/framework/base/error.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/check/file_use.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/inspect/inspect.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/program_input.h>
#include <fmt/format.h>

#include <optional>

namespace coracle::tools {
namespace {

enum class Format { kText, kPbtxt };

struct DumpFlags {
  Format format = Format::kText;
  bool full = false;
  bool json = false;
  std::string ops = {};
  std::string vars = {};
  int32_t block = -1;
};

Fields<DumpFlags> DumpFields() {
  return Fields<DumpFlags>("")
      .Add("format", &DumpFlags::format,
           "`KIND` of the output: text, a readable listing, or pbtxt, the program as protobuf text",
           OneOf{"Format", {{"text", Format::kText}, {"pbtxt", Format::kPbtxt}}})
      .Add("full", &DumpFlags::full,
           "name the slot of every output, and show the attrs with default values, the outputs "
           "that are an input in place, and those that only the gradient op reads")
      .Add("json", &DumpFlags::json, "print JSON")
      .Add("ops", &DumpFlags::ops, "only ops whose type matches this `REGEX` (RE2's syntax)")
      .Add("vars", &DumpFlags::vars,
           "only variables whose name matches this `REGEX`, and the ops that use them")
      .Add("block", &DumpFlags::block, "only block `N`; -1: all", LimitedRange(-1, INT32_MAX));
}

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
  explicit Filter(const DumpFlags& flags)
      : ops_(RegexOf("ops", flags.ops)), vars_(RegexOf("vars", flags.vars)) {}

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

void CheckFlags(const DumpFlags& flags) {
  if (flags.format == Format::kPbtxt &&
      (flags.full || flags.json || !flags.ops.empty() || !flags.vars.empty() || flags.block >= 0))
    throw UsageError("--full, --json, --ops, --vars and --block do not go with --format=pbtxt");
  if (flags.full && flags.json) throw UsageError("--json shows everything; leave out --full");
}

std::string Json(const DumpFlags& flags, const ProgramDesc& program, const Filter& filter) {
  ProgramJsonOptions options;
  if (flags.block >= 0) options.blocks = {flags.block};
  filter.Apply(&options);
  return ProgramJson(program, DefaultOps(), options);
}

std::string Text(const DumpFlags& flags, const ProgramDesc& program, const Filter& filter) {
  PrintOptions options;
  if (flags.full)
    options.name_all_outputs = true;
  else
    options = ShortListing(DefaultOps());
  options.block = flags.block;
  filter.Apply(&options);
  return PrintProgram(program, options) + FilesText(program);
}

int RunDump(const Args& args, const DumpFlags& flags) {
  RequireArgs(args, 1, 1, "one PROGRAM");
  CheckFlags(flags);
  const Filter filter(flags);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  if (flags.block >= program.NumBlocks())
    ThrowInvalid(fmt::format("no block {}: the program has {}", flags.block, program.NumBlocks()));
  if (flags.format == Format::kPbtxt)
    PrintData(ProgramToText(program));
  else
    flags.json ? PrintData(Json(flags, program, filter)) : Print(Text(flags, program, filter));
  return 0;
}

}  // namespace

Command DumpCommand() {
  return MakeCommand(
      {"dump", "prints a program: inputs, outputs, one line per op, and parameters",
       "dump PROGRAM [--format=text|pbtxt] [--full] [--json] [--ops=REGEX] [--vars=REGEX] "
       "[--block=N]",
       "  coracle dump inference.pdmodel\n"
       "  coracle dump model.pb --ops='conv2d|pool2d'\n"
       "  coracle dump trained.pb --vars='^fc_0.*@GRAD'\n"
       "  coracle dump inference.pdmodel --format=pbtxt > model.pbtxt\n"
       "  coracle dump inference.pdmodel --json > model.json\n"},
      DumpFields(), RunDump);
}

}  // namespace coracle::tools
