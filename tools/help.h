#pragma once
// What `coracle help` tells: of the command itself, of a subcommand, of names in texts.

#include <string>
#include <vector>

#include "command.h"

namespace coracle::tools {

std::string Overview();  // what `coracle help` prints
std::string HelpOf(const Command& command);

const Command* FindCommand(const std::string& name);  // nullptr: there is none
// Throws UsageError with the nearest name. `others`: names beside the commands' that may have been
// meant.
const Command& RequireCommand(const std::string& name, std::vector<std::string> others = {});

struct ExitCode {
  std::string code, meaning;
  std::vector<std::string> commands;  // which return it; empty: all
};
const std::vector<ExitCode>& ExitCodes();

// The names that help knows beside commands: layers, optimizers and the like.
std::vector<std::string> DescribedNames();

}  // namespace coracle::tools
