#pragma once
// The command line: what it runs, which words are flags, and their values.

#include "command.h"

namespace coracle::tools {

// Signals and messages of the command, once in a process.
void SetUp(const char* program);
// Runs the command line `words`. Whatever happens becomes a message and an exit code.
int RunCommandLine(const std::vector<std::string>& words);
// From now on a failure of the command that runs has exit code 2, as of diff(1): of a command that
// compares, 1 says that something differs.
void FailAsTrouble();
// The exit code of a failure of the command that runs: 1 or, after FailAsTrouble, 2.
int FailureCode();

// Flags that every command takes.
const std::vector<std::string>& GlobalFlags();

struct ParsedLine {
  std::vector<std::string> args;
  bool help = false;
};

// Sets the flags among `words` that the command takes (nullptr: the global ones only) and returns
// the other words. Flags are --name=value, --name value, --name and --noname for bools, and -o
// for --out; after "--" nothing is a flag. Throws UsageError for an unknown flag and a value of
// the wrong type.
ParsedLine ParseFlags(const std::vector<std::string>& words, const Command* command);

// Whether a word is a flag whose value is the next word.
bool NeedsValue(const std::string& word);

// How help shows a flag. Throws InternalError for one that is not defined.
struct FlagHelp {
  std::string value;  // "=FILE"; "" for flags that take none
  std::string text;
};
FlagHelp HelpOfFlag(const std::string& flag);

// "  --out=FILE  file to write (default: -)" for each flag, lines broken at 98 columns.
std::string DescribeFlags(const std::vector<std::string>& flags);

}  // namespace coracle::tools
