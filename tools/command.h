#pragma once
// A subcommand of `coracle`. Each subcommand has its own file; the table is in main.cc.

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::tools {

struct Command {
  std::string name;
  std::string summary;   // one line for `coracle help`
  std::string usage;     // "dump PROGRAM [--format=text|pbtxt]"
  std::string examples;  // lines of shell, or ""
  // The gflags that it takes in addition to the global ones. In a flag's description, the word in
  // backquotes is the placeholder of its value: "`FILE` to write" is shown as "--out=FILE  file
  // to write".
  std::vector<std::string> flags;
  // Gets the words that are not flags. Returns the exit code. An exception becomes "coracle: ..."
  // and exit code 1 (2 after FailAsTrouble); a UsageError becomes exit code 2.
  int (*run)(const std::vector<std::string>& args);
  // Text flags whose value may be omitted (a value is given only as --flag=VALUE), and the value
  // that they have then.
  std::vector<std::pair<std::string, std::string>> bare_values = {};
};

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

// All commands, sorted by name.
const std::vector<Command>& Commands();

}  // namespace coracle::tools
