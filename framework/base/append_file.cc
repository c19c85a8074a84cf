#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace coracle {
namespace {

[[noreturn]] void Throw(const char* what, const std::string& path) {
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, Quote(path, 300), std::strerror(errno)));
}

}  // namespace

AppendFile::AppendFile(const std::string& path, bool keep) : path_(path) {
  fd_ = ::open(path.c_str(),
               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (keep ? 0 : O_TRUNC), 0666);
  if (fd_ < 0) Throw("open", path);
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) Throw("write", path_);
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace coracle
