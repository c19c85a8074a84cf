#include <coracle/framework/base/internal/control_group.h>
#include <coracle/framework/base/internal/thread_count.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace coracle::inline internal {
namespace {

int WithinQuota(int cores) {
  const double quota = CpuQuota();
  if (quota > 0 && quota < cores) cores = static_cast<int>(quota);
  return std::max(cores, 1);
}

}  // namespace

// With OMP_PROC_BIND the OpenMP runtime has bound this thread, though not the process, to one
// place. The runtime still knows the original number of processors.
int AllowedCores() {
  if (omp_get_proc_bind() == omp_proc_bind_false) return CoresOfNewThreads();
  return WithinQuota(omp_get_num_procs());
}

int CoresOfNewThreads() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return WithinQuota(CPU_COUNT(&allowed));
  return WithinQuota(omp_get_num_procs());
}

int DefaultThreads() {
  int threads = std::min(omp_get_max_threads(), omp_get_thread_limit());
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (!wanted || !*wanted) threads = std::min(threads, AllowedCores());
  return std::max(threads, 1);
}

}  // namespace coracle::inline internal
