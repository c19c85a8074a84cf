#include <coracle/framework/base/text.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/passes/pass.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands/help.h>
#include <coracle/tools/completion_words.h>
#include <coracle/tools/tensor_file.h>
#include <coracle/train/job/job_help.h>

#include <algorithm>
#include <cctype>

namespace coracle::tools {
namespace {

using Strings = std::vector<std::string>;

void AddWords(const Strings& words, NextWords* next) {
  for (const std::string& word : words) next->words.emplace_back(word, "");
}

bool IsFlag(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::string FlagName(const std::string& word) {
  std::string name = word.substr(word.find_first_not_of('-'));
  name.resize(std::min(name.size(), name.find('=')));
  std::replace(name.begin(), name.end(), '-', '_');
  return name == "o" ? "out" : name;
}

std::vector<FlagHelp> FlagsOf(const Command* command) {
  std::vector<FlagHelp> flags = command ? HelpOfFlags(*command) : std::vector<FlagHelp>();
  for (FlagHelp& flag : GlobalFlagHelp()) flags.push_back(std::move(flag));
  return flags;
}

// The placeholder of the flag's value, "=FILE"; "" for one without a value, and an unknown one.
std::string ValueOf(const std::string& flag, const Command* command) {
  for (const FlagHelp& help : FlagsOf(command))
    if (help.name == flag) return help.value;
  return "";
}

bool HasValue(const std::string& flag, const Command* command) {
  return !ValueOf(flag, command).empty();
}

// Whether the next word is the value of the flag `word`. The value of a bare flag needs "=".
bool TakesNextWord(const std::string& word, const Command* command) {
  if (!IsFlag(word) || word.find('=') != word.npos || !HasValue(FlagName(word), command))
    return false;
  const auto is_it = [&](const auto& bare) { return bare.first == FlagName(word); };
  return !command || std::none_of(command->bare_values.begin(), command->bare_values.end(), is_it);
}

bool IsLiteral(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_' || c == '-';
  });
}

// The text of a usage after `begin`, up to a blank or bracket: "text|pbtxt" after "--format=".
std::string UsageAfter(const std::string& usage, const std::string& begin) {
  const size_t at = usage.find(begin);
  if (at == usage.npos) return "";
  const size_t from = at + begin.size();
  return usage.substr(from, usage.find_first_of(" ]", from) - from);
}

// The ending of a file name, such as ".npz" for "in.npz".
std::string EndingOf(const std::string& word) {
  const size_t dot = word.rfind('.');
  return dot == word.npos || dot + 1 == word.size() ? "" : word.substr(dot);
}

void AddFiles(const Strings& endings, NextWords* next) {
  if (next->files && next->endings.empty()) return;  // any ending is already allowed
  next->files = true;
  if (endings.empty()) next->endings.clear();
  next->endings.insert(next->endings.end(), endings.begin(), endings.end());
}

// Adds the choices "a|b" of the usage, or file names if the usage or the flag's help
// mentions files.
void AddValues(const std::string& flag, const Command* command, NextWords* next) {
  const std::string shown = command ? UsageAfter(command->usage, "--" + flag + "=") : "";
  const Strings choices = Split(shown, '|');
  if (choices.size() > 1 && std::all_of(choices.begin(), choices.end(), IsLiteral))
    return AddWords(choices, next);
  const FieldSpec* spec = command ? command->flags->Find(flag) : nullptr;
  if (spec && spec->one_of) {
    for (const Enumerator& word : spec->one_of->values)
      next->words.emplace_back(word.name, word.doc);
    return;
  }
  if (flag == "disabled_passes" || flag == "passes") {
    if (flag != "passes") AddWords({"all"}, next);
    return AddWords(PassesWithout({}), next);
  }
  const std::string kind = ValueOf(flag, command) + "|" + shown;
  if (kind.find("DIR") != kind.npos) next->directories = true;
  const std::string ending =
      IsLiteral(shown) || shown.find(',') != shown.npos ? "" : EndingOf(shown);
  if (ending == ".npz") return AddFiles(TensorEndings(), next);  // the usage shows only an example
  if (!ending.empty()) return AddFiles({ending}, next);
  if (flag == "op_library") return AddFiles({".so"}, next);
  if (kind.find("FILE") != kind.npos || kind.find("PATH") != kind.npos) AddFiles({}, next);
}

void AddFlags(const Command* command, NextWords* next) {
  for (const FlagHelp& flag : FlagsOf(command))
    next->words.emplace_back("--" + flag.name + (flag.value.empty() ? "" : "="), flag.text);
  next->words.emplace_back("--help", "explains the command");
}

// Adds the names that help takes: commands, layers and so on, and the fields below the path typed
// so far.
void AddHelpNames(const std::string& current, NextWords* next) {
  for (const Command& command : ListedCommands())
    next->words.emplace_back(command.name, command.summary);
  AddWords(DescribedNames(), next);
  AddWords({"job", "model"}, next);
  const std::string above = current.substr(0, current.rfind('.'));
  if (current.find('.') == current.npos) return;
  AddWords(above.starts_with("job") ? JobFieldsBelow(above) : ModelFieldsBelow(above), next);
}

void AddNames(const Command& command, const std::string& current, NextWords* next) {
  if (command.name == "ops") AddWords(DefaultOps().Types(), next);
  if (command.name == "layers") AddWords(LayerNames(DefaultOps()), next);
  if (command.name == "help") AddHelpNames(current, next);
}

// Adds the words for one placeholder of a usage: PROGRAM, JOB.pbtxt, DIR, NAME or a literal word.
void AddPlaceholder(const std::string& word, const Command& command, const std::string& current,
                    NextWords* next) {
  const std::string ending = EndingOf(word);
  if (IsLiteral(word)) {
    AddWords({word}, next);
  } else if (word.starts_with("NAME")) {
    AddNames(command, current, next);
  } else if (word.find("DIR") != word.npos || word.starts_with("RUN")) {
    next->directories = true;
  } else if (!ending.empty() && IsLiteral(ending.substr(1))) {
    AddFiles({ending}, next);
  } else if (word.starts_with("PROGRAM") || word.starts_with("MODEL")) {
    AddFiles({".pdmodel", ".pb", ".pbtxt", "__model__"}, next);
    next->directories = true;
  } else if (word.find('.') == word.npos && word != "COMMAND") {  // NAME adds the commands
    AddFiles({}, next);
  }
}

// The arguments in a usage (not the flags), each with its alternatives: {"NAME", "PROGRAM"}.
std::vector<Strings> Positions(const std::string& usage) {
  std::vector<Strings> positions;
  std::string word;
  int depth = 0;
  for (const char c : usage.substr(std::min(usage.size(), usage.find(' '))) + " ") {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c != ' ' && c != '[' && c != ']') word += c;
    if (c != ' ' || depth > 0 || word.empty()) continue;
    if (!IsFlag(word) && word != "FLAGS") positions.push_back(Split(word, '|'));
    word.clear();
  }
  return positions;
}

