#include <coracle/framework/base/append_file.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace coracle::inline internal {
namespace {

[[noreturn]] void Throw(const char* what, const std::string& path) {
  throw Error(ErrorCode::kIo,
              fmt::format("cannot {} {}: {}", what, Quote(path, 300), std::strerror(errno)));
}

}  // namespace

// Opening a pipe does not wait for its other end.
AppendFile::AppendFile(const std::string& path, bool keep) : path_(path) {
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  do {
    fd_ = ::open(path.c_str(), flags | (keep ? 0 : O_TRUNC), 0666);
  } while (fd_ < 0 && errno == EINTR);
  struct stat info {};
  const bool regular = fd_ >= 0 && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
  if (regular) return;
  if (fd_ < 0 && errno != ENXIO) Throw("open", path);  // ENXIO: a socket
  if (fd_ >= 0) ::close(fd_);
  throw Error(ErrorCode::kIo,
              fmt::format("cannot open {}: it is not a regular file", Quote(path, 300)));
}

AppendFile::~AppendFile() { ::close(fd_); }

// A piece of a line or of a record would make readers stop there, so it is taken back.
void AppendFile::Append(std::string_view bytes) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  bool wrote = false;
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const int error = put < 0 ? errno : EIO;
      if (wrote && (before < 0 || ::ftruncate(fd_, before) != 0))
        LogMessage(MessageLevel::kWarning,
                   fmt::format("{} ends with a piece of a record", Quote(path_, 300)));
      errno = error;
      Throw("write", path_);
    }
    wrote = true;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

bool AppendFile::EndsWithLine() const {
  const off_t size = ::lseek(fd_, 0, SEEK_END);
  char last = 0;
  return size == 0 || (::pread(fd_, &last, 1, size - 1) == 1 && last == '\n');
}

}  // namespace coracle::inline internal
