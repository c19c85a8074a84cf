#pragma once
// DirectoryLock: one run at a time writes into a directory.

#include <string>

namespace coracle {

// Holds flock(2) on the file ".lock" in a directory, which is removed when the lock is given back.
// The system gives it back when the process ends, however that comes.
class DirectoryLock {
 public:
  // Throws kAlreadyExists when another lock is held there, of this process or another ("the
  // directory 'runs/1' is in use: process 4711 on HOST writes into it"), kIo when the file cannot
  // be made. Where the file system has no locks a warning is logged and nothing is held.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  bool TryLock(const std::string& directory);
  std::string path_;
  int fd_ = -1;
};

}  // namespace coracle
