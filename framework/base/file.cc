#include <coracle/framework/base/blocked_signals.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/file_pieces.h>
#include <coracle/framework/base/internal/file_handle.h>
#include <coracle/framework/base/temporaries.h>
#include <coracle/framework/base/text.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

void SyncFileAt(const std::string& path) {
  const FileHandle file(OpenFile(path, O_RDONLY));
  if (file.get() < 0 || SyncFile(file.get()) != 0) ThrowErrno("sync", path, errno);
}

std::string ParentOf(const std::string& path) {
  fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

constexpr std::string_view kTemporary = ".coracle-", kTemporaryEnd = ".tmp";

// Distinguishes the names of this process from those of an earlier process with the same id: in a
// container every start may have the id 1.
const std::string& ProcessTag() {
  static const std::string tag = [] {
    uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, GRND_NONBLOCK) != sizeof bits)
      bits = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    return fmt::format("{:016x}", bits);
  }();
  return tag;
}

// A temporary name in the directory of `path`.
std::string TemporaryName(const std::string& path) {
  return ParentOf(path) + "/" + TemporaryFileName();
}

// Whether a name is a temporary name of a process that has ended.
bool IsStale(std::string_view name) {
  if (!name.starts_with(kTemporary) || !name.ends_with(kTemporaryEnd)) return false;
  name.remove_prefix(kTemporary.size());
  const size_t end = std::min(name.find('-'), name.size());
  int64_t pid = 0;
  if (!ParseInt64(name.substr(0, end), &pid) || pid <= 0) return false;
  if (pid == ::getpid()) return !name.substr(end).starts_with("-" + ProcessTag() + "-");
  return ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

// Whether `path` cannot be replaced by a rename: devices and pipes, and links such as /dev/stdout,
// which name whatever the process has open.
bool IsStream(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    return true;
  const bool of_process = path.starts_with("/dev/") || path.starts_with("/proc/");
  return of_process && ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// The target of a symbolic link, so that writing does not replace the link.
std::string TargetOfLink(const std::string& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  fs::path target = fs::canonical(path, error);
  return error ? path : target.string();
}

void KeepMode(int fd, const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) ::fchmod(fd, info.st_mode & 07777);
}

// Replaces the directory `target` by `fresh`; if that fails, `target` stays. Returns the temporary
// name of the old directory, or "" if there was none.
std::string Exchange(const std::string& fresh, const std::string& target) {
  if (!fs::exists(target)) {
    fs::rename(fresh, target);
    return "";
  }
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0)
    return fresh;
#endif
  const std::string old = TemporaryName(target);
  fs::rename(target, old);
  std::error_code failure, ignored;
  fs::rename(fresh, target, failure);
  if (!failure) return old;
  fs::rename(old, target, ignored);
  throw fs::filesystem_error("rename", failure);
}

// Exchanges the directories, then removes the old one. `noted` registers `fresh`.
void Replace(NotedTemporary& noted, const std::string& fresh, const std::string& target) {
  std::string old;
  {
    const BlockedSignals blocked;  // until the old directory is noted
    noted.Publish(target, [&] { old = Exchange(fresh, target); });
    if (!old.empty()) noted.Note(AT_FDCWD, old);
  }
  std::error_code ignored;
  if (!old.empty()) fs::remove_all(old, ignored);
}

