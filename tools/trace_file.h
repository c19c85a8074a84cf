#pragma once
// --trace: records what a command does and when.

#include <coracle/framework/base/trace.h>
#include <coracle/tools/flag_table.h>

#include <optional>
#include <string>

namespace coracle::tools {

struct TraceFlags {
  std::string trace = {};   // "": no trace
  int64_t trace_runs = 20;  // the first runs of each program that are recorded
};
Fields<TraceFlags> TraceFields();

// Records during its lifetime if --trace names a file. Throws UsageError for invalid flags.
class TraceFile {
 public:
  explicit TraceFile(const TraceFlags& flags);
  // Writes the file, if --trace names one; a message lists what it leaves out. If there are several
  // processes, each writes its own file: rank 1 writes FILE.rank1.json.
  void Write();

 private:
  std::string file_;
  std::optional<Trace> trace_;
  std::optional<ScopedTrace> recording_;
};

}  // namespace coracle::tools
