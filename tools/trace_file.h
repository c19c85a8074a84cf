#pragma once
// --trace: records what a command does.

#include <coracle/framework/base/trace.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

// The flags that it reads, for a command's list.
std::vector<std::string> WithTraceFlags(std::vector<std::string> flags);

// Records while it lives, if --trace names a file. Throws UsageError for wrong flags.
class TraceFile {
 public:
  TraceFile();
  // Writes the file, if there is one; a message tells what it does not hold. Of several processes
  // each has a file: that of rank 1 is FILE.rank1.json.
  void Write();

 private:
  std::optional<Trace> trace_;
  std::optional<ScopedTrace> recording_;
};

}  // namespace coracle::tools
