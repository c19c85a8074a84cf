#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <coracle/tools/command_limits.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/model_files.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

struct RenameFlags {
  std::string regex = {};
  bool gradients = false;
  ModelFlags model = {};
  LimitFlags limits = {};
};

Fields<RenameFlags> RenameFields() {
  return Fields<RenameFlags>("")
      .Add("regex", &RenameFlags::regex,
           "`REGEX=TEXT`: replaces matches of the expression (RE2's syntax) by TEXT in every "
           "name; \\1 in TEXT is the first group")
      .Add("gradients", &RenameFlags::gradients, "rename x@GRAD and the like with x")
      .Inline(&RenameFlags::model, ModelFields())
      .Inline(&RenameFlags::limits, LimitFields());
}

// Splits "old=new". A name may contain "=": splits at the first one that leaves a known name.
std::pair<std::string, std::string> ParsePair(const ProgramDesc& program, const std::string& text) {
  size_t at = text.find('=');
  if (at == text.npos || at == 0)
    throw UsageError("takes names as OLD=NEW,OLD=NEW, got " + Quote(text));
  for (size_t other = at; other != text.npos; other = text.find('=', other + 1)) {
    if (program.Root().FindVar(text.substr(0, other))) {
      at = other;
      break;
    }
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

NamePairs PairsFromRegexFlag(const RenameFlags& flags, const ProgramDesc& program) {
  const size_t at = flags.regex.rfind('=');
  if (at == flags.regex.npos || at == 0)
    throw UsageError("--regex takes REGEX=TEXT, got " + Quote(flags.regex));
  return PairsByRegex(program, flags.regex.substr(0, at), flags.regex.substr(at + 1));
}

// Lists the renamed variables, but not more than twenty.
std::string Describe(const Renamed& renamed) {
  constexpr size_t kShown = 20;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, renamed.names.size()); ++i)
    text +=
        fmt::format("{} -> {}\n", Shown(renamed.names[i].first), Shown(renamed.names[i].second));
  if (renamed.names.size() > kShown)
    text += fmt::format("and {} more\n", renamed.names.size() - kShown);
  if (!renamed.drawn.empty()) {
    text += fmt::format(
        "random ops draw by the names of their outputs: {} of these changed, so they may draw "
        "other numbers\n",
        renamed.drawn.size());
  }
  return text;
}

int RunRename(const Args& args, const RenameFlags& flags) {
  RequireArgs(args, 1, 2, "a PROGRAM, and names or --regex");
  if ((args.size() == 2) == !flags.regex.empty())
    throw UsageError("takes either names, as OLD=NEW,OLD=NEW, or --regex");
  CheckModelFlags(flags.model);
  const CommandLimits limits(flags.limits, CommandLimits::Time::kCommand);
  ModelFiles model = ReadModel(args[0], flags.model.params);
  NamePairs pairs;
  if (args.size() == 1) {
    pairs = PairsFromRegexFlag(flags, model.program);
  } else {
    for (const std::string& text : Split(args[1], ','))
      if (!text.empty()) pairs.push_back(ParsePair(model.program, text));
  }
  if (pairs.empty()) throw Error(ErrorCode::kInvalidArgument, "rename: no name would change");
  const Renamed renamed =
      RenameVariables(model.program, pairs, DefaultOps(), {.derived = flags.gradients});
  RenameValues(renamed.names, model.values);
  const std::string report = WriteModel(model, flags.model);
  if (!report.empty()) Print(report + Describe(renamed));
  return 0;
}

}  // namespace

Command RenameCommand() {
  return MakeCommand(
      {"rename", "gives variables other names, in the program and in its parameter file",
       "rename PROGRAM OLD=NEW,...|--regex=REGEX=TEXT -o OUT [--gradients] [--params=DIR|FILE] "
       "[--save_params=FILE]",
       "  coracle rename inference.pdmodel x=image,save_infer_model/scale_0.tmp_1=out -o "
       "named.pdmodel\n"
       "  coracle rename train.pb h=hidden --gradients -o train2.pb  # h@GRAD becomes "
       "hidden@GRAD\n"
       "  coracle rename inference.pdmodel '--regex=^conv2d_(\\d+)=c\\1' -o short.pdmodel\n"},
      RenameFields(), RunRename);
}

}  // namespace coracle::tools