bool Repeats(const Strings& position) {
  return std::any_of(position.begin(), position.end(),
                     [](const std::string& word) { return word.ends_with("..."); });
}

// Adds the words for argument number `index` of a command.
void AddArgument(const Command& command, size_t index, const std::string& current,
                 NextWords* next) {
  const std::vector<Strings> positions = Positions(command.usage);
  if (positions.empty()) return;
  if (index >= positions.size() && !Repeats(positions.back())) return;
  for (const std::string& word : positions[std::min(index, positions.size() - 1)])
    AddPlaceholder(word, command, current, next);
}

}  // namespace

NextWords WordsAfter(const std::vector<std::string>& line) {
  NextWords next;
  const std::string current = line.empty() ? "" : line.back();
  const Command* command = nullptr;
  size_t arguments = 0;
  std::string waiting;  // a flag whose value is the next word
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    const std::string& word = line[i];
    if (!waiting.empty())
      waiting.clear();
    else if (TakesNextWord(word, command))
      waiting = FlagName(word);
    else if (IsFlag(word))
      continue;
    else if (command)
      ++arguments;
    else if (!(command = FindCommand(word)))
      return next;
  }
  if (!waiting.empty()) {
    AddValues(waiting, command, &next);
  } else if (IsFlag(current) && current.find('=') != current.npos) {
    const std::string whole = current.substr(0, current.find('=') + 1);
    if (HasValue(FlagName(current), command)) AddValues(FlagName(current), command, &next);
    for (auto& word : next.words) word.first.insert(0, whole);
  } else if (current.starts_with('-')) {
    AddFlags(command, &next);
    if (!command) next.words.emplace_back("--version", "prints the version");
  } else if (!command) {
    for (const Command& each : ListedCommands()) next.words.emplace_back(each.name, each.summary);
  } else {
    AddArgument(*command, arguments, current, &next);
  }
  return next;
}

}  // namespace coracle::tools
