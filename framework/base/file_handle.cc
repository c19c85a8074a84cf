#include <coracle/framework/base/broken_pipe.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/internal/file_handle.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace coracle::inline internal {
namespace {

[[noreturn]] void ThrowTooLarge(const std::string& path, uint64_t max_bytes) {
  throw Error(ErrorCode::kResourceExhausted,
              fmt::format("{} is larger than {}", Quote(path, 300), HumanBytes(max_bytes)));
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  return S_ISSOCK(mode) ? "a socket" : "a device";
}

// Limits reads to the machine's memory, since a sparse file may claim any size.
uint64_t MostThatFits() {
  static const uint64_t bytes = DefaultMemoryLimit();
  return bytes;
}

void Grow(std::string* data, uint64_t size, const std::string& path) {
  try {
    data->resize(size);
  } catch (const std::exception&) {  // bad_alloc, or length_error
    throw OutOfMemory(fmt::format("reading {} takes {}", Quote(path, 300), HumanBytes(size)));
  }
}

// Reads from the position of `fd` to the end; `expected` is the likely number of bytes.
std::string ReadAll(int fd, const std::string& path, uint64_t expected, uint64_t max_bytes) {
  max_bytes = std::min(max_bytes, MostThatFits());
  if (expected > max_bytes) ThrowTooLarge(path, max_bytes);
  std::string data;
  Grow(&data, expected + 1, path);
  size_t size = 0;
  while (true) {
    if (size == data.size()) Grow(&data, std::min<uint64_t>(max_bytes + 1, size * 2 + 65536), path);
    ssize_t got = ::read(fd, data.data() + size, data.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowErrno("read", path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
    if (size > max_bytes) ThrowTooLarge(path, max_bytes);
  }
  data.resize(size);
  return data;
}

}  // namespace

void ThrowErrno(const std::string& what, const std::string& path, int error) {
  const ErrorCode code = error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  const std::string shown = path.starts_with("standard ") ? path : Quote(path, 300);
  const char* reason =
      error == ENXIO ? "it is a pipe without a reader, or a socket" : std::strerror(error);
  const std::string message = fmt::format("cannot {} {}: {}", what, shown, reason);
  if (error == EPIPE) throw BrokenPipe(code, message);
  throw Error(code, message);
}

int OpenFile(const std::string& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

int SyncFile(int fd) {
  int result = 0;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result;
}

void SyncDirectory(const std::string& path) {
  const FileHandle directory(OpenFile(path, O_RDONLY | O_DIRECTORY));
  if (directory.get() < 0 || SyncFile(directory.get()) == 0) return;
  if (errno == EIO || errno == ENOSPC || errno == EDQUOT) ThrowErrno("sync", path, errno);
}

FileHandle::FileHandle(const std::string& path, int flags, const char* what,
                       const std::string& shown)
    : fd_(-1) {
  if (path.find('\0') != std::string::npos) ThrowErrno(what, shown, EINVAL);
  fd_ = internal::OpenFile(path, flags);
  if (fd_ < 0) ThrowErrno(what, shown, errno);
}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  Close();
  fd_ = other.Release();
  return *this;
}

// An interrupted close has closed the file (close(2)).
int FileHandle::Close() {
  if (fd_ < 0 || ::close(Release()) == 0) return 0;
  return errno == EINTR ? 0 : -1;
}

int FileHandle::Release() { return std::exchange(fd_, -1); }

const int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

uint64_t SizeOfRegular(int fd, const std::string& path, uint64_t max_bytes) {
  struct stat info;
  if (::fstat(fd, &info) != 0) ThrowErrno("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot read {}: it is {}, not a regular file",
                                            Quote(path, 300), KindOf(info.st_mode)));
  }
  const auto size = static_cast<uint64_t>(std::max<off_t>(info.st_size, 0));
  max_bytes = std::min(max_bytes, MostThatFits());
  if (size > max_bytes) ThrowTooLarge(path, max_bytes);
  return size;
}

std::string ReadRegular(int fd, const std::string& path, uint64_t max_bytes) {
  return ReadAll(fd, path, SizeOfRegular(fd, path, max_bytes), max_bytes);
}

std::string ReadStdin(uint64_t max_bytes) {
  return ReadAll(STDIN_FILENO, "standard input", 0, max_bytes);
}

void WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    ssize_t put = ::write(fd, data.data(), data.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) ThrowErrno("write", path, put < 0 ? errno : EIO);
    data.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace coracle::inline internal
