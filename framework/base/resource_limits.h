#pragma once
// ResourceLimits: how much memory and time the work of a thread may take. Elements of tensors are
// asked for here before they are allocated, whoever makes them (a run, a plan's constants, tensor
// arrays, kernels' scratch); loops whose length a program or a text chooses ask for the time.

#include <coracle/framework/base/error.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

namespace coracle {

// Memory that a limit, or the system, does not give. Who runs ops catches it and says which one.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& what)
      : Error(ErrorCode::kResourceExhausted, "out of memory: " + what) {}
};

struct ResourceOptions {
  uint64_t memory = 0;  // bytes; 0: no limit
  double seconds = 0;   // from the beginning of these limits, or of the last ScopedRun; 0: no limit
  // Asked with the time: true ends the work with kCancelled. Safe to call from any thread.
  std::function<bool()> stop = {};
};

class ResourceLimits {
 public:
  // What is taken from these limits is taken from `outer` too: by default from those of the scope
  // that this thread is in. The clock starts.
  explicit ResourceLimits(ResourceOptions options,
                          std::shared_ptr<ResourceLimits> outer = Current());

  // Those of the innermost ScopedLimits of this thread; nullptr when there is none.
  static const std::shared_ptr<ResourceLimits>& Current();

  // Throws OutOfMemory, and takes nothing then, when the bytes in use would pass the limit. `what`
  // says what they are for, and is only called then. Thread-safe, as Give is.
  template <class What>
  void Take(uint64_t bytes, What&& what) {
    const Refusal refusal = TryTake(bytes);
    if (refusal.refused) Throw(refusal, bytes, what());
  }
  void Give(uint64_t bytes) noexcept;
  uint64_t bytes_in_use() const { return in_use_; }

  // Throws kDeadlineExceeded or kCancelled when the work must stop. `where` makes the words after
  // "passed its time limit of 2 s", and is only called then.
  template <class Where>
  void CheckTime(Where&& where) const {
    const Stop stop = FindStop();
    if (stop.kind != Stop::kNone) Throw(stop, where());
  }

  // For how many seconds these limits, or a ScopedRun inside of them, have been past their time:
  // for a thread that watches, since an op that takes hours is not asked. Thread-safe.
  double SecondsOverdue() const;

 private:
  friend class ScopedRun;
  void StartRun();
  void EndRun();

  struct Refusal {
    bool refused = false;
    uint64_t in_use = 0, limit = 0;
  };
  Refusal TryTake(uint64_t bytes);
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
  std::atomic<double> run_deadline_{0};  // of the ScopedRun that began last; 0: none goes on
  std::atomic<uint64_t> in_use_{0};
};

// Puts limits on what this thread does while it lives.
class ScopedLimits {
 public:
  explicit ScopedLimits(std::shared_ptr<ResourceLimits> limits);
  ~ScopedLimits();
  ScopedLimits(const ScopedLimits&) = delete;
  ScopedLimits& operator=(const ScopedLimits&) = delete;

 private:
  std::shared_ptr<ResourceLimits> before_;
};

// One run of a program, under limits of its own, whose clock starts.
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

// CheckTime of the present limits, if any: "... while `doing`".
void CheckTimeLimit(const char* doing);

// 80% of the memory of the machine, or of the control group that the process is in.
uint64_t DefaultMemoryLimit();

// ParallelFor: the one way in which Coracle's loops use several threads. They are those of a pool
// of its own, which makes way for other programs; oneDNN is called for parts of the work.

// Threads that a ParallelFor may use. Until set: OMP_NUM_THREADS, or as many as there are cores and
// the process's CPU quota allows. Process-wide.
int NumThreads();
void SetNumThreads(int n);

namespace internal {
void ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                      void* context);
}

// Calls body(begin, end) on ranges of about equal size that cover [0, n), at most n / grain of
// them (rounded up) and one for each thread. The split depends only on n, grain and NumThreads().
// Nested calls run serially. An exception thrown by body is rethrown here (one of them, when
// several are). Allocates nothing.
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
