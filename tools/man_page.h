#pragma once
// Makes pages for man(1) from the table of commands.

#include <coracle/tools/command.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

std::string ManOverview();                    // coracle(1)
std::string ManPage(const Command& command);  // coracle-train(1)
// All pages by file name: "coracle.1", "coracle-train.1".
std::vector<std::pair<std::string, std::string>> ManPages();

}  // namespace coracle::tools
