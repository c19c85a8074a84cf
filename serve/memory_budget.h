#pragma once
// How many bytes the requests that are there at the same time may take.

#include <coracle/serve/http_message.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace coracle::serve {

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : bytes_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // False, without any change, if fewer are left.
  bool Reserve(uint64_t bytes) {
    uint64_t used = used_.load();
    do {
      if (bytes > bytes_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }
  void Return(uint64_t bytes) { used_ -= bytes; }
  uint64_t bytes() const { return bytes_; }
  uint64_t used() const { return used_; }

 private:
  const uint64_t bytes_;
  std::atomic<uint64_t> used_{0};
};

// What one request has reserved, until its end. Without a budget, there is no limit.
class BudgetShare {
 public:
  explicit BudgetShare(MemoryBudget* budget) : budget_(budget) {}
  BudgetShare(BudgetShare&& from) noexcept
      : budget_(from.budget_), bytes_(std::exchange(from.bytes_, 0)) {}
  BudgetShare& operator=(BudgetShare&& from) noexcept {
    std::swap(budget_, from.budget_);
    std::swap(bytes_, from.bytes_);
    return *this;
  }
  ~BudgetShare() {
    if (budget_) budget_->Return(bytes_);
  }

  // Throws HttpError if the budget does not have them: with status 413 if the share would be larger
  // than the whole budget, so that no other try can succeed, and else 503.
  void Grow(uint64_t bytes) {
    if (!budget_) return;
    if (!budget_->Reserve(bytes)) {
      if (bytes > budget_->bytes() - bytes_)
        throw HttpError(413,
                        "the request needs more memory than the server has for all requests "
                        "(--max_memory_mb)");
      throw HttpError(503, "the server has no memory left for this request; try again later",
                      RequestEnd::kFailure);
    }
    bytes_ += bytes;
  }
  // Gives back some of them.
  void Shrink(uint64_t bytes) {
    if (!budget_) return;
    bytes = std::min(bytes, bytes_);
    budget_->Return(bytes);
    bytes_ -= bytes;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  MemoryBudget* budget_;
  uint64_t bytes_ = 0;
};

}  // namespace coracle::serve
