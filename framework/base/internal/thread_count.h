#pragma once
// How many processors the process may use, and how many threads loops use when nobody says so.

namespace coracle::internal {

// The processors that the process may run on, but not more than CpuQuota() keeps busy all the time.
// At least 1.
int AllowedCores();
// Of these, the ones for threads that this one starts, which inherit its affinity: with
// OMP_PROC_BIND, where OpenMP has bound this thread, those of one place.
int CoresOfNewThreads();

// OMP_NUM_THREADS if it is set; else one for each of AllowedCores(). OMP_THREAD_LIMIT holds in
// either case. At least 1.
int DefaultThreads();

}  // namespace coracle::internal
