#include <coracle/framework/base/temporaries.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace coracle {
namespace {

enum : int { kFree, kBeingFilled, kNoted };

struct Slot {
  std::atomic<int> state{kFree};
  int directory = AT_FDCWD;
  char path[PATH_MAX] = {};
};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler reads it");

// Not destroyed: a signal may come at the very end.
std::array<Slot, 32>& Slots() {
  static auto* slots = new std::array<Slot, 32>();
  return *slots;
}
std::atomic<bool> any_noted{false};

constexpr int kMaxDepth = 16;

void RemoveTree(int directory, const char* path, int depth);

// One batch of entries; false once none was removed. readdir may allocate, which a signal handler
// must not, so this asks the kernel (getdents64(2)).
bool RemoveSome(int directory, int depth) {
  alignas(std::uint64_t) char buffer[2048];
  bool removed = false;
  ::lseek(directory, 0, SEEK_SET);
  const long bytes = ::syscall(SYS_getdents64, directory, buffer, sizeof buffer);
  for (long at = 0; at < bytes;) {
    std::uint16_t length = 0;
    std::memcpy(&length, buffer + at + offsetof(dirent64, d_reclen), sizeof length);
    const char* name = buffer + at + offsetof(dirent64, d_name);
    at += length;
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
    RemoveTree(directory, name, depth + 1);
    removed |= ::faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
  }
  return removed;
}

void RemoveTree(int directory, const char* path, int depth) {
  if (::unlinkat(directory, path, 0) == 0 || (errno != EISDIR && errno != EPERM)) return;
  if (depth > kMaxDepth) return;
  const int opened = ::openat(directory, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return;
  while (RemoveSome(opened, depth)) {
  }
  ::close(opened);
  ::unlinkat(directory, path, AT_REMOVEDIR);
}

}  // namespace

NotedTemporary::NotedTemporary(int directory, const std::string& path) {
  if (path.size() >= PATH_MAX) return;
  std::array<Slot, 32>& slots = Slots();
  any_noted.store(true);
  for (size_t i = 0; i < slots.size(); ++i) {
    int free = kFree;
    if (!slots[i].state.compare_exchange_strong(free, kBeingFilled)) continue;
    slots[i].directory = directory;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state.store(kNoted);
    slot_ = static_cast<int>(i);
    return;
  }
}

NotedTemporary::~NotedTemporary() {
  if (slot_ >= 0) Slots()[static_cast<size_t>(slot_)].state.store(kFree);
}

void RemoveNotedTemporaries() {
  if (!any_noted.load()) return;  // and no slots were made
  for (Slot& slot : Slots())
    if (slot.state.load() == kNoted) RemoveTree(slot.directory, slot.path, 0);
}

}  // namespace coracle
