#pragma once
// What can be told of a job before its first step, beside what building its programs tells.
//

#include <coracle/train/job/job.h>
#include <coracle/train/run/programs.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// Throws Error, with the place in the job, for what would fail later or mean nothing: a deployed
// output that needs more than the deployed inputs, a bind to what is no input, metrics whose
// variables do not fit, a no_decay that matches no parameter. Returns a line for each thing that
// can have no effect: schedules beyond the end of the run, clips that never act, an early_stop that
// has too few evaluations.
std::vector<std::string> ValidateJob(const JobConfig& config, const Programs& programs,
                                     int64_t total_steps, int64_t steps_per_epoch);

// Bytes of one snapshot of the program: its persistable variables.
uint64_t SnapshotBytes(const ProgramDesc& program);
// The line to tell where `free` bytes of the disk hold a snapshot but not all that the job keeps,
// "" where they do. Throws kIo where they hold none.
std::string CheckDiskSpace(const JobConfig& config, uint64_t snapshot_bytes, uint64_t free,
                           int64_t total_steps);
// The bytes that are free for this user where `directory` lies; nullopt where nobody knows.
std::optional<uint64_t> FreeBytes(const std::string& directory);

}  // namespace coracle
