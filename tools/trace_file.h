#pragma once
// --trace: records what a command does and when.

#include <coracle/framework/base/trace.h>

#include <optional>
#include <string>
#include <vector>

namespace coracle::tools {

// Appends the flags that TraceFile reads to a command's list.
std::vector<std::string> WithTraceFlags(std::vector<std::string> flags);

// Records during its lifetime if --trace names a file. Throws UsageError for invalid flags.
class TraceFile {
 public:
  TraceFile();
  // Writes the file, if --trace names one; a message lists what it leaves out. If there are several
  // processes, each writes its own file: rank 1 writes FILE.rank1.json.
  void Write();

 private:
  std::optional<Trace> trace_;
  std::optional<ScopedTrace> recording_;
};

}  // namespace coracle::tools
