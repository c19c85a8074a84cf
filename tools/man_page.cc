#include <coracle/framework/base/text.h>
#include <coracle/tools/command_line.h>
#include <coracle/tools/commands/help.h>
#include <coracle/tools/man_page.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace coracle::tools {
namespace {

// Escapes text for troff, so that no character is replaced or begins a request.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    switch (c) {
      case '\\':
        out += "\\(rs";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string Head(const std::string& page, const std::string& summary) {
  return fmt::format(
      ".\\\" Made by coracle help \\-\\-man; do not edit.\n.TH {} 1 \"\" \"coracle {}\" "
      "\"Coracle\"\n.SH NAME\n{} \\- {}\n",
      Escape(Upper(page)), CORACLE_VERSION, Escape(page), Escape(summary));
}

std::string Flags(const char* title, const std::vector<FlagHelp>& flags) {
  if (flags.empty()) return "";
  std::string text = fmt::format(".SH {}\n", title);
  for (const FlagHelp& help : flags) {
    text += fmt::format(".TP\n\\fB\\-\\-{}\\fR", Escape(help.name));
    if (!help.value.empty()) text += fmt::format("=\\fI{}\\fR", Escape(help.value.substr(1)));
    text += "\n" + Escape(help.text) + "\n";
  }
  return text;
}

std::string Verbatim(const char* title, const std::string& lines) {
  if (lines.empty()) return "";
  return fmt::format(".SH {}\n.nf\n{}.fi\n", title, Escape(lines));
}

// `command` is "" for `coracle` itself, which returns the exit codes of all commands.
std::string ExitStatus(const std::string& command) {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCode& exit : ExitCodes()) {
    const auto& of = exit.commands;
    const bool all = of.empty();
    if (!all && !command.empty() && std::find(of.begin(), of.end(), command) == of.end()) continue;
    const std::string who = all || !command.empty() ? "" : fmt::format(" ({})", Join(of, ", "));
    text += fmt::format(".TP\n{}\n{}\n", Escape(exit.code), Escape(exit.meaning + who));
  }
  return text;
}

std::string PageName(const Command& command) { return "coracle-" + command.name; }

}  // namespace

std::string ManPage(const Command& command) {
  const size_t space = command.usage.find(' ');
  std::string text = Head(PageName(command), command.summary);
  text += fmt::format(".SH SYNOPSIS\n\\fBcoracle {}\\fR\n", Escape(command.name));
  if (space != std::string::npos) text += Escape(command.usage.substr(space + 1)) + "\n";
  text +=
      Flags("OPTIONS", HelpOfFlags(command)) + Flags("OPTIONS OF EVERY COMMAND", GlobalFlagHelp());
  text += Verbatim("EXAMPLES", command.examples) + ExitStatus(command.name);
  return text + ".SH SEE ALSO\n.BR coracle (1)\n";
}

std::string ManOverview() {
  std::string text = Head("coracle",
                          "deep-learning programs in Paddle's format: inspect, build, "
                          "differentiate, train, run");
  text +=
      ".SH SYNOPSIS\n\\fBcoracle\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR] "
      "[\\fB\\-\\-\\fIFLAG\\fR=\\fIVALUE\\fR ...]\n.SH COMMANDS\n";
  for (const Command& command : ListedCommands()) {
    text +=
        fmt::format(".TP\n.BR {} (1)\n{}\n", Escape(PageName(command)), Escape(command.summary));
  }
  text += Flags("OPTIONS OF EVERY COMMAND", GlobalFlagHelp()) + ExitStatus("");
  return text;
}

std::vector<std::pair<std::string, std::string>> ManPages() {
  std::vector<std::pair<std::string, std::string>> pages = {{"coracle.1", ManOverview()}};
  for (const Command& command : ListedCommands())
    pages.emplace_back(PageName(command) + ".1", ManPage(command));
  return pages;
}

}  // namespace coracle::tools
