#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <glog/logging.h>

#include <cstdio>
#include <mutex>
#include <utility>

namespace coracle {
namespace {

std::mutex sink_mutex;
LogSink& Sink() {
  static LogSink sink;
  return sink;
}

// For programs that do not set up glog, whose lines would begin with a warning about that.
void Print(MessageLevel level, const std::string& message) {
  const char* prefix = level == MessageLevel::kInfo      ? ""
                       : level == MessageLevel::kWarning ? "warning: "
                                                         : "error: ";
  const std::string line = "coracle: " + (prefix + message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void LogMessage(MessageLevel level, const std::string& text) {
  const std::string message = Printable(text);
  LogSink sink;
  {
    std::lock_guard<std::mutex> lock(sink_mutex);
    sink = Sink();
  }
  if (sink) return sink(level, message);  // it may log in turn
  if (!google::IsGoogleLoggingInitialized()) return Print(level, message);
  switch (level) {
    case MessageLevel::kInfo:
      LOG(INFO) << message;
      break;
    case MessageLevel::kWarning:
      LOG(WARNING) << message;
      break;
    case MessageLevel::kError:
      LOG(ERROR) << message;
      break;
  }
}

bool VlogIsOn(int level) { return VLOG_IS_ON(level); }

void LogVerbose(int level, const std::string& text) {
  const std::string message = Printable(text);
  if (google::IsGoogleLoggingInitialized())
    VLOG(level) << message;
  else if (VlogIsOn(level))
    Print(MessageLevel::kInfo, message);
}

LogSink SetLogSink(LogSink sink) {
  std::lock_guard<std::mutex> lock(sink_mutex);
  return std::exchange(Sink(), std::move(sink));
}

}  // namespace coracle
