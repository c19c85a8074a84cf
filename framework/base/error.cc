#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

// Makes every line start with two spaces.
std::string Indent(const std::string& details) {
  std::string out;
  for (size_t begin = 0; begin < details.size();) {
    size_t end = std::min(details.find('\n', begin), details.size());
    if (begin > 0) out += '\n';
    if (details.compare(begin, 2, "  ") != 0) out += "  ";
    out.append(details, begin, end - begin);
    begin = end + 1;
  }
  return out;
}

std::string Compose(const std::string& message, const std::string& details) {
  return details.empty() ? message : message + "\n" + details;
}

std::string BaseName(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

Error::Error(const Error& other) = default;
Error::Error(Error&& other) noexcept = default;
Error& Error::operator=(const Error& other) = default;
Error& Error::operator=(Error&& other) noexcept = default;
Error::~Error() = default;

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
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kDataLoss:
      return "data loss";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, const std::string& details)
    : std::runtime_error(Compose(PrintableLine(message), Printable(Indent(details)))),
      code_(code),
      message_(PrintableLine(message)),
      details_(Printable(Indent(details))) {}

Error Error::WithDetail(const std::string& line) const {
  std::string details = details_.empty() ? "  " + line : details_ + "\n  " + line;
  return Error(code_, message_, details);
}

Error Error::WithPrefix(const std::string& prefix) const {
  return Error(code_, prefix + ": " + message_, details_);
}

InternalError::InternalError(const std::string& message, const char* file, int line)
    : Error(ErrorCode::kInternal,
            fmt::format("internal error: {} (at {}:{})", message, BaseName(file), line)) {}

}  // namespace coracle
