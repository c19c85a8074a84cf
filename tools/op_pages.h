#pragma once
// The operator reference in Markdown (docs/ops), made of the declarations.

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

// File names and contents: README.md with the list of families and refused types, and one page for
// each family.
std::vector<std::pair<std::string, std::string>> OpPages();

}  // namespace coracle::tools
