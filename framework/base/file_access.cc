#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_access.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/internal/file_handle.h>
#include <coracle/framework/base/temporaries.h>
#include <coracle/framework/base/text.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

namespace coracle::inline internal {
namespace {

// The directories on the way to a file, and its name in the last of them.
struct SplitPath {
  std::vector<std::string> directories;
  std::string name;
};

SplitPath SplitAllowed(const std::string& path) {
  SplitPath split;
  split.directories = Split(path, '/');
  split.name = split.directories.back();
  split.directories.pop_back();
  std::erase_if(split.directories,
                [](const std::string& part) { return part.empty() || part == "."; });
  return split;
}

bool IsLink(int directory, const std::string& name) {
  struct stat info;
  return ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

[[noreturn]] void ThrowLink(const std::string& path, const std::string& part) {
  ThrowInvalid(
      fmt::format("the file {} is not touched: {} is a symbolic link, which a path that a program "
                  "or a model names must not have",
                  Quote(path, 300), Quote(part)));
}

[[noreturn]] void ThrowAt(const char* what, int directory, const std::string& part,
                          const std::string& path) {
  const int error = errno;
  if (IsLink(directory, part)) ThrowLink(path, part);
  ThrowErrno(what, path, error);
}

// Opens each directory relative to the previous one, so that no rename or link can redirect
// the path.
FileHandle OpenParent(const std::string& root, const SplitPath& split, const std::string& path,
                      bool make) {
  FileHandle at(root, O_RDONLY | O_DIRECTORY, "open the allowed directory", root);
  for (const std::string& part : split.directories) {
    if (make && ::mkdirat(at.get(), part.c_str(), 0777) != 0 && errno != EEXIST)
      ThrowErrno("write", path, errno);
    const int next =
        ::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) ThrowAt(make ? "write" : "open", at.get(), part, path);
    at = FileHandle(next);
  }
  return at;
}

// Moves the temporary file to `name`.
void Publish(int directory, const std::string& temporary, const std::string& name,
             const std::string& path, bool overwrite) {
  struct stat info;
  const bool exists = ::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (exists && S_ISLNK(info.st_mode)) ThrowLink(path, name);
  if (exists && !S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: it exists and is not a regular file",
                                            Quote(path, 300)));
  }
  if (overwrite) {
    if (::renameat(directory, temporary.c_str(), directory, name.c_str()) != 0)
      ThrowErrno("write", path, errno);
  } else if (::linkat(directory, temporary.c_str(), directory, name.c_str(), 0) != 0) {
    if (errno != EEXIST) ThrowErrno("write", path, errno);
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("the file {} exists and overwrite is false", Quote(path, 300)));
  } else {
    ::unlinkat(directory, temporary.c_str(), 0);
  }
}

}  // namespace

void FileAccess::Check(const std::string& path) const {
  const std::string named = fmt::format("{} names the file {}", who_, Quote(path, 300));
  if (directory_.empty()) {
    ThrowInvalid(named +
                 ", and may touch none: --allow_files=DIR (allow_files of CompileOptions) lets it "
                 "touch those below DIR");
  }
  const auto parts = Split(path, '/');
  if (!path.empty() && path[0] == '/') {
    ThrowInvalid(fmt::format("{}; only paths that begin in the allowed directory {} are allowed",
                             named, Quote(directory_, 300)));
  }
  if (std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    ThrowInvalid(fmt::format("{}; \"..\" may lead out of the allowed directory {}", named,
                             Quote(directory_, 300)));
  }
  if (path.find('\0') != path.npos || parts.empty() || parts.back().empty() || parts.back() == ".")
    ThrowInvalid(fmt::format("{} names {}, which is not a file", who_, Quote(path, 300)));
}

FileHandle FileAccess::OpenFile(const std::string& path) const {
  Check(path);
  const SplitPath split = SplitAllowed(path);
  const FileHandle parent = OpenParent(directory_, split, path, false);
  const int fd = ::openat(parent.get(), split.name.c_str(), kReadFlags | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) ThrowAt("open", parent.get(), split.name, path);
  return FileHandle(fd);
}

std::string FileAccess::Read(const std::string& path, uint64_t max_bytes) const {
  const FileHandle file = OpenFile(path);
  return ReadRegular(file.get(), path, max_bytes);
}

FileReader FileAccess::Open(const std::string& path) const {
  return FileReader(OpenFile(path), path);
}

void FileAccess::Write(const std::string& path, std::string_view contents, bool overwrite) const {
  Check(path);
  const SplitPath split = SplitAllowed(path);
  const FileHandle parent = OpenParent(directory_, split, path, true);
  NotedTemporary noted;
  const Temporary made = CreateTemporary([&](const std::string& name) {
    return noted.Create(parent.get(), name, [&] {
      return ::openat(parent.get(), name.c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    });
  });
  if (made.result < 0) ThrowErrno("write", path, errno);
  FileHandle file(made.result);
  try {
    WriteAll(file.get(), contents, path);
    if (SyncFile(file.get()) != 0) ThrowErrno("sync", path, errno);
    if (file.Close() != 0) ThrowErrno("write", path, errno);
    noted.Publish(path, [&] { Publish(parent.get(), made.name, split.name, path, overwrite); });
  } catch (...) {
    ::unlinkat(parent.get(), made.name.c_str(), 0);
    throw;
  }
  if (SyncFile(parent.get()) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    ThrowErrno("sync", path, errno);
}

}  // namespace coracle::inline internal
