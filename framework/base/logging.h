#pragma once
// Log lines. They go to the sink, if one is set; else to glog, if the program has set that up (as
// the `coracle` command does); else to standard error.

#include <functional>
#include <string>

namespace coracle {

enum class MessageLevel { kInfo, kWarning, kError };

void LogMessage(MessageLevel level, const std::string& message);

// Verbose lines, shown when glog's --v is at least `level`. Test VlogIsOn before composing a costly
// message.
bool VlogIsOn(int level);
void LogVerbose(int level, const std::string& message);

// Sends Log lines to `sink` instead (an empty function restores what was). Returns the previous
// sink. Thread-safe.
using LogSink = std::function<void(MessageLevel, const std::string&)>;
LogSink SetLogSink(LogSink sink);

}  // namespace coracle