// Makes a temporary directory in `parent` for f(noted, temporary), which moves its contents to
// `path`. If f throws, removes it.
template <class F>
void WithTemporaryDirectory(const std::string& parent, const std::string& path, const F& f) {
  NotedTemporary noted;
  std::string temporary;  // set before the directory is made
  const Temporary made = CreateTemporary([&](const std::string& name) {
    temporary = parent + "/" + name;
    return noted.Create(AT_FDCWD, temporary, [&] { return ::mkdir(temporary.c_str(), 0777); });
  });
  if (made.result < 0) ThrowErrno("write directory", path, errno);
  std::error_code ignored;
  try {
    f(noted, temporary);
  } catch (const fs::filesystem_error& e) {
    fs::remove_all(temporary, ignored);
    throw Error(ErrorCode::kIo,
                fmt::format("cannot write directory {}: {}", Quote(path, 300), e.code().message()));
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace

// Short enough for every file system.
std::string TemporaryFileName() {
  static std::atomic<unsigned> counter{0};
  return fmt::format("{}{}-{}-{}{}", kTemporary, ::getpid(), ProcessTag(), counter++,
                     kTemporaryEnd);
}

Temporary CreateTemporary(const std::function<int(const std::string& name)>& create) {
  constexpr int kTries = 100;  // the limit guards against a directory full of guessed names
  Temporary made;
  for (int i = 0; i < kTries; ++i) {
    made.name = TemporaryFileName();
    made.result = create(made.name);
    if (made.result >= 0 || errno != EEXIST) break;
  }
  return made;
}

std::string ReadFile(const std::string& path, uint64_t max_bytes) {
  const FileHandle file(path, kReadFlags, "open", path);
  return ReadRegular(file.get(), path, max_bytes);
}

std::string ReadFileOrStdin(const std::string& path, uint64_t max_bytes) {
  return path == "-" ? ReadStdin(max_bytes) : ReadFile(path, max_bytes);
}

void WriteFileAtomic(const std::string& path, std::string_view contents) {
  WriteFileInPieces(path, [&](const WritePieceFn& write) { write(contents); });
}

void WriteFileInPieces(const std::string& path,
                       const std::function<void(const WritePieceFn& write)>& fill) {
  StagedFile file(path);
  fill([&](std::string_view piece) { file.Write(piece); });
  file.Sync();
  file.Publish();
}

struct StagedFile::State {
  std::string path, shown;
  // Empty for what is written directly.
  std::string target, temporary;
  FileHandle file{-1};
  int fd = -1;
  NotedTemporary noted;

  void OpenStream() {
    // Opening a pipe without a reader fails instead of waiting for one.
    file = FileHandle(path, O_WRONLY | O_NONBLOCK, "write", path);
    ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
    fd = file.get();
  }

  void OpenTemporary() {
    if (path.find('\0') != std::string::npos) ThrowErrno("write", path, EINVAL);
    target = TargetOfLink(path);
    const std::string parent = ParentOf(target);
    std::string there;  // made before the file, so that no failed allocation leaves it
    const Temporary made = CreateTemporary([&](const std::string& name) {
      there = parent + "/" + name;
      return noted.Create(AT_FDCWD, there,
                          [&] { return OpenFile(there, O_WRONLY | O_CREAT | O_EXCL); });
    });
    if (made.result < 0) ThrowErrno("write", path, errno);
    file = FileHandle(made.result);
    fd = file.get();
    temporary = std::move(there);
  }
};

StagedFile::StagedFile(const std::string& path) : state_(std::make_unique<State>()) {
  state_->path = path;
  state_->shown = path == "-" ? "standard output" : path;
  if (path == "-") {
    state_->fd = STDOUT_FILENO;
    return;
  }
  MakeDirectories(ParentOf(path));
  IsStream(path) ? state_->OpenStream() : state_->OpenTemporary();
}

StagedFile::~StagedFile() {
  if (!state_->temporary.empty()) ::unlink(state_->temporary.c_str());
}

void StagedFile::Write(std::string_view piece) { WriteAll(state_->fd, piece, state_->shown); }

void StagedFile::Sync() {
  if (state_->temporary.empty()) return;
  KeepMode(state_->fd, state_->target);
  if (SyncFile(state_->fd) != 0) ThrowErrno("sync", state_->path, errno);
  if (state_->file.Close() != 0) ThrowErrno("write", state_->path, errno);
}

void StagedFile::Publish() {
  if (state_->temporary.empty()) return;
  state_->noted.Publish(state_->path, [&] {
    if (::rename(state_->temporary.c_str(), state_->target.c_str()) != 0)
      ThrowErrno("write", state_->path, errno);
    state_->temporary.clear();
  });
  SyncDirectory(ParentOf(state_->target));
}

void WriteDirectoryAtomic(const std::string& path,
                          const std::function<void(const std::string&)>& fill) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const std::string parent = ParentOf(target);
  MakeDirectories(parent);
  WithTemporaryDirectory(parent, path, [&](NotedTemporary& noted, const std::string& temporary) {
    fill(temporary);
    for (const auto& entry : fs::recursive_directory_iterator(temporary)) {
      if (entry.is_regular_file()) SyncFileAt(entry.path().string());
    }
    SyncDirectory(temporary);
    Replace(noted, temporary, target);
  });
  SyncDirectory(parent);
}

namespace {

// Moves one file to its place, which may be a pipe, or a link to another file system.
void MoveFile(const std::string& fresh, const std::string& target) {
  MakeDirectories(ParentOf(target));
  if (IsStream(target)) return WriteFileAtomic(target, ReadFile(fresh));
  struct stat info;
  if (::stat(target.c_str(), &info) == 0) ::chmod(fresh.c_str(), info.st_mode & 07777);
  if (::rename(fresh.c_str(), target.c_str()) == 0) return SyncDirectory(ParentOf(target));
  if (errno != EXDEV) ThrowErrno("write", target, errno);
  WriteFileAtomic(target, ReadFile(fresh));
}

// Moves the files of `from`, with their paths in it, to `to`: `last` after all others.
void MoveFiles(const std::string& from, const std::string& to, const std::string& last) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(from));
  }
  std::stable_partition(files.begin(), files.end(),
                        [&](const fs::path& file) { return file != last; });
  for (const fs::path& file : files)
    MoveFile((fs::path(from) / file).string(), TargetOfLink((fs::path(to) / file).string()));
}

}  // namespace

void WriteFilesTogether(const std::string& directory,
                        const std::function<void(const std::string&)>& fill,
                        const std::string& last) {
  const auto move = [&](NotedTemporary& noted, const std::string& temporary) {
    fill(temporary);
    {
      const BlockedSignals blocked;  // until the empty directory is noted
      noted.Publish(directory, [&] { MoveFiles(temporary, directory, last); });
      noted.Note(AT_FDCWD, temporary);
    }
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  };
  WithTemporaryDirectory(directory, directory, move);
  SyncDirectory(directory);
}

void RemoveDirectory(const std::string& path) {
  const std::string temporary = TemporaryName(path);
  NotedTemporary noted;
  const int renamed =
      noted.Create(AT_FDCWD, temporary, [&] { return ::rename(path.c_str(), temporary.c_str()); });
  std::error_code error;
  if (renamed == 0) fs::remove_all(temporary, error);
}

void RemoveStaleTemporaries(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    if (IsStale(entry.path().filename().string())) fs::remove_all(entry.path(), ignored);
  }
}

bool FileExists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

void MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error && !IsDirectory(path)) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot make directory {}: {}", Quote(path, 300), error.message()));
  }
}

}  // namespace coracle::inline internal
