#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/tools/command.h>
#include <coracle/tools/program_input.h>
#include <coracle/tools/trace_file.h>
#include <fmt/format.h>

namespace coracle::tools {
namespace {

const std::string kEnding = ".json";

}  // namespace

Fields<TraceFlags> TraceFields() {
  return Fields<TraceFlags>("")
      .Add("trace", &TraceFlags::trace,
           "`FILE.json` for a timeline of all ops, for ui.perfetto.dev and about:tracing")
      .Add("trace_runs", &TraceFlags::trace_runs,
           "number `N` of first runs of each program whose ops --trace records",
           LimitedRange(0, INT64_MAX));
}

TraceFile::TraceFile(const TraceFlags& flags) : file_(flags.trace) {
  RequireEnding("--trace", file_, {kEnding});
  if (file_.empty()) return;
  TraceOptions options;
  options.runs = flags.trace_runs;
  trace_.emplace(options);
  recording_.emplace(*trace_);
}

void TraceFile::Write() {
  if (!trace_) return;
  recording_.reset();
  // If there are several processes, each writes its own file.
  std::string file = file_;
  if (const int rank = FindLaunched().rank; rank > 0)
    file.insert(file.size() - kEnding.size(), fmt::format(".rank{}", rank));
  trace_->Write(file);
  const std::string note = trace_->Note();
  if (!note.empty())
    LogMessage(MessageLevel::kInfo, Quote(file, 300) + ": " + note + " (--trace_runs)");
}

}  // namespace coracle::tools
