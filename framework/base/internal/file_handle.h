#pragma once
// Helpers shared by the functions that read and write files. Internal to base/.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coracle::inline internal {

// "cannot <what> <path>: <the reason>".
[[noreturn]] void ThrowErrno(const std::string& what, const std::string& path, int error);

class FileHandle {
 public:
  explicit FileHandle(int fd) : fd_(fd) {}
  // `shown` is the name in errors.
  FileHandle(const std::string& path, int flags, const char* what, const std::string& shown);
  ~FileHandle() { Close(); }
  FileHandle(FileHandle&& other) noexcept : fd_(other.Release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  int get() const { return fd_; }
  int Close();  // 0, or -1 with errno
  int Release();

 private:
  int fd_;
};

// Flags for opening a presumably regular file; opening a pipe does not wait for its other end.
extern const int kReadFlags;
// These throw unless `fd` is a regular file, of at most `max_bytes` and no larger than the
// machine's memory; `path` is its name in errors.
uint64_t SizeOfRegular(int fd, const std::string& path, uint64_t max_bytes);
std::string ReadRegular(int fd, const std::string& path, uint64_t max_bytes);
std::string ReadStdin(uint64_t max_bytes);
void WriteAll(int fd, std::string_view data, const std::string& path);
// As the system's calls, but they go on when a signal interrupts them.
int OpenFile(const std::string& path, int flags);
int SyncFile(int fd);
// Stores the entries of a directory. Throws kIo if the system reports that it cannot, except for
// file systems that have no such call.
void SyncDirectory(const std::string& path);

// A new name, without its directory, that RemoveStaleTemporaries recognises.
std::string TemporaryFileName();

struct Temporary {
  int result = -1;   // the last result of `create`; with errno if it is negative
  std::string name;  // without its directory
};
// Calls `create` with new names (up to 100) until it succeeds or fails with another error
// than EEXIST. `create` must fail with EEXIST for a name that is taken, so that no existing
// file is touched.
Temporary CreateTemporary(const std::function<int(const std::string& name)>& create);

}  // namespace coracle::inline internal
