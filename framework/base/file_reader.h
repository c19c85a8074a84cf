#pragma once
// FileReader: reads parts of a file directly to their destination, instead of the whole file into
// one string.

#include <coracle/framework/base/internal/file_handle.h>

#include <cstdint>
#include <memory>
#include <string>

namespace coracle::inline internal {

class FileReader {
 public:
  // Opens a regular file no larger than the machine's memory; throws like ReadFile.
  explicit FileReader(const std::string& path);
  // Takes a file open for reading; `path` is its name in errors. Throws unless it is a
  // regular file.
  FileReader(FileHandle file, const std::string& path);

  uint64_t offset() const { return offset_; }  // bytes read so far
  uint64_t left() const { return size_ - offset_; }
  // Reads the next bytes. REQUIRES: size <= left(). Throws kIo if the file has become shorter.
  void Read(void* to, uint64_t size);
  // Sets the position of the next Read. REQUIRES: offset <= the file's size, offset() + left().
  void Seek(uint64_t offset);

 private:
  void ReadNow(char* to, uint64_t least, uint64_t most, uint64_t* got);

  std::string path_;
  FileHandle file_;
  uint64_t size_ = 0, offset_ = 0;
  // Buffer of bytes read ahead, so that small reads need no system call each.
  std::unique_ptr<char[]> ahead_;
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace coracle::inline internal
