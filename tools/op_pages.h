#pragma once
// Makes the operator reference in Markdown (docs/ops) from the declarations of the ops.

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

// File names and contents: README.md, which lists the families and the refused types, and one page
// for each family.
std::vector<std::pair<std::string, std::string>> OpPages();

}  // namespace coracle::tools
