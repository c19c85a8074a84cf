#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/internal/thread_count.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace coracle::internal {
int DefaultThreads() {
  int threads = std::min(omp_get_max_threads(), omp_get_thread_limit());
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (wanted && *wanted) return std::max(threads, 1);
  // With OMP_PROC_BIND the runtime has bound this thread, not the process, to one place.
  cpu_set_t allowed;
  if (omp_get_proc_bind() == omp_proc_bind_false && !sched_getaffinity(0, sizeof allowed, &allowed))
    threads = std::min(threads, CPU_COUNT(&allowed));
  const double quota = CpuQuota();
  if (quota > 0 && quota < threads) threads = static_cast<int>(quota);
  return std::max(threads, 1);
}

}  // namespace coracle::internal
