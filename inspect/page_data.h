#pragma once
// The data of a page as JSON ("coracle.view"). Internal to inspect/. Only inspect/page/js/model.js
// reads the members that docs/json.md does not describe.

#include <coracle/inspect/page.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// See ProgramPage.
std::string PageData(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                     const PageOptions& options);
// The title of the page: `options.title`, or the name of the first program.
std::string TitleOf(const std::vector<PageProgram>& programs, const PageOptions& options);

}  // namespace coracle::inline internal
