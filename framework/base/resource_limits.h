#pragma once
// ResourceLimits: how much memory and time the work of a thread may take. Every allocation for
// elements of tensors (by a run, a plan's constants, tensor arrays, kernels' scratch) is checked
// here first; loops whose length a program or a text determines check the time.

#include <coracle/framework/base/error.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

namespace coracle {

// Thrown when a limit or the system refuses memory. Code that runs ops catches it and adds the op.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& what)
      : Error(ErrorCode::kResourceExhausted, "out of memory: " + what) {}
};

struct ResourceOptions {
  uint64_t memory = 0;  // bytes; 0: no limit
  double seconds = 0;   // since these limits or the last ScopedRun began; 0: no limit
  // Called when the time is checked; true ends the work with kCancelled. Must be safe to call
  // from any thread.
  std::function<bool()> stop = {};
};

class ResourceLimits {
 public:
  // Starts the clock. Memory reserved in these limits is reserved in `outer` too, which is by
  // default the innermost ScopedLimits of this thread.
  explicit ResourceLimits(ResourceOptions options,
                          std::shared_ptr<ResourceLimits> outer = Current());

  // The limits of the innermost ScopedLimits of this thread; nullptr if there is none.
  static const std::shared_ptr<ResourceLimits>& Current();

  // Counts bytes as in use. Throws OutOfMemory, and counts nothing, if that would exceed the limit;
  // only then is `what` called, which says what they are for. Reserve and Release are thread-safe.
  template <class What>
  void Reserve(uint64_t bytes, What&& what) {
    const Refusal refusal = TryReserve(bytes);
    if (refusal.refused) Throw(refusal, bytes, what());
  }
  void Release(uint64_t bytes) noexcept;
  uint64_t bytes_in_use() const { return in_use_; }

  // Throws kDeadlineExceeded or kCancelled if the work must stop; only then is `where` called,
  // which makes the text after "passed its time limit of 2 s".
  template <class Where>
  void CheckTime(Where&& where) const {
    const Stop stop = FindStop();
    if (stop.kind != Stop::kNone) Throw(stop, where());
  }

  // By how many seconds these limits, or a ScopedRun inside them, have exceeded their time. A
  // watching thread uses it, since nothing checks the time while an op runs. Thread-safe.
  double SecondsOverdue() const;

 private:
  friend class ScopedRun;
  void StartRun();
  void EndRun();

  struct Refusal {
    bool refused = false;
    uint64_t in_use = 0, limit = 0;
  };
  Refusal TryReserve(uint64_t bytes);
  [[noreturn]] static void Throw(const Refusal& refusal, uint64_t bytes, const std::string& what);
  struct Stop {
    enum Kind { kNone, kTime, kAsked } kind = kNone;
    double seconds = 0;
  };
  Stop FindStop() const;
  [[noreturn]] static void Throw(Stop stop, const std::string& where);

  ResourceOptions options_;
  std::shared_ptr<ResourceLimits> outer_;
  std::atomic<double> start_{0};         // seconds
  std::atomic<double> run_deadline_{0};  // of the ScopedRun that began last; 0: there is none
  std::atomic<uint64_t> in_use_{0};
};

// Applies limits to this thread during the lifetime of the object.
class ScopedLimits {
 public:
  explicit ScopedLimits(std::shared_ptr<ResourceLimits> limits);
  ~ScopedLimits();
  ScopedLimits(const ScopedLimits&) = delete;
  ScopedLimits& operator=(const ScopedLimits&) = delete;

 private:
  std::shared_ptr<ResourceLimits> before_;
};

// One run of a program under its own limits; starts their clock.
class ScopedRun {
 public:
  explicit ScopedRun(std::shared_ptr<ResourceLimits> limits);
  ~ScopedRun();
  ScopedRun(const ScopedRun&) = delete;
  ScopedRun& operator=(const ScopedRun&) = delete;

 private:
  ResourceLimits& limits_;
  ScopedLimits scoped_;
};

// Calls CheckTime of the current limits, if there are any, with the text "while `doing`".
void CheckTimeLimit(const char* doing);

// 80% of the memory of the machine, or of the control group that the process is in.
uint64_t DefaultMemoryLimit();

// ParallelFor: the only way in which Coracle's loops use several threads. The threads belong to
// Coracle's pool, which leaves processors to other programs that need them; oneDNN is called inside
// it, for parts of the work.
//
// The number of threads that a ParallelFor may use. Default: OMP_NUM_THREADS, or as many as there
// are cores and the CPU quota of the process allows. Process-wide.
int NumThreads();
void SetNumThreads(int n);

inline namespace internal {
void ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                      void* context);
}

// Calls body(begin, end) on ranges of about equal size that cover [0, n). There are at most n /
// grain ranges (rounded up), and at most one per thread; the split depends only on n, grain and
// NumThreads(). Nested calls run serially. If body throws, one of its exceptions is rethrown
// here. Allocates nothing.
template <class Body>
void ParallelFor(int64_t n, int64_t grain, Body&& body) {
  if (n <= 0) return;
  if (n <= grain) {
    body(int64_t{0}, n);
    return;
  }
  using Fn = std::remove_reference_t<Body>;
  internal::ParallelForRange(
      n, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<Fn*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace coracle
