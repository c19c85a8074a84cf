#pragma once
// How many threads loops use when nobody says so.

namespace coracle::internal {

// OMP_NUM_THREADS if it is set; else one for each processor that the thread may run on, but not
// more than CpuQuota() keeps busy all the time. OMP_THREAD_LIMIT holds in either case. At least 1.
int DefaultThreads();

}  // namespace coracle::internal
