#pragma once
// DirectoryLock: only one run at a time writes into a directory.

#include <string>

namespace coracle::inline internal {

// Holds flock(2) on the file ".lock" in a directory and removes the file when the lock is released.
// If the process ends in any way, the system releases the lock.
class DirectoryLock {
 public:
  // Throws kAlreadyExists if this process or another one holds a lock there ("the directory
  // 'runs/1' is in use: process 4711 on HOST writes into it"), and kIo if the file cannot be
  // created. If the file system has no locks, logs a warning and holds nothing.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  bool TryLock(const std::string& directory);
  std::string path_;
  int fd_ = -1;
};

}  // namespace coracle::inline internal
