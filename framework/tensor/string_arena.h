#pragma once
// StringArena: the bytes of strings during one run. Internal to Coracle.
//
// An element of a tensor of strings (StringRef) is the address and the length of bytes that it does
// not own. A kernel may therefore copy elements as it copies numbers. These rules keep the bytes
// alive for as long as an element refers to them:
//   * Outside a run, a tensor owns the bytes of its elements. OfStrings, Clone and CopyFrom copy
//     the bytes, too.
//   * During a run, no bytes are freed. Ops put the strings that they make into the arena. If a
//     tensor is released, the arena keeps its bytes (Keep).
//   * At the end of a run, the arena frees its bytes. What outlives the run has its own copy:
//     results (Clone) and variables of the scope (OwnStrings).

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

class StringArena {
 public:
  StringArena() = default;
  StringArena(const StringArena&) = delete;
  StringArena& operator=(const StringArena&) = delete;

  // The arena of the innermost ScopedStrings of this thread; nullptr outside of a run.
  static StringArena* Current() { return current_; }
  // Current(), for a kernel. Throws InternalError outside of a run.
  static StringArena& OfRun();

  // A copy of the bytes. Throws OutOfMemory.
  StringRef Add(std::string_view bytes);
  // `size` bytes to be written by the caller.
  char* Take(uint64_t size);
  // Keeps the bytes of a released tensor until Clear.
  void Keep(std::shared_ptr<void> bytes) noexcept;
  // Frees all strings, at the end of a run. Keeps memory of usual size for the next run.
  void Clear();
  // Whether the run has a tensor of strings, even if it made none.
  bool used() const { return used_; }
  void MarkUsed() { used_ = true; }

 private:
  friend class ScopedStrings;
  static thread_local StringArena* current_;
  std::shared_ptr<void> chunk_;
  uint64_t size_ = 0, at_ = 0;  // of the chunk
  std::vector<std::shared_ptr<void>> kept_;
  bool used_ = false;
};

// Makes the arena current on this thread during its lifetime.
class ScopedStrings {
 public:
  explicit ScopedStrings(StringArena& arena)
      : before_(std::exchange(StringArena::current_, &arena)) {}
  ~ScopedStrings() { StringArena::current_ = before_; }
  ScopedStrings(const ScopedStrings&) = delete;
  ScopedStrings& operator=(const ScopedStrings&) = delete;

 private:
  StringArena* before_;
};

// Gives each tensor of strings in the value bytes of its own.
void OwnStrings(VarValue& value);

}  // namespace coracle::inline internal
