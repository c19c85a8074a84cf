#pragma once
// Checks of a job before its first step, in addition to those made while its programs are built.

#include <coracle/train/job/job.h>
#include <coracle/train/run/programs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Throws Error with the place in the job for settings that would fail later or have no meaning: a
// deployed output that needs more than the deployed inputs, a bind to a variable that is not an
// input, metrics whose variables do not fit, or a no_decay that matches no parameter. Returns a
// line for each setting that can have no effect: schedules beyond the end of the run, clips that
// never act, or an early_stop with too few evaluations.
std::vector<std::string> ValidateJob(const JobConfig& config, const Programs& programs,
                                     int64_t total_steps, int64_t steps_per_epoch);

// The size in bytes of one snapshot of the program: its persistable variables.
uint64_t SnapshotBytes(const ProgramDesc& program);
// Returns a warning if `free` bytes of the disk can hold a snapshot but not all snapshots that the
// job keeps, else "". Throws kIo if they cannot hold one.
std::string CheckDiskSpace(const JobConfig& config, uint64_t snapshot_bytes, uint64_t free,
                           int64_t total_steps);
// The number of bytes free for this user on the disk of `directory`; nullopt if unknown.
std::optional<uint64_t> FreeBytes(const std::string& directory);

}  // namespace coracle::inline internal
