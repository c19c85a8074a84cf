#include <coracle/framework/base/internal/thread_count.h>
#include <coracle/framework/base/internal/thread_pool.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/subnormals.h>
#include <coracle/framework/base/trace.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace coracle {
namespace {

std::atomic<int> num_threads{0};  // 0: not determined yet
thread_local bool in_loop = false;

// A loop as its parts see it. Keeps the first exception, which must not leave its thread. Memory
// that parts allocate counts against the limits of the calling thread.
struct ParallelLoop {
  void (*body)(void*, int64_t, int64_t);
  void* context;
  int64_t n;
  int parts;
  const std::shared_ptr<ResourceLimits>& limits;
  const bool* caller;     // in_loop of the calling thread
  Trace::LabelId traced;  // the op that runs the loop; kNoLabel: no trace
  bool flushes_subnormals;
  std::mutex mutex;
  std::exception_ptr error;

  static void RunPart(void* self, int i) {
    auto& loop = *static_cast<ParallelLoop*>(self);
    const bool before = std::exchange(in_loop, true);
    const ScopedLimits scoped(loop.limits);
    const ScopedSubnormals subnormals(loop.flushes_subnormals);
    std::optional<TraceSpan> span;
    if (loop.traced != Trace::kNoLabel && loop.caller != &in_loop) {
      if (Trace* trace = Trace::Current()) span.emplace(*trace, loop.traced, true);
    }
    try {
      loop.body(loop.context, loop.n * i / loop.parts, loop.n * (i + 1) / loop.parts);
    } catch (...) {
      std::lock_guard<std::mutex> lock(loop.mutex);
      if (!loop.error) loop.error = std::current_exception();
    }
    in_loop = before;
  }
};

}  // namespace

int NumThreads() {
  const int n = num_threads.load(std::memory_order_relaxed);
  if (n > 0) return n;
  int unknown = 0;
  num_threads.compare_exchange_strong(unknown,
                                      std::min(internal::DefaultThreads(), internal::kMaxThreads));
  return num_threads.load();
}

void SetNumThreads(int n) { num_threads = std::clamp(n, 1, internal::kMaxThreads); }

void internal::ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                                void* context) {
  // A caller inside an OpenMP parallel region of the program already uses only its share of
  // the processors.
  const int threads = in_loop || omp_in_parallel() ? 1 : NumThreads();
  const auto parts = static_cast<int>(std::min<int64_t>(threads, (n + grain - 1) / grain));
  if (parts <= 1) return body(context, 0, n);
  const std::shared_ptr<ResourceLimits> limits = ResourceLimits::Current();
  ParallelLoop loop{
      body, context, n, parts, limits, &in_loop, detail::LabelHere(), FlushesSubnormals(), {}, {}};
  RunParts(threads, parts, ParallelLoop::RunPart, &loop);
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace coracle
