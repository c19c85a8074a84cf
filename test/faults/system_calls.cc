#include <coracle/test/faults/system_calls.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>

namespace coracle::faults {
namespace {

std::atomic<bool> active{false};
Fault wanted;
std::array<std::atomic<int>, 7> counts{};

enum class Outcome { kUsual, kOneByte, kError };

// Counts the call.
Outcome OutcomeOf(Call call) {
  if (!active) return Outcome::kUsual;
  const int number = ++counts[static_cast<size_t>(call)];
  if (call != wanted.call) return Outcome::kUsual;
  if (wanted.after_one_byte && number == wanted.at - 1) return Outcome::kOneByte;
  if (number < wanted.at || number > std::max(wanted.at, wanted.last)) return Outcome::kUsual;
  return wanted.error == 0 ? Outcome::kOneByte : Outcome::kError;
}

bool Fails(Call call) { return OutcomeOf(call) == Outcome::kError; }

// The result of a call on a file: -1 with errno, one byte, or what the system says.
template <class Whole, class Short>
ssize_t Transfer(Call call, int fd, const Whole& whole, const Short& one_byte) {
  const Outcome outcome = fd <= STDERR_FILENO ? Outcome::kUsual : OutcomeOf(call);
  if (outcome == Outcome::kUsual) return whole();
  if (outcome == Outcome::kOneByte) return one_byte();
  errno = wanted.error;
  return -1;
}

int Refuse() {
  errno = wanted.error;
  return -1;
}

}  // namespace

const char* ToString(Call call) {
  constexpr const char* kNames[] = {"none", "open", "write", "read", "fsync", "rename", "mkdir"};
  return kNames[static_cast<size_t>(call)];
}

ScopedFault::ScopedFault(const Fault& fault) {
  wanted = fault;
  for (std::atomic<int>& count : counts) count = 0;
  active = true;
}
ScopedFault::~ScopedFault() { active = false; }
int ScopedFault::Calls(Call call) { return counts[static_cast<size_t>(call)]; }

}  // namespace coracle::faults

using coracle::faults::Call;
using coracle::faults::Fails;
using coracle::faults::Refuse;
using coracle::faults::Transfer;

// In the place of the C library's, for this process.
extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if (Fails(Call::kOpen)) return Refuse();
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t write(int fd, const void* bytes, size_t size) {
  return Transfer(
      Call::kWrite, fd, [&] { return ::syscall(SYS_write, fd, bytes, size); },
      [&] { return ::syscall(SYS_write, fd, bytes, size > 0 ? 1 : 0); });
}

ssize_t read(int fd, void* bytes, size_t size) {
  return Transfer(
      Call::kRead, fd, [&] { return ::syscall(SYS_read, fd, bytes, size); },
      [&] { return ::syscall(SYS_read, fd, bytes, size > 0 ? 1 : 0); });
}

int fsync(int fd) {
  if (Fails(Call::kSync)) return Refuse();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int rename(const char* from, const char* to) noexcept {
  if (Fails(Call::kRename)) return Refuse();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int in, const char* from, int there, const char* to) noexcept {
  if (Fails(Call::kRename)) return Refuse();
  return static_cast<int>(::syscall(SYS_renameat2, in, from, there, to, 0));
}

int renameat2(int in, const char* from, int there, const char* to, unsigned flags) noexcept {
  if (Fails(Call::kRename)) return Refuse();
  return static_cast<int>(::syscall(SYS_renameat2, in, from, there, to, flags));
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (Fails(Call::kMakeDirectory)) return Refuse();
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
}
