#pragma once
// The limits of the process's control group and its ancestors, in either version of cgroups.
// `root` is put before the paths that are read: /proc/self/mountinfo, /proc/self/cgroup, and the
// groups' files.

#include <string>

namespace coracle::inline internal {

// Processor time in processors (version 2: cpu.max, version 1: cpu.cfs_quota_us); 0 if unlimited.
double CpuQuota(const std::string& root = "");

// Bytes of memory (version 2: memory.max, version 1: memory.limit_in_bytes); 0 if unlimited.
double MemoryQuota(const std::string& root = "");

}  // namespace coracle::inline internal
