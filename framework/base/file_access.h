#pragma once
// FileAccess: which files a program or a model may touch. What comes from elsewhere names its files
// itself, so it may touch none but those below a directory that the user allows.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace coracle {

class FileHandle;
class FileReader;

// Errors are those of file.h, and Error(kInvalidArgument) for a path that is not allowed.
class FileAccess {
 public:
  FileAccess() = default;  // no file
  // Files below the directory `directory`, named by paths that begin there; none for "". `who`
  // names them, in errors.
  explicit FileAccess(std::string directory, std::string who = "the program")
      : directory_(std::move(directory)), who_(std::move(who)) {}

  // Throws unless the path may be touched: an absolute path and one with ".." never may.
  void Check(const std::string& path) const;
  // A regular file of at most `max_bytes`. No part of `path` may be a symbolic link, also when
  // other programs change the directory meanwhile.
  std::string Read(const std::string& path, uint64_t max_bytes) const;
  // The same file, to be read in parts.
  FileReader Open(const std::string& path) const;
  // Replaces the file by `contents` in one step, or throws kAlreadyExists when there is one and
  // `overwrite` is false. Makes the directories on the way. Links as above.
  void Write(const std::string& path, std::string_view contents, bool overwrite) const;

 private:
  FileHandle OpenFile(const std::string& path) const;

  std::string directory_;
  std::string who_ = "the program";
};

}  // namespace coracle
