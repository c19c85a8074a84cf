#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command_line.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

namespace coracle::tools {
namespace {

// The flags that every command takes; they are gflags.
const std::vector<std::string>& GlobalFlags() {
  static const std::vector<std::string> flags = {"op_library", "shape", "threads", "v",
                                                 "logtostderr"};
  return flags;
}

bool IsGlobal(const std::string& name) {
  return std::find(GlobalFlags().begin(), GlobalFlags().end(), name) != GlobalFlags().end();
}

bool IsGlobalSwitch(const std::string& name) {
  return gflags::GetCommandLineFlagInfoOrDie(name.c_str()).type == "bool";
}

struct FlagWord {
  std::string name, value;
  bool has_value = false;
};

FlagWord SplitFlag(const std::string& word) {
  FlagWord flag;
  const size_t begin = word.starts_with("--") ? 2 : 1, equals = word.find('=');
  flag.name = word.substr(begin, equals == word.npos ? word.npos : equals - begin);
  flag.has_value = equals != word.npos;
  if (flag.has_value) flag.value = word.substr(equals + 1);
  std::replace(flag.name.begin(), flag.name.end(), '-', '_');
  return flag;
}

// Replaces glog's own descriptions, which refer to its macros.
std::string DescriptionOf(const gflags::CommandLineFlagInfo& info) {
  if (info.name == "v")
    return "print more to standard error; `N`: 1 for gradient ops, 2 also for sums";
  if (info.name == "logtostderr") return "=false writes messages to files in /tmp (see glog)";
  return info.description;
}

class Parser {
 public:
  Parser(const std::vector<std::string>& words, const Command* command)
      : words_(words), command_(command) {}

  ParsedLine Run() {
    for (at_ = 0; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (word == "--") {
        line_.args.insert(line_.args.end(), words_.begin() + static_cast<long>(at_) + 1,
                          words_.end());
        break;
      }
      if (word.size() < 2 || word[0] != '-')
        line_.args.push_back(word);
      else
        AddFlag(SplitFlag(word));
    }
    return line_;
  }

 private:
  // A command's own flag hides the one of the process.
  bool IsOwn(const std::string& name) const { return command_ && command_->flags->Find(name); }
  bool IsKnown(const std::string& name) const { return IsGlobal(name) || IsOwn(name); }
  bool IsSwitchName(const std::string& name) const {
    if (!IsKnown(name)) return false;
    return IsOwn(name) ? IsSwitch(*command_->flags->Find(name)) : IsGlobalSwitch(name);
  }

  void AddFlag(FlagWord flag) {
    if (flag.name == "help" || flag.name == "h") {
      line_.help = true;
      return;
    }
    if (flag.name == "o" && IsKnown("out")) flag.name = "out";
    if (!IsKnown(flag.name) && flag.name.starts_with("no") && !flag.has_value &&
        IsSwitchName(flag.name.substr(2)))
      flag = {flag.name.substr(2), "false", true};
    if (!IsKnown(flag.name)) ThrowUnknown(flag.name);
    if (!flag.has_value) flag.value = ValueOf(flag.name);
    if (IsOwn(flag.name))
      line_.given.emplace_back(flag.name, flag.value);
    else if (gflags::SetCommandLineOption(flag.name.c_str(), flag.value.c_str()).empty())
      throw UsageError(fmt::format("--{} takes {}, got {}", flag.name,
                                   IsGlobalSwitch(flag.name) ? "true or false" : "a whole number",
                                   Quote(flag.value)));
  }

  // The value of a flag without one: that of a bool or of a text whose value may be omitted, or
  // the next word.
  std::string ValueOf(const std::string& name) {
    if (IsSwitchName(name)) return "true";
    if (command_) {
      for (const auto& [bare, value] : command_->bare_values)
        if (bare == name) return value;
    }
    if (++at_ >= words_.size()) throw UsageError("--" + name + " needs a value");
    return words_[at_];
  }

  [[noreturn]] void ThrowUnknown(const std::string& name) const {
    std::vector<std::string> known = GlobalFlags();
    known.push_back("help");
    if (command_) {
      for (const FieldSpec& flag : command_->flags->fields()) known.push_back(flag.name);
    }
    const std::string near = NearestName(name, known);
    throw UsageError(fmt::format("unknown flag {}{}{}{}", name.size() == 1 ? "-" : "--",
                                 PrintableLine(name), command_ ? " of " + command_->name : "",
                                 near.empty() ? "" : "; did you mean --" + near + "?"));
  }

  const std::vector<std::string>& words_;
  const Command* command_;
  ParsedLine line_;
  size_t at_ = 0;
};

}  // namespace

ParsedLine ParseFlags(const std::vector<std::string>& words, const Command* command) {
  return Parser(words, command).Run();
}

bool NeedsValue(const std::string& word) {
  const FlagWord flag = SplitFlag(word);
  return !flag.has_value && IsGlobal(flag.name) && !IsGlobalSwitch(flag.name);
}

std::vector<FlagHelp> GlobalFlagHelp() {
  std::vector<FlagHelp> flags;
  for (const std::string& name : GlobalFlags()) {
    const auto info = gflags::GetCommandLineFlagInfoOrDie(name.c_str());
    FieldSpec flag = {name, DescriptionOf(info), {AttrType::kString, nullptr, nullptr}, 0, {}};
    if (info.type == "bool") flag.member.type = AttrType::kBoolean;
    flags.push_back(HelpOf(flag));
  }
  return flags;
}

std::vector<FlagHelp> HelpOfFlags(const Command& command) {
  std::vector<FlagHelp> flags;
  for (const FieldSpec& flag : command.flags->fields()) flags.push_back(HelpOf(flag));
  return flags;
}

std::string DescribeFlags(const std::vector<FlagHelp>& flags) {
  constexpr size_t kIndent = 29;
  std::string text;
  for (const FlagHelp& flag : flags) {
    std::string line = fmt::format("  {:<{}}", "--" + flag.name + flag.value, kIndent - 3);
    for (const std::string& word : Split(flag.text, ' ')) {
      if (line.size() > kIndent && line.size() + 1 + word.size() > 98) {
        text += line + "\n";
        line = std::string(kIndent - 1, ' ');
      }
      line += " " + word;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace coracle::tools
