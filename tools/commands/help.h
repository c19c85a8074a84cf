#pragma once
// The texts of `coracle help`: on the command itself, on a subcommand, and on names in model and
// job texts.

#include <coracle/tools/command.h>

#include <string>
#include <vector>

namespace coracle::tools {

std::string Overview();  // the output of `coracle help`
std::string HelpOf(const Command& command);

const Command* FindCommand(const std::string& name);  // nullptr if it does not exist
// Throws UsageError that suggests the nearest name, among the commands and `others`.
const Command& RequireCommand(const std::string& name, std::vector<std::string> others = {});

struct ExitCode {
  std::string code, meaning;
  std::vector<std::string> commands;  // the commands that return it; empty: all
};
const std::vector<ExitCode>& ExitCodes();

// The names that help describes in addition to commands: layers, optimizers and so on.
std::vector<std::string> DescribedNames();

}  // namespace coracle::tools
