#pragma once
// TensorSlab: memory for many tensors that live about as long as each other. Internal to Coracle.

#include <cstdint>
#include <memory>

namespace coracle {

// While it lives, tensors that this thread makes and that are too small for huge pages of their own
// lie side by side in chunks of huge pages: the system makes these several times as fast as small
// pages. A chunk is released with the last tensor in it, so temporaries should not be made
// meanwhile. Nothing changes for who uses the tensors: each counts for the limits of memory, and
// has its own version.
class TensorSlab {
 public:
  explicit TensorSlab(uint64_t bytes);  // about so many will be asked for
  ~TensorSlab();
  TensorSlab(const TensorSlab&) = delete;
  TensorSlab& operator=(const TensorSlab&) = delete;

  // Memory for `size` bytes, aligned as a tensor's, and what keeps it; null if there is none.
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

}  // namespace coracle
