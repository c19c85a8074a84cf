#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <fmt/format.h>

#include <map>

namespace coracle::tools {
namespace {

struct SetShapeFlags {
  ModelFlags model = {};
  LimitFlags limits = {};
};

Fields<SetShapeFlags> SetShapeFields() {
  return Fields<SetShapeFlags>("")
      .Inline(&SetShapeFlags::model, ModelFields())
      .Inline(&SetShapeFlags::limits, LimitFields());
}

using Types = std::map<std::pair<int, size_t>, std::string>;  // by block and variable

Types TypesOf(const ProgramDesc& program) {
  Types types;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    for (size_t i = 0; i < program.Block(b).NumVars(); ++i)
      types[{b, i}] = program.Block(b).var(i).meta().ToString();
  }
  return types;
}

// Lists the given inputs, and counts all variables whose type has changed.
std::string Describe(const ProgramDesc& program, const InputShapes& shapes, const Types& before) {
  std::string text;
  for (const auto& [name, shape] : shapes) {
    const VarDesc& var = *program.Root().FindVar(name);
    text += fmt::format("{}: {} -> {}\n", Shown(name), before.at({0, var.index()}),
                        var.meta().ToString());
  }
  size_t changed = 0;
  for (const auto& [place, type] : TypesOf(program)) changed += before.at(place) != type;
  return text + Counted(changed, "variable") + " changed in all\n";
}

int RunSetShape(const Args& args, const SetShapeFlags& flags) {
  if (args.size() < 2) throw UsageError("takes a PROGRAM and shapes as VAR:8x3x32x32");
  const InputShapes shapes = ParseShapes("takes shapes as", {args.begin() + 1, args.end()}, -1);
  CheckModelFlags(flags.model);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  ModelFiles model = ReadModel(args[0], flags.model.params);
  const Types before = TypesOf(model.program);
  DeclareShapes(model.program, shapes, DefaultOps());
  const std::string report = WriteModel(model, flags.model);
  if (!report.empty()) Print(report + Describe(model.program, shapes, before));
  return 0;
}

}  // namespace

Command SetShapeCommand() {
  return MakeCommand(
      {"set-shape", "changes shapes of a program's inputs, and infers those of all other variables",
       "set-shape PROGRAM VAR:-1x3x48x-1 ... -o OUT [--params=DIR|FILE] [--save_params=FILE]",
       "  coracle set-shape inference.pdmodel x:-1x3x48x-1 -o any_width.pdmodel\n"
       "  coracle set-shape inference.pdmodel x:1x3x640x640 -o fixed.pdmodel\n"},
      SetShapeFields(), RunSetShape);
}

}  // namespace coracle::tools
