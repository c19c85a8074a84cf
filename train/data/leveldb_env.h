#pragma once
// The files of a LevelDB database, for its library, which is made to change none of them.

#include <leveldb/env.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Reads regular files of one directory, which are opened in it without following links, and keeps
// in memory what the library writes: the directory may come from a stranger. Work in the
// background, by which the library would write all data anew, waits until FinishWork, and then ends
// at its first file.
//
// Built without run-time types, as the library is: Debian's exports none to derive from.
class ReadOnlyEnv : public leveldb::EnvWrapper {
 public:
  ReadOnlyEnv();
  ~ReadOnlyEnv() override;

  // Before the database is opened: opens the directory and checks what is in it. Files that
  // recovery copies to memory have the size `log_bytes`. An error's text says what is wrong.
  leveldb::Status OpenDirectory(const std::string& path, uint64_t* log_bytes);
  // Before the database is closed, which waits for work that it scheduled.
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
  leveldb::Status LockFile(const std::string& path, leveldb::FileLock** lock) override;
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override;
  leveldb::Status NewLogger(const std::string& path, leveldb::Logger** logger) override;
  void Schedule(void (*work)(void*), void* argument) override;

 private:
  using Bytes = std::shared_ptr<std::string>;

  Bytes Written(const std::string& path);
  // The descriptor of a regular file of the directory, or -1.
  int Open(const std::string& name) const;
  leveldb::Status CheckEntry(const std::string& name, uint64_t* log_bytes) const;

  int directory_ = -1;
  std::mutex mutex_;
  std::map<std::string, Bytes> written_;  // by name
  bool finishing_ = false;
  std::vector<std::pair<void (*)(void*), void*>> waiting_;
};

}  // namespace coracle
