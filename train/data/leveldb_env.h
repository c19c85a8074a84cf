#pragma once
// Lets the LevelDB library read the files of a database but not change them.

#include <leveldb/env.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// Reads only the regular files of one directory and follows no links, since the directory may be
// untrusted. Keeps in memory what the library writes. The library would rewrite all data in the
// background; that work is delayed until FinishWork, where it stops at its first file.
//
// This class is built without run-time type information, because Debian's library exports none.
class ReadOnlyEnv : public leveldb::EnvWrapper {
 public:
  ReadOnlyEnv();
  ~ReadOnlyEnv() override;

  // Opens the directory and checks its files; call it before the database is opened. Sets
  // `log_bytes` to the size of the files that recovery copies to memory.
  leveldb::Status OpenDirectory(const std::string& path, uint64_t* log_bytes);
  // Runs the delayed work. Call it before the database is closed, which waits for that work.
  void FinishWork();

  leveldb::Status NewSequentialFile(const std::string& path,
                                    leveldb::SequentialFile** file) override;
  leveldb::Status NewRandomAccessFile(const std::string& path,
                                      leveldb::RandomAccessFile** file) override;
  leveldb::Status NewWritableFile(const std::string& path, leveldb::WritableFile** file) override;
  leveldb::Status NewAppendableFile(const std::string& path, leveldb::WritableFile** file) override;
  bool FileExists(const std::string& path) override;
  leveldb::Status GetChildren(const std::string& path, std::vector<std::string>* names) override;
  leveldb::Status RemoveFile(const std::string& path) override;
  leveldb::Status CreateDir(const std::string&) override { return leveldb::Status::OK(); }
  leveldb::Status RemoveDir(const std::string&) override { return leveldb::Status::OK(); }
  leveldb::Status GetFileSize(const std::string& path, uint64_t* size) override;
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override;
  // Takes no lock, so that others may read the database too. Refuses one that a writer has open:
  // another process that holds the lock, or this process. Finds a writer in this process through
  // /proc, and fails if /proc is not mounted. If this process opens the database for writing during
  // the call, that writer may lose its lock.
  leveldb::Status LockFile(const std::string& path, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;
  leveldb::Status NewLogger(const std::string& path, leveldb::Logger** logger) override;
  void Schedule(void (*work)(void*), void* argument) override;

 private:
  using Bytes = std::shared_ptr<std::string>;

  Bytes Written(const std::string& path);
  // Opens a regular file of the directory.
  leveldb::Status Open(const std::string& path, int* file) const;
  leveldb::Status CheckEntry(const std::string& name, uint64_t* log_bytes) const;

  int directory_ = -1;
  std::mutex mutex_;
  std::map<std::string, Bytes> written_;  // by name
  bool finishing_ = false;
  std::vector<std::pair<void (*)(void*), void*>> waiting_;
};

}  // namespace coracle::inline internal
