#pragma once
// The data of a page as JSON ("coracle.view"). Internal to inspect/. The members beside what
// docs/json.md describes are read by inspect/page/js/model.js alone.

#include <coracle/inspect/page.h>

#include <string>
#include <vector>

namespace coracle {

// See ProgramPage.
std::string PageData(const std::vector<PageProgram>& programs, const OpRegistry& ops,
                     const PageOptions& options);
// What the page is called: `options.title`, or the name of the first program.
std::string TitleOf(const std::vector<PageProgram>& programs, const PageOptions& options);

}  // namespace coracle
