#pragma once
// How many processors the process may use, and the default number of threads for loops.

namespace coracle::inline internal {

// The number of processors that the process may run on, but at most as many as CpuQuota() can keep
// fully busy. At least 1.
int AllowedCores();
// The number of processors for threads that this thread starts, which inherit its affinity. If
// OpenMP has bound this thread (OMP_PROC_BIND), only the processors of one place count.
int CoresOfNewThreads();

// OMP_NUM_THREADS if it is set, else AllowedCores(); in either case at most OMP_THREAD_LIMIT. At
// least 1.
int DefaultThreads();

}  // namespace coracle::inline internal
