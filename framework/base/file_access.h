#pragma once
// FileAccess: the files that a program or a model may access. A program from elsewhere names its
// files itself, so it may only access files below a directory that the user allows.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace coracle::inline internal {

class FileHandle;
class FileReader;

// Errors are the same as in file.h, and Error(kInvalidArgument) for a path that is not allowed.
class FileAccess {
 public:
  FileAccess() = default;  // allows no file
  // Allows files below `directory`, named by paths relative to it; no file if it is "". Errors call
  // the program `who`.
  explicit FileAccess(std::string directory, std::string who = "the program")
      : directory_(std::move(directory)), who_(std::move(who)) {}

  // Throws if the path is not allowed. Absolute paths and paths with ".." are never allowed.
  void Check(const std::string& path) const;
  // Reads a regular file of at most `max_bytes`. No part of `path` may be a symbolic link, even if
  // other programs change the directory meanwhile.
  std::string Read(const std::string& path, uint64_t max_bytes) const;
  // Opens the file like Read, for reading in parts.
  FileReader Open(const std::string& path) const;
  // Replaces the file by `contents` in one step, or throws kAlreadyExists if it exists and
  // `overwrite` is false. Makes parent directories. Refuses symbolic links like Read.
  void Write(const std::string& path, std::string_view contents, bool overwrite) const;

 private:
  FileHandle OpenFile(const std::string& path) const;

  std::string directory_;
  std::string who_ = "the program";
};

}  // namespace coracle::inline internal
