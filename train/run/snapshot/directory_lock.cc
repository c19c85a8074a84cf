#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/run/snapshot/directory_lock.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace coracle::inline internal {
namespace {

std::string ThisProcess() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

// Reads the holder's line from the file; returns "another run" if it is not written yet.
std::string Holder(int fd) {
  std::array<char, 300> text = {};
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  const std::string_view name =
      Trim(std::string_view(text.data(), n > 0 ? static_cast<size_t>(n) : 0));
  const bool plain =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
  return name.empty() || !plain ? "another run" : std::string(name);
}

// The previous holder may have removed the file between our opening and locking it.
bool IsStillThere(int fd, const std::string& path) {
  struct stat held, there;
  return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory)
    : path_((std::filesystem::path(directory) / ".lock").string()) {
  while (!TryLock(directory)) {
  }
}

// Returns false if the lock must be tried again.
bool DirectoryLock::TryLock(const std::string& directory) {
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot open {}: {}", Quote(path_, 300), std::strerror(errno)));
  }
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = Holder(fd);
    ::close(fd);
    if (error == EINTR) return false;
    if (error == EWOULDBLOCK) {
      throw Error(ErrorCode::kAlreadyExists,
                  fmt::format("the directory {} is in use: {} writes into it; wait for its end, or "
                              "give this run another directory",
                              Quote(directory, 300), holder));
    }
    LogMessage(MessageLevel::kWarning,
               fmt::format("cannot lock {}: {}; no other run may write there now",
                           Quote(path_, 300), std::strerror(error)));
    return true;
  }
  if (!IsStillThere(fd, path_)) {
    ::close(fd);
    return false;
  }
  fd_ = fd;
  const std::string self = ThisProcess() + "\n";
  // The text is only for messages, so a full disk does not stop the run here.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, self.data(), self.size(), 0) < 0)
    LogMessage(MessageLevel::kWarning, fmt::format("cannot write {}", Quote(path_, 300)));
  return true;
}

DirectoryLock::~DirectoryLock() {
  if (fd_ < 0) return;
  ::unlink(path_.c_str());  // before the unlock: a process that has the file open checks again
  ::close(fd_);
}

}  // namespace coracle::inline internal
