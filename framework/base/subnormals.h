#pragma once
// Whether the processor computes with subnormal numbers (those below 1.2e-38 in float32, 2.3e-308
// in float64) or treats them as 0. It is a setting of each thread.

namespace coracle::inline internal {

// Sets it for this thread until the end of the scope. ParallelFor passes the setting of its caller
// on to the threads that help. On processors other than x86-64 and aarch64 it changes nothing.
class ScopedSubnormals {
 public:
  explicit ScopedSubnormals(bool flush);
  ~ScopedSubnormals();
  ScopedSubnormals(const ScopedSubnormals&) = delete;
  ScopedSubnormals& operator=(const ScopedSubnormals&) = delete;

 private:
  bool before_;
};

// Whether this thread treats them as 0.
bool FlushesSubnormals();

}  // namespace coracle::inline internal
