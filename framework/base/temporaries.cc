#include <coracle/framework/base/blocked_signals.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/temporaries.h>
#include <coracle/framework/base/text.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

namespace coracle::inline internal {
namespace {

// The owner moves a slot from kFree over kHeld to kNoted, and from kNoted or kRemoved to kFree. It
// moves it from kNoted to kHeld while it renames the path. A handler moves it from kNoted over
// kRemoving to kRemoved. So the handler reads a path only while its owner cannot change it, and
// removes no path that its owner is about to rename.
enum : int { kFree, kHeld, kNoted, kRemoving, kRemoved };

struct Slot {
  std::atomic<int> state{kFree};
  int directory = AT_FDCWD;
  char path[PATH_MAX] = {};
};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler reads it");

// Never destroyed: a signal may come at the very end.
std::array<Slot, 32>& Slots() {
  static auto* slots = new std::array<Slot, 32>();
  return *slots;
}
std::atomic<bool> any_noted{false};

constexpr int kMaxDepth = 16;

void RemoveTree(int directory, const char* path, int depth);

// Removes one batch of entries; returns false if it removed none. Calls the kernel (getdents64(2)),
// since readdir may allocate, which a signal handler must not do.
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

int NotedTemporary::Create(int directory, const std::string& path,
                           const std::function<int()>& create) {
  const BlockedSignals blocked;
  const int result = create();
  if (result >= 0) Note(directory, path);
  return result;
}

void NotedTemporary::Note(int directory, const std::string& path) {
  Withdraw();
  if (path.size() >= PATH_MAX) return;
  std::array<Slot, 32>& slots = Slots();
  any_noted.store(true);
  for (size_t i = 0; i < slots.size(); ++i) {
    int free = kFree;
    if (!slots[i].state.compare_exchange_strong(free, kHeld)) continue;
    slots[i].directory = directory;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state.store(kNoted);
    slot_ = static_cast<int>(i);
    return;
  }
}

bool NotedTemporary::Withdraw() {
  if (slot_ < 0) return true;
  std::atomic<int>& state = Slots()[static_cast<size_t>(slot_)].state;
  slot_ = -1;
  int noted = kNoted;
  if (state.compare_exchange_strong(noted, kFree)) return true;
  // A handler that interrupted this thread has returned, so only a handler in another thread can
  // still be active.
  while (state.load() == kRemoving) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  state.store(kFree);
  return false;
}

void NotedTemporary::Publish(const std::string& target, const std::function<void()>& publish) {
  const BlockedSignals blocked;
  if (slot_ < 0) return publish();
  std::atomic<int>& state = Slots()[static_cast<size_t>(slot_)].state;
  int noted = kNoted;
  if (!state.compare_exchange_strong(noted, kHeld)) {
    Withdraw();
    throw Error(ErrorCode::kIo, fmt::format("cannot write {}: a signal that ends the process came "
                                            "first, and its handler removed the temporary file",
                                            Quote(target, 300)));
  }
  try {
    publish();
  } catch (...) {
    state.store(kNoted);  // before a signal that has come meanwhile is handled
    throw;
  }
  state.store(kFree);
  slot_ = -1;
}

void RemoveNotedTemporaries() {
  if (!any_noted.load()) return;  // then no slots were made
  for (Slot& slot : Slots()) {
    int noted = kNoted;
    if (slot.state.compare_exchange_strong(noted, kRemoving)) {
      RemoveTree(slot.directory, slot.path, 0);
      slot.state.store(kRemoved);
    }
    // The handler of another thread may be at work, and the caller is about to end the process. A
    // file system that does not answer must not keep it from that.
    for (int wait = 0; wait < 1000 && slot.state.load() == kRemoving; ++wait)
      ::poll(nullptr, 0, 1);  // a handler may call it, unlike usleep (signal-safety(7))
  }
}

}  // namespace coracle::inline internal
