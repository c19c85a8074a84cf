#pragma once
// Allocations of this process that fail on purpose. The binary has its own malloc and its kin, in
// front of the C library's.

#include <cstdint>

namespace coracle::faults {

// Counts allocations of all threads outside of oneDNN's calls, and lets the one with the number
// `at` (from 1) fail, while it lives. 0: none fails.
class ScopedAllocationFault {
 public:
  explicit ScopedAllocationFault(int64_t at = 0);
  ~ScopedAllocationFault();
  ScopedAllocationFault(const ScopedAllocationFault&) = delete;
  ScopedAllocationFault& operator=(const ScopedAllocationFault&) = delete;

  static int64_t Count();  // so far
};

}  // namespace coracle::faults
