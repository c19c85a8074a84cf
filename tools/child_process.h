#pragma once
// Runs the `coracle` command in processes of its own.

#include <functional>
#include <string>
#include <vector>

namespace coracle::tools {

struct ChildCommand {
  std::vector<std::string> words;  // of the command line, without "coracle"
  std::string output;              // file for what it prints; an existing one is continued
};

// Runs the commands, at most `jobs` at the same time, in their order. Calls `ended` after each with
// its index and its exit code (128 plus the number of a signal that ended it); if that returns
// false, no further command starts. A child gets SIGTERM if this process ends. Throws kIo if a
// process cannot be started or its output cannot be opened.
void RunChildren(const std::vector<ChildCommand>& commands, int jobs,
                 const std::function<bool(size_t index, int code)>& ended);

}  // namespace coracle::tools
