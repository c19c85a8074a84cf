#include <coracle/framework/base/error.h>
#include <fmt/format.h>

namespace coracle {
namespace {

std::string Compose(const std::string& message, const std::string& details) {
  return details.empty() ? message : message + "\n" + details;
}

std::string BaseName(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

const char* ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kAlreadyExists:
      return "already exists";
    case ErrorCode::kOutOfRange:
      return "out of range";
    case ErrorCode::kUnimplemented:
      return "unimplemented";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kDeadlineExceeded:
      return "deadline exceeded";
    case ErrorCode::kDataLoss:
      return "data loss";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::string details)
    : std::runtime_error(Compose(message, details)),
      code_(code),
      message_(std::move(message)),
      details_(std::move(details)) {}

Error Error::WithDetail(const std::string& line) const {
  std::string details = details_.empty() ? "  " + line : details_ + "\n  " + line;
  return Error(code_, message_, std::move(details));
}

Error Error::WithPrefix(const std::string& prefix) const {
  return Error(code_, prefix + ": " + message_, details_);
}

InternalError::InternalError(const std::string& message, const char* file, int line)
    : Error(ErrorCode::kInternal,
            fmt::format("internal error: {} (at {}:{})", message, BaseName(file), line)) {}

}  // namespace coracle
