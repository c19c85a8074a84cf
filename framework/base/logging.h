#pragma once
// Log lines. They go to glog (which the `coracle` command configures) unless a sink is set.

#include <functional>
#include <string>

namespace coracle {

enum class LogLevel { kInfo, kWarning, kError };

void Log(LogLevel level, const std::string& message);

// Verbose lines, shown when glog's --v is at least `level`. Test VlogIsOn before composing a costly
// message.
bool VlogIsOn(int level);
void Vlog(int level, const std::string& message);

// Sends Log lines to `sink` instead (an empty function restores glog). Returns the previous sink.
// Thread-safe.
using LogSink = std::function<void(LogLevel, const std::string&)>;
LogSink SetLogSink(LogSink sink);

}  // namespace coracle
