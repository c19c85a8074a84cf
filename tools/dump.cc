#include <coracle/framework/base/text.h>
#include <coracle/framework/io/program_io.h>
#include <coracle/framework/ir/printer.h>
#include <coracle/framework/op/default_attr.h>
#include <coracle/operators/default_ops.h>
#include <fmt/format.h>
#include <regex.h>

#include <memory>

#include "commands.h"
#include "flags.h"
#include "program_input.h"

DEFINE_string(format, "text",
              "`KIND`: text, a listing made for reading; or pbtxt, the program as protobuf text");
DEFINE_string(ops, "", "only ops whose type matches this `REGEX` (POSIX, extended)");
DEFINE_string(vars, "",
              "only variables whose name matches this `REGEX`, and the ops that use them");
DEFINE_int32(block, -1, "only block `N`; -1: all");

namespace coracle::tools {
namespace {

// POSIX expressions: matching takes no recursion, however long the names in a file are.
class Pattern {
 public:
  Pattern(const char* flag, const std::string& text) {
    if (text.size() > 500)
      throw UsageError(
          fmt::format("--{}: a pattern of {} characters; at most 500", flag, text.size()));
    const int code = ::regcomp(&regex_, text.c_str(), REG_EXTENDED | REG_NOSUB);
    if (code == 0) return;
    char why[200];
    ::regerror(code, &regex_, why, sizeof(why));
    throw UsageError(fmt::format("--{}: {} in {}", flag, why, Quote(text)));
  }
  ~Pattern() { ::regfree(&regex_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  bool Matches(const std::string& text) const {
    return ::regexec(&regex_, text.c_str(), 0, nullptr, 0) == 0;
  }

 private:
  regex_t regex_;
};

bool UsesAny(const OpDesc& op, const Pattern& pattern) {
  for (const SlotList* slots : {&op.inputs(), &op.outputs()}) {
    for (const Slot& slot : *slots) {
      for (const std::string& name : slot.args) {
        if (pattern.Matches(name)) return true;
      }
    }
  }
  return false;
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
  std::unique_ptr<Pattern> ops, vars;
  if (!FLAGS_ops.empty()) ops = std::make_unique<Pattern>("ops", FLAGS_ops);
  if (!FLAGS_vars.empty()) vars = std::make_unique<Pattern>("vars", FLAGS_vars);
  const ProgramDesc program = ReadAnyProgram(args[0]);
  if (as_pbtxt) {
    Print(ProgramToText(program));
    return 0;
  }
  if (FLAGS_block >= program.NumBlocks())
    ThrowInvalid(fmt::format("no block {}: the program has {}", FLAGS_block, program.NumBlocks()));
  PrintOptions options;
  options.block = FLAGS_block;
  options.hide_attr = [](const OpDesc& op, const NamedAttr& attr) {
    return IsDefaultAttr(DefaultOps(), op, attr);
  };
  if (vars) options.keep_var = [&](const VarDesc& var) { return vars->Matches(var.name()); };
  if (ops || vars) {
    options.keep_op = [&](const OpDesc& op) {
      return (!ops || ops->Matches(op.type())) && (!vars || UsesAny(op, *vars));
    };
  }
  Print(PrintProgram(program, options));
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
