#pragma once
// Marks the time that the process spends inside oneDNN (its worker threads included), whose own
// allocations are its affair: tests that count allocations ask.

#include <atomic>

namespace coracle::onednn {

inline std::atomic<int> calls_under_way{0};

class Scope {
 public:
  Scope() { calls_under_way.fetch_add(1, std::memory_order_relaxed); }
  ~Scope() { calls_under_way.fetch_sub(1, std::memory_order_relaxed); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace coracle::onednn
