#pragma once
// Errors: `Error` for problems that a file, a feed, a flag or a caller can cause, `InternalError`
// for those that only a defect of Coracle can. The first line of what() says what is wrong, where,
// and how to fix it; details follow on indented lines. The library never aborts or exits.

#include <functional>
#include <stdexcept>
#include <string>

namespace coracle {

enum class ErrorCode {  // what kind of fault an Error reports
  kInvalidArgument,     // a value, shape, dtype, name or text that is wrong in itself
  kNotFound,            // a file, var, op type or name that does not exist
  kAlreadyExists,       // a name that is in use
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
  // `message` is one line without a full stop; `details` are further lines, which the constructor
  // indents by two spaces. It also escapes characters that could act on a terminal (PrintableLine,
  // Printable), since names may come from files.
  Error(ErrorCode code, const std::string& message, const std::string& details = "");
  Error(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(const Error& other);
  Error& operator=(Error&& other) noexcept;
  ~Error() override;

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

// Log lines go to the sink, if one is set; else to glog, if the program has initialised it (as the
// `coracle` command does); else to standard error.

enum class MessageLevel { kInfo, kWarning, kError };

void LogMessage(MessageLevel level, const std::string& message);

// Verbose lines, shown when glog's --v is at least `level`. Test VlogIsOn before composing
// a costly message.
bool VlogIsOn(int level);
void LogVerbose(int level, const std::string& message);

// Sends log lines to `sink` (an empty function restores the default). Returns the
// previous sink. Thread-safe.
using LogSink = std::function<void(MessageLevel, const std::string&)>;
LogSink SetLogSink(LogSink sink);

}  // namespace coracle
