#pragma once
// Lists the possible next words of a command line, from the table of commands, for completion
// in shells.

#include <string>
#include <utility>
#include <vector>

namespace coracle::tools {

struct NextWords {
  std::vector<std::pair<std::string, std::string>> words;  // each with its meaning, or ""
  bool files = false, directories = false;                 // also file or directory names
  std::vector<std::string> endings;                        // of the files; empty: any
};

// `line`: the words after "coracle"; the last one is incomplete or empty.
NextWords WordsAfter(const std::vector<std::string>& line);

}  // namespace coracle::tools
