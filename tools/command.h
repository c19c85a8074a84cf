#pragma once
// A subcommand of `coracle`. Each subcommand has its own file; the table is in main.cc.

#include <coracle/tools/flag_table.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::tools {

using Args = std::vector<std::string>;

struct CommandText {
  std::string name;
  std::string summary;   // one line for `coracle help`
  std::string usage;     // "dump PROGRAM [--format=text|pbtxt]"
  std::string examples;  // lines of shell, or ""
};

struct Command : CommandText {
  std::shared_ptr<const FieldTable> flags;  // its flags, in addition to those of the process
  // Gets the words that are not flags, and the flags. Returns the exit code. An exception becomes
  // "coracle: ..." and exit code 1 (2 after FailAsTrouble); a UsageError becomes exit code 2.
  std::function<int(const Args& args, const GivenFlags& given)> run;
  // Text flags whose value may be omitted (a value is given only as --flag=VALUE), and the value
  // that they have then.
  std::vector<std::pair<std::string, std::string>> bare_values = {};
  // "convert DIR FILE": the new form of a command with an old name. The command still works, with a
  // note; lists of commands leave it out.
  std::string replaced_by = {};
};

// A command whose function gets the words that are not flags, and the flags as a struct.
template <class Flags>
Command MakeCommand(CommandText text, const Fields<Flags>& table,
                    int (*run)(const Args& args, const Flags& flags)) {
  const auto flags = std::make_shared<const FieldTable>(table);
  return {std::move(text), flags, [flags, run](const Args& args, const GivenFlags& given) {
            Flags values{};
            SetFlags(*flags, given, &values);
            return run(args, values);
          }};
}
Command MakeCommand(CommandText text, int (*run)(const Args& args));  // without flags

// A mistake in the command line: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws UsageError unless `args` has between `least` and `most` words.
void RequireArgs(const std::vector<std::string>& args, size_t least, size_t most,
                 const std::string& what);

// Formats a count: "1 op", "2 ops".
std::string Counted(size_t n, const std::string& what);

// The name of a variable for a terminal: quoted and escaped if it has control characters.
std::string Shown(const std::string& name);

// Lists names for a terminal, cut to the first ones: "a, b, c and 4 more".
std::string ShownNames(const std::vector<std::string>& names, size_t most);

// The width of the last column of a list: the width of a terminal, unlimited for other outputs.
size_t BriefWidth();

// Writes to standard output and escapes characters that could control a terminal (Printable). If
// the reader has closed the pipe (`| head`), writes nothing, and the command continues.
void Print(std::string_view text);
// The same for text that another program may read: escapes it only on a terminal.
void PrintData(std::string_view text);
// Calls `write`, which writes a file whose name may be "-". Ignores the error that the reader of
// standard output has closed it, because other files and the exit code still matter.
void WriteOutput(const std::function<void()>& write);

// All commands, sorted by name. ListedCommands leaves out old names.
const std::vector<Command>& Commands();
std::vector<Command> ListedCommands();

}  // namespace coracle::tools
