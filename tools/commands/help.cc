#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/layer.h>
#include <coracle/layers/text_help.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/commands/help.h>
#include <coracle/tools/flags.h>
#include <coracle/tools/man_page.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_help.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

namespace coracle::tools {
namespace {

struct HelpFlags {
  bool man = false;
  std::string out = {};
};

Fields<HelpFlags> HelpFields() {
  return Fields<HelpFlags>("")
      .Add("man", &HelpFlags::man,
           "print the page for `man`; with --out=DIR write the pages of all commands")
      .Add("out", &HelpFlags::out, "`DIR` for the pages of --man");
}

// Describes the fields of the layer, optimizer, schedule and so on of that name.
std::string DescribeName(const std::string& name) {
  return DescribeLayer(name, DefaultOps()) + DescribeJobKind(name);
}

// Whether it is a path in a job or model text: "job", "job.train.csv.file", "model.data.shape".
bool IsTextPath(const std::string& name) {
  const std::string text = name.substr(0, name.find('.'));
  return text == "job" || text == "model";
}

std::string DescribePath(const std::string& path) {
  try {
    const std::string text =
        ToText(path.starts_with("job") ? JobField(path) : ModelField(path, DefaultOps()));
    return path.find('.') != path.npos ? text
                                       : text + fmt::format(
                                                    "`coracle help {0}.FIELD` explains a "
                                                    "field; `coracle schema {0}` prints "
                                                    "the whole schema\n",
                                                    path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw UsageError(error.message());
  }
}

// Describes the field of job and model texts with that name; lists the paths if there are several.
std::string DescribeFields(const std::string& name) {
  constexpr int kDeepest = 3;
  std::vector<std::string> level = {"job", "model"}, found;
  for (int depth = 0; depth < kDeepest && found.empty(); ++depth) {
    std::vector<std::string> below;
    for (const std::string& path : level) {
      for (std::string& field :
           path.starts_with("job") ? JobFieldsBelow(path) : ModelFieldsBelow(path, DefaultOps()))
        below.push_back(std::move(field));
    }
    std::copy_if(below.begin(), below.end(), std::back_inserter(found),
                 [&](const std::string& path) { return path.ends_with("." + name); });
    level = std::move(below);
  }
  if (found.size() == 1) return DescribePath(found[0]);
  std::string text;
  for (const std::string& path : found) text += fmt::format("`coracle help {}`\n", path);
  return text.empty() ? "" : fmt::format("{} is a field in several places:\n{}", name, text);
}

int WritePages(const HelpFlags& flags) {
  std::filesystem::create_directories(flags.out);
  for (const auto& [name, text] : ManPages()) WriteFileAtomic(flags.out + "/" + name, text);
  return 0;
}

int RunMan(const Args& args, const HelpFlags& flags) {
  if (!flags.out.empty()) {
    RequireArgs(args, 0, 0, "no command with --man --out=DIR");
    return WritePages(flags);
  }
  PrintData(args.empty() ? ManOverview() : ManPage(RequireCommand(args[0])));
  return 0;
}

int RunHelp(const Args& args, const HelpFlags& flags) {
  RequireArgs(args, 0, 1, "at most one command or name");
  if (flags.man) return RunMan(args, flags);
  if (!flags.out.empty()) throw UsageError("--out needs --man");
  if (args.empty()) {
    Print(Overview());
    return 0;
  }
  const Command* command = FindCommand(args[0]);
  std::string text = (command ? HelpOf(*command) : "") + DescribeName(args[0]);
  if (IsTextPath(args[0])) text += DescribePath(args[0]);
  if (text.empty()) text = DescribeFields(args[0]);
  Print(text.empty() ? HelpOf(RequireCommand(args[0], DescribedNames())) : text);
  return 0;
}

std::string ExitCodeLines() {
  std::string text = "\nexit codes\n";
  for (const ExitCode& exit : ExitCodes()) {
    const std::string of =
        exit.commands.empty() ? "" : fmt::format(" ({})", Join(exit.commands, ", "));
    text += fmt::format("  {:<7}  {}{}\n", exit.code, exit.meaning, of);
  }
  return text;
}

}  // namespace

std::string Overview() {
  std::string text =
      "coracle: deep-learning programs in Paddle's format: inspect, build, differentiate, train, "
      "run\n\nusage: coracle COMMAND [ARGUMENTS] [--FLAG=VALUE ...]\n\ncommands\n";
  for (const Command& command : ListedCommands())
    text += fmt::format("  {:<16} {}\n", command.name, command.summary);
  text += "\nflags of every command\n" + DescribeFlags(GlobalFlagHelp()) + ExitCodeLines();
  return text +
         "\n`coracle help COMMAND` explains a command, `coracle help NAME` the fields of a layer, "
         "optimizer,\nschedule, clip and the like in texts, `coracle help job.FIELD` a field of a "
         "job. PROGRAM is a\n.pdmodel, __model__, .pb or .pbtxt file, a directory that holds one, "
         "or - for standard input.\n";
}

std::string HelpOf(const Command& command) {
  std::string text =
      fmt::format("{}: {}\n\nusage: coracle {}\n", command.name, command.summary, command.usage);
  const std::vector<FlagHelp> flags = HelpOfFlags(command);
  if (!flags.empty()) text += "\nflags\n" + DescribeFlags(flags);
  if (!command.examples.empty()) text += "\nexamples\n" + command.examples;
  return text;
}

const Command* FindCommand(const std::string& name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const Command& RequireCommand(const std::string& name, std::vector<std::string> others) {
  if (const Command* command = FindCommand(name)) return *command;
  std::vector<std::string> names = std::move(others);
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string hint = DidYouMean(name, names);
  throw UsageError(fmt::format("unknown command {}{}", Quote(name),
                               hint.empty() ? "; `coracle help` lists the commands" : hint));
}

const std::vector<ExitCode>& ExitCodes() {
  static const std::vector<ExitCode> codes = {
      {"0", "done", {}},
      {"1", "failed; check: errors found; compare, diff and run --check: differences found", {}},
      {"2", "wrong usage; compare, diff and run --check: any failure", {}},
      {"3", "a result is not finite", {"test", "train"}},
      {"128 + N", "signal N ended the run", {"train"}},
  };
  return codes;
}

std::vector<std::string> DescribedNames() {
  std::vector<std::string> names = LayerNames(DefaultOps());
  for (std::string& name : JobKindNames()) names.push_back(std::move(name));
  return names;
}

Command HelpCommand() {
  return MakeCommand(
      {"help", "explains a command, the fields of a layer, optimizer, ..., or a field of a job",
       "help [COMMAND|NAME|job.FIELD|model.FIELD] [--man [--out=DIR]]",
       "  coracle help dump\n  coracle help conv2d\n  coracle help noam\n"
       "  coracle help job.train.csv\n  coracle help --man --out=share/man/man1\n"},
      HelpFields(), RunHelp);
}

}  // namespace coracle::tools
