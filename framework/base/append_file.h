#pragma once
// AppendFile: a log that others may read while it grows.

#include <string>
#include <string_view>

namespace coracle::inline internal {

class AppendFile {
 public:
  // Opens the file at its end (`keep`) or empties it. Throws kIo, also for a symbolic link.
  AppendFile(const std::string& path, bool keep);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  // Appends all bytes in one write. Throws kIo.
  void Append(std::string_view bytes);
  // Whether the file is empty or ends with a line end.
  bool EndsWithLine() const;

 private:
  std::string path_;
  int fd_;
};

}  // namespace coracle::inline internal
