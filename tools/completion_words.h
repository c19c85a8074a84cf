#pragma once
// What may stand next on a command line, from the table of commands: for the shells' completion.

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

struct NextWords {
  std::vector<std::pair<std::string, std::string>> words;  // each with what it means, or ""
  bool files = false, directories = false;                 // and names of these
  std::vector<std::string> endings;                        // of the files; empty: any
};

// `line`: the words after "coracle", the last of them unfinished or empty.
NextWords WordsAfter(const std::vector<std::string>& line);

}  // namespace coracle::tools
