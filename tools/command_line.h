#pragma once
// The command line: runs its command and parses its flags.

#include <coracle/tools/command.h>

namespace coracle::tools {

// Installs the signal handlers and the message sink of the command. Call it once in a process.
void SetUp(const char* program);
// Runs the command line `words`. Turns every exception into a message and an exit code.
int RunCommandLine(const std::vector<std::string>& words);
// From now on, a failure of the running command has exit code 2, as in diff(1). Commands that
// compare use exit code 1 for a difference.
void FailAsTrouble();
// The exit code of a failure of the running command: 1, or 2 after FailAsTrouble.
int FailureCode();

struct ParsedLine {
  Args args;  // the words that are not flags
  GivenFlags given;
  bool help = false;
};

// Sets the flags of the process among `words`, and returns those of the command (nullptr: none)
// and the other words. Flags are --name=value, --name value, --name and --noname for bools, and -o
// for --out; words after "--" are not flags. Throws UsageError for an unknown flag, and for a value
// of the wrong type of a flag of the process.
ParsedLine ParseFlags(const std::vector<std::string>& words, const Command* command);

// Whether a word is a flag of the process whose value is the next word.
bool NeedsValue(const std::string& word);

// The flags of the process, and those of a command.
std::vector<FlagHelp> GlobalFlagHelp();
std::vector<FlagHelp> HelpOfFlags(const Command& command);

// Makes a line "  --out=FILE  file to write (default: -)" for each flag, wrapped at 98 columns.
std::string DescribeFlags(const std::vector<FlagHelp>& flags);

}  // namespace coracle::tools
