#pragma once
// How many threads loops use when nobody says so.

#include <string>

namespace coracle::internal {

// Processors' worth of time that the process's control group and those above it grant (cgroup
// version 2: cpu.max, version 1: cpu.cfs_quota_us); 0 when there is no limit. `root` is put before
// the paths that are read: /proc/self/mountinfo, /proc/self/cgroup, and the groups' files.
double CpuQuota(const std::string& root = "");

// OMP_NUM_THREADS if it is set; else one for each processor that the thread may run on, but not
// more than the quota keeps busy all the time. OMP_THREAD_LIMIT holds in either case. At least 1.
int DefaultThreads();

}  // namespace coracle::internal
