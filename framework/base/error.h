#pragma once
// Errors: `Error` for what a file, a feed, a flag or a caller can cause, `InternalError` for what
// only a defect of Coracle can. The first line of what() alone says what is wrong, where, and how
// to mend it; details follow on indented lines. The library never aborts or exits.

#include <functional>
#include <stdexcept>
#include <string>

namespace coracle {

enum class ErrorCode {  // what kind of fault an Error reports
  kInvalidArgument,     // a value, shape, dtype, name or text that is wrong in itself
  kNotFound,            // a file, var, op type or name that does not exist
  kAlreadyExists,       // a name that is taken
  kOutOfRange,          // an index outside its tensor, a number outside its type
  kUnimplemented,       // a valid request that this build cannot serve
  kResourceExhausted,   // memory_limit, a size limit
  kDeadlineExceeded,    // time_limit
  kCancelled,           // the caller asked the run to stop
  kDataLoss,            // a damaged or truncated file
  kIo,                  // the operating system refused
  kInternal,            // a defect of Coracle
};

// "invalid argument", "not found", ...
const char* ToString(ErrorCode code);

class Error : public std::runtime_error {
 public:
  // `message` is one line without a full stop; `details` are further lines (indented by two spaces
  // here). What names from files could do to a terminal is escaped here (PrintableLine, Printable).
  Error(ErrorCode code, std::string message, const std::string& details = "");

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& details() const { return details_; }

  // The same error with one more detail line at the end.
  Error WithDetail(const std::string& line) const;
  // The same error with "prefix: " before the first line.
  Error WithPrefix(const std::string& prefix) const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string details_;
};

// A defect of Coracle itself; the message ends with the file and line that noticed it.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE());
};

[[noreturn]] inline void ThrowInvalid(std::string message, const std::string& details = "") {
  throw Error(ErrorCode::kInvalidArgument, std::move(message), details);
}

// Log lines. They go to the sink, if one is set; else to glog, if the program has set that up (as
// the `coracle` command does); else to standard error.

enum class MessageLevel { kInfo, kWarning, kError };

void LogMessage(MessageLevel level, const std::string& message);

// Verbose lines, shown when glog's --v is at least `level`. Test VlogIsOn before composing
// a costly message.
bool VlogIsOn(int level);
void LogVerbose(int level, const std::string& message);

// Sends Log lines to `sink` instead (an empty function restores what was). Returns the
// previous sink. Thread-safe.
using LogSink = std::function<void(MessageLevel, const std::string&)>;
LogSink SetLogSink(LogSink sink);

}  // namespace coracle
