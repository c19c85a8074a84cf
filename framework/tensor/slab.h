#pragma once
// TensorSlab: memory for many tensors with similar lifetimes. Internal to Coracle.

#include <cstdint>
#include <memory>

namespace coracle::inline internal {

// During its lifetime, tensors made by this thread that are too small for huge pages of their own
// are packed into chunks of huge pages, which the system provides several times faster than small
// pages. A chunk is released with its last tensor, so temporaries should not be made meanwhile.
// Users of the tensors notice no difference: each tensor counts against memory limits and has its
// own version.
class TensorSlab {
 public:
  explicit TensorSlab(uint64_t bytes);  // an estimate of the total size
  ~TensorSlab();
  TensorSlab(const TensorSlab&) = delete;
  TensorSlab& operator=(const TensorSlab&) = delete;

  // Memory for `size` bytes, aligned like a tensor's, with its owner; null if there is none.
  struct Piece {
    std::shared_ptr<void> chunk;
    void* data = nullptr;
  };
  Piece Take(uint64_t size);
  static TensorSlab* Current() { return current_; }

 private:
  static thread_local TensorSlab* current_;
  TensorSlab* outer_;
  uint64_t expected_;
  std::shared_ptr<void> chunk_;
  uint64_t size_ = 0, used_ = 0;  // of the chunk
};

}  // namespace coracle::inline internal
