#pragma once
// What a subcommand of `coracle` is. One file per subcommand; the table is in main.cc.

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
  // gflags that it takes, besides the global ones. In a flag's description the word in backquotes
  // stands for its value: "`FILE` to write" is shown as "--out=FILE  file to write".
  std::vector<std::string> flags;
  // Gets what is no flag. Returns the exit code; an exception becomes "coracle: ..." and 1
  // (2 after FailAsTrouble), a UsageError 2.
  int (*run)(const std::vector<std::string>& args);
  // Text flags that may stand without a value (and take one only after "="), and what
  // they then mean.
  std::vector<std::pair<std::string, std::string>> bare_values = {};
};

// The command line is wrong: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws UsageError unless `args` has between `least` and `most` words.
void RequireArgs(const std::vector<std::string>& args, size_t least, size_t most,
                 const std::string& what);

// "1 op", "2 ops".
std::string Counted(size_t n, const std::string& what);

// The name of a variable for a terminal: in quotes, with escapes, when it has control characters.
std::string Shown(const std::string& name);

// The width of the last column of a list: what a terminal has room for, unlimited elsewhere.
size_t BriefWidth();

// Writes to standard output, with what could act on a terminal escaped (Printable). Where the
// reader went away (`| head`) nothing is written, and the command runs on.
void Print(std::string_view text);
// The same for text that another program may read: exactly as it is, unless it goes to a terminal.
void PrintData(std::string_view text);
// Calls `write`, which writes a file that may be "-". That the reader of standard output went away
// is no error: other files and the exit code still count.
void WriteOutput(const std::function<void()>& write);

// All commands, sorted by name.
const std::vector<Command>& Commands();

}  // namespace coracle::tools
