#include <coracle/framework/base/parallel.h>

#include <algorithm>
#include <exception>
#include <mutex>

#ifdef CORACLE_STD_THREADS
#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace coracle {
namespace {

// Keeps the first exception of a parallel region, which must not leave its thread.
class FirstException {
 public:
  template <class F>
  void Guard(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void Rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

#ifdef CORACLE_STD_THREADS

namespace {
std::atomic<int> num_threads{0};
thread_local bool in_parallel = false;
}  // namespace

int NumThreads() {
  if (int n = num_threads.load()) return n;
  const char* text = std::getenv("CORACLE_NUM_THREADS");
  int n = text ? std::atoi(text) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, n);
}

void SetNumThreads(int n) { num_threads = std::max(1, n); }

void internal::ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                                void* context) {
  int64_t parts = std::min<int64_t>(in_parallel ? 1 : NumThreads(), (n + grain - 1) / grain);
  if (parts <= 1) return body(context, 0, n);
  FirstException error;
  auto run = [&](int64_t i) {
    in_parallel = true;
    error.Guard([&] { body(context, n * i / parts, n * (i + 1) / parts); });
    in_parallel = false;
  };
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < parts; ++i) threads.emplace_back(run, i);
  run(0);
  for (std::thread& t : threads) t.join();
  error.Rethrow();
}

#else

int NumThreads() { return omp_get_max_threads(); }

void SetNumThreads(int n) { omp_set_num_threads(std::max(1, n)); }

void internal::ParallelForRange(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t),
                                void* context) {
  int64_t parts =
      std::min<int64_t>(omp_in_parallel() ? 1 : omp_get_max_threads(), (n + grain - 1) / grain);
  if (parts <= 1) return body(context, 0, n);
  FirstException error;
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (int64_t i = 0; i < parts; ++i) {
    error.Guard([&] { body(context, n * i / parts, n * (i + 1) / parts); });
  }
  error.Rethrow();
}

#endif

}  // namespace coracle
