#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/text.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kAhead = 16384;

}  // namespace

FileReader::FileReader(const std::string& path)
    : FileReader(FileHandle(path, kReadFlags, "open", path), path) {}

FileReader::FileReader(FileHandle file, const std::string& path)
    : path_(path),
      file_(std::move(file)),
      size_(SizeOfRegular(file_.get(), path, std::numeric_limits<uint64_t>::max())),
      ahead_(std::make_unique<char[]>(kAhead)) {}

void FileReader::Read(void* to, uint64_t size) {
  auto* out = static_cast<char*>(to);
  offset_ += size;
  const uint64_t there = std::min(size, end_ - begin_);
  if (there > 0) std::memcpy(out, ahead_.get() + begin_, there);
  begin_ += there;
  size -= there;
  if (size == 0) return;
  uint64_t got = 0;
  if (size >= kAhead) return ReadNow(out + there, size, size, &got);
  begin_ = end_ = 0;
  ReadNow(ahead_.get(), size, kAhead, &end_);
  std::memcpy(out + there, ahead_.get(), size);
  begin_ = size;
}

void FileReader::Seek(uint64_t offset) {
  // Wraps to a value that is too large if `offset` is before the current position.
  const uint64_t ahead = offset - offset_;
  if (ahead <= end_ - begin_) {
    begin_ += ahead;
  } else {
    begin_ = end_ = 0;
    if (::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
      ThrowErrno("read", path_, errno);
  }
  offset_ = offset;
}

// Reads at least `least` and at most `most` bytes.
void FileReader::ReadNow(char* to, uint64_t least, uint64_t most, uint64_t* got) {
  for (*got = 0; *got < least;) {
    const ssize_t more = ::read(file_.get(), to + *got, most - *got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) ThrowErrno("read", path_, errno);
    if (more == 0)
      throw Error(ErrorCode::kIo, "cannot read " + Quote(path_, 300) + ": it ends early");
    *got += static_cast<uint64_t>(more);
  }
}

}  // namespace coracle::inline internal
