#include "trace_file.h"

#include <coracle/communication/launched.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include "command.h"
#include "program_input.h"

DEFINE_string(trace, "",
              "`FILE.json` for a timeline of all ops, for ui.perfetto.dev and about:tracing");
DEFINE_int64(trace_runs, 20, "number `N` of first runs of each program whose ops --trace records");

namespace coracle::tools {
namespace {

const std::string kEnding = ".json";

}  // namespace

std::vector<std::string> WithTraceFlags(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"trace", "trace_runs"});
  return flags;
}

TraceFile::TraceFile() {
  if (FLAGS_trace_runs < 0) throw UsageError("--trace_runs must not be negative");
  RequireEnding("--trace", FLAGS_trace, {kEnding});
  if (FLAGS_trace.empty()) return;
  TraceOptions options;
  options.runs = FLAGS_trace_runs;
  trace_.emplace(options);
  recording_.emplace(*trace_);
}

void TraceFile::Write() {
  if (!trace_) return;
  recording_.reset();
  // If there are several processes, each writes its own file.
  std::string file = FLAGS_trace;
  if (const int rank = FindLaunched().rank; rank > 0)
    file.insert(file.size() - kEnding.size(), fmt::format(".rank{}", rank));
  trace_->Write(file);
  const std::string note = trace_->Note();
  if (!note.empty())
    LogMessage(MessageLevel::kInfo, Quote(file, 300) + ": " + note + " (--trace_runs)");
}

}  // namespace coracle::tools
