#pragma once
// FileReader: a file whose parts go straight to where they are wanted, rather than through one
// string that holds all of it.

#include <coracle/framework/base/internal/file_handle.h>

#include <cstdint>
#include <memory>
#include <string>

namespace coracle {

class FileReader {
 public:
  // A regular file no larger than the machine's memory; throws as ReadFile does.
  explicit FileReader(const std::string& path);
  // One that is open for reading; `path` is its name in errors. Throws unless it is a regular file.
  FileReader(FileHandle file, const std::string& path);

  uint64_t offset() const { return offset_; }  // bytes read so far
  uint64_t left() const { return size_ - offset_; }
  // The next bytes. REQUIRES: size <= left(). Throws kIo if the file has become shorter meanwhile.
  void Read(void* to, uint64_t size);
  // What is read next. REQUIRES: offset <= the file's size, offset() + left().
  void Seek(uint64_t offset);

 private:
  void ReadNow(char* to, uint64_t least, uint64_t most, uint64_t* got);

  std::string path_;
  FileHandle file_;
  uint64_t size_ = 0, offset_ = 0;
  // What was read ahead, so that small numbers cost no call each.
  std::unique_ptr<char[]> ahead_;
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace coracle
