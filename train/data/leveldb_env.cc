#include <coracle/train/data/leveldb_env.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

namespace coracle::inline internal {
namespace {

using leveldb::Slice;
using leveldb::Status;

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The status for a system call that failed with this errno.
Status Failed(const std::string& path, int error) {
  return error == ENOENT ? Status::NotFound(NameOf(path), "no such file")
                         : Status::IOError(NameOf(path), std::strerror(error));
}

constexpr const char* kLink =
    "is a symbolic link, which is not followed; replace it by a copy of its file";

Status NotRegular(const std::string& name, mode_t mode) {
  return Status::IOError(name, S_ISLNK(mode) ? kLink : "is not a regular file");
}

// Whether the name consists of digits followed by this ending.
bool IsNumbered(const std::string& name, const char* ending) {
  const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits > 0 && name.compare(digits, name.npos, ending) == 0;
}

bool IsLog(const std::string& name) { return IsNumbered(name, ".log"); }

// Whether the library reads a file of this name (leveldb's doc/impl.md). It only writes the
// file LOG.
bool IsOfDatabase(const std::string& name) {
  static const std::string kManifest = "MANIFEST-";
  return name == "CURRENT" || name == "LOCK" || IsLog(name) || IsNumbered(name, ".ldb") ||
         IsNumbered(name, ".sst") ||
         (name.rfind(kManifest, 0) == 0 && IsNumbered(name.substr(kManifest.size()), ""));
}

// Sets `found` to whether this process has the file open. A process that holds a lock of a file has
// the file open. It loses the lock when it closes any descriptor of the file (fcntl(2)).
Status FindOpenHere(const struct stat& file, bool* found) {
  DIR* descriptors = ::opendir("/proc/self/fd");
  if (!descriptors) {
    return Status::IOError("cannot tell without /proc/self/fd whether this process has it open",
                           std::strerror(errno));
  }
  *found = false;
  while (const dirent* entry = ::readdir(descriptors)) {
    struct stat info;
    *found |= ::fstatat(::dirfd(descriptors), entry->d_name, &info, 0) == 0 &&
              info.st_dev == file.st_dev && info.st_ino == file.st_ino;
  }
  ::closedir(descriptors);
  return Status::OK();
}

// Whether another process holds a lock on the file.
bool IsLockedElsewhere(int file) {
  struct flock held = {};
  held.l_type = F_WRLCK;
  held.l_whence = SEEK_SET;
  return ::fcntl(file, F_GETLK, &held) == 0 && held.l_type != F_UNLCK;
}

// Repeats pread until it has all bytes or the file ends.
Status ReadAt(int file, uint64_t offset, size_t size, Slice* result, char* scratch) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(file, scratch + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::IOError("cannot read", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  *result = Slice(scratch, done);
  return Status::OK();
}

class RandomFile : public leveldb::RandomAccessFile {
 public:
  explicit RandomFile(int file) : file_(file) {}
  ~RandomFile() override { ::close(file_); }
  Status Read(uint64_t offset, size_t size, Slice* result, char* scratch) const override {
    return ReadAt(file_, offset, size, result, scratch);
  }

 private:
  int file_;
};

class SequentialFromFile : public leveldb::SequentialFile {
 public:
  explicit SequentialFromFile(int file) : file_(file) {}
  ~SequentialFromFile() override { ::close(file_); }
  Status Read(size_t size, Slice* result, char* scratch) override {
    const Status status = ReadAt(file_, at_, size, result, scratch);
    if (status.ok()) at_ += result->size();
    return status;
  }
  Status Skip(uint64_t size) override {
    at_ += size;
    return Status::OK();
  }

 private:
  int file_;
  uint64_t at_ = 0;
};

Slice Part(const std::string& bytes, uint64_t offset, size_t size) {
  if (offset >= bytes.size()) return {};
  return {bytes.data() + offset, std::min<size_t>(size, bytes.size() - offset)};
}

class RandomMemory : public leveldb::RandomAccessFile {
 public:
  explicit RandomMemory(std::shared_ptr<std::string> bytes) : bytes_(std::move(bytes)) {}
  Status Read(uint64_t offset, size_t size, Slice* result, char*) const override {
    *result = Part(*bytes_, offset, size);
    return Status::OK();
  }

 private:
  std::shared_ptr<std::string> bytes_;
};

class SequentialFromMemory : public leveldb::SequentialFile {
 public:
  explicit SequentialFromMemory(std::shared_ptr<std::string> bytes) : bytes_(std::move(bytes)) {}
  Status Read(size_t size, Slice* result, char*) override {
    *result = Part(*bytes_, at_, size);
    at_ += result->size();
    return Status::OK();
  }
  Status Skip(uint64_t size) override {
    at_ += size;
    return Status::OK();
  }

 private:
  std::shared_ptr<std::string> bytes_;
  uint64_t at_ = 0;
};

class MemoryWriter : public leveldb::WritableFile {
 public:
  explicit MemoryWriter(std::shared_ptr<std::string> bytes) : bytes_(std::move(bytes)) {}
  Status Append(const Slice& data) override {
    bytes_->append(data.data(), data.size());
    return Status::OK();
  }
  Status Close() override { return Status::OK(); }
  Status Flush() override { return Status::OK(); }
  Status Sync() override { return Status::OK(); }

 private:
  std::shared_ptr<std::string> bytes_;
};

}  // namespace

ReadOnlyEnv::ReadOnlyEnv() : EnvWrapper(leveldb::Env::Default()) {}

ReadOnlyEnv::~ReadOnlyEnv() {
  if (directory_ >= 0) ::close(directory_);
}

Status ReadOnlyEnv::OpenDirectory(const std::string& path, uint64_t* log_bytes) {
  directory_ = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ < 0) return Failed(path, errno);
  std::vector<std::string> names;
  Status status = GetChildren(path, &names);
  for (size_t i = 0; status.ok() && i < names.size(); ++i) status = CheckEntry(names[i], log_bytes);
  return status;
}

Status ReadOnlyEnv::CheckEntry(const std::string& name, uint64_t* log_bytes) const {
  if (!IsOfDatabase(name)) return Status::OK();
  struct stat info;
  if (::fstatat(directory_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return Failed(name, errno);
  if (!S_ISREG(info.st_mode)) return NotRegular(name, info.st_mode);
  if (IsLog(name)) *log_bytes += static_cast<uint64_t>(info.st_size);
  return Status::OK();
}

void ReadOnlyEnv::FinishWork() {
  std::vector<std::pair<void (*)(void*), void*>> work;
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    work.swap(waiting_);
  }
  for (const auto& [run, argument] : work) target()->Schedule(run, argument);
}

void ReadOnlyEnv::Schedule(void (*work)(void*), void* argument) {
  {
    const std::lock_guard lock(mutex_);
    if (!finishing_) return waiting_.emplace_back(work, argument), void();
  }
  target()->Schedule(work, argument);
}

ReadOnlyEnv::Bytes ReadOnlyEnv::Written(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = written_.find(NameOf(path));
  return found == written_.end() ? nullptr : found->second;
}

Status ReadOnlyEnv::Open(const std::string& path, int* file) const {
  *file = ::openat(directory_, NameOf(path).c_str(),
                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (*file < 0 && errno == ELOOP) return Status::IOError(NameOf(path), kLink);
  if (*file < 0) return Failed(path, errno);
  struct stat info;
  Status status;
  if (::fstat(*file, &info) != 0)
    status = Failed(path, errno);
  else if (!S_ISREG(info.st_mode))
    status = NotRegular(NameOf(path), info.st_mode);
  if (!status.ok()) ::close(*file);
  return status;
}

Status ReadOnlyEnv::NewSequentialFile(const std::string& path, leveldb::SequentialFile** file) {
  *file = nullptr;
  if (Bytes bytes = Written(path)) return *file = new SequentialFromMemory(bytes), Status::OK();
  int opened = -1;
  const Status status = Open(path, &opened);
  if (status.ok()) *file = new SequentialFromFile(opened);
  return status;
}

Status ReadOnlyEnv::NewRandomAccessFile(const std::string& path, leveldb::RandomAccessFile** file) {
  *file = nullptr;
  if (Bytes bytes = Written(path)) return *file = new RandomMemory(bytes), Status::OK();
  int opened = -1;
  const Status status = Open(path, &opened);
  if (status.ok()) *file = new RandomFile(opened);
  return status;
}

Status ReadOnlyEnv::NewWritableFile(const std::string& path, leveldb::WritableFile** file) {
  *file = nullptr;
  const std::lock_guard lock(mutex_);
  if (finishing_) return Status::IOError(NameOf(path), "the database is only read");
  const auto bytes = std::make_shared<std::string>();
  written_[NameOf(path)] = bytes;
  *file = new MemoryWriter(bytes);
  return Status::OK();
}

Status ReadOnlyEnv::NewAppendableFile(const std::string& path, leveldb::WritableFile** file) {
  *file = nullptr;
  return Status::NotSupported(NameOf(path), "the database is only read");
}

bool ReadOnlyEnv::FileExists(const std::string& path) {
  uint64_t size = 0;
  return GetFileSize(path, &size).ok();
}

Status ReadOnlyEnv::GetFileSize(const std::string& path, uint64_t* size) {
  if (const Bytes bytes = Written(path)) return *size = bytes->size(), Status::OK();
  struct stat info;
  if (::fstatat(directory_, NameOf(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return Failed(path, errno);
  if (!S_ISREG(info.st_mode)) return NotRegular(NameOf(path), info.st_mode);
  *size = static_cast<uint64_t>(info.st_size);
  return Status::OK();
}

Status ReadOnlyEnv::GetChildren(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  const int again = ::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* listing = again < 0 ? nullptr : ::fdopendir(again);
  if (!listing) {
    const int error = errno;
    if (again >= 0) ::close(again);
    return Failed(path, error);
  }
  while (const dirent* entry = ::readdir(listing)) names->emplace_back(entry->d_name);
  ::closedir(listing);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, bytes] : written_)
    if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
  return Status::OK();
}

// Drops a file that the library wrote to memory. A file of the directory is kept; the library does
// not read a file that it removed.
Status ReadOnlyEnv::RemoveFile(const std::string& path) {
  const std::lock_guard lock(mutex_);
  written_.erase(NameOf(path));
  return Status::OK();
}

Status ReadOnlyEnv::RenameFile(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const auto found = written_.find(NameOf(from));
  if (found == written_.end()) return Failed(from, ENOENT);
  written_[NameOf(to)] = found->second;
  written_.erase(found);
  return Status::OK();
}

// Checks whether another process holds the lock, without taking it. If this process may hold the
// lock, the file is not opened, since closing it would release the lock.
Status ReadOnlyEnv::LockFile(const std::string& path, leveldb::FileLock** lock) {
  // Keeps one call from seeing the descriptor of another.
  static std::mutex one_at_a_time;
  const std::lock_guard guard(one_at_a_time);
  *lock = nullptr;
  const std::string who = "lock " + NameOf(path);
  struct stat info;
  if (::fstatat(directory_, NameOf(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    bool is_open = false;
    Status status = FindOpenHere(info, &is_open);
    if (!status.ok()) return status;
    if (is_open) return Status::IOError(who, "held by this process");
    int file = -1;
    status = Open(path, &file);
    if (!status.ok()) return status;
    const bool held = IsLockedElsewhere(file);
    ::close(file);
    if (held) return Status::IOError(who, "held by another process");
  } else if (errno != ENOENT) {
    return Failed(path, errno);
  }
  *lock = new leveldb::FileLock;
  return Status::OK();
}

Status ReadOnlyEnv::UnlockFile(leveldb::FileLock* lock) {
  delete lock;
  return Status::OK();
}

Status ReadOnlyEnv::NewLogger(const std::string& path, leveldb::Logger** logger) {
  *logger = nullptr;
  return Status::NotSupported(NameOf(path), "no log is kept");
}

}  // namespace coracle::inline internal
