#include "command_line.h"

#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

namespace coracle::tools {
namespace {

bool Contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

gflags::CommandLineFlagInfo InfoOf(const std::string& flag) {
  gflags::CommandLineFlagInfo info;
  if (!gflags::GetCommandLineFlagInfo(flag.c_str(), &info))
    throw InternalError("a command names a flag that is not defined: " + flag);
  return info;
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
const char* DescriptionOf(const gflags::CommandLineFlagInfo& info) {
  if (info.name == "v")
    return "print more to standard error; `N`: 1 for gradient ops, 2 also for sums";
  if (info.name == "logtostderr") return "=false writes messages to files in /tmp (see glog)";
  return info.description.c_str();
}

// The form of a value of this flag type, for messages.
const char* Expected(const std::string& type) {
  if (type == "bool") return "true or false";
  if (type == "double") return "a number";
  if (type == "int32") return "a whole number below 2147483648";
  return type == "uint64" ? "a whole number that is not negative" : "a whole number";
}

class Parser {
 public:
  Parser(const std::vector<std::string>& words, const Command* command)
      : words_(words), command_(command), allowed_(GlobalFlags()) {
    if (command) allowed_.insert(allowed_.end(), command->flags.begin(), command->flags.end());
  }

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
        Flag(SplitFlag(word));
    }
    return line_;
  }

 private:
  void Flag(FlagWord flag) {
    if (flag.name == "help" || flag.name == "h") {
      line_.help = true;
      return;
    }
    if (flag.name == "o" && Contains(allowed_, "out")) flag.name = "out";
    if (!Contains(allowed_, flag.name) && flag.name.starts_with("no") && !flag.has_value &&
        Contains(allowed_, flag.name.substr(2)) && InfoOf(flag.name.substr(2)).type == "bool") {
      flag = {flag.name.substr(2), "false", true};
    }
    if (!Contains(allowed_, flag.name)) ThrowUnknown(flag.name);
    const std::string type = InfoOf(flag.name).type;
    if (!flag.has_value && type == "bool") {
      flag.value = "true";
    } else if (const std::string* bare = flag.has_value ? nullptr : BareValue(flag.name)) {
      flag.value = *bare;
    } else if (!flag.has_value) {
      if (++at_ >= words_.size()) throw UsageError("--" + flag.name + " needs a value");
      flag.value = words_[at_];
    }
    if (gflags::SetCommandLineOption(flag.name.c_str(), flag.value.c_str()).empty()) {
      throw UsageError(
          fmt::format("--{} takes {}, got {}", flag.name, Expected(type), Quote(flag.value)));
    }
  }

  const std::string* BareValue(const std::string& name) const {
    if (!command_) return nullptr;
    for (const auto& entry : command_->bare_values) {
      if (entry.first == name) return &entry.second;
    }
    return nullptr;
  }

  [[noreturn]] void ThrowUnknown(const std::string& name) const {
    std::vector<std::string> known = allowed_;
    known.push_back("help");
    const std::string near = NearestName(name, known);
    throw UsageError(fmt::format("unknown flag --{}{}{}", PrintableLine(name),
                                 command_ ? " of " + command_->name : "",
                                 near.empty() ? "" : "; did you mean --" + near + "?"));
  }

  const std::vector<std::string>& words_;
  const Command* command_;
  std::vector<std::string> allowed_;
  ParsedLine line_;
  size_t at_ = 0;
};

}  // namespace

const std::vector<std::string>& GlobalFlags() {
  static const std::vector<std::string> flags = {"op_library", "threads", "v", "logtostderr"};
  return flags;
}

ParsedLine ParseFlags(const std::vector<std::string>& words, const Command* command) {
  return Parser(words, command).Run();
}

bool NeedsValue(const std::string& word) {
  const FlagWord flag = SplitFlag(word);
  gflags::CommandLineFlagInfo info;
  return !flag.has_value && Contains(GlobalFlags(), flag.name) &&
         gflags::GetCommandLineFlagInfo(flag.name.c_str(), &info) && info.type != "bool";
}

FlagHelp HelpOfFlag(const std::string& flag) {
  const auto info = InfoOf(flag);
  std::string text = DescriptionOf(info), word = info.type == "string" ? "TEXT" : "N";
  const size_t begin = text.find('`'), end = text.find('`', begin + 1);
  if (begin != text.npos && end != text.npos) {
    word = text.substr(begin + 1, end - begin - 1);
    text = text.substr(0, begin) + word + text.substr(end + 1);
  }
  const bool tell = !info.default_value.empty() && info.default_value != "false" &&
                    info.default_value != "true" && info.default_value != "0" &&
                    info.default_value != "-1";
  double number = 0;  // the text from gflags has 17 digits
  const bool is_number = info.type == "double" && ParseDouble(info.default_value, &number);
  if (tell)
    text +=
        fmt::format(" (default: {})", is_number ? fmt::format("{}", number) : info.default_value);
  return {info.type == "bool" ? "" : "=" + word, text};
}

std::string DescribeFlags(const std::vector<std::string>& flags) {
  constexpr size_t kIndent = 29;
  std::string text;
  for (const std::string& flag : flags) {
    const FlagHelp help = HelpOfFlag(flag);
    std::string line = fmt::format("  {:<{}}", "--" + flag + help.value, kIndent - 3);
    for (const std::string& word : Split(help.text, ' ')) {
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
